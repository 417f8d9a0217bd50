"""Pipelines and people share a document: who owns a field is seen, and not taken unknowingly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
T = "tables/t"
MARKS = """return [...document.querySelectorAll(".body [role=treeitem]")].flatMap((item) =>
    [...item.querySelectorAll(":scope > .leaf > .owner")].map((owner) =>
      `${item.pointer} ${owner.classList[1]} ${owner.lastChild.textContent}`))"""


@pytest.fixture
def shared(writer: Writer) -> Writer:
    """The nightly job has columns and tier; a person has the comment, nobody the note."""
    writer.put(T, {"comment": "", "note": "free"})
    writer.apply(T, {"columns": ["id"], "tier": 1, "comment": "to do"}, "nightly")
    writer.replace(T, "/comment", "by ann", message="by a person")
    writer.apply(T, {"tier": 1}, "audit")
    return writer


def test_the_owners_of_fields_are_shown_with_pipelines_and_people_apart(
    browser: Browser, shared: Writer, screenshot: Screenshot
) -> None:
    browser.open(shared.catalog, T)
    browser.wait_text(".tree", "nightly")
    assert sorted(browser.run(MARKS)) == [
        "/columns pipeline nightly",
        "/comment person anonymous",
        "/tier pipeline audit",
        "/tier pipeline nightly",
    ]
    assert "nightly" in browser.text(".facts")
    screenshot(browser, "owners-light")
    assert violations(browser) == []
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "owners-dark")
    browser.screen(PHONE)
    screenshot(browser, "owners-phone")

    # As it was, with who had it then.
    browser.open(shared.catalog, T, "history&revision=2")
    browser.wait_text(".comparison", "to now")
    assert "/comment pipeline nightly" in browser.run(MARKS)
    assert not any("audit" in mark for mark in browser.run(MARKS))


def test_an_edit_sent_at_once_asks_before_a_takeover(browser: Browser, shared: Writer) -> None:
    """Before what will be sent was drawn, as by Ctrl+Enter after the last key."""
    browser.open(shared.catalog, T, "edit")
    browser.wait_editor()
    browser.run(
        """const source = document.querySelector(".source");
        source.jsonText.value = source.jsonText.value.replace('"tier": 1', '"tier": 2');
        source.jsonText.typed();
        source.closest("form").requestSubmit();"""
    )
    browser.wait_text(".outgoing", "Nothing was sent")
    assert shared.read(T)["tier"] == 1


def test_editing_a_pipelines_field_asks_for_a_takeover_first(
    browser: Browser, shared: Writer, screenshot: Screenshot
) -> None:
    before = shared.owners(T)
    browser.open(shared.catalog, T, "edit")
    browser.edit(('"tier": 1', '"tier": 2'), ('["id"]', '["id", "name"]'), ('"free"', '"mine"'))
    browser.wait_text(".takeover", "nightly, audit", "2 places", "/tier", "/columns")
    assert "/note" not in browser.text(".takeover")
    screenshot(browser, "takeover")
    assert violations(browser) == []
    browser.press("Send")
    browser.wait_text(".outgoing", "Nothing was sent")
    browser.wait(lambda: browser.focused() == "Take over: it becomes mine")
    assert shared.owners(T) == before

    # Left as it is: what is the person's own goes on.
    browser.press("Leave as it is")
    browser.wait_text(".outgoing", "/note")
    assert browser.find(".takeover") is None
    assert '"mine"' in browser.source
    assert '"name"' not in browser.source
    browser.press("Send")
    browser.applied(5)
    assert shared.read(T) == {"comment": "by ann", "note": "mine", "columns": ["id"], "tier": 1}
    assert shared.owners(T) == before

    # Taken over: the field is the person's; the pipeline's next run is told.
    browser.press("Edit")
    browser.edit(('"tier": 1', '"tier": 3'))
    browser.choose(".takeover input")
    browser.press("Send")
    browser.applied(6)
    assert shared.owners(T) == {**before, "/tier": ["anonymous*"]}
    with pytest.raises(AssertionError, match="owned_by_others"):
        shared.apply(T, {"tier": 1, "columns": ["id"]}, "nightly")

    # Going back to before a pipeline is a taking over, too.
    browser.run("location.hash = location.hash.replace(/\\?.*/, '') + '?tab=history&revision=1'")
    browser.press("Restore this")
    browser.wait_text("dialog", "takes over what nightly owns", "/columns")
    browser.press("Cancel", within="dialog")

    # What nobody's pipeline owns is nobody's business.
    browser.press("Edit")
    browser.edit(('"by ann"', '"by me"'), ('"tier": 3', '"tier": 4'))
    browser.wait_text(".outgoing", "/tier")
    assert browser.find(".takeover") is None
    browser.press("Send")
    browser.applied(7)


def test_a_pipelines_field_can_be_taken_over_and_given_back_in_place(
    browser: Browser, shared: Writer, screenshot: Screenshot
) -> None:
    before = shared.owners(T)
    browser.open(shared.catalog, T)
    browser.at_field("/tier", "Take over")
    browser.wait_text("dialog", "nightly", "audit", "You can give it back at any time")
    assert violations(browser) == []
    screenshot(browser, "take-over")
    browser.press("Leave it", within="dialog")
    browser.at_field("/tier", "Take over")
    browser.press("Change it", within="dialog")
    browser.wait(lambda: browser.focused() == "tier")
    browser.fill_in("2")
    # It was said already.
    browser.wait(lambda: browser.find(".takeover input:checked"))
    browser.press("Save")
    browser.wait_text("main", "Applied, as revision 5.")
    assert shared.owners(T) == {**before, "/tier": ["anonymous*"]}

    # What is edited without a word about it is asked about.
    browser.edit_field("/columns/0")
    browser.fill_in("key")
    browser.press("Save")
    browser.wait_text(".unsaved", "Nothing was sent", "nightly owns 1 place")
    browser.press("Leave as it is")
    browser.wait(lambda: not browser.shown(".unsaved"))

    # Given back, it is as it is, and the pipeline has it again with its next run.
    assert "Give back" in browser.text(".tree")
    browser.at_field("", "Add")
    browser.fill_in("half")
    browser.at_field("/tier", "Give back")
    browser.wait_text(".inline", "Finish this first, or cancel it.")  # it would be gone
    browser.press("Cancel", within=".inline")
    browser.at_field("/tier", "Give back")
    browser.wait_text("dialog", "You took it over")
    assert violations(browser) == []
    screenshot(browser, "give-back")
    browser.labelled("Message").send_keys("it is right now")
    browser.press("Give back", within="dialog")
    browser.wait_text("main", "Given back, as revision 6.")
    assert shared.read(T)["tier"] == 2
    assert "/tier" not in shared.owners(T)
    assert shared.commits()[-1]["message"] == "it is right now"
    shared.apply(T, {"columns": ["id"], "tier": 3}, "nightly")
    assert shared.owners(T)["/tier"] == ["nightly"]


def test_the_owners_of_items_with_keys_are_shown_beside_them(
    browser: Browser, writer: Writer
) -> None:
    writer.set_settings({"arrays": [{"keys": "*", "pointer": "/columns", "item_key": ["name"]}]})
    writer.apply(T, {"columns": [{"name": "id", "type": "int"}]}, "nightly")
    writer.patch(T, {"op": "add", "path": "/columns/0", "value": {"name": "a", "type": "text"}})
    browser.open(writer.catalog, T)
    browser.at_field("/columns/1/type", "Take over")
    browser.press("Change it", within="dialog")
    browser.wait(lambda: browser.focused() == "type")
    browser.fill_in("bigint")
    browser.press("Save")
    browser.wait_text("main", "Applied, as revision 4.")
    assert writer.owners(T)["/columns/id/type"] == ["anonymous*"]
    browser.at_field("/columns/1/type", "Give back")
    browser.press("Give back", within="dialog")
    browser.wait_text("main", "Given back, as revision 5.")

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


def test_owners_stand_beside_their_fields_pipelines_and_people_apart(
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


def test_an_edit_that_is_sent_at_once_is_asked_about_too(browser: Browser, shared: Writer) -> None:
    """Before what will be sent was drawn, as by Ctrl+Enter after the last key."""
    browser.open(shared.catalog, T, "edit")
    browser.wait(lambda: browser.find("textarea.source"))
    browser.run(
        """const area = document.querySelector("textarea.source");
        area.value = area.value.replace('"tier": 1', '"tier": 2');
        area.dispatchEvent(new Event("input", {bubbles: true}));
        area.form.requestSubmit();"""
    )
    browser.wait_text(".outgoing", "Nothing was sent")
    assert shared.read(T)["tier"] == 1


def test_who_edits_a_pipelines_field_says_first_whether_to_take_it_over(
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
    assert browser.focused() == "Take over: it becomes mine"
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

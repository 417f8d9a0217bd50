"""A value is edited where it stands in the document: without JSON, by the smallest patch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
T = "tables/t"
TABLE: dict[str, Any] = {
    "name": "t",
    "comment": "",
    "about": "all of it, " * 30,
    "rows": 2**53 + 1,
    "live": True,
    "since": "2024-02-29",
    "read_at": "2026-01-02T03:04:05+02:00",
    "tier": "gold",
    "none": None,
    "tags": ["pii", "eu"],
    "columns": [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal"}],
}
SCHEMA = {
    "properties": {
        "comment": {
            "title": "What it is for",
            "description": "One sentence, for people.",
            "maxLength": 30,
        },
        "tier": {"enum": ["gold", "silver", None]},
        "owner": {"title": "Who answers for it", "type": "string"},
        "columns": {"items": {"properties": {"type": {"enum": ["bigint", "decimal", "text"]}}}},
    }
}


@pytest.fixture
def table(writer: Writer) -> Writer:
    """The list of columns has keys, that of tags hasn't."""
    writer.set_settings(
        {
            "schemas": {"tables/*": SCHEMA},
            "arrays": [{"keys": "tables/*", "pointer": "/columns", "item_key": ["name"]}],
        }
    )
    writer.put(T, TABLE)
    return writer


def sent(browser: Browser) -> list[dict[str, Any]]:
    """The operations of the last patch that the page sent."""
    body: Any = browser.sent_bodies()[-1]
    operations: list[dict[str, Any]] = body["patch"] if isinstance(body, dict) else body
    return operations


def saved(browser: Browser, revision: int) -> None:
    browser.press("Save")
    browser.wait_text("main", f"Applied, as revision {revision}.")


def test_each_kind_of_value_is_edited_in_a_control_of_its_kind(
    browser: Browser, table: Writer
) -> None:
    browser.open(table.catalog, T)
    for name, control, typed in [
        ("comment", "INPUT text", "orders of a day"),
        ("about", "TEXTAREA textarea", "short\nof two lines"),
        ("rows", "INPUT text", "9007199254740995"),
        ("live", "SELECT select-one", "no"),
        ("tier", "SELECT select-one", "nothing"),
        ("since", "INPUT date", "2026-12-24"),
        ("read_at", "INPUT datetime-local", "2026-12-24T18:00"),
    ]:
        browser.edit_field(f"/{name}")
        place = browser.driver.switch_to.active_element
        kind = f"{place.tag_name.upper()} {place.get_property('type')}"
        assert (kind, browser.focused()) == (control, name)
        browser.fill_in(typed)
        browser.press("Done")
        browser.wait_text(".unsaved", f"/{name}")
    saved(browser, 3)
    assert table.read(T) == TABLE | {
        "comment": "orders of a day",
        "about": "short\nof two lines",
        "rows": 2**53 + 3,
        "live": False,
        "tier": None,
        "since": "2026-12-24",
        "read_at": "2026-12-24T18:00:00+02:00",
    }


def test_editing_a_text_keeps_its_invisible_characters_and_line_ends(
    browser: Browser, table: Writer
) -> None:
    """What can't be seen, and how its lines end, where somebody types elsewhere in it."""
    texts = {
        "unseen": "of two lines\nwith a \u200b, a \xad and a \u202e",
        "long": "x" * 100 + "\ufeff\x01",
        "windows": "as Windows\r\nends lines\r\n",
        "old": "as old\rmachines did",
        "short": "tab\tand \u202e",
    }
    table.put(T, texts | {"mixed": "a\r\nb\nc"})
    browser.open(table.catalog, T)
    for name in texts:
        browser.edit_field(f"/{name}")
        browser.run(
            """const place = document.activeElement;
            place.value += "!";
            place.dispatchEvent(new Event("input", {bubbles: true}));"""
        )
        browser.press("Done")
        browser.wait_text(".unsaved", f"/{name}")
    browser.edit_field("/mixed")
    browser.wait_text("form.inline", "Edit as JSON")
    assert browser.run("return document.activeElement.readOnly")
    browser.press("Cancel")
    saved(browser, 4)
    assert table.read(T) == {name: f"{text}!" for name, text in texts.items()} | {
        "mixed": "a\r\nb\nc"
    }


def test_items_of_a_list_with_keys_are_sent_by_key_and_others_by_index_with_a_test(
    browser: Browser, table: Writer
) -> None:
    browser.open(table.catalog, T)
    # Meanwhile others move them: the key still says which is meant.
    browser.at_field("/columns/1", "Remove")
    browser.at_field("/columns", "Add")
    browser.fill_in("region")
    browser.press("Add", within=".inline")
    browser.wait_text(".tree", "region")
    browser.at_field("/columns/1", "Add")
    browser.fill_in("type")
    browser.wait(lambda: browser.find(".inline select"))
    browser.press("Add", within=".inline")
    browser.wait_text(".unsaved", "/columns/1")
    saved(browser, 3)
    assert sent(browser) == [
        {"op": "test", "path": "/columns/total", "value": {"name": "total", "type": "decimal"}},
        {"op": "undefined", "path": "/columns/region"},
        {"op": "remove", "path": "/columns/total"},
        {"op": "add", "path": "/columns/region", "value": {"name": "region", "type": "bigint"}},
    ]
    assert table.read(T)["columns"] == [TABLE["columns"][0], {"name": "region", "type": "bigint"}]

    # Another order has no address by key.
    browser.at_field("/columns/1", "Up")
    saved(browser, 4)
    assert [each["name"] for each in table.read(T)["columns"]] == ["region", "id"]

    browser.at_field("/tags/1", "Up")
    browser.at_field("/tags", "Add")
    browser.fill_in("new")
    browser.press("Add", within=".inline")
    # What an index names is tested in any case.
    browser.choose(".unsaved input[type=checkbox]")
    saved(browser, 5)
    assert sent(browser) == [
        {"op": "test", "path": "/tags/0", "value": "pii"},
        {"op": "remove", "path": "/tags/0"},
        {"op": "add", "path": "/tags/1", "value": "pii"},
        {"op": "add", "path": "/tags/-", "value": "new"},
    ]
    assert table.read(T)["tags"] == ["eu", "pii", "new"]


def test_members_are_added_and_removed_by_the_smallest_patch(
    browser: Browser, table: Writer
) -> None:
    browser.open(table.catalog, T)
    browser.at_field("", "Add")
    browser.fill_in("owner")
    names = browser.run(
        "return [...document.querySelectorAll('datalist option')].map((o) => [o.value, o.text])"
    )
    assert names == [["owner", "Who answers for it"]], "those of the schema that aren't there"
    browser.tab_to("Value")
    browser.fill_in("ann")
    browser.press("Add", within=".inline")
    browser.wait_text(".tree", "Who answers for it")
    browser.at_field("/none", "Remove")
    browser.choose(".unsaved input[type=checkbox]")
    table.replace(T, "/name", "other")
    browser.wait_text(".note.stale", "/name")
    saved(browser, 4)
    assert sent(browser) == [
        {"op": "remove", "path": "/none"},
        {"op": "add", "path": "/owner", "value": "ann"},
    ]
    found = table.read(T)
    assert (found["owner"], found["name"], "none" in found) == ("ann", "other", False)

    # What is given up is as it was.
    browser.at_field("/owner", "Remove")
    browser.wait_text(".unsaved", "removed")
    browser.press("Discard my changes")
    browser.wait(lambda: not browser.shown(".unsaved"))
    assert "Who answers for it" in browser.text(".tree")


def test_only_if_nobody_changed_it_compares_with_the_value_that_was_seen(
    browser: Browser, table: Writer, screenshot: Screenshot
) -> None:
    """Other changes don't matter."""
    browser.open(table.catalog, T)
    browser.deafen()
    browser.edit_field("/comment")
    browser.fill_in("mine")
    browser.press("Done")
    table.replace(T, "/name", "other")
    saved(browser, 4)
    assert sent(browser) == [
        {"op": "test", "path": "/comment", "value": ""},
        {"op": "replace", "path": "/comment", "value": "mine"},
    ]

    browser.edit_field("/comment")
    browser.fill_in("mine again")
    table.replace(T, "/comment", "theirs")
    browser.press("Save")
    browser.wait_text(".note.stale", "Nothing was applied", "/comment", "you changed this too")
    assert table.read(T)["comment"] == "theirs"
    screenshot(browser, "fields-conflict")
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", '"theirs"', '"mine again"')
    browser.choose("dialog input[value=mine]")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    saved(browser, 6)
    assert table.read(T)["comment"] == "mine again"

    # Not asked for, nothing is demanded.
    browser.edit_field("/comment")
    browser.fill_in("whatever")
    browser.choose(".unsaved input[type=checkbox]")
    table.replace(T, "/comment", "theirs")
    saved(browser, 8)
    assert table.read(T)["comment"] == "whatever"


def test_a_schema_violation_is_shown_at_its_field(
    browser: Browser, table: Writer, screenshot: Screenshot
) -> None:
    browser.open(table.catalog, T)
    assert "One sentence, for people." in browser.text(".tree")
    browser.edit_field("/comment")
    browser.fill_in("far too long a comment for that schema")
    browser.press("Save")
    browser.wait_text(".unsaved", "schema_violation")
    fault = """return [...document.querySelectorAll(".tree .fault")]
        .map((each) => [each.closest("li").pointer, each.innerText])"""
    ((pointer, told),) = browser.run(fault)
    assert pointer == "/comment"
    assert "30" in told
    screenshot(browser, "fields-refused")
    assert violations(browser) == []
    assert table.read(T) == TABLE
    browser.edit_field("/comment")
    browser.fill_in("short")
    browser.press("Done")
    browser.wait(lambda: browser.run(fault) == [])
    saved(browser, 3)


def test_an_invalid_number_is_marked_and_not_saved(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.edit_field("/rows")
    browser.fill_in("12,5")
    browser.wait_text(".inline", "This isn't a number")
    browser.press("Done")
    browser.wait(lambda: browser.focused() == "rows")
    assert not browser.shown(".unsaved")
    # Nor what it said before the last letter, with what else was edited.
    browser.press("Cancel", within=".inline")
    browser.edit_field("/comment")
    browser.fill_in("a comment")
    browser.press("Done")
    browser.edit_field("/rows")
    browser.fill_in("")
    browser.keys("12,5")
    browser.wait_text(".inline", "This isn't a number")
    browser.press("Save")
    browser.wait(lambda: browser.focused() == "rows")
    assert "/rows" not in browser.text(".unsaved")
    assert table.read(T) == TABLE
    browser.press("Discard my changes")
    # Left as it was, it is as it was written.
    browser.edit_field("/rows")
    browser.press("Done")
    browser.wait(lambda: browser.find(".inline") is None)
    assert not browser.shown(".unsaved")


def test_an_open_row_is_saved_too(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.edit_field("/comment")
    browser.fill_in("a comment")
    browser.press("Done")
    browser.at_field("/tags", "Add")
    browser.press("Save")  # nothing stands there
    browser.wait_text("main", "Applied, as revision 3.")
    browser.edit_field("/comment")
    browser.fill_in("another")
    browser.press("Done")
    browser.at_field("", "Add")
    browser.fill_in("owner")
    browser.labelled("Value").send_keys("ann")
    browser.press("Catalogs")
    browser.wait_text("dialog", "Leave your edit?")
    browser.press("Stay", within="dialog")
    browser.at_field("/rows", "Edit")
    browser.wait_text(".inline", "Finish this first, or cancel it.")
    browser.wait(lambda: browser.focused() == "Name")
    saved(browser, 4)
    assert table.read(T) == TABLE | {"comment": "another", "owner": "ann"}
    # Nor is it folded away.
    browser.at_field("/tags", "Add")
    browser.fill_in("new")
    browser.run("document.querySelector('[role=treeitem]').focus()")
    browser.keys(Keys.ARROW_LEFT)
    browser.wait_text(".inline", "Finish this first, or cancel it.")
    browser.keys(Keys.ENTER)
    saved(browser, 5)
    assert table.read(T)["tags"] == [*TABLE["tags"], "new"]


def test_fields_are_edited_by_the_keyboard_alone(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.tab_to("Edit")
    browser.keys(Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait(lambda: browser.focused() == "comment")
    browser.keys("by hand", Keys.ENTER)
    browser.wait_text(".unsaved", "/comment")
    assert browser.text(".foot code") == "/comment"
    assert browser.outline()
    browser.keys(Keys.ENTER, "no", Keys.ESCAPE)
    browser.wait(lambda: browser.find(".inline") is None)
    browser.wait_text(".unsaved", "by hand")
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 3.")
    assert browser.text(".foot code") == "/comment"
    assert table.read(T)["comment"] == "by hand"

    # To another place in a list, and away.
    browser.keys(Keys.END, Keys.ARROW_LEFT)
    browser.wait(lambda: browser.text(".foot code") == "/columns")
    browser.keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert browser.text(".foot code") == "/tags/0"
    browser.chord(Keys.ALT, Keys.ARROW_DOWN)
    browser.wait(lambda: browser.text(".foot code") == "/tags/1")
    browser.keys(Keys.DELETE)
    browser.wait_text(".unsaved", "/tags/0", "removed")
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 4.")
    assert table.read(T)["tags"] == ["eu"]


def test_an_edit_can_be_viewed_as_fields_and_as_text(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.edit_field("/name")
    browser.fill_in("other")
    browser.press("Done")
    browser.press("Edit", within=".tabs")
    browser.wait_text(".outgoing", "/name")
    browser.edit(('"other"', '"another"'))
    browser.press("Tree", within=".tabs")
    browser.wait_text(".unsaved", '"another"')
    browser.press("History", within=".tabs")
    browser.wait_text("main", "against nothing")
    browser.press("Catalogs")
    browser.wait_text("dialog", "Leave your edit?")
    browser.press("Stay", within="dialog")


def test_the_fields_are_accessible(browser: Browser, table: Writer, screenshot: Screenshot) -> None:
    """By axe, in light and in dark, with a control of each kind open; and on a phone."""
    browser.open(table.catalog, T)
    browser.edit_field("/name")
    browser.fill_in("other")
    browser.press("Done")
    browser.wait_text(".unsaved", "/name")
    for pointer in ("/about", "/tier", "/read_at"):
        browser.edit_field(pointer)
        assert violations(browser) == []
        screenshot(browser, f"fields-{pointer[1:]}-light")
    browser.at_field("", "Add")
    assert violations(browser) == []
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "fields-add-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "fields-add-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.edit_field("/about")
    screenshot(browser, "fields-about-phone")

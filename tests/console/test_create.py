"""A new document without JSON: members by name and kind, as the catalog's schemas ask for them."""

from __future__ import annotations

import json
from collections.abc import Callable

from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
SCHEMA = {
    "type": "object",
    "required": ["tier", "owner"],
    "properties": {
        "tier": {"enum": ["gold", "silver"], "description": "How much depends on it."},
        "owner": {
            "type": "object",
            "required": ["team"],
            "properties": {"team": {"type": "string", "title": "The team", "minLength": 3}},
        },
        "rows": {"type": "integer", "title": "Number of rows"},
        "since": {"type": "string", "format": "date"},
    },
}


def test_a_document_is_created_with_the_form_of_its_schema(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """Required members are there, also in groups; a refusal is shown at its row."""
    writer.set_settings({"schemas": {"tables/*": SCHEMA}})
    browser.open(writer.catalog)
    browser.press("New document")
    browser.wait(lambda: browser.focused() == "Key")
    browser.keys("tables/t")
    browser.wait_text("dialog", "The team", "How much depends on it.")
    browser.tab_to("tier", 12)
    browser.keys(Keys.ARROW_DOWN)  # the second choice
    browser.tab_to("team", 12)
    browser.keys("bi")
    browser.tab_to("Add a member", 12)
    # That of the group comes first.
    browser.wait(lambda: browser.focused() == "Add a member of owner")
    browser.keys(Keys.TAB)
    browser.tab_to("Add a member", 12)
    browser.keys(Keys.ENTER)
    browser.wait(lambda: browser.focused() == "Name")
    browser.keys("rows", Keys.TAB)
    browser.tab_to("rows", 3)
    browser.keys("9007199254740993")
    assert violations(browser) == []
    screenshot(browser, "create-form-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "create-form-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.press("Create", within="dialog")
    browser.wait_text("dialog", "The catalog's schema refuses this")
    assert "bi" in browser.text(".member-row .member-row .fault")
    browser.labelled("team").send_keys("lling")
    browser.press("Create", within="dialog")
    browser.wait_text("h1", "tables/t")
    assert writer.read("tables/t") == {
        "tier": "silver",
        "owner": {"team": "billing"},
        "rows": 9007199254740993,
    }


def test_without_a_schema_a_document_is_created_member_by_member(
    browser: Browser, writer: Writer
) -> None:
    """By name and kind; a repeated name is marked; the same as JSON, there and back."""
    writer.put("k", 1)
    browser.open(writer.catalog)
    browser.press("New document")
    browser.labelled("Key").send_keys("new")
    for name, kind, value in [
        ("title", "", "Orders"),
        ("live", "yes or no", ""),
        ("title", "", "x"),
    ]:
        browser.press("Add a member", within="dialog")
        browser.keys(name, Keys.TAB)
        if kind:
            browser.select(f"Kind of {name}", kind)
        if value:
            browser.run(
                "arguments[0].focus()",
                browser.shown("dialog .member-row:last-child .control input")[0],
            )
            browser.keys(value)
    browser.press("Create", within="dialog")
    browser.wait(lambda: browser.focused() == "Name")
    assert browser.run("return document.activeElement.validationMessage") == (
        "This name is already used."
    )
    browser.press("Remove", within="dialog .member-row:last-child")
    browser.choose("dialog input[value=json]")
    assert json.loads(browser.source) == {"title": "Orders", "live": False}
    browser.write('{"title": "Orders", "live": true, "by": {"team": "a"}, "tags": [1, 2]}')
    browser.choose("dialog input[value=fields]")
    browser.wait_text("dialog", "2 items")
    browser.labelled("team").send_keys("b")
    browser.press("Create", within="dialog")
    browser.wait_text("h1", "new")
    assert writer.read("new") == {
        "title": "Orders",
        "live": True,
        "by": {"team": "ab"},
        "tags": [1, 2],
    }


def test_the_rows_follow_the_schema_of_the_key_and_keep_their_values(
    browser: Browser, writer: Writer
) -> None:
    """Untouched rows are those that the schema of the key requires now. An empty row is left out,
    but one with a value and no name isn't."""
    other = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}
    writer.set_settings({"schemas": {"tables/*": SCHEMA, "views/*": other}})
    browser.open(writer.catalog)
    browser.press("New document")
    key = browser.labelled("Key")
    key.send_keys("tables/t")
    browser.wait_text("dialog", "The team")
    browser.labelled("team").send_keys("sales")
    key.clear()
    key.send_keys("views/v")
    browser.wait(lambda: browser.shown("dialog [aria-label=title]"))
    names = """return [...document.querySelectorAll("dialog .members")][0]
        && [...document.querySelectorAll("dialog .member-rows > .members > .member-row")]
          .map((row) => row.querySelector("input").value)"""
    browser.wait(lambda: "tier" not in browser.run(names))
    assert set(browser.run(names)) >= {"owner", "title"}
    browser.labelled("title").send_keys("V")
    for _ in range(2):  # behind that of the group; and nothing is put into the first one
        browser.shown("dialog button", "Add a member")[-1].click()
    values = "dialog .members > .member-row:last-child .control input"
    browser.run("arguments[0].focus()", browser.shown(values)[-1])
    browser.keys("lost")
    browser.press("Create", within="dialog")
    assert browser.run("return document.activeElement.validationMessage") == "It needs a name."
    browser.keys("note")
    browser.press("Create", within="dialog")
    browser.wait_text("h1", "views/v")
    assert writer.read("views/v") == {"owner": {"team": "sales"}, "title": "V", "note": "lost"}


def test_a_member_can_be_renamed(browser: Browser, writer: Writer) -> None:
    """By a move with a test of the value that was seen. It replaces no other member."""
    writer.put("t", {"nmae": {"long": True}, "rows": 1})
    browser.open(writer.catalog, "t")
    browser.at_field("/nmae", "Rename")
    browser.wait(lambda: browser.focused() == "Name")
    browser.keys("rows", Keys.ENTER)
    assert browser.run("return document.activeElement.validationMessage") == (
        "This name is already used."
    )
    browser.chord(Keys.CONTROL, "a")
    browser.keys("name", Keys.ENTER)
    browser.wait_text(".unsaved", "1 place renamed", "/nmae", "/name")
    assert violations(browser) == []
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 2.")
    assert writer.read("t") == {"name": {"long": True}, "rows": 1}
    assert browser.sent_bodies()[-1] == {
        "patch": [
            {"op": "test", "path": "/nmae", "value": {"long": True}},
            {"op": "undefined", "path": "/name"},
            {"op": "move", "from": "/nmae", "path": "/name"},
        ]
    }
    # The value that was there is demanded even by who demands nothing.
    made = browser.logic(
        """const [base, mine] = a.map(m.parse);
        return m.stringify(m.fieldPatch(base, mine, [], false).body)""",
        '{"a": 1, "b": [{"x": 2}]}',
        '{"c": 1, "b": [{"y": 2}]}',
    )
    assert '{"op":"test","path":"/a","value":1}' in made
    assert '{"op":"move","from":"/a","path":"/c"}' in made


def test_filled_in_values_are_discarded_only_after_a_confirmation(
    browser: Browser, writer: Writer
) -> None:
    """Neither by a key, nor by going back."""
    writer.put("there", 1)
    browser.open()
    browser.go(writer.catalog)
    browser.press("New document")
    browser.keys(Keys.ESCAPE)  # nothing is there to be lost
    browser.wait(lambda: not browser.find("dialog"))
    browser.press("New document")
    browser.keys("tables/t")
    browser.keys(Keys.ESCAPE)
    browser.wait(lambda: browser.find("dialog + dialog"))
    browser.keys(Keys.ESCAPE)  # stay
    browser.wait(lambda: not browser.find("dialog + dialog"))
    for leave in (lambda: browser.keys(Keys.ESCAPE), browser.driver.back):
        leave()
        browser.wait_text("dialog + dialog", "You haven't sent what you filled in.")
        browser.press("Stay", within="dialog + dialog")
        browser.wait(lambda: not browser.find("dialog + dialog"))
        assert browser.labelled("Key").get_property("value") == "tables/t"
        assert writer.catalog in browser.run("return location.hash")
    browser.run("location.hash = '#/'")
    browser.press("Discard it", within="dialog + dialog")
    browser.wait(lambda: not browser.find("dialog"))
    browser.wait_text("h1", "Catalogs")

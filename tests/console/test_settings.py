"""A catalog's settings in the console: shown, edited, refused at the places of what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import DESK, PHONE, Browser
from tests.console.writer import Writer


def test_settings_can_be_edited_and_refusals_are_shown_at_their_place(
    browser: Browser, writer: Writer
) -> None:
    writer.put("tables/t", {"name": 1, "rows": [{"n": 1}, {"n": "x"}]})
    browser.open(writer.catalog)
    browser.press("Settings")
    browser.wait_text("h1", "Settings of", writer.catalog)
    browser.labelled("Settings, as JSON")
    assert browser.source == ""

    browser.write('{"schemas": {"tables/*": {"type": "objec"}},\n "nonsense": 1}')
    browser.press("Send")
    browser.wait_text(".outgoing", "invalid_settings", "/nonsense")
    browser.press("Go there")
    assert browser.selected("1}")
    browser.edit((',\n "nonsense": 1', ""))
    browser.wait(lambda: "invalid_settings" not in browser.text(".outgoing"))
    browser.press("Send")
    browser.wait_text(".outgoing", "/schemas/tables~1*/type")
    browser.press("Go there")
    assert browser.selected('"objec"')
    browser.edit(
        ('"objec"', '"object", "properties": {"name": {"type": "string"}, "rows": {"items": ROW}}'),
        ("ROW", '{"properties": {"n": {"type": "integer"}}}'),
    )
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 2.")

    # While they are edited somebody else sets them, too.
    browser.edit(('"schemas"', '"require_precondition": true, "schemas"'))
    writer.set_schema({"type": "object", "required": ["name"]})
    browser.wait_text(".note.stale", "anonymous changed the settings while you were editing")
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", "None of your 1 change", "/require_precondition")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    assert '"required": ["name"]' in browser.source
    browser.edit(
        ('"required"', '"properties": {"rows": {"items": {"maxProperties": 0}}}, "required"')
    )
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 4.")

    # What they demand of a document is told at its places.
    browser.open(writer.catalog, "tables/t", "edit")
    browser.edit(('"name": 1', '"name": 2'))
    browser.press("Send")
    browser.wait_text(".outgoing", "schema_violation", "/rows/0", "/rows/1")
    browser.run("document.querySelector('[aria-label=\"Go to rows › 2\"]').click()")
    assert browser.selected('{"n": "x"}')


def test_settings_are_updated_live_unless_they_are_being_edited(
    browser: Browser, writer: Writer
) -> None:
    """The open page says that they changed, and that there are some now."""
    writer.put("k", 1)
    browser.open(writer.catalog, None, "settings")
    writer.set_schema({"type": "integer"})
    browser.wait_text(".note.stale", "anonymous made the settings since you opened it")
    browser.press("Reload")
    browser.wait(lambda: '"integer"' in browser.source)
    # An edit isn't left by accident.
    browser.edit(('"integer"', '"string"'))
    browser.press("Catalogs")
    browser.wait_text("dialog", "Leave your edit?")
    browser.press("Discard my edit", within="dialog")
    browser.wait_text("h1", "Catalogs")


def test_adding_a_rule_replaces_no_other(browser: Browser, writer: Writer) -> None:
    """Not even one that is for the same documents."""
    writer.set_settings({"schemas": {"*": {"required": ["owner"]}}})
    browser.open(writer.catalog, None, "settings")
    browser.press("Add a rule …")
    browser.labelled("must have the members").send_keys("tier")
    browser.press("Add", within="details[open] form")
    pattern = browser.labelled("Documents whose key is like")
    assert "There is a rule" in pattern.get_property("validationMessage")
    browser.wait_text(".settings-parts", "must have owner")
    pattern.send_keys("tables/")
    browser.labelled("Days").send_keys("30", Keys.TAB)
    browser.wait(lambda: '"age_seconds": 2592000' in browser.source)
    for wrong in ("0", "1e"):  # which isn't the same as nothing
        browser.labelled("Days").send_keys(Keys.CONTROL + "a")
        browser.labelled("Days").send_keys(wrong, Keys.TAB)
        assert browser.labelled("Days").get_property("validationMessage")
    browser.press("Add", within="details[open] form")  # what was filled in is there
    browser.wait_text(".settings-parts", "must have owner", "must have tier")
    assert '"age_seconds": 2592000' in browser.source


def test_half_filled_in_rows_are_discarded_with_the_edit(browser: Browser, writer: Writer) -> None:
    """Whether the edit is discarded, or replaced by the settings of others."""
    writer.set_settings({"retention": {"age_seconds": 86400}})
    browser.open(writer.catalog, None, "settings")

    def half_fill() -> None:
        """Enter an invalid number of days, and edit something else."""
        browser.choose(".settings-parts input[type=checkbox]")
        browser.wait(lambda: "require_precondition" in browser.source)
        browser.labelled("Days").send_keys(Keys.CONTROL + "a")
        browser.labelled("Days").send_keys("-3", Keys.TAB)
        assert browser.labelled("Days").get_property("validationMessage")

    half_fill()
    browser.press("Discard my edit")
    browser.wait(lambda: browser.labelled("Days").get_property("value") == "1")
    half_fill()
    writer.set_settings({"retention": {"age_seconds": 86400}, "schemas": {"*": True}})
    browser.wait_text(".note.stale", "while you were editing")
    browser.press("Discard my edit and reload")
    browser.wait_text("main", "Reloaded")
    assert browser.labelled("Days").get_property("value") == "1"


def test_settings_can_be_made_with_a_form_and_tried_first(
    browser: Browser, writer: Writer, screenshot: Callable[[Browser, str], None]
) -> None:
    """Without JSON: a schema, a list with keys, retention; a dry run names what would break."""
    writer.put("tables/t", {"columns": [{"name": "id"}, {"name": "id"}]})
    writer.put("tables/u", {"columns": [{"name": "id"}], "tier": "gold"})
    browser.open(writer.catalog, None, "settings")
    browser.press("Add a rule …")
    for label, text in [
        ("Documents whose key is like", "tables/*"),
        ("must have the members", "columns"),
        ("and in the member", "tier"),
        ("one of", "gold, silver"),
    ]:
        control = browser.labelled(label)
        control.clear()
        control.send_keys(text)
    browser.press("Add", within="details[open] form")
    browser.wait_text(".settings-parts", "must have columns; describes tier")
    browser.press("Add a list …")
    browser.labelled("have the list").send_keys("columns")
    browser.labelled("whose items are told apart by").send_keys("name")
    browser.press("Add", within="details[open] form")
    browser.wait_text(".settings-parts", "/columns of *, whose items are told apart by name")
    browser.labelled("Days").send_keys("30", Keys.TAB)
    browser.wait(lambda: '"age_seconds": 2592000' in browser.source)
    assert violations(browser) == []
    screenshot(browser, "settings-form-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "settings-form-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "settings-form-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.screen(DESK)

    browser.press("Try this without setting it")
    browser.wait_text("main", "1 document would break them", "tables/t")
    browser.press("Send")
    browser.wait_text(".outgoing", "documents_break_settings", "tables/t")
    writer.replace("tables/t", "/columns/1/name", "total")
    browser.press("Try this without setting it")
    browser.wait_text("main", "That can be set", "Nothing was set yet")
    browser.wait_text("main", "all 2 documents that they are for", "None of them breaks one")
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 4.")
    with pytest.raises(AssertionError, match="schema_violation"):
        writer.put("tables/v", {"tier": "gold"})

    # A schema that documents break is told with them, and how many were looked at.
    browser.edit(('"gold"', '"platinum"'))
    browser.press("Try this without setting it")
    browser.wait_text("main", "1 document breaks one", "tables/u", "platinum")
    assert violations(browser) == []
    browser.edit(('"platinum"', '"gold"'))

    # What is set is taken back there, too.
    browser.press("Remove", within=".settings-parts")
    browser.wait(lambda: "must have columns" not in browser.text(".settings-parts"))
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 5.")
    writer.put("tables/v", {"tier": "gold"})

"""Going back in the console: a commit undone, a revision restored, once it was seen."""

from __future__ import annotations

from collections.abc import Callable

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
T = "tables/t"


def _undo(browser: Browser, revision: int) -> None:
    browser.wait_text(".history", f"r{revision}")
    named = browser.shown(".history button", "Undo …")
    next(each for each in named if f" r{revision} " in each.accessible_name).click()
    browser.wait_text("dialog", "Undo what ", f" (revision {revision})?")


def test_a_commit_can_be_undone_with_a_decision_about_later_changes(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    writer.put(T, {"owner": "ann", "tier": 1})
    writer.replace(T, "/owner", "bob", message="hand over")
    writer.replace(T, "/tier", 2)
    browser.open(writer.catalog, T, "history")
    _undo(browser, 2)
    browser.wait_text("dialog", "What would change", "/owner", '"ann"')
    assert writer.read(T) == {"owner": "bob", "tier": 2}, "it is only tried"
    assert "/tier" not in browser.text("dialog .changes")
    browser.press("Undo", within="dialog")
    browser.wait_text("main", "Undone, as revision 4.")
    assert writer.read(T) == {"owner": "ann", "tier": 2}
    browser.wait_text(".history", "r4", "reverts 2")
    assert browser.text(".note.stale") == "", "it was oneself"

    # Changed since: nothing is undone before it is said what becomes of that.
    writer.replace(T, "/owner", "eve")
    browser.press("Reload")
    browser.wait_text(".history", "r5")
    _undo(browser, 4)
    browser.wait_text("dialog", "Changed since: 1 place", T, "/owner", '"eve"', '"bob"')
    screenshot(browser, "undo-contested")
    assert violations(browser) == []
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "undo-contested-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.choose("dialog input[value=skip]")
    browser.wait_text("dialog", "Nothing would change", "1 place left as it is")
    assert browser.run("return document.querySelector('dialog [type=submit]').disabled")
    browser.choose("dialog input[value=force]")
    browser.wait_text("dialog", "What would change", '"bob"')
    # What was decided about is what was there.
    writer.replace(T, "/owner", "joe")
    browser.press("Undo", within="dialog")
    browser.wait_text("dialog", "nothing was applied", '"joe"')
    assert writer.read(T)["owner"] == "joe"
    browser.choose("dialog input[value=force]")
    browser.wait_text("dialog", "What would change")
    browser.press("Undo", within="dialog")
    browser.wait_text("main", "Undone, as revision 7.")
    assert writer.read(T) == {"owner": "bob", "tier": 2}


def test_each_contested_place_can_be_decided_separately(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    writer.put(T, {"owner": "ann", "tier": 1, "rows": 10})
    writer.set_attributes(T, {"team": "a"})
    writer.put_together({T: {"owner": "bob", "tier": 2, "rows": 10}, "tables/x": 1})
    writer.put_together({T: {"owner": "eve", "tier": 3, "rows": 10}, "tables/x": 2})
    browser.open(writer.catalog, T, "history")
    _undo(browser, 3)
    browser.wait_text("dialog", "Changed since: 3 places", "/owner", "/tier", "tables/x")
    browser.choose("dialog input[type=checkbox]")
    browser.wait_text("dialog", "Changed since: 2 places")
    browser.choose("dialog fieldset:nth-of-type(1) input[value=force]")
    assert "Shown once that is decided." in browser.text("dialog"), "one is left to decide"
    browser.choose("dialog fieldset:nth-of-type(2) input[value=skip]")
    browser.wait_text("dialog", "What would change", "1 place left as it is")
    assert "/tier" not in browser.text("dialog .changes")
    screenshot(browser, "undo-decided")
    browser.press("Leave all")
    browser.wait_text("dialog", "Nothing would change", "2 places left as they are")
    browser.press("All as they were")
    browser.wait_text("dialog .changes", "/tier", "/owner")
    browser.choose("dialog fieldset:nth-of-type(1) input[value=skip]")
    browser.wait_text("dialog", "1 place left as it is")
    browser.press("Undo", within="dialog")
    browser.wait_text("main", "Undone, as revision 5.")
    assert writer.read(T) == {"owner": "eve", "tier": 1, "rows": 10}


def test_a_revision_is_restored_and_one_document_of_a_commit_undone(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """Of this document alone: others whose keys begin so, or that were changed with it, stay."""
    writer.put_together({T: {"v": 1}, f"{T}2": {"v": 1}})
    writer.set_attributes(T, {"team": "sales"})
    writer.put_together({T: {"v": 2}, f"{T}2": {"v": 2}})
    writer.delete(T)
    browser.open(writer.catalog, T, "history&revision=3")
    browser.press("Restore this")
    browser.wait_text("dialog", "Restore tables/t as it was at revision 3?", "What would change")
    assert f"{T}2" not in browser.text("dialog")
    screenshot(browser, "restore")
    browser.press("Restore", within="dialog")
    browser.wait_text("main", "Restored, as revision 5.")
    assert (writer.read(T), writer.read(f"{T}2")) == ({"v": 2}, {"v": 2})
    browser.wait_text(".facts", "team")

    _undo(browser, 3)
    browser.wait_text(
        "dialog", "Only tables/t, not the 1 other document", "What would change", f"{T}2"
    )
    browser.choose("dialog input[type=checkbox]")
    browser.wait(lambda: f"{T}2" not in browser.text("dialog"))
    browser.wait_text("dialog", "What would change")
    browser.press("Undo", within="dialog")
    browser.wait_text("main", "Undone, as revision 6.")
    assert (writer.read(T), writer.read(f"{T}2")) == ({"v": 1}, {"v": 2})

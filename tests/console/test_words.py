"""The console says things as people do, and leaves nothing in the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.axe import violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
T = "tables/t"
WIDE = (390, 844)
SMALL = """const shown = (e) => e.checkVisibility({visibilityProperty: true});
    const inText = (e) => e.tagName === "A" && getComputedStyle(e).display === "inline";
    return [...document.querySelectorAll("a, button, input, select, textarea, summary")]
      .filter((e) => shown(e) && !inText(e) && !e.classList.contains("skip"))
      .map((e) => [e, (e.closest("label") ?? e).getBoundingClientRect()])
      .filter(([, {width, height}]) => width < 24 || height < 23.9)
      .map(([e, {width, height}]) => `${e.outerHTML.slice(0, 120)} ${width} x ${height}`)"""


@pytest.fixture
def table(writer: Writer) -> Writer:
    columns = [{"name": "id"}, {"name": "total"}]
    writer.put(T, {"comment": "", "columns": columns}, message="first import")
    writer.apply(T, {"tier": 1}, "nightly")
    writer.set_attributes(T, {"team": "sales"})
    return writer


def test_tokens_revisions_and_pointers_are_shown_on_request(
    browser: Browser, table: Writer, screenshot: Screenshot
) -> None:
    browser.details(False)
    browser.open(table.catalog, T)
    browser.wait_text(".facts", "anonymous")
    assert "Token" not in browser.text("main")
    assert "evision" not in browser.text("main")
    browser.edit_field("/columns/1/name")
    browser.fill_in("sum")
    browser.press("Done")
    browser.wait_text(".unsaved", "columns › 2 › name")
    assert "/columns" not in browser.text("main")
    assert violations(browser) == []
    screenshot(browser, "words")
    browser.press("Details")
    browser.wait_text("main", "/columns/1/name", "Token")
    assert violations(browser) == []
    browser.driver.refresh()
    browser.wait_text("main", "Token")


def test_a_dialog_closes_with_its_page(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog)
    browser.press(T)
    browser.press("Delete …")
    browser.wait_text("dialog", f"Delete {T}?")
    browser.driver.back()
    browser.wait_text("h1", table.catalog)
    assert browser.find("dialog") is None
    # So does one where another address is entered.
    browser.press("New document")
    browser.wait_text("dialog", "New document")
    browser.run("location.hash = '#/'")
    browser.wait_text("h1", "Catalogs")
    assert browser.find("dialog") is None
    assert table.read(T) is not None


def test_the_preview_breaks_between_words(browser: Browser, table: Writer) -> None:
    """Where a line of the patch is too long: behind a comma, a colon or a slash, inside no word."""
    browser.open(table.catalog, T, "edit")
    words = "/".join(["incomprehensibility"] * 20)
    browser.edit(('"comment": ""', f'"comment": "{words}"'))
    browser.wait_text(".outgoing pre", "incomprehensibility")
    broken = browser.run(
        """const found = [];
        const walker = document.createTreeWalker(document.querySelector(".wire pre"), 4);
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          for (const {0: word, index} of node.data.matchAll(/[a-z]+/g)) {
            const range = document.createRange();
            range.setStart(node, index);
            range.setEnd(node, index + word.length);
            if (range.getClientRects().length > 1) found.push(word);
          }
        }
        return found"""
    )
    assert broken == []


def test_a_success_message_disappears_after_a_while(browser: Browser, table: Writer) -> None:
    """Until the next edit, another tab, or some seconds later."""
    browser.open(table.catalog, T, "edit")
    for revision, comment in [(4, "one"), (5, "two")]:
        browser.run("scrollTo(0, document.body.scrollHeight)")
        old = table.read(T)["comment"]
        browser.edit((f'"comment": "{old}"', f'"comment": "{comment}"'))
        browser.press("Send")
        browser.applied(revision)
        assert browser.run("return document.querySelector('h1').getBoundingClientRect().top") > 40
        browser.press("Edit", within=".tabs")
        browser.wait(lambda: "Applied" not in browser.text("main"))


def test_keys_that_contain_a_text_are_grouped_in_folders(browser: Browser, table: Writer) -> None:
    table.bulk({"views/orders": 1, "tables/orders": 2, "tables/a/orders": 3, "orders": 4})
    browser.open(table.catalog)
    browser.choose("input[name=finds][value=contain]")
    browser.choose(".tools input[type=checkbox]")
    browser.labelled("Keys that contain").send_keys("orders")
    names = "return [...document.querySelectorAll('.rows .name')].map((e) => e.textContent)"
    found = ["orders", "tables/a/", "orders", "tables/", "orders", "views/", "orders"]
    browser.wait(lambda: browser.run(names) == found)
    browser.press("views/")
    browser.wait(lambda: browser.run(names) == ["orders"])


def test_touch_targets_are_large_enough(browser: Browser, table: Writer) -> None:
    places = [(None, None), (None, "home"), (None, "settings"), (T, None)]
    browser.open(table.catalog, T, "history")
    for key, tab in [*places, (T, "edit"), (T, "history"), (T, "attributes")]:
        browser.go(table.catalog, key, tab)
        browser.wait_text("main", "anonymous")
        browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
        small = browser.run(SMALL)
        assert small == [], "\n".join([str(tab), *small])
    browser.open()
    browser.press("New document")
    browser.press("Add a member", within="dialog")
    assert browser.run(SMALL) == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["390", "360"])
def test_a_phone_shows_the_document_instead_of_the_navigation(
    browser: Browser, table: Writer, screenshot: Screenshot, size: tuple[int, int]
) -> None:
    browser.details(False)
    browser.screen(size)
    browser.open(table.catalog, T, wait=False)
    browser.wait_text(".tree", "comment")
    assert browser.run("return document.querySelector('.top').offsetHeight") <= 56
    assert browser.run("return document.documentElement.scrollHeight") <= 900
    screenshot(browser, f"phone-{size[0]}-document")
    assert browser.run(SMALL) == []
    browser.press("Edit", within=".tabs")
    browser.wait_editor()
    browser.edit(('"comment": ""', '"comment": "said"'))
    assert browser.run("return document.documentElement.scrollHeight") <= 1800
    screenshot(browser, f"phone-{size[0]}-edit")
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]

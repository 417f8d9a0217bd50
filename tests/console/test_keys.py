"""The list of a catalog's keys: by their beginning, by any part of them, as folders."""

from __future__ import annotations

from collections.abc import Callable

from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import DESK, PHONE, Browser
from tests.console.writer import Writer


def _names(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('.rows .name')].map((each) => each.textContent)"
    )
    return found


def test_keys_are_found_by_any_part_of_them_and_as_folders(
    browser: Browser, writer: Writer, screenshot: Callable[[Browser, str], None]
) -> None:
    tables = {f"tables/{name}/v{n}": n for name in ("Orders", "stock") for n in range(120)}
    writer.bulk({**tables, "tables/index": 0, "top": 1, "views/orders": 2})
    browser.open(writer.catalog)
    browser.wait(lambda: len(_names(browser)) == 100)
    browser.choose("input[name=finds][value=contain]")
    browser.labelled("Keys that contain").send_keys("RDERS/V11")
    browser.wait(lambda: len(_names(browser)) == 11)
    assert all("Orders/v11" in name for name in _names(browser))
    writer.put("tables/Orders/v110/x", 1)
    writer.put("elsewhere", 1)
    browser.wait_text(".note.stale", "tables/Orders/v110/x")
    browser.driver.refresh()
    browser.wait(lambda: len(_names(browser)) == 12)
    search = browser.labelled("Keys that contain")
    search.send_keys("nothing")
    browser.wait_text("main", "No key contains that.")

    # As folders: by a click, by the keyboard, and back; a page of a folder is passed by at once.
    browser.open(writer.catalog)
    browser.choose(".tools input[type=checkbox]")
    browser.wait(lambda: _names(browser) == ["tables/", "views/", "elsewhere", "top"])
    screenshot(browser, "folders")
    browser.tab_to("tables/")
    browser.keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    browser.wait(lambda: _names(browser) == ["Orders/", "stock/", "index"])
    browser.press("Orders/")
    browser.wait(lambda: len(_names(browser)) == 100)
    assert _names(browser)[:2] == ["v110/", "v0"]
    browser.press("Next")
    browser.wait(lambda: len(_names(browser)) == 21)
    browser.press("tables", within=".folders")
    browser.wait(lambda: "index" in _names(browser))
    browser.press("index")
    browser.wait_text("h1", "tables/index")
    browser.driver.back()
    browser.wait(lambda: "index" in _names(browser))
    writer.put("tables/new", 1)
    browser.wait_text(".note.stale", "tables/new")


def test_a_list_shows_author_time_and_chosen_members(
    browser: Browser, writer: Writer, screenshot: Callable[[Browser, str], None]
) -> None:
    writer.put("tables/a", {"tier": "gold", "owner": {"team": "sales"}, "live": True}, author="ann")
    writer.bulk({f"tables/b/{n}": {"tier": n} for n in range(60)})
    writer.put("tables/c", [1], author="bob")
    browser.details(False)
    browser.open(writer.catalog)
    browser.wait_text(".rows", "ann, just now")
    script = """return [...document.querySelectorAll(".documents [data-revision]")]
        .filter((each) => each.querySelector("time")).length"""
    assert 1 <= browser.run(script) < 62, "no more is asked for than is in view"

    browser.labelled("Members to show").send_keys("tier, owner/team, live", Keys.ENTER)
    browser.wait_text(".rows", "gold", "sales", "yes")
    browser.wait_text(".rows", "ann, just now")
    assert "columns=tier%2Cowner%2Fteam%2Clive" in browser.driver.current_url
    assert violations(browser) == []
    screenshot(browser, "list-columns-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "list-columns-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "list-columns-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.screen(DESK)

    # The address keeps them, also in folders.
    browser.driver.refresh()
    browser.wait_text(".rows", "gold")
    browser.choose(".tools input[type=checkbox]")
    browser.labelled("Keys that begin with").send_keys("tables/")
    browser.wait(lambda: _names(browser) == ["b/", "a", "c"])
    browser.wait_text(".rows", "sales", "bob, just now")

    # From the search to a document by the keyboard alone.
    browser.labelled("Keys that begin with").click()
    browser.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait_text("h1", "tables/a")
    browser.driver.back()
    browser.wait_text(".rows", "sales")

"""The list of a catalog's keys: by their beginning, by any part of them, as folders."""

from __future__ import annotations

from collections.abc import Callable

from selenium.webdriver import Keys

from tests.console.browser import Browser
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

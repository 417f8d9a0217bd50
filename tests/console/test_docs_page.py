"""`/docs` in a browser: its policy lets its style in and breaks nothing, everybody can read it."""

from __future__ import annotations

from tests.console.axe import violations
from tests.console.browser import PHONE, Browser
from tests.console.conftest import SCREENSHOTS

# One template makes all of them; axe takes minutes for thousands on a busy machine.
_SHOWN = """return [...document.querySelectorAll("article")]
  .filter((each) => !each.closest("[hidden]")).map((each) => each.id)"""
_ONE_OF_EACH = """
const kept = "#patch_document, #answer-Conflict, #schema-Problem";
document.querySelectorAll(`article:not(${kept}), #headers dl > :nth-child(n + 9)`)
  .forEach((each) => each.remove());
"""


def test_the_api_page_is_accessible(browser: Browser) -> None:
    """By axe, in light and in dark; and on a phone it is as wide as the screen."""
    browser.driver.get(f"{browser.url}/docs#patch_document")
    shown = browser.run(
        "return document.querySelector('#patch_document').getBoundingClientRect().top"
    )
    assert abs(shown) < 100, "the link leads to the operation"
    height = browser.run("return document.documentElement.scrollHeight")
    assert height < 60_000, "it was 135,000 pixels tall, of which nobody read much"
    browser.screenshot(SCREENSHOTS / "docs.png")
    browser.run(_ONE_OF_EACH)
    assert violations(browser) == []
    browser.prefer(color_scheme="dark")
    assert (
        browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    )
    assert violations(browser) == []
    browser.screen(PHONE)
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]


def test_the_search_shows_only_sections_with_the_words(browser: Browser) -> None:
    browser.driver.get(f"{browser.url}/docs")
    field = browser.labelled("Search routes, headers, codes, schemas")
    everything = browser.run(_SHOWN)
    field.send_keys("compaction PIN_holds")
    browser.wait(lambda: 0 < len(browser.run(_SHOWN)) < len(everything) / 4)
    assert "compact_catalog" in browser.run(_SHOWN)
    hidden = "return document.querySelectorAll('main > section[hidden]').length"
    assert browser.run(hidden) >= 8, "sections of which nothing is left"
    browser.wait_text("header", " found")
    browser.screenshot(SCREENSHOTS / "docs-search.png")
    # A link of what is shown leads to what was hidden.
    browser.run("location.hash = '#schema-Problem'")
    browser.wait(lambda: browser.run(_SHOWN) == everything)
    field.send_keys("no such thing anywhere")
    browser.wait_text("header", "0 found")
    assert browser.run(_SHOWN) == []

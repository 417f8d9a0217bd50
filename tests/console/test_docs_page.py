"""`/docs` in a browser: its policy lets its style in and breaks nothing, everybody can read it."""

from __future__ import annotations

from tests.console.axe import violations
from tests.console.browser import PHONE, Browser

# One template makes all of them; axe takes minutes for thousands on a busy machine.
_ONE_OF_EACH = """
const kept = "#patch_document, #answer-Conflict, #schema-Problem";
document.querySelectorAll(`article:not(${kept}), #headers dl > :nth-child(n + 9)`)
  .forEach((each) => each.remove());
"""


def test_everybody_can_read_the_page_about_the_api(browser: Browser) -> None:
    """By axe, in light and in dark; and on a phone it is as wide as the screen."""
    browser.driver.get(f"{browser.url}/docs#patch_document")
    shown = browser.run(
        "return document.querySelector('#patch_document').getBoundingClientRect().top"
    )
    assert abs(shown) < 100, "the link leads to the operation"
    browser.run(_ONE_OF_EACH)
    assert violations(browser) == []
    browser.prefer(color_scheme="dark")
    assert (
        browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    )
    assert violations(browser) == []
    browser.screen(PHONE)
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]

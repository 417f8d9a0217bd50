"""Accessibility, by axe-core: what it finds on a page, and where."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.console.browser import Browser

# Its Python package is about another driver; of it only axe-core itself is of use here.
_PACKAGE = "axe_playwright_python"
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """
const done = arguments[arguments.length - 1];
const options = {resultTypes: ["violations"], runOnly: arguments[0]};
axe.run(document, options).then(
  ({violations}) => done(violations.map(({id, help, nodes}) => {
    const places = nodes.flatMap(({html, failureSummary}) => [html.slice(0, 200), failureSummary]);
    return [`${id}: ${help}`, ...places].join("\\n");
  })),
  (error) => done([String(error)]));
"""


@cache
def _source() -> str:
    spec = find_spec(_PACKAGE)
    assert spec is not None, "axe-core is missing: pip install axe-playwright-python"
    (folder,) = spec.submodule_search_locations or ()
    return Path(folder, "axe.min.js").read_text()


def violations(browser: Browser) -> list[Any]:
    """Of the levels A and AA of WCAG 2.2, and of good practice; [] where there are none."""
    return _run(browser, {"type": "tag", "values": _TAGS})


def contrast_violations(browser: Browser) -> list[Any]:
    """All that can be another in dark than in light."""
    return _run(browser, {"type": "rule", "values": ["color-contrast", "link-in-text-block"]})


def _run(browser: Browser, rules: dict[str, Any]) -> list[Any]:
    if not browser.run("return 'axe' in window"):
        browser.run(_source())
    found: list[Any] = browser.driver.execute_async_script(_RUN, rules)
    return found

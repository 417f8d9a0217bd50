"""Names and contents that somebody chose to harm the page: they are shown as what they are."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer
from tests.service import RunningGateway

MARKUP = '<img src=x onerror="hacked=1"><script>hacked=1</script>"\'><svg onload=hacked=1>'
LINK = "javascript:hacked=1//"
LONG = "w" * 1000
# Turns round what stands behind it, and never turns back.
TURNED = "ab\u202egpj.\u2066exe"
NAMES = {
    "markup": MARKUP,
    "link": LINK,
    "long": LONG,
    "turned": TURNED,
    "proto": "__proto__",
    "constructor": "constructor",
    "number": "0",
    "template": "${hacked=1}{{hacked=1}}&lt;b&gt;%3Cb%3E",
    "lines": "a\nb\r\n\u2028c\td",
    "selector": '"]{}*/,:is(a)\\',
    "stacked": "Z" + "\u0351\u0322" * 400,
}


def _document(hostile: str) -> dict[str, Any]:
    return {
        "__proto__": {"isAdmin": True, "toString": 1},
        "constructor": {"prototype": 1},
        "hasOwnProperty": None,
        "items": [hostile, {hostile: [hostile]}, LINK],
        "url": LINK,
        "1": 1,
        "0": "",
        "": "",
        hostile: hostile,
    }


def _schema(hostile: str) -> dict[str, Any]:
    told = {"title": hostile, "description": hostile}
    return {
        **told,
        "required": [hostile, "url"],
        "properties": {
            hostile: {**told, "enum": [hostile, LINK, f"{hostile}2"]},
            "url": {**told, "type": "string", "format": "uri"},
            "__proto__": told,
            "constructor": told,
        },
    }


@pytest.fixture
def hostile(service: RunningGateway, request: pytest.FixtureRequest) -> Writer:
    """A catalog that has the name everywhere."""
    name = NAMES[request.param]
    author = "".join(each for each in name[:80] if each.isprintable())  # as it has to be
    writer = Writer(service.url, f"{name[:200]}-{uuid.uuid4().hex[:6]}")
    writer.set_settings({"schemas": {"*": _schema(name)}})
    writer.put(name[:400], {**_document(name), name: LINK, "url": name}, name[:400], author)
    writer.put(name[:400], _document(name), message=f"[agent {name[:80]}] {name[:80]}")
    writer.set_attributes(name[:400], {name: name, "__proto__": {"a": name}})
    writer.put(f"{name[:200]}/{name[:200]}", _document(name))
    writer.apply(name[:400], {name: f"{name}2", "url": name}, author)
    writer.put("other", {"to": name[:400], name: LINK, "url": name})
    return writer


def _harms(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        """const links = [...document.querySelectorAll("[href], [src], [action]")]
          .flatMap((each) => [each.href, each.src, each.action]).filter(Boolean)
          .filter((each) => !String(each).startsWith(location.origin));
        const wide = document.documentElement.scrollWidth - innerWidth;
        return [...links, ...(window.hacked ? ["a script ran"] : []),
          ...(Object.prototype.isAdmin || ({}).toString === 1 ? ["a prototype changed"] : []),
          ...(document.querySelector("main :is(img, svg, script, iframe)") ? ["markup"] : []),
          ...(wide > 1 ? [`${wide} px too wide`] : [])]"""
    )
    return found


@pytest.mark.parametrize("hostile", NAMES, indirect=True)
def test_hostile_names_and_contents_are_shown_and_do_nothing(
    browser: Browser, hostile: Writer, request: pytest.FixtureRequest
) -> None:
    name = NAMES[request.node.callspec.params["hostile"]]
    catalog, key = hostile.catalog, name[:400]
    browser.screen(PHONE)
    pages: list[tuple[str | None, str | None]] = [(None, "home"), (None, "settings")]
    pages += [(None, "subscriptions"), (None, None)]
    pages += [(key, tab) for tab in (None, "text", "attributes", "history", "edit")]
    harms = {}
    browser.open(catalog)
    for shown, tab in pages:
        browser.go(catalog, shown, tab)
        browser.wait_text("main")
        browser.wait(lambda: not browser.find("main .waiting"))
        if found := _harms(browser) + [
            each for each in ["defect"] if "has a defect" in browser.text("main")
        ]:
            harms[f"{tab or shown}"] = found
    assert harms == {}


def test_an_unknown_tab_in_the_address_shows_the_tree(browser: Browser, writer: Writer) -> None:
    writer.put("k", {"a": 1})
    for tab in ("constructor", "__proto__", "toString", "", "nothing"):
        browser.open(writer.catalog, "k", tab)
        assert browser.text("nav.tabs [aria-current]") == "Tree", tab
        browser.wait(lambda: browser.find("[role=tree]"))


def test_invisible_and_bidirectional_characters_are_shown_by_number(
    browser: Browser, writer: Writer
) -> None:
    key = "tables/\u202egpj.t"
    writer.put(
        key, {"a\u200b": "x\u2066y", "👩\u200d👧 \u06a9\u200c": "\U000e0041"}, "by \u202ennA"
    )
    browser.open(writer.catalog, key)
    assert "tables/⟨U+202E⟩gpj.t" in browser.text("h1")
    tree = browser.wait_text("[role=tree]", "a⟨U+200B⟩", r"x\u2066y", r"\udb40\udc41")
    assert "👩\u200d👧 \u06a9\u200c" in tree
    browser.wait_text("main", "by ⟨U+202E⟩nnA")
    browser.open(writer.catalog, key, "edit")
    browser.wait(lambda: "a\\u200b" in browser.source)
    browser.edit(('"x\\u2066y"', '"z"'))
    browser.press("Send")
    browser.wait(lambda: (writer.read(key) or {}).get("a\u200b") == "z")

"""The picture of the commit loop can be read by everybody: in light, in dark, and by ear."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.docs.pages import DOCS, Page

_PICTURE = DOCS / "commit-loop.svg"
_SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_small_and_self_contained() -> None:
    text = _PICTURE.read_text(encoding="utf-8")
    assert len(text) < 20_000
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<image|@import|href=", text)


def test_the_picture_has_a_description_in_words() -> None:
    root = ElementTree.parse(_PICTURE).getroot()
    assert root.get("role") == "img"
    title, description = (root.find(f"{_SVG}{name}") for name in ("title", "desc"))
    assert title is not None
    assert description is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    told = (description.text or "").lower()
    for said in ("queue", "read the head", "decide", "move the head", "write the tail out"):
        assert said in told
    assert "race is lost" in told
    assert "killed" in told


def test_every_colour_has_a_dark_variant() -> None:
    style = ElementTree.parse(_PICTURE).getroot().findtext(f"{_SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    coloured = r"([.\w, -]+) \{ [^}]*(?:fill|stroke): #"
    named = [
        {each.strip() for names in re.findall(coloured, part) for each in names.split(",")}
        for part in (light, dark)
    ]
    assert named[0] <= named[1]


def test_the_page_shows_the_picture_with_an_alternative_text() -> None:
    found = re.search(r"!\[([^]]+)\]\(commit-loop\.svg\)", Page(DOCS / "commit-loop.md").text)
    assert found is not None
    assert len(found[1]) > 100

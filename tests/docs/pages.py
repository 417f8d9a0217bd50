"""The documentation as data: pages, their headings, links, and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `language` and the further words of its info string; lines begin at 1."""

    language: str
    marks: frozenset[str]
    content: str
    line: int


@dataclass(frozen=True, slots=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        """As links of the root would have it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[Block]:
        found = []
        for token in _tokens(self.path):
            if token.type == "fence" and token.map is not None:
                language, *marks = token.info.split() or [""]
                found.append(Block(language, frozenset(marks), token.content, token.map[0] + 1))
        return found

    def links(self) -> list[str]:
        """Where links and pictures lead, those of HTML included."""
        inline = (child for token in _tokens(self.path) for child in token.children or ())
        found = []
        for token in (*_tokens(self.path), *inline):
            for attribute in ("href", "src"):
                if attribute in token.attrs:
                    found.append(str(token.attrs[attribute]))
            if token.type in ("html_block", "html_inline"):
                found += re.findall(r'(?:href|src|srcset)="([^"]+)"', token.content)
        return found

    def anchors(self) -> set[str]:
        """Of headings, as GitHub makes them, and the ids of HTML."""
        made: dict[str, int] = {}
        anchors = set(re.findall(r'<\w+ id="([^"]+)"', self.text))
        for heading in self._headings():
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            count = made.get(slug, 0)
            made[slug] = count + 1
            anchors.add(f"{slug}-{count}" if count else slug)
        return anchors

    def _headings(self) -> Iterator[str]:
        for token, inline in pairwise(_tokens(self.path)):
            if token.type == "heading_open":
                children = inline.children or []
                yield "".join(each.content for each in children)


@cache
def _tokens(path: Path) -> tuple[Token, ...]:
    markdown = MarkdownIt("commonmark").enable("table")
    return tuple(markdown.parse(path.read_text(encoding="utf-8")))


def pages() -> list[Page]:
    """README, CONTRIBUTING and everything below docs/, as people read it."""
    top = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    return [Page(path) for path in (*top, *sorted(DOCS.rglob("*.md")))]


def table_rows(text: str) -> Iterator[list[str]]:
    """The cells of all tables, header rows included."""
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|:\- ]+", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]

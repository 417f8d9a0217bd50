"""Texts of the document, which are CommonMark, as HTML with links to what they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup


class Texts:
    """``anchors`` are those of the names that become links where a text has them as code."""

    def __init__(self, anchors: Mapping[str, str]) -> None:
        self._anchors = anchors
        # HTML in a text is shown, not obeyed.
        self._markdown = MarkdownIt("commonmark", {"html": False})
        self._markdown.renderer.rules["code_inline"] = self._code  # type: ignore[attr-defined]

    def blocks(self, text: str) -> Markup:
        """Paragraphs and lists."""
        return Markup(self._markdown.render(text))

    def inline(self, text: str) -> Markup:
        """A text without paragraphs, such as a summary."""
        return Markup(self._markdown.renderInline(text))

    def _code(self, tokens: Sequence[Token], index: int, *_: Any) -> str:
        content = tokens[index].content
        code = Markup("<code>{}</code>").format(content)
        anchor = self._anchors.get(content)
        return str(code if anchor is None else Markup('<a href="#{}">{}</a>').format(anchor, code))

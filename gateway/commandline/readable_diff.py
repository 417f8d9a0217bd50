"""What differs between two values, for people: lines as `diff -u` has them, of sorted JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from itertools import chain
from typing import Final

import click
import msgspec

from patching import Absent, Document, Json, diff

from .output import safe_json

# Matching lines takes time that grows faster than their number.
_LINES_MAX: Final = 20_000
_COLORS: Final = {"+": "green", "-": "red", "@": "cyan"}


def operations(before: Document, after: Document) -> list[dict[str, Json]]:
    """The RFC 6902 patch that makes ``after`` of ``before``, fit to be sent; [] where they are
    equal."""
    return diff(before, after, compact=False)


def readable(
    before: Document, after: Document, names: tuple[str, str], *, color: bool
) -> Iterator[str]:
    """Nothing where both are equal; ``names`` are those of the two sides."""
    changes = operations(before, after)
    if not changes:
        return
    old, new = _lines(before), _lines(after)
    if len(old) + len(new) > _LINES_MAX:
        lines: Iterable[str] = chain(
            (f"--- {names[0]}", f"+++ {names[1]}"),
            (msgspec.json.encode(each).decode() for each in changes),
        )
    else:
        lines = unified_diff(old, new, *names, lineterm="")
    for line in lines:
        chosen = _COLORS.get(line[:1]) if color else None
        shown = safe_json(line)
        yield click.style(shown, fg=chosen) if chosen else shown


def _lines(value: Document) -> list[str]:
    if isinstance(value, Absent):
        return []
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2)
    return text.decode().split("\n")

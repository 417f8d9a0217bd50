"""Patterns of keys, in which `*` stands for any text and everything else for itself."""

from __future__ import annotations

import re
from collections.abc import Callable


def key_pattern(pattern: str) -> Callable[[str], object]:
    """A test of whether a key fits. In time linear in the key's length for each `*`."""
    # Each piece is looked for once, leftmost: an atomic group never gives back what it took.
    first, *pieces = pattern.split("*")
    if not pieces:
        return pattern.__eq__
    *middle, last = pieces
    expression = re.escape(first) + "".join(f"(?>.*?{re.escape(each)})" for each in middle if each)
    return re.compile(f"{expression}.*{re.escape(last)}", re.DOTALL).fullmatch


def can_meet(one: str, other: str) -> bool:
    """Whether some key fits both patterns."""
    if "*" not in one:
        return bool(key_pattern(other)(one))
    if "*" not in other:
        return bool(key_pattern(one)(other))
    # A star takes whatever the other pattern has in its middle: the ends alone can forbid it.
    starts = one.split("*", 1)[0], other.split("*", 1)[0]
    ends = one.rsplit("*", 1)[1], other.rsplit("*", 1)[1]
    short, long = sorted(starts, key=len)
    tail, end = sorted(ends, key=len)
    return long.startswith(short) and end.endswith(tail)

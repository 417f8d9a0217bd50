"""Finding what the store can't hold, before anything is written, with a pointer to it.

BSON holds neither integers beyond 64 bits, nor NUL in member names, nor text that isn't Unicode;
JSON holds neither NaN nor infinities. ``check`` walks the value; callers skip it where the text it
came from shows that it can't find anything (see ``gateway.http.bodies``).
"""

from __future__ import annotations

import math

from gateway.commits.errors import Unstorable
from patching import Json, join_pointer

_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1


def check(value: Json, *, depth_max: int, operation: int | None = None) -> None:
    """Raise Unstorable for the first thing in ``value`` that can't be stored.

    ``depth_max`` bounds the nesting of containers; ``operation`` is the index of the patch
    operation that the value belongs to, for the error.
    """
    stack: list[tuple[Json, tuple[str, ...]]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        problem = _problem(item, len(path), depth_max)
        if problem:
            raise Unstorable(problem, join_pointer([_printable(p) for p in path]), operation)
        if isinstance(item, dict):
            stack.extend((member, (*path, name)) for name, member in reversed(item.items()))
        elif isinstance(item, list):
            last = len(item) - 1
            stack.extend(
                (element, (*path, str(last - index)))
                for index, element in enumerate(reversed(item))
            )


def _problem(item: Json, depth: int, depth_max: int) -> str | None:
    if isinstance(item, str):
        return None if _is_unicode(item) else "text holds a lone surrogate"
    if isinstance(item, bool) or item is None:
        return None
    if isinstance(item, int):
        fits = _INTEGER_MIN <= item <= _INTEGER_MAX
        return None if fits else "an integer beyond 64 bits can't be stored"
    if isinstance(item, float):
        return None if math.isfinite(item) else "a number beyond the range of a double"
    if depth >= depth_max:
        return f"nested deeper than {depth_max} levels"
    if isinstance(item, dict):
        for name in item:
            if "\0" in name:
                return "a member name holds NUL"
            if not _is_unicode(name):
                return "a member name holds a lone surrogate"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(token: str) -> str:
    return token.encode("utf-8", "backslashreplace").decode()

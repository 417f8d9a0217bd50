"""Finding what the store can't hold, before anything is written, with a pointer to it.

BSON holds neither integers beyond 64 bits, nor NUL in member names, nor text that isn't Unicode;
JSON holds neither NaN nor infinities. ``check`` walks the value; callers skip it where the text it
came from shows that it can't find anything (see ``gateway.http.wire.body``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.cpu import computed
from gateway.errors import Unstorable
from patching import Json, join_pointer

_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1


def check(value: Json, *, depth_max: int, operation: int | None = None) -> None:
    """Raise Unstorable for the first thing in ``value`` that can't be stored.

    The first is the first in the order of the text; memory is taken by the depth alone, however
    many elements there are. ``depth_max`` bounds the nesting of containers; ``operation`` is the
    index of the patch operation that the value belongs to, for the error.
    """
    _require_storable(value, (), depth_max, operation)
    # One iterator for each container that the walk is in, and the way to where it is.
    inside = [_children(value)] if isinstance(value, dict | list) else []
    path: list[str | int] = [""]
    while inside:
        for token, item in inside[-1]:
            kind = type(item)
            if (kind is int and _INTEGER_MIN <= item <= _INTEGER_MAX) or (
                kind is str and item.isascii()
            ):
                continue
            path[-1] = token
            _require_storable(item, path, depth_max, operation)
            if item and (kind is dict or kind is list):
                inside.append(_children(item))
                path.append("")
                break
        else:
            inside.pop()
            path.pop()


def _children(container: Any) -> Iterator[tuple[str | int, Any]]:
    return iter(container.items() if isinstance(container, dict) else enumerate(container))


def _require_storable(
    item: Json, path: Sequence[str | int], depth_max: int, operation: int | None
) -> None:
    problem = _problem(item, len(path), depth_max)
    if problem:
        raise Unstorable(problem, join_pointer([_printable(str(p)) for p in path]), operation)


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


@computed
def check_operations(operations: Json, depth_max: int) -> None:
    """Raise Unstorable for what can't be stored in ``operations``, as far as they are some."""
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        if isinstance(operation, dict):
            _check_operation(operation, index, depth_max)


def _check_operation(operation: dict[str, Any], index: int, depth_max: int) -> None:
    path = operation.get("path")
    pointer = path if isinstance(path, str) else ""
    for member in ("path", "from"):
        place = operation.get(member)
        if isinstance(place, str) and "\0" in place:
            raise Unstorable("a member name holds NUL", pointer, index)
    if "value" in operation:
        try:
            check(operation["value"], depth_max=depth_max)
        except Unstorable as error:
            shown = pointer.encode("utf-8", "backslashreplace").decode()
            raise Unstorable(error.detail, shown + error.pointer, index) from error

"""What a document is: a decoded JSON value, or `ABSENT`, and how large and deep it is."""

from __future__ import annotations

import enum
import json
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec


class Absent(enum.Enum):
    """The type of `ABSENT`. An enum, because its member stays itself when it is pickled or copied,
    and because type checkers narrow on `is ABSENT`."""

    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> Literal[False]:
        return False


ABSENT: Final = Absent.ABSENT
"""There is no document. Not to be confused with the document `null`, which is `None`."""

# Containers hold Any: a recursive alias would refuse every dict[str, int] for being invariant.
Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
"""A decoded JSON value. Objects are `dict`, arrays are `list`; NaN and infinities are not JSON."""

Document: TypeAlias = "Json | Absent"

Container: TypeAlias = "dict[str, Any] | list[Any]"

_encode = msgspec.json.Encoder().encode


def encoded_bytes(value: Json) -> int:
    """The size of `value` as compact UTF-8 JSON, in bytes.

    What UTF-8 can't hold (lone surrogates) counts as its escape. RecursionError where `value` is
    nested deeper than the interpreter's limit."""
    try:
        return len(_encode(value))
    except (UnicodeEncodeError, ValueError):
        return len(json.dumps(value, separators=(",", ":")))


def depth(value: Json) -> int:
    """How many containers lie inside one another: 0 for a scalar, 1 for `[]` and `{"a": 1}`.

    Level by level rather than recursively, so that no value is too deep to be measured."""
    levels = 0
    level = [value] if isinstance(value, dict | list) else []
    while level:
        levels += 1
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return levels


def exceeds_bytes(value: Json, budget: int) -> bool:
    """Whether `value` surely takes more than `budget` bytes as compact JSON.

    A lower bound (escapes, digits and separators are not counted) at a cost proportional to
    `budget`, however large `value` is. False says nothing."""
    pending = [value]
    while pending and budget >= 0:
        item = pending.pop()
        if isinstance(item, str):
            budget -= len(item) + 2
        elif isinstance(item, dict):
            budget -= 2 + 4 * len(item)
            pending.extend(islice(item.values(), max(budget, 0)))
        elif isinstance(item, list):
            budget -= 2
            pending.extend(islice(item, max(budget, 0)))
        else:
            budget -= 1
    return budget < 0


_SHOWN_CHARACTERS_MAX = 200


def shown(value: Document) -> str:
    """`value` for a message: its JSON, or a description where that takes over 200 characters."""
    if value is ABSENT:
        return "nothing"
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS_MAX:
        return f"{json.dumps(value[:_SHOWN_CHARACTERS_MAX])}… ({len(value)} characters)"
    if not exceeds_bytes(value, _SHOWN_CHARACTERS_MAX):
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            text = "?" * (_SHOWN_CHARACTERS_MAX + 1)
        if len(text) <= _SHOWN_CHARACTERS_MAX:
            return text
    return described(value)


def described(value: Document) -> str:
    """What `value` is, without what it holds: 'an array of 3 items'."""
    if isinstance(value, dict):
        return f"an object of {len(value)} members"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "null" if value is None else "nothing"

"""Documents (decoded JSON values, or `ABSENT`): decoding in bounded time, size, depth, equality."""

from __future__ import annotations

import enum
import json
import re
from datetime import UTC, datetime, timedelta
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

    What UTF-8 can't hold (lone surrogates) counts as its escape. Raises RecursionError if `value`
    is nested deeper than the interpreter's limit."""
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

    It computes a lower bound (without escapes, digits and separators) at a cost proportional to
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


def repeated_member(text: bytes, encoded: bytes) -> tuple[str, ...] | None:
    """The tokens of the first member that an object in `text` has twice; None if there is none.

    `text` is JSON; `encoded` is what it was decoded to (the last of equal members) and encoded
    again. A lost member takes its colon along, and only an escaped colon (`\\u003a`) adds one. So
    if `text` has no such escape, and both have equally many colons, no member was lost. Otherwise
    `text` is parsed again; RecursionError as `json.loads`."""
    if text == encoded:
        return None
    if text.count(b":") == encoded.count(b":") and not _escapes_a_colon(text):
        return None
    found: list[_Members] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        alone = dict(pairs)
        if len(alone) == len(pairs):
            return alone
        found.append(_Members(pairs))
        return found[-1]

    value = json.loads(text, object_pairs_hook=members, parse_int=str, parse_float=str)
    return _way_to_repeated(value) if found else None


class _Members(dict[str, Any]):
    """The members of an object that has `repeated` twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                break
            seen.add(name)
        self.repeated = name


def _escapes_a_colon(text: bytes) -> bool:
    return b"\\u003" in text and (b"\\u003a" in text or b"\\u003A" in text)


def _way_to_repeated(value: Any) -> tuple[str, ...] | None:
    """Outer objects come before those inside them. One iterator for each container on the way."""
    way: list[str] = []
    inside = [iter([("", value)])]
    while inside:
        for token, item in inside[-1]:
            if isinstance(item, _Members):
                return tuple(map(_unicode, [*way, token, item.repeated][1:]))
            if isinstance(item, dict | list):
                way.append(token)
                children = item.items() if isinstance(item, dict) else enumerate(item)
                inside.append((str(name), child) for name, child in children)
                break
        else:
            inside.pop()
            way[-1:] = []
    return None


def _unicode(token: str) -> str:
    return token.encode("utf-8", "backslashreplace").decode()


_SHOWN_CHARACTERS_MAX = 200


def shown(value: Document) -> str:
    """`value` for a message: its JSON, or a description if that takes over 200 characters."""
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
    """The kind of `value`, without its content: 'an array of 3 items'."""
    if isinstance(value, dict):
        return f"an object of {len(value)} member{'s' * (len(value) != 1)}"
    if isinstance(value, list):
        return f"an array of {len(value)} item{'s' * (len(value) != 1)}"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "null" if value is None else "nothing"


def equal(a: Document, b: Document) -> bool:
    """Whether `a` and `b` are the same JSON value (RFC 6902 section 4.6).

    Numbers by value, exactly (1 is 1.0; 2**53 + 1 is not 2.0**53); true is not 1; the order of
    members is irrelevant; `ABSENT` equals only itself. Iterative, so no value is too deep, and
    subtrees that are one object cost nothing: comparing a document with what a patch made of it
    costs what the patch touched."""
    if a is b:
        return True
    try:
        is_surely_other = a != b  # Python takes true for 1, but never equal JSON values for unequal
    except RecursionError:
        is_surely_other = False
    if is_surely_other:
        return False
    pending: list[tuple[Any, Any]] = []
    if not _alike(a, b, pending):
        return False
    while pending:
        left, right = pending.pop()
        if isinstance(left, dict):
            for name, child in left.items():
                other = right.get(name, ABSENT)
                if child is not other and not _alike(child, other, pending):
                    return False
        else:
            for child, other in zip(left, right, strict=True):
                if child is not other and not _alike(child, other, pending):
                    return False
    return True


def _alike(a: Document, b: Document, pending: list[tuple[Any, Any]]) -> bool:
    """Whether two values may be equal; containers of one kind and size are left to `pending`."""
    if isinstance(a, dict):
        if not isinstance(b, dict) or len(a) != len(b):
            return False
    elif isinstance(a, list):
        if not isinstance(b, list) or len(a) != len(b):
            return False
    elif isinstance(a, bool) or isinstance(b, bool):
        return a is b  # Python takes True for 1
    else:
        return a == b
    pending.append((a, b))
    return True


_decode = msgspec.json.Decoder().decode
# msgspec takes up to 7 µs for a number like 1e300, and nothing interrupts it: 4 MiB of them take
# 5 s. The standard library takes 0.2 µs for any, but several times as long for most other JSON.
_EXPONENTS_MAX = 4000
_exponents = re.compile(rb"[0-9][eE][+-]?[0-9]").finditer


def has_many_exponents(raw: bytes) -> bool:
    """Whether there are too many numbers with exponents in `raw` for msgspec to decode it."""
    if len(raw) <= _EXPONENTS_MAX:
        return False
    marks = raw.count(b"e") + raw.count(b"E")
    if marks <= _EXPONENTS_MAX:
        return False
    return next(islice(_exponents(raw), _EXPONENTS_MAX, None), None) is not None


def float_of(text: str) -> float:
    """`float`, in Python: a call of C code that decodes many numbers can be interrupted here."""
    return float(text)


def decoded(text: str | bytes) -> Json:
    """The value of `text`, which msgspec has written.

    Raises ValueError if it isn't JSON."""
    raw = text.encode() if isinstance(text, str) else text
    if has_many_exponents(raw):
        return json.loads(raw, parse_float=float_of)  # type: ignore[no-any-return]
    return _decode(raw)  # type: ignore[no-any-return]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_us: int) -> str:
    """A moment, in microseconds since 1970, in UTC with six digits: 2026-11-21T10:00:00.000000Z."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

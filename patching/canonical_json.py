"""The digest of a document: equal documents have equal digests, and others have different ones.

It is the SHA-256 of the *canonical JSON*, which has no white space, members in the order of their
names' code points, and one text for each value:

    1, 1.0, 1e0            1          whole numbers are written out, digit by digit
    -0.0                   0
    1e22                   10000000000000000000000
    0.10, 1e-7             0.1, 1e-7  others as ECMAScript writes the double
    "é", "\\u00e9"          "é"        UTF-8; escaped are quotes, backslashes, control characters
    "\\ud800"               "\\ud800"   and what UTF-8 can't hold

This differs from RFC 8785 in three ways. The RFC rounds whole numbers beyond 2**53 to doubles and
writes their shortest digits, with an exponent from 1e21 on; it orders names by UTF-16 code units,
which splits characters beyond U+FFFF; and it refuses what UTF-8 can't hold.

msgspec writes most documents like this, except for the `.0` of whole numbers. If its text may
differ in any other way, `_written` writes the document again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from patching.values import Json

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_pack: Final = msgspec.msgpack.Encoder().encode
# The first byte of a float in MessagePack; packing takes less time than to search a text for one.
# If the byte belongs to something else, the search merely finds nothing.
_FLOAT: Final = b"\xcb"
# NaN and infinities, which msgspec's JSON writes as null; and numbers above 1e300.
_NOT_FINITE: Final = (b"\xcb\x7f", b"\xcb\xff")
# Any float outside 2**-15 to 2**49, between which msgspec writes none with an exponent. The second
# byte has the sign and most of the exponent. Searching the text would take ten times as long.
_may_have_exponent: Final = re.compile(rb"\xcb[^\x3f-\x42\xbf-\xc2]", re.DOTALL).search
# Such a piece is rare inside a string, at whose end a quote follows.
_whole: Final = re.compile(rb"\.0(?=[,\]}]|\Z)")
_has_exponent: Final = re.compile(rb"e[+-]?[0-9]+(?:[,\]}]|\Z)").search
_string: Final = json.JSONEncoder(ensure_ascii=False).encode
_PIECES_A_PART: Final = 4096
_ECMASCRIPT_DECIMAL_MIN: Final = 1e-6


def digest(value: Json) -> str:
    """The SHA-256 of `canonical(value)`, in 64 hexadecimal digits.

    `digest(a) == digest(b)` if and only if `equal(a, b)`. Raises what `canonical` raises."""
    text = _as_encoded(value)
    if text is not None:
        return hashlib.sha256(text).hexdigest()
    hashed = hashlib.sha256()
    for part in _written(value):  # in parts: a number of a few bytes may have 309 digits
        hashed.update(part)
    return hashed.hexdigest()


def canonical(value: Json) -> bytes:
    """The canonical JSON of `value`: see the module's docstring.

    Raises ValueError for NaN, infinities and integers that Python refuses to write (of thousands of
    digits); TypeError for what isn't JSON."""
    text = _as_encoded(value)
    return b"".join(_written(value)) if text is None else text


def _as_encoded(value: Json) -> bytes | None:
    """The canonical JSON, if it takes only msgspec's text; None if `_written` has to write it."""
    try:
        text = _encode(value)
        packed = _pack(value)
    except (ValueError, OverflowError, RecursionError):  # lone surrogates, large integers, depth
        return None
    if packed.find(_FLOAT) < 0:  # `in` first tries the bytes as a number, so it takes twice as long
        return text
    if any(nan in packed for nan in _NOT_FINITE):
        return None
    if _whole.search(text) or (_may_have_exponent(packed) and _has_exponent(text)):
        return _with_whole_numbers(text)
    return text


def _with_whole_numbers(text: bytes) -> bytes | None:
    """msgspec's `text` without the `.0` of whole numbers. None if it has an exponent, a negative
    zero, an escape in a string, or a string with a piece like such a number."""
    if b"\\" in text:
        return None
    numbers = b'"'.join(text.split(b'"')[::2])  # every other piece is a string
    if _has_exponent(numbers) or b"-0.0" in numbers:
        return None
    written, count = _whole.subn(b"", text)
    return written if count == len(_whole.findall(numbers)) else None


class _Text(str):
    """A piece of JSON among values that are still to be written."""

    __slots__ = ()


def _written(value: Json) -> Iterator[bytes]:
    """The canonical JSON of `value`, in parts. Iterative, so no value is too deep."""
    pieces: list[str] = []
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, _Text):
            pieces.append(item)
        elif isinstance(item, dict):
            pending.append(_Text("}"))
            for name in sorted(item, reverse=True):
                pending += (item[name], _Text(f",{_string(name)}:"))
            pieces.append("{")
            if item:
                pending[-1] = _Text(pending[-1][1:])
        elif isinstance(item, list):
            pending.append(_Text("]"))
            for child in reversed(item):
                pending += (child, _Text(","))
            pieces.append("[")
            if item:
                pending.pop()
        else:
            pieces.append(_scalar(item))
        if len(pieces) >= _PIECES_A_PART:
            yield "".join(pieces).encode("utf-8", "backslashreplace")
            pieces.clear()
    yield "".join(pieces).encode("utf-8", "backslashreplace")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} isn't JSON")
    if not math.isfinite(value):
        raise ValueError(f"{value} isn't JSON")
    if value.is_integer():
        return str(int(value))
    mantissa, e, exponent = repr(value).partition("e")
    if not e:
        return mantissa
    if abs(value) >= _ECMASCRIPT_DECIMAL_MIN:
        sign = "-" if value < 0 else ""
        digits = mantissa.lstrip("-").replace(".", "")
        return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits}"
    return f"{mantissa}e{int(exponent)}"

"""The digest of a document: equal documents have one, others another.

It is the SHA-256 of the *canonical JSON*, which has no white space, members in the order of their
names' code points, and for each value one text:

    1, 1.0, 1e0            1          whole numbers are written out, digit by digit
    -0.0                   0
    1e22                   10000000000000000000000
    0.10, 1e-7             0.1, 1e-7  others as ECMAScript writes the double
    "é", "\\u00e9"          "é"        UTF-8; escaped are quotes, backslashes, control characters
    "\\ud800"               "\\ud800"   and what UTF-8 can't hold

That is RFC 8785 but for whole numbers beyond 2**53, which it rounds to doubles, and writes by their
shortest digits, from 1e21 on with an exponent; for the order of names with characters beyond
U+FFFF, which it takes apart; and for what UTF-8 can't hold, which it refuses.

Most documents are written so by msgspec, but for the `.0` of whole numbers; where its text may
differ otherwise, `_written` writes it once more.
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
# A float in MessagePack, made in less time than a text is searched for one. Where these bytes are
# of something else, the text is searched in vain. msgspec writes NaN and infinities as null.
_FLOAT: Final = b"\xcb"
_NOT_FINITE: Final = (b"\xcb\x7f", b"\xcb\xff")  # and numbers above 1e300
# Any float but those from 2**-15 to 2**49, none of which msgspec writes with an exponent: the first
# byte has the sign and most of the double's exponent. To search the text takes ten times as long.
_may_have_exponent: Final = re.compile(rb"\xcb[^\x3f-\x42\xbf-\xc2]", re.DOTALL).search
# In a text such a piece is rare: there a quote follows.
_whole: Final = re.compile(rb"\.0(?=[,\]}]|\Z)")
_has_exponent: Final = re.compile(rb"e[+-]?[0-9]+(?:[,\]}]|\Z)").search
_string: Final = json.JSONEncoder(ensure_ascii=False).encode
_PIECES_A_PART: Final = 4096
_ECMASCRIPT_DECIMAL_MIN: Final = 1e-6


def digest(value: Json) -> str:
    """The SHA-256 of `canonical(value)`, in 64 hexadecimal digits.

    `digest(a) == digest(b)` exactly where `equal(a, b)`. Errors are those of `canonical`."""
    text = _as_encoded(value)
    if text is not None:
        return hashlib.sha256(text).hexdigest()
    hashed = hashlib.sha256()
    for part in _written(value):  # a number of few bytes may have 309 digits
        hashed.update(part)
    return hashed.hexdigest()


def canonical(value: Json) -> bytes:
    """The canonical JSON of `value`: see the module's docstring.

    ValueError for NaN, infinities and integers that Python doesn't write (of thousands of digits);
    TypeError for what isn't JSON."""
    text = _as_encoded(value)
    return b"".join(_written(value)) if text is None else text


def _as_encoded(value: Json) -> bytes | None:
    """The canonical JSON, where it is as msgspec writes it."""
    try:
        text = _encode(value)
        packed = _pack(value)
    except (ValueError, OverflowError, RecursionError):  # lone surrogates, large integers, depth
        return None
    if packed.find(_FLOAT) < 0:  # `in` takes bytes for a number at first, and as long again
        return text
    if any(nan in packed for nan in _NOT_FINITE):
        return None
    if _whole.search(text) or (_may_have_exponent(packed) and _has_exponent(text)):
        return _with_whole_numbers(text)
    return text


def _with_whole_numbers(text: bytes) -> bytes | None:
    """`text`, by msgspec, without the `.0` of whole numbers. None where it has an exponent or a
    negative zero, a quote within a string, or a string that ends as such a number does."""
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
    """In parts. Iterative, so no value is too deep."""
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

"""JSON decoded in a bounded time.

msgspec takes up to 7 µs for a number like 1e300, and nothing interrupts it: 4 MiB of them take 5 s.
The standard library takes 0.2 µs for any, but several times as long as msgspec for most other JSON.
"""

from __future__ import annotations

import json
import re

import msgspec

from patching._json import Json

_decode = msgspec.json.Decoder().decode
_EXPONENTS_MAX = 4000
_exponents = re.compile(rb"[0-9][eE][+-]?[0-9]").findall


def has_many_exponents(raw: bytes) -> bool:
    """Whether there are too many numbers with exponents in `raw` for msgspec to decode it."""
    marks = raw.count(b"e") + raw.count(b"E")
    return marks > _EXPONENTS_MAX and len(_exponents(raw)) > _EXPONENTS_MAX


def decoded(text: str | bytes) -> Json:
    """The value of `text`, which msgspec has written.

    ValueError where it is no JSON."""
    raw = text.encode() if isinstance(text, str) else text
    if has_many_exponents(raw):
        return json.loads(raw)  # type: ignore[no-any-return]
    return _decode(raw)  # type: ignore[no-any-return]

"""The header ``traceparent``: W3C Trace Context, level 1, section 3.2.

One that isn't as the specification has it is as if it weren't there; nobody is refused for it.
"""

from __future__ import annotations

import re
from typing import Final

_parts: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
).fullmatch
_NO_TRACE: Final = "0" * 32
_NO_PARENT: Final = "0" * 16


def trace_id(header: str | None) -> str | None:
    """The trace that a request belongs to, as 32 hex digits; None where it says nothing valid.

    A version above 00 may have more fields than are known; version 00 has none (section 3.2.2.1).
    """
    found = _parts(header) if header else None
    if found is None or found["version"] == "ff":
        return None
    if found["version"] == "00" and found["more"] is not None:
        return None
    if found["trace"] == _NO_TRACE or found["parent"] == _NO_PARENT:
        return None
    return found["trace"]

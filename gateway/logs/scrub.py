"""Secrets don't belong in logs; where one slips in all the same, it ends here.

Looked for in the finished line, so that it makes no difference what part of it they are in: a
message, an argument, an exception's text, a traceback.
"""

from __future__ import annotations

import re
from typing import Final

_SCRUBBED: Final = "[scrubbed]"
# In a line of JSON a quote has a backslash before it.
_QUOTE: Final = r"""\\*["']"""
_SECRETS: Final = re.compile(
    # A MongoDB URI: whatever lies between the scheme and the last @ before it ends.
    r"(?P<uri>mongodb(?:\+srv)?://)[^\s\"'<>]*@"
    # Passwords in its options.
    r"|(?P<option>(?:tlsCertificateKeyFilePassword|authMechanismProperties)=)[^&;\s\"'\\]*"
    # Authorization, as a header or as a member of a dict or of WSGI's environ.
    rf"|(?P<header>(?:proxy[-_])?authorization(?:{_QUOTE})?\s*[:=,]\s*(?:b?{_QUOTE})?)"
    # A scheme and what follows it, or what there is without one.
    r"(?:[\w-]+[ ]+)?[^\s,;}\"'\\]+"
    # A token by itself, ours or a JWT.
    r"|(?P<token>\bgwt_)[\w.~+/=-]+"
    r"|(?P<jwt>\beyJ)[\w-]{5,}\.[\w-]{5,}\.[\w-]*"
    r"|(?P<bearer>\bbearer\s+)[\w.~+/=-]{16,}",
    re.IGNORECASE,
)


# A secret has one of these beside it. Looking for them takes a fiftieth of the time.
_SIGNS: Final = ("mongodb", "authorization", "gwt_", "eyj", "bearer", "password", "authmechanism")


def scrub(line: str) -> str:
    """``line`` without the secrets that can be told from other text."""
    lower = line.lower()
    for sign in _SIGNS:
        if sign in lower:
            return _SECRETS.sub(_without, line)
    return line


def _without(found: re.Match[str]) -> str:
    kind = found.lastgroup
    kept = "" if kind in (None, "jwt") else found[str(kind)]
    return f"{kept}{_SCRUBBED}" + ("@" if kind == "uri" else "")

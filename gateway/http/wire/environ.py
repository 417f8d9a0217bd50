"""What a request is before its route reads it: its path, its length, its names in logs and traces.

WSGI decodes paths too early: ``%2F`` would become a slash. So Flask routes by the path as it was
sent, and the names in it are decoded (``query``) once it is known where each begins and ends.
"""

from __future__ import annotations

import os
import re
import string
from typing import Final
from urllib.parse import quote

from gateway.http.context import Environ


def raw_path(environ: Environ) -> str:
    """The path of the request target, still percent-encoded, below SCRIPT_NAME.

    The target is taken from RAW_URI (gunicorn) or REQUEST_URI (werkzeug). A server that gives
    neither has lost what was sent: there the decoded path is encoded again, so that all names work
    but those with an encoded slash in a catalog's name.
    """
    target: str | None = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if target is None:
        return quote(environ.get("PATH_INFO", "").encode("latin-1"))
    if not target.startswith("/"):
        target = _without_authority(target)
    path = target.partition("?")[0]
    mounted_at = environ.get("SCRIPT_NAME")
    if mounted_at and path.startswith(mounted_at):
        path = path[len(mounted_at) :]
    # Clients that send UTF-8 unencoded are understood; routing would decode it before its time.
    return path if path.isascii() else quote(path.encode("latin-1"), safe=string.printable)


def _without_authority(target: str) -> str:
    """The path and query of a target in absolute form (RFC 9112, section 3.2.2)."""
    _, scheme_end, rest = target.partition("://")
    if not scheme_end:
        return target
    start = min((i for i in (rest.find("/"), rest.find("?")) if i >= 0), default=len(rest))
    return rest[start:]


def declared_bytes(environ: Environ) -> int | None:
    """None where it isn't said: a chunked body's is known at its end."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    declared: str = environ.get("CONTENT_LENGTH") or "0"
    return int(declared) if declared.isascii() and declared.isdigit() else None


_is_sane = re.compile("[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch
_traceparent = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
).fullmatch
_NO_TRACE: Final = "0" * 32
_NO_PARENT: Final = "0" * 16


def request_id(environ: Environ) -> str:
    """The sane X-Request-Id that came in, or one that is made."""
    given: str | None = environ.get("HTTP_X_REQUEST_ID")
    return given if given is not None and _is_sane(given) else os.urandom(8).hex()


def trace_id(header: str | None) -> str | None:
    """The trace that a ``traceparent`` names, as 32 hex digits; None where it isn't valid.

    W3C Trace Context, level 1, section 3.2: what isn't as specified is as if it weren't there. A
    version above 00 may have more fields than are known; version 00 has none (section 3.2.2.1).
    """
    found = _traceparent(header) if header else None
    if found is None or found["version"] == "ff":
        return None
    if found["version"] == "00" and found["more"] is not None:
        return None
    if found["trace"] == _NO_TRACE or found["parent"] == _NO_PARENT:
        return None
    return found["trace"]

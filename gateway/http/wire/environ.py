"""Paths as they were sent: WSGI decodes them too early, and ``%2F`` would become a slash.

A WSGI middleware puts the still encoded path where Flask routes by it; the names in it are decoded
by ``names``, strictly, once it is known where each begins and ends.

How long a request's body is said to be.

What every answer has: a name, in logs and problems too, and that its media type is believed.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

Environ = dict[str, Any]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class RawPath:
    """Calls ``application`` with the encoded path in PATH_INFO."""

    def __init__(self, application: WsgiApplication) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["PATH_INFO"] = raw_path(environ)
        return self._application(environ, start_response)


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


# Documents hold what clients wrote: no browser may take one for a page or a script.
_NOSNIFF: Final = ("X-Content-Type-Options", "nosniff")
_KEY: Final = "gateway.request_id"
_is_sane = re.compile("[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


class RequestIds:
    """A WSGI middleware: keeps a sane X-Request-Id that came in, else makes one; sends it back."""

    def __init__(self, application: WsgiApplication) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get("HTTP_X_REQUEST_ID")
        name = given if given is not None and _is_sane(given) else os.urandom(8).hex()
        environ[_KEY] = name

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            headers.append(("X-Request-Id", name))
            headers.append(_NOSNIFF)
            return start_response(status, headers, exc_info)

        return self._application(environ, start)


def request_id(environ: Environ) -> str:
    name: str = environ[_KEY]
    return name

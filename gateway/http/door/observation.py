"""The outermost middleware: it makes a request's ``Observed``, and reports it to the observers.

So observers see the answers of all other middlewares, and learn when a streamed answer is over. The
middleware also sets the request that a thread works on, for its log lines, and gives every answer
the headers that all have: the request's id, the principal's rate limits, and ``nosniff``.

WSGI decodes paths too early: ``%2F`` would become a slash. So the app routes by the path as it was
sent (``raw_path``), and decodes the names in it once it knows where each begins and ends.

``gateway.observability`` makes the observers.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol
from urllib.parse import quote

from gateway.http.context import KEY, Environ, HeaderList, Observed, WsgiApplication
from gateway.logs import current_request

# Documents hold what clients wrote; a browser mustn't take one for a page or a script.
_NOSNIFF: Final = ("X-Content-Type-Options", "nosniff")
_is_sane = re.compile("[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch
_traceparent = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
).fullmatch
_NO_TRACE: Final = "0" * 32
_NO_PARENT: Final = "0" * 16


class Observer(Protocol):
    """Called in the thread of the request. Mustn't raise."""

    def began(self, observed: Observed) -> None: ...

    def ended(self, observed: Observed) -> None:
        """The answer was made or, if it is a stream, is over."""


class Observation:
    """A WSGI middleware that reports every request to ``observers``."""

    def __init__(self, application: WsgiApplication, observers: Iterable[Observer]) -> None:
        self._application = application
        self._observers = tuple(observers)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["PATH_INFO"] = raw_path(environ)
        header = environ.get("HTTP_TRACEPARENT")
        trace = trace_id(header) if header else None
        observed = environ[KEY] = Observed(environ, _request_id(environ), trace)
        current_request.set(observed)
        for observer in self._observers:
            observer.began(observed)

        def start(status: str, headers: HeaderList, exc_info: Any = None) -> Any:
            observed.status = int(status[:3])
            for name, value in headers:
                if name == "Commit-Id":
                    observed.commit_id = value
            sender = observed.sender
            if sender is not None and sender.spending is not None:
                headers += sender.spending.fields()
            headers += (("X-Request-Id", observed.request_id), _NOSNIFF)
            return start_response(status, headers, exc_info)

        try:
            body = self._application(environ, start)
        except BaseException:
            self._end(observed)
            raise
        whole = getattr(body, "answer", body)  # ``admission.Held`` wraps the answer
        if isinstance(whole, tuple):
            observed.sent_bytes = sum(map(len, whole))
            self._end(observed)
            return body
        return _Watched(body, observed, self._end)

    def _end(self, observed: Observed) -> None:
        for observer in self._observers:
            observer.ended(observed)
        current_request.set(None)


class _Watched:
    """A body that is made while it is sent; at its end it calls ``end``."""

    def __init__(
        self, body: Iterable[bytes], observed: Observed, end: Callable[[Observed], None]
    ) -> None:
        self._body = body
        self._observed = observed
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            self._observed.sent_bytes += len(piece)
            yield piece

    def close(self) -> None:
        """The server always calls it."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._end(self._observed)


def raw_path(environ: Environ) -> str:
    """The path of the request target, still percent-encoded, below SCRIPT_NAME.

    The target is taken from RAW_URI (gunicorn) or REQUEST_URI (werkzeug). A server that sets
    neither has lost it: then the decoded path is encoded again, so all names work except those of
    catalogs with an encoded slash.
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
    # Some clients send UTF-8 unencoded: encode it, since routing would decode it too early.
    return path if path.isascii() else quote(path.encode("latin-1"), safe=string.printable)


def _without_authority(target: str) -> str:
    """The path and query of a target in absolute form (RFC 9112, section 3.2.2)."""
    _, scheme_end, rest = target.partition("://")
    if not scheme_end:
        return target
    start = min((i for i in (rest.find("/"), rest.find("?")) if i >= 0), default=len(rest))
    return rest[start:]


def _request_id(environ: Environ) -> str:
    """The X-Request-Id that was sent, if it is sane, or a new one."""
    given: str | None = environ.get("HTTP_X_REQUEST_ID")
    return given if given is not None and _is_sane(given) else os.urandom(8).hex()


def trace_id(header: str | None) -> str | None:
    """The trace that a ``traceparent`` names, as 32 hex digits; None if it isn't valid.

    W3C Trace Context, level 1, section 3.2: a malformed header counts as missing. A version above
    00 may have further, unknown fields; version 00 has none (section 3.2.2.1).
    """
    found = _traceparent(header) if header else None
    if found is None or found["version"] == "ff":
        return None
    if found["version"] == "00" and found["more"] is not None:
        return None
    if found["trace"] == _NO_TRACE or found["parent"] == _NO_PARENT:
        return None
    return found["trace"]

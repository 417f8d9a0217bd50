"""One request and its answer, over HTTP/1.1: the environment that the application sees, and the
bytes that it answers.

gunicorn makes both field by field, which takes longer than most answers. Here the head of an answer
is one piece of bytes, checked as a whole, and sent along with the first of its body.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from gunicorn import SERVER_SOFTWARE, util

from gateway.server.parsing import HeadRequest, RequestBody

if TYPE_CHECKING:  # the master, too, imports this, and needs no more of it
    from gateway.memory import Memory

Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class ServedApp(Protocol):
    """The app as the server knows it: it speaks WSGI, and answers what the server asks besides.

    ``memory`` is what its requests share. The server makes room where that is short.
    """

    memory: Memory

    def __call__(
        self, environ: Environ, start_response: Callable[..., Any], /
    ) -> Iterable[bytes]: ...

    def begin_stop(self) -> None:
        """The worker stops: answers that wait for something end."""

    def has_room_for(self, start: bytes, /) -> bool:
        """Whether a request with these first bytes would probably be taken on now."""

    def holder_of(self, environ: Environ, /) -> str | None:
        """Whose share the body of a request counts to (``gateway.access.principal``)."""

    def check_ready(self) -> None:
        """Raises an error as long as it can't answer."""


# RFC 9110, sections 5.1 and 5.5, and RFC 9112, section 4: what the application says can't end a
# line, so that nobody's value becomes a header.
_is_head: Final = re.compile(
    r"[0-9]{3}(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\t -~\x80-\xff]*\r\n)*"
).fullmatch


def environ_of_connection(
    listener: tuple[Any, ...], address: tuple[Any, ...], connection: Any, *, encrypted: bool
) -> Environ:
    """What the environments of all requests on a connection have (PEP 3333)."""
    return {
        "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "wsgi.url_scheme": "https" if encrypted else "http",
        "gunicorn.socket": connection,
        "SERVER_SOFTWARE": SERVER_SOFTWARE,
        "SERVER_NAME": listener[0],
        "SERVER_PORT": str(listener[1]),
        "REMOTE_ADDR": address[0],
        "REMOTE_PORT": str(address[1]),
        "SCRIPT_NAME": "",
    }


class Exchange:
    """``run`` answers the request. ``is_last``: the connection ends behind the answer."""

    __slots__ = (
        *("_connection", "_headers", "_is_bodyless", "_is_chunked", "_left", "_request"),
        *("_status", "has_begun", "is_last"),
    )

    def __init__(self, request: HeadRequest, connection: Any, *, is_last: bool) -> None:
        self._request = request
        self._connection = connection
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._left: int | None = None  # bytes of the body, as the head tells
        self._is_bodyless = False
        self._is_chunked = False
        self.is_last = is_last or request.should_close()
        self.has_begun = False

    def run(self, application: Wsgi, environ: Environ) -> None:
        """Raises what the application raises, and OSError where the connection broke."""
        environ = self._complete(environ)
        try:
            body = application(environ, self.start_response)
            try:
                for piece in body:
                    self._write(piece)
                self._finish()
            finally:
                close = getattr(body, "close", None)
                if close is not None:
                    close()
        finally:
            # What the application has put there may have the environment itself, and all that the
            # request had would be there until somebody looks for cycles.
            environ.clear()

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info is not None and self.has_begun:
            raise exc_info[1]
        if exc_info is None and self._status:
            raise AssertionError("the answer has begun already")
        self._status, self._headers, self._left = status, headers, None
        code = status[:3]
        self._is_bodyless = code in ("204", "304") or self._request.method == "HEAD"
        for name, value in headers:
            if name.lower() == "content-length":
                self._left = int(value)
        if code == "204":  # has none, RFC 9110, section 8.6
            self._headers = [each for each in headers if each[0].lower() != "content-length"]
        is_whole = self._is_bodyless or self._left is not None
        self._is_chunked = not is_whole and self._request.version >= (1, 1)
        body = self._request.body
        # An answer without a length may be a stream, made while the request's body is read.
        unread = is_whole and isinstance(body, RequestBody) and body.has_much_left()
        if unread or not (is_whole or self._is_chunked):
            self.is_last = True
        return self._write

    def _complete(self, environ: Environ) -> Environ:
        """The environment of the connection, with what the request says."""
        request = self._request
        if request._expected_100_continue:
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        environ = environ.copy()
        body = request.body
        environ["wsgi.input"] = body if isinstance(body, RequestBody) else io.BytesIO()
        environ["REQUEST_METHOD"] = request.method
        environ["RAW_URI"] = request.uri
        path = request.path
        environ["PATH_INFO"] = util.unquote_to_wsgi_str(path) if "%" in path else path
        environ["QUERY_STRING"] = request.query
        major, minor = request.version
        environ["SERVER_PROTOCOL"] = f"HTTP/{major}.{minor}"
        for name, value in request.headers:
            key = _key(name)
            # Joined, however many there are: their number is bounded.
            environ[key] = f"{environ[key]},{value}" if key in environ else value
        return environ

    def _write(self, piece: bytes) -> None:
        if self._is_bodyless:
            piece = b""
        elif self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
        elif self._is_chunked and piece:
            piece = b"%X\r\n%b\r\n" % (len(piece), piece)
        if not self.has_begun:
            piece = self._head() + piece
            self.has_begun = True
        if piece:
            self._connection.sendall(piece)

    def _finish(self) -> None:
        if not self.has_begun:
            self._write(b"")
        if self._is_chunked:
            self._connection.sendall(b"0\r\n\r\n")
        elif self._left and not self._is_bodyless:
            # What comes next on the connection would be taken for the rest.
            self.is_last = True

    def _head(self) -> bytes:
        """Raises ValueError for a status or header that would end its line."""
        lines = [f"{name}: {value}\r\n" for name, value in self._headers]
        said = f"{self._status}\r\n{''.join(lines)}"
        if said.count("\n") != len(lines) + 1 or not _is_head(said):
            raise ValueError("the application's status or headers are no HTTP")
        status, _, fields = said.partition("\r\n")
        version = "1.1" if self._request.version >= (1, 1) else "1.0"
        kept = "close" if self.is_last else "keep-alive"
        chunked = "Transfer-Encoding: chunked\r\n" if self._is_chunked else ""
        return (
            f"HTTP/{version} {status}\r\nServer: gunicorn\r\nDate: {_date(int(time.time()))}\r\n"
            f"Connection: {kept}\r\n{chunked}{fields}\r\n"
        ).encode("latin-1")


@lru_cache(maxsize=256)
def _key(name: str) -> str:
    """The variable of a header, whose ``name`` is in upper case and has no underscore."""
    key = name.replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


@lru_cache(maxsize=2)
def _date(time_s: int) -> str:
    """RFC 9110, section 5.6.7."""
    return util.http_date(time_s)

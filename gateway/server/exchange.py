"""One request and its answer, over HTTP/1.1: the environment that the app gets, and the bytes of
its answer.

gunicorn makes both field by field, which takes longer than most answers. Here the head of an answer
is checked as a whole, and sent together with the first piece of the body.
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

if TYPE_CHECKING:  # the master imports this module too, and doesn't need that one
    from gateway.memory import Memory

Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class ServedApp(Protocol):
    """The app as the server knows it: a WSGI application with some further methods.

    Its requests share ``memory``. The server makes room when that is short.
    """

    memory: Memory

    def __call__(
        self, environ: Environ, start_response: Callable[..., Any], /
    ) -> Iterable[bytes]: ...

    def begin_stop(self) -> None:
        """The worker stops: answers that wait for something end."""

    def has_room_for(self, start: bytes, /) -> bool:
        """Whether a request with these first bytes would probably be admitted now."""

    def holder_of(self, environ: Environ, /) -> str | None:
        """In whose share the body of a request counts (see ``gateway.access.principal``)."""

    def check_ready(self) -> None:
        """Raise an error unless the database answers."""


# RFC 9110, sections 5.1 and 5.5, and RFC 9112, section 4: no value can end its line, so that none
# becomes another header.
_is_head: Final = re.compile(
    r"[0-9]{3}(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: [\t -~\x80-\xff]*\r\n)*"
).fullmatch


def environ_of_connection(
    listener: tuple[Any, ...], address: tuple[Any, ...], connection: Any, *, encrypted: bool
) -> Environ:
    """The variables (PEP 3333) that all requests on a connection have in common."""
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
    """A request on its way to an answer. ``is_last``: the connection ends after the answer."""

    __slots__ = (
        *("_connection", "_headers", "_is_bodyless", "_is_chunked", "_left", "_request"),
        *("_status", "has_begun", "is_last"),
    )

    def __init__(self, request: HeadRequest, connection: Any, *, is_last: bool) -> None:
        self._request = request
        self._connection = connection
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._left: int | None = None  # bytes of the body to send, if its length is declared
        self._is_bodyless = False
        self._is_chunked = False
        self.is_last = is_last or request.should_close()
        self.has_begun = False

    def run(self, application: Wsgi, environ: Environ) -> None:
        """Answer the request. Raises the app's errors, and OSError if the connection broke."""
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
            # What the app has put there may refer to the environment itself; then everything of the
            # request would stay until the next garbage collection.
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
        if code == "204":  # it mustn't have a length: RFC 9110, section 8.6
            self._headers = [each for each in headers if each[0].lower() != "content-length"]
        is_whole = self._is_bodyless or self._left is not None
        self._is_chunked = not is_whole and self._request.version >= (1, 1)
        body = self._request.body
        # An answer without a length may be a stream that is made while the request's body is read.
        unread = is_whole and isinstance(body, RequestBody) and body.has_much_left()
        if unread or not (is_whole or self._is_chunked):
            self.is_last = True
        return self._write

    def _complete(self, environ: Environ) -> Environ:
        """The environment of the request, made from that of the connection."""
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
            # Repeated headers are joined, however many: their number is bounded.
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
            # The client would take the next answer for the rest of this one.
            self.is_last = True

    def _head(self) -> bytes:
        """The head of the answer. Raises ValueError if the status or a header isn't valid."""
        lines = [f"{name}: {value}\r\n" for name, value in self._headers]
        said = f"{self._status}\r\n{''.join(lines)}"
        if said.count("\n") != len(lines) + 1 or not _is_head(said):
            raise ValueError("the application's status or headers aren't valid HTTP")
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
    """The variable for the header ``name``, which is in upper case and has no underscore."""
    key = name.replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


@lru_cache(maxsize=2)
def _date(time_s: int) -> str:
    """The header's date: RFC 9110, section 5.6.7."""
    return util.http_date(time_s)

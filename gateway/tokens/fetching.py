"""One exchange over HTTP with the issuer of tokens; it follows no redirect.

Plain HTTP, which is only for this machine, uses no proxy: it would see secrets, and could change
the keys.

It is bounded as a whole, in time and in bytes. A socket's timeout only bounds one wait: an issuer,
or a proxy in front of it, that sends a byte now and then never exceeds it, in the handshake, the
head or the body. So when the time is up, the connection is shut down, whatever is under way on it.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from gateway.outgoing import HEAD_BYTES_MAX, BoundedAnswer

BYTES_MAX: Final = 1024 * 1024


def body_of(
    url: str, seconds: float, form: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """The body of the answer to a GET of ``url``, or, with ``form``, to a POST of that form; at
    most BYTES_MAX bytes.

    Raises Declined for an answer of status 400 or above, ValueError for a larger body, and OSError,
    including TimeoutError after ``seconds``.
    """
    deadline = _Deadline(seconds)
    proxies = {name: at for name, at in urllib.request.getproxies().items() if name != "http"}
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), _Http(deadline), _Https(deadline), _NoRedirect()
    )
    asked = urllib.request.Request(url, form, dict(headers or {}))
    try:
        status, body = _exchanged(opener, asked, seconds)
    except http.client.HTTPException as error:
        raise OSError(f"the answer isn't HTTP: {error!r}"[:200]) from error
    finally:
        deadline.cancel()
    if deadline.is_over:  # an answer that was cut off may look whole
        raise TimeoutError(f"the answer didn't arrive within {seconds:g} s")
    if len(body) > BYTES_MAX:
        raise ValueError(f"the answer is larger than {BYTES_MAX} bytes")
    if status >= 400:
        raise Declined(status, body)
    return body


def _exchanged(
    opener: urllib.request.OpenerDirector, asked: urllib.request.Request, seconds: float
) -> tuple[int, bytes]:
    """The status, and at most BYTES_MAX + 1 bytes of the body."""
    try:
        with opener.open(asked, timeout=seconds) as answer:
            return answer.status, answer.read(BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(BYTES_MAX + 1)


class Declined(OSError):
    """An answer of status 400 or above, with its ``body``."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"it answered with status {status}")
        self.status = status
        self.body = body


class _Deadline:
    """Shuts down the connections that it has made when the time is up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()
        self.is_over = False

    def connect(self, address: Any, *_: Any) -> socket.socket:
        """A connection to the first of the addresses of ``address`` (host, port) that answers. Used
        instead of ``socket.create_connection``, whose timeout is for each address."""
        error: OSError = TimeoutError("the time is up")
        host, port = address
        for _family, _kind, _protocol, _name, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                break
            try:
                return self._watched(socket.create_connection((str(place[0]), port), left_s))
            except OSError as refused:
                error = refused
        raise error

    def cancel(self) -> None:
        self._timer.cancel()
        with self._lock:
            while self._connections:
                self._connections.pop().close()

    def _watched(self, connection: socket.socket) -> socket.socket:
        # Needs a descriptor of its own: TLS detaches that of the socket.
        same = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._connections.append(same)
            if self.is_over:
                _shut_down(same)
        return connection

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            for each in self._connections:
                _shut_down(each)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other end has closed it
        connection.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **given: Any) -> http.client.HTTPConnection:
            return _watched(http.client.HTTPConnection(host, **given), self._deadline)

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **given: Any) -> http.client.HTTPConnection:
            return _watched(http.client.HTTPSConnection(host, **given), self._deadline)

        return self.do_open(connection, req)


def _watched(
    connection: http.client.HTTPConnection, deadline: _Deadline
) -> http.client.HTTPConnection:
    # The library makes its connections, also those to a proxy, and its answers with these.
    vars(connection)["_create_connection"] = deadline.connect
    bytes_max = BYTES_MAX + HEAD_BYTES_MAX
    vars(connection)["response_class"] = partial(BoundedAnswer, bytes_max=bytes_max)
    return connection


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> NoReturn:
        raise OSError("it redirects to another address")

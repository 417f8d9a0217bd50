"""One HTTP request, without retries: the pool, the timeouts, and what an answer means. Another
thread can break it off, so that a waiting call ends at once."""

from __future__ import annotations

import re
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from http.client import (
    SWITCHING_PROTOCOLS,
    BadStatusLine,
    HTTPResponse,
    IncompleteRead,
    RemoteDisconnected,
)
from typing import Any, BinaryIO, Final, Self, Unpack

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from patching.client._forks import PerProcess
from patching.client._steps import Query
from patching.client._wire import (
    READ_TIMEOUT_S,
    ConnectionSettings,
    ConnectionTerms,
    HttpAnswer,
    Outgoing,
    is_success,
    refusal,
    seconds_left,
    segment,
    unreachable,
)
from patching.client.errors import RequestError, Unreachable
from patching.client.terms import encoded

__all__ = ["Closable", "HttpAnswer", "Query", "Transport", "segment"]

# How urllib3's messages begin: with the repr of the connection or the pool.
_OBJECT: Final = re.compile(r"^(?:\w+\([^()]*\)|<[^<>]*>): ")
_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_UNSENT: Final = (NewConnectionError, ConnectTimeoutError)


class Closable:
    """Closed at the end of a ``with``."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport(Closable):
    """HTTP to a gateway. Thread-safe; holds connections until ``close``.

    ``url`` may have a path, below which the gateway's routes are; and it may be several, separated
    by commas, of gateways over one database: if the one in use can't be connected to, the request
    goes to the next, and after a request broke off, the following ones do. ``connection``: the
    keywords of `ConnectionTerms`: ``token``, ``headers``, ``pool_size``, ``connect_timeout_s``,
    ``ca_file``, ``certificate_file``, ``key_file``. ``read_timeout_s`` is for each read of an
    answer, in seconds; ``request`` can have another, which then bounds connecting, too. Redirects
    aren't followed: they raise UnexpectedAnswer, and the token goes nowhere else.
    """

    def __init__(
        self,
        url: str,
        *,
        read_timeout_s: float = READ_TIMEOUT_S,
        **connection: Unpack[ConnectionTerms],
    ) -> None:
        terms = ConnectionSettings(**connection)
        self._outgoing = Outgoing(url, terms)
        self._connect_timeout_s = terms.connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._connections = ConnectionPools(terms, self._outgoing.hosts)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> HttpAnswer:
        """Send one request, once. ``path`` is percent-encoded already (see ``segment``).

        ``json`` (unless None) is encoded as the body, ``body`` is sent as it is; ``headers`` win
        over all others. Raises Unreachable, UnexpectedAnswer and the Problem classes.
        """
        sent: dict[str, str] = {}
        if json is not None:
            body = encoded(json)
            sent["Content-Type"] = "application/json"
        _, response = self._send(
            method, path, query, body, sent | dict(headers or {}), read_timeout_s
        )
        answer = HttpAnswer(response.status, response.headers, response.data)
        if is_success(answer.status):
            return answer
        raise self._refusal(method, answer)

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Like ``request``, but returns with the head of a 2xx answer. The caller reads the body,
        handles urllib3's errors in that, and closes it."""
        url, response = self._send(
            method, path, query, body, headers or {}, read_timeout_s, whole=False
        )
        if 200 <= response.status < 300:
            return response
        try:
            answer = HttpAnswer(response.status, response.headers, response.read())
        except (HTTPError, OSError) as error:
            # Its own traceback is the one to read; urllib3's are its context.
            raise self._unreachable(method, url, error) from None
        finally:
            response.close()
        raise self._refusal(method, answer)

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes | None,
        headers: Mapping[str, str],
        read_timeout_s: float | None,
        *,
        whole: bool = True,
    ) -> tuple[str, urllib3.BaseHTTPResponse]:
        """The URL that answered, and its answer."""
        sent = self._outgoing.headers(headers)
        deadline = None if read_timeout_s is None else time.monotonic() + read_timeout_s
        left = self._outgoing.hosts
        while True:
            place, left = self._outgoing.place, left - 1
            timeout = self._timeout(deadline)
            url = self._outgoing.url(place, path, query)
            try:
                return url, self._connections.pool.request(
                    method,
                    url,
                    body=body,
                    headers=sent,
                    timeout=timeout,
                    redirect=False,
                    retries=False,
                    preload_content=whole,
                )
            except (HTTPError, OSError) as error:
                self._outgoing.failed(place)
                if not left or not isinstance(error, _UNSENT):
                    raise self._unreachable(method, url, error) from None

    def _timeout(self, deadline: float | None) -> urllib3.Timeout:
        left_s = seconds_left(deadline, time.monotonic())
        if left_s is None:
            return urllib3.Timeout(connect=self._connect_timeout_s, read=self._read_timeout_s)
        return urllib3.Timeout(connect=min(self._connect_timeout_s, left_s), read=left_s)

    def close(self) -> None:
        """Requests under way in other threads end with Unreachable, and so do later ones."""
        self._connections.close()

    def _unreachable(self, method: str, url: str, error: Exception) -> Unreachable:
        is_unsent, is_closed = isinstance(error, _UNSENT), self._connections.is_closed
        return unreachable(method, url, in_words(error), unsent=is_unsent, is_closed=is_closed)

    def _refusal(self, method: str, answer: HttpAnswer) -> RequestError:
        """The exception for ``answer``; a subclass may say more."""
        return refusal(method, answer)


class _Lines:
    """The lines of an answer's head as they are read; ``last`` is empty if it was cut off."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._file.readline(limit)
        return self.last

    def close(self) -> None:
        self._file.close()


class _WholeHead(HTTPResponse):
    """Corrects http.client, which takes a closed connection for the end of a head (of an answer
    without content, say, or with half a header), and 103 for an answer."""

    def begin(self) -> None:
        while self.headers is None:
            self._read_head()
            if self.status == SWITCHING_PROTOCOLS:
                raise BadStatusLine("the server switched to another protocol")
            if 100 <= self.status < 200:
                # If it were the answer, the real one would go to the connection's next request.
                self.headers = self.msg = None

    def _read_head(self) -> None:
        file = self.fp
        lines: Any = _Lines(file)
        self.fp = lines
        try:
            super().begin()
        finally:
            if self.fp is lines:  # and wasn't closed
                self.fp = file
        if not lines.last:
            raise RemoteDisconnected("the head of the answer was cut off")


class ConnectionPools(PerProcess):
    """A urllib3 pool, and its open connections, including those in use.

    urllib3 itself can only forget a connection in use: a long poll would wait on, with its thread
    here and its slot at the gateway, until the gateway answers. And two processes that share a
    connection get each other's answers.
    """

    def __init__(self, terms: ConnectionSettings, hosts: int) -> None:
        self._terms = terms
        self._hosts = hosts
        self.is_closed = False
        super().__init__()

    def _begin(self) -> None:
        terms = self._terms
        self._open: weakref.WeakSet[HTTPConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.pool = urllib3.PoolManager(
            num_pools=self._hosts + 1,
            maxsize=terms.pool_size,
            block=False,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=terms.ca_file,
            cert_file=terms.certificate_file,
            key_file=terms.key_file,
        )
        self.pool.pool_classes_by_scheme = self._pool_classes()

    def close(self) -> None:
        """Break off what is under way. Nothing can be sent afterwards."""
        with self._lock:
            self.is_closed = True
            connections = list(self._open)
        for connection in connections:
            broken = connection.sock
            if broken is not None:
                with suppress(OSError):  # it has ended by itself
                    # of the plain socket: a TLS one would take its session apart under the reader
                    socket.socket.shutdown(broken, socket.SHUT_RDWR)
        self.pool.clear()

    def _connected(self, connection: HTTPConnection) -> None:
        with self._lock:
            if not self.is_closed:
                self._open.add(connection)
                return
        connection.close()
        raise NewConnectionError(connection, "the client was closed")

    def _pool_classes(self) -> dict[str, Any]:
        connected = self._connected

        class Plain(HTTPConnection):
            response_class = _WholeHead

            def connect(self) -> None:
                super().connect()
                connected(self)

        class Secure(HTTPSConnection):
            response_class = _WholeHead

            def connect(self) -> None:
                super().connect()
                connected(self)

        class PlainPool(urllib3.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}


def in_words(error: BaseException) -> str:
    """Why a connection failed, for people: without the objects and the error within the error that
    the HTTP library's own texts show."""
    first, *rest = error.args or ("",)
    if rest and isinstance(rest[-1], Exception) and isinstance(first, str):
        # ("Connection aborted.", RemoteDisconnected("Remote end closed …"))
        return f"{first.partition(':')[0].rstrip('.')}: {in_words(rest[-1])}"
    if isinstance(error, IncompleteRead):
        came = error.partial if isinstance(error.partial, int) else len(error.partial)
        return f"cut off after {came} bytes; {error.expected or 'some'} more were expected"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _NUMBER.sub("", _OBJECT.sub("", str(error))).strip() or type(error).__name__

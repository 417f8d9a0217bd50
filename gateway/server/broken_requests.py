"""Requests that are broken on the wire: refused with 4xx and a problem.

The app never sees a request whose head can't be parsed, and notices a broken body only when it
reads it. gunicorn would answer the former with HTML, sometimes with 5xx, and pass on a body that
ended early as if it were whole.
"""

from __future__ import annotations

import json
import math
import ssl
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from gunicorn.http.body import ChunkedReader, LengthReader
from gunicorn.http.errors import (
    ExpectationFailed,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
)
from gunicorn.workers.base import Worker
from werkzeug.exceptions import BadRequest, ClientDisconnected

from gateway.limits import ConnectionLimits
from gateway.server.connection_limits import BodiesUnderWay, UntakenAnswers
from gateway.server.exchange import Environ, ServedApp
from gateway.server.parsing import RequestBody

# Any other refusal of the parser is 400 malformed_request.
_REFUSALS: dict[type[ParseException], tuple[HTTPStatus, str]] = {
    LimitRequestLine: (HTTPStatus.REQUEST_URI_TOO_LONG, "request_line_too_long"),
    LimitRequestHeaders: (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large"),
    ExpectationFailed: (HTTPStatus.EXPECTATION_FAILED, "expectation_failed"),
}

_READING = ("GET", "HEAD", "OPTIONS")


def refusal(error: BaseException) -> bytes | None:
    """The HTTP answer to a request that can't be parsed, as bytes; None for any other error."""
    if not isinstance(error, ParseException):
        return None
    status, code = _REFUSALS.get(type(error), (HTTPStatus.BAD_REQUEST, "malformed_request"))
    return problem_bytes(status, code, str(error)[:500])


def _failed(*, certain: bool) -> bytes:
    """The answer after a defect. ``certain``: the request was certainly not applied."""
    detail = "the gateway failed on this connection; its log says more"
    applied = "no" if certain else "unknown"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return problem_bytes(status, "internal_error", detail, applied=applied)


def _without_memory(*, certain: bool) -> bytes:
    detail = "this worker has no memory left for the request"
    if certain:
        status = HTTPStatus.TOO_MANY_REQUESTS
        return problem_bytes(status, "overloaded", detail, retryable=True, retry_after_s=1)
    detail, status = f"{detail}; it may have been applied", HTTPStatus.GATEWAY_TIMEOUT
    return problem_bytes(status, "outcome_unknown", detail, applied="unknown")


def problem_bytes(
    status: HTTPStatus,
    code: str,
    detail: str,
    *,
    applied: str = "no",
    retryable: bool = False,
    retry_after_s: int | None = None,
) -> bytes:
    """The HTTP answer to a request that the app doesn't see, as bytes."""
    problem = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": code,
        "applied": applied,
        "retryable": retryable,
    }
    body = json.dumps(problem).encode()
    retry_after = "" if retry_after_s is None else f"Retry-After: {retry_after_s}\r\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Connection: close\r\n"
        "Content-Type: application/problem+json\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"{retry_after}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


class RefusingWorker(Worker):
    """Answers unparsable requests with a problem; a base class that precedes gunicorn's worker."""

    # Both are set before the worker begins.
    limits: ConnectionLimits
    unsent: UntakenAnswers
    # None until the app is loaded: a worker may be stopped before that.
    wsgi: Any = None

    def handle_error(
        self,
        req: Any,
        client: Any,
        addr: Any,
        exc: BaseException,
    ) -> None:
        if isinstance(exc, ssl.SSLError):  # without a handshake a client can't be answered
            self.log.debug("TLS with %s failed: %s", addr, exc)
            return
        answer = refusal(exc)
        if answer is None:
            # A defect of the server; the app answers after its own.
            self.log.error("a connection failed", exc_info=exc)
            # It isn't known how far the request got before the defect.
            certain = req is None or req.method in _READING
            make = _without_memory if isinstance(exc, MemoryError) else _failed
            answer = make(certain=certain)
        with suppress(OSError):  # the client may be gone
            client.sendall(answer)

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self.wsgi.application.memory.when_short = self.unsent.cut_stalled
        if not self.alive:  # the worker was stopped while the app was made, which doesn't know it
            self.begin_stop()

    def held_bytes(self) -> int:
        """The memory that the app's requests hold as objects."""
        return self.wsgi.application.memory.building_bytes if self.wsgi else 0

    def pause(self, bytes_max: int) -> bool:
        """See ``gateway.memory.Memory.pause``."""
        return bool(self.wsgi and self.wsgi.application.memory.pause(bytes_max))

    def drop_kept(self) -> None:
        if self.wsgi:
            self.wsgi.application.memory.drop_kept()

    def begin_stop(self) -> None:
        """The worker stops: requests that wait in the app end."""
        if self.wsgi:
            self.wsgi.application.begin_stop()


class CheckedBodies:
    """The app, with request bodies that are whole, or raise an error when they are read.

    A read raises werkzeug's `BadRequest` for a body that is broken on the wire, and its
    `ClientDisconnected`, also a bad request, if the connection ended before the body did. `limits`
    bound all bodies that this process is receiving.
    """

    def __init__(self, application: ServedApp, limits: ConnectionLimits) -> None:
        self.application = application
        self._under_way = BodiesUnderWay(limits)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if isinstance(environ["wsgi.input"], RequestBody):
            holder_of = self.application.holder_of
            environ["wsgi.input"] = _CheckedBody(environ, self._under_way, holder_of)
        return self.application(environ, start_response)


class _CheckedBody:
    """What the app uses of `wsgi.input` (PEP 3333).

    A body that is read by ``read`` has to be complete in time; ``read1`` is for streams, which have
    no such limit.
    """

    def __init__(
        self,
        environ: Environ,
        under_way: BodiesUnderWay,
        holder_of: Callable[[Environ], str | None],
    ) -> None:
        self._environ = environ
        self._body = environ["wsgi.input"]
        self._missing: int | None = self._body.left
        self._under_way = under_way
        self._holder_of = holder_of
        self._deadline: float | None = None

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size == self._missing and self._body.has_come(size):
            self._missing = 0
            return bytes(self._body.reader.read(size))
        if self._deadline is None:
            self._deadline = self._under_way.deadline()
        data = self._take(self._read_counted, size, self._deadline)
        # When the connection ends, a read of everything returns what has come.
        if self._missing and (size is None or size < 0):
            raise ClientDisconnected
        return data

    def read1(self, size: int = -1) -> bytes:
        """The bytes that have arrived, up to ``size``. Waits for at least one; b"" at the end.

        It is for streams, as ``read`` waits until gunicorn has read a kilobyte.
        """
        reader, staged = self._body.reader, self._body.buf.tell()
        if staged:
            return self._take(self._body.read, staged if size < 0 else min(size, staged))
        if isinstance(reader, LengthReader):
            return self._take(partial(_received, reader), size)
        first = self._take(self._body.readline, 1 if size else 0)
        staged = self._body.buf.tell()
        read, staged = (self._body.read, staged) if staged else (reader.read, reader.buf.tell())
        wanted = staged if size < 0 else min(staged, size - 1)
        return first + self._take(read, wanted) if first and wanted else first

    def _read_counted(self, size: int | None) -> bytes:
        whole = size is None or size < 0
        # The app knows the principal by now.
        holder = self._holder_of(self._environ)
        return self._under_way.read(self._body.read, sys.maxsize if whole else size or 0, holder)

    def _take(
        self,
        read: Callable[[int | None], bytes],
        size: int | None,
        deadline: float = math.inf,
    ) -> bytes:
        reader = self._body.reader
        source = reader.req.unreader if isinstance(reader, ChunkedReader) else reader.unreader
        try:
            with self._under_way.patience(source, deadline):
                data = read(size)
        except (NoMoreData, OSError) as error:  # the connection has ended, in whatever way
            raise ClientDisconnected from error
        except ParseException as error:
            raise BadRequest(f"the request body is broken: {error}") from error
        if self._missing is not None:
            self._missing -= len(data)
            if self._missing and not data and size != 0:
                raise ClientDisconnected
        return data


def _received(reader: LengthReader, size: int) -> bytes:
    """The bytes that have arrived of a body of known length, up to ``size``. For each piece,
    ``read`` would copy all that has arrived."""
    wanted = reader.length if size < 0 else min(size, reader.length)
    if not wanted:
        return b""
    data: bytes = reader.unreader.read(read_ahead=wanted)  # type: ignore[call-arg]
    if len(data) > wanted:  # it includes the next request, or bytes that had arrived before
        reader.unreader.unread(data[wanted:])
        data = data[:wanted]
    reader.length -= len(data)
    return data

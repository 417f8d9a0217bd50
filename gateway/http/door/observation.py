"""Each request as those see it who watch the service: metrics, access log, traces.

The outermost middleware: what any other one answers is seen too. It knows when a streamed answer
is over, and which request a thread works on (for what it logs).

Who watches requests: the metrics and the access log.

The header ``traceparent``: W3C Trace Context, level 1, section 3.2.

One that isn't as the specification has it is as if it weren't there; nobody is refused for it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import unquote

import flask

from gateway.http.wire.environ import Environ, WsgiApplication
from gateway.logs import current_request

_EXCHANGE = "gateway.exchange"
NO_ROUTE = "(none)"


class Exchange:
    """A request and what was answered, as far as that has come.

    ``route`` is the template of its path, ``status`` 0 before the answer began. ``trace_id`` is
    that of ``traceparent``, or of the span that was begun for the request.
    """

    __slots__ = ("begun", "commit_id", "environ", "route", "sent_bytes", "status", "trace_id")

    def __init__(self, environ: Environ) -> None:
        self.begun = time.perf_counter()
        self.environ = environ
        self.route = NO_ROUTE
        self.status = 0
        self.sent_bytes = 0
        self.commit_id: str | None = None
        header = environ.get("HTTP_TRACEPARENT")
        self.trace_id = trace_id(header) if header else None

    @property
    def method(self) -> str:
        method: str = self.environ["REQUEST_METHOD"]
        return method

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def problem(self) -> str | None:
        """The code of the problem that it was answered with, if it was one."""
        code: str | None = self.environ.get("gateway.problem")
        return code

    def log_fields(self) -> dict[str, str]:
        """See ``gateway.logs.RequestContext``."""
        environ = self.environ
        principal = environ.get("gateway.principal")
        fields = {
            "request_id": environ.get("gateway.request_id"),
            "principal": getattr(principal, "name", None),
            "trace_id": self.trace_id,
            "commit_id": self.commit_id,
            "catalog": environ.get("gateway.catalog"),
        }
        return {name: value for name, value in fields.items() if value is not None}


class Observer(Protocol):
    """Called in the thread of the request; must not raise."""

    def began(self, exchange: Exchange) -> None: ...

    def ended(self, exchange: Exchange) -> None:
        """The answer was made, or was a stream and is over."""


class Observation:
    """A WSGI middleware: tells ``observers`` of every request."""

    def __init__(self, application: WsgiApplication, observers: Iterable[Observer]) -> None:
        self._application = application
        self._observers = tuple(observers)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        exchange = environ[_EXCHANGE] = Exchange(environ)
        current_request.set(exchange)
        for observer in self._observers:
            observer.began(exchange)

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            exchange.status = int(status[:3])
            for name, value in headers:
                if name == "Commit-Id":
                    exchange.commit_id = value
            return start_response(status, headers, exc_info)

        try:
            body = self._application(environ, start)
        except BaseException:
            self._end(exchange)
            raise
        if isinstance(body, tuple):
            exchange.sent_bytes = sum(map(len, body))
            self._end(exchange)
            return body
        return _Watched(body, exchange, self._end)

    def _end(self, exchange: Exchange) -> None:
        for observer in self._observers:
            observer.ended(exchange)
        current_request.set(None)


class _Watched:
    """A body that is made while it is sent."""

    def __init__(
        self, body: Iterable[bytes], exchange: Exchange, end: Callable[[Exchange], None]
    ) -> None:
        self._body = body
        self._exchange = exchange
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            self._exchange.sent_bytes += len(piece)
            yield piece

    def close(self) -> None:
        """Called by the server in any case."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._end(self._exchange)


def note_route(request: flask.Request) -> None:
    """Say which route a request takes, before anything else decides about it."""
    rule = request.url_rule
    if rule is None:
        return
    environ = request.environ
    exchange = environ.get(_EXCHANGE)
    if exchange is not None:
        exchange.route = _template(rule.rule)
        catalog = (request.view_args or {}).get("catalog")
        if catalog is not None:
            environ["gateway.catalog"] = unquote(catalog, errors="backslashreplace")


@lru_cache(maxsize=1024)
def _template(rule: str) -> str:
    """The path as the API's description has it: ``/v1/catalogs/{catalog}``."""
    parts = [part.rpartition(":")[2] for part in rule.replace("<", ">").split(">")]
    # Between the brackets is every other part.
    return "".join(f"{{{part}}}" if i % 2 else part for i, part in enumerate(parts))


_access_log = logging.getLogger("gateway.access")


class RequestMeters(Protocol):
    def request_ended(
        self, route: str, method: str, status: int, seconds: float, problem: str | None
    ) -> None: ...


class RequestMetrics:
    """Counts requests by route, never by anything that a client chose."""

    def __init__(self, meters: RequestMeters) -> None:
        self._meters = meters

    def began(self, exchange: Exchange) -> None: ...

    def ended(self, exchange: Exchange) -> None:
        self._meters.request_ended(
            exchange.route, exchange.method, exchange.status, exchange.seconds, exchange.problem
        )


class AccessLog:
    """A line for each request when its answer is over; what else it says is the context's."""

    def began(self, exchange: Exchange) -> None: ...

    def ended(self, exchange: Exchange) -> None:
        fields: dict[str, object] = {
            "method": exchange.method,
            "route": exchange.route,
            "status": exchange.status,
            "duration_ms": round(exchange.seconds * 1000, 3),
            "bytes": exchange.sent_bytes,
        }
        if exchange.problem is not None:
            fields["problem"] = exchange.problem
        _access_log.info("request", extra=fields)


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

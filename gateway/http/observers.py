"""Who watches requests: the metrics and the access log."""

from __future__ import annotations

import logging
from typing import Protocol

from gateway.http.observation import Exchange

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

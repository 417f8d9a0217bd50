"""`GET /metrics`: what all workers have counted, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask

from gateway.http.answers import Answer, body_answer

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def nothing_measured() -> bytes:
    """The exposition of a service that measures nothing."""
    return b""


class MetricsRoutes:
    def __init__(self, exposition: Callable[[], bytes]) -> None:
        self._exposition = exposition

    def register(self, app: Flask) -> None:
        app.add_url_rule("/metrics", "metrics", self.metrics, methods=["GET"])

    def metrics(self) -> Answer:
        return body_answer(
            self._exposition(), [("Cache-Control", "no-store")], media_type=_MEDIA_TYPE
        )

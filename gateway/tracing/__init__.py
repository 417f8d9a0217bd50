"""Spans for OpenTelemetry, an extra: wanted where its own variables say so. Without them nothing of
it is imported, installed or not."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from gateway.http.door.observation import Observer
from gateway.meters import Meters

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing(Observer, Protocol):
    """Begins and ends a span for each request."""

    def metered(self, meters: Meters) -> Meters:
        """``meters``, with the spans of each write."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether spans are to be made: there is an exporter or a place to send them, and no veto."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def tracing(version: str) -> Tracing | None:
    """For this process; None where it isn't asked for, or (which is logged) can't be had."""
    if not is_wanted(os.environ):
        return None
    try:
        spans: Any = import_module("gateway.tracing.spans")
    except ImportError as error:
        _log.warning(
            "OTEL_* variables ask for traces, but the extra 'otel' isn't installed: %s", error
        )
        return None
    try:
        found: Tracing = spans.SpanRecorder(spans.exporting_provider(version))
    except (ValueError, ImportError) as error:
        _log.warning("there are no traces: %s", error)
        return None
    return found

"""Metrics, access log and traces of one worker. OpenTelemetry, an extra, is imported only if traces
are asked for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any, Protocol

from gateway import cpu
from gateway.http.context import Observed
from gateway.http.door.observation import Observer
from gateway.http.wire.codes import KINDS
from gateway.meters import Meters
from gateway.metrics.prometheus import PrometheusMeters, Sampler
from gateway.metrics.registry import Registry
from gateway.metrics.shared import slot
from gateway.runtime import Runtime
from gateway.service import GatewayService
from gateway.store.contract import UploadStore

_log = logging.getLogger(__name__)
_access_log = logging.getLogger("gateway.access")

_PACKAGE = "metadata-gateway"
# The variables of OpenTelemetry that ask for spans.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class RequestMetrics:
    """Counts requests by route, never by anything that a client chose."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def began(self, observed: Observed) -> None: ...

    def ended(self, observed: Observed) -> None:
        self._meters.request_ended(
            observed.route.template,
            observed.method,
            observed.status,
            observed.seconds,
            observed.problem,
        )


class AccessLog:
    """A line for each request when its answer is over; what else it says is the observed's."""

    def began(self, observed: Observed) -> None: ...

    def ended(self, observed: Observed) -> None:
        fields: dict[str, object] = {
            "method": observed.method,
            "route": observed.route.template,
            "status": observed.status,
            "duration_ms": round(observed.seconds * 1000, 3),
            "bytes": observed.sent_bytes,
        }
        if observed.problem is not None:
            fields["problem"] = observed.problem
        _access_log.info("request", extra=fields)


@dataclass(frozen=True, slots=True)
class Observability:
    """What observes one worker. ``store_meters`` are for the store; ``meters``, with spans, are for
    the commit loop."""

    meters: Meters
    store_meters: Meters
    observers: tuple[Observer, ...]
    exposition: Callable[[], bytes]
    watch: Callable[[GatewayService, UploadStore, Runtime], None]


def observability(*, access_log: bool) -> Observability:
    """Make the observability of a worker; call this once, after the fork."""
    registry = Registry(slot())
    prometheus = PrometheusMeters(registry)
    prometheus.expect(KINDS)
    traces: Tracing | None = tracing(package_version())
    observers: list[Observer] = [RequestMetrics(prometheus)]
    if access_log:
        observers.append(AccessLog())
    meters: Meters = prometheus
    if traces is not None:
        # It begins first, so that the others know the trace's id.
        observers.insert(0, traces)
        meters = traces.metered(prometheus)
    samplers: list[Sampler] = []

    def watch(gateway: GatewayService, uploads: UploadStore, runtime: Runtime) -> None:
        sampler = Sampler(
            registry,
            package_version(),
            gateway.readings,
            lambda: uploads.count_uploads(runtime.now_us()),
        )
        samplers.append(sampler)
        sampler.start()

    def exposition() -> bytes:
        for sampler in samplers:
            sampler.sample()
        return registry.exposition()

    return Observability(
        meters, prometheus, tuple(observers), MadeForAll(exposition, Lock()), watch
    )


class MadeForAll:
    """Calls ``make`` once for all threads that ask before that call begins. Thread-safe."""

    def __init__(self, make: Callable[[], bytes], lock: AbstractContextManager[Any]) -> None:
        self._make = make
        # ``make`` has sections, which can be interrupted to let others go on. These can wait for
        # the lock, since gevent has patched `threading` before a worker imports this module
        # (``server.master``), and none of them is in a section.
        self._lock = lock
        self._begun = 0
        self._made = 0, b""  # the number of the last call of ``make``, and its result

    def __call__(self) -> bytes:
        """The result of a call of ``make`` that began after this call. Raises what ``make``
        raises."""
        before = self._begun
        own = cpu.work_for(None)  # the work is for all of them, so it is charged to none
        try:
            with self._lock:
                if self._made[0] <= before:
                    self._begun += 1
                    self._made = self._begun, self._make()
                return self._made[1]
        finally:
            cpu.work_for(own)


def package_version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:  # it runs from a checkout that isn't installed
        return "unknown"


class Tracing(Observer, Protocol):
    """Begins and ends a span for each request."""

    def metered(self, meters: Meters) -> Meters:
        """``meters``, with the spans of each write."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether to make spans: an exporter or an endpoint is set, and the SDK isn't disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def tracing(gateway_version: str) -> Tracing | None:
    """The tracing of this process; None if nobody asks for it, or if it isn't available, which is
    logged."""
    if not is_wanted(os.environ):
        return None
    try:
        spans: Any = import_module("gateway.tracing")
    except ImportError as error:
        _log.warning(
            "OTEL_* variables ask for traces, but the extra 'otel' isn't installed: %s", error
        )
        return None
    try:
        found: Tracing = spans.SpanRecorder(spans.exporting_provider(gateway_version))
    except (ValueError, ImportError) as error:
        _log.warning("traces are off: %s", error)
        return None
    return found

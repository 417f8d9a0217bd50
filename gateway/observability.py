"""How one worker is watched: metrics, access log, and traces where they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from gateway.http.door.observation import AccessLog, Observer, RequestMetrics
from gateway.http.wire.codes import KINDS
from gateway.meters import Meters
from gateway.metrics.prometheus import PrometheusMeters, Sampler
from gateway.metrics.registry import Registry
from gateway.metrics.shared import place
from gateway.runtime import Runtime
from gateway.service import GatewayService
from gateway.store.contract import UploadStore
from gateway.tracing import Tracing, tracing

_PACKAGE = "metadata-gateway"


@dataclass(frozen=True, slots=True)
class Observability:
    """``store_meters`` are for the store, and ``meters``, with spans, for the commit loop."""

    meters: Meters
    store_meters: Meters
    observers: tuple[Observer, ...]
    exposition: Callable[[], bytes]
    watch: Callable[[GatewayService, UploadStore, Runtime], None]


def observability(*, access_log: bool) -> Observability:
    """Called once in a worker, after the fork."""
    registry = Registry(place())
    prometheus = PrometheusMeters(registry)
    prometheus.expect(KINDS)
    traces: Tracing | None = tracing(package_version())
    observers: list[Observer] = [RequestMetrics(prometheus)]
    if access_log:
        observers.append(AccessLog())
    meters: Meters = prometheus
    if traces is not None:
        # First to begin, so that the others know the trace.
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

    return Observability(meters, prometheus, tuple(observers), exposition, watch)


def package_version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:  # it runs from a checkout that was not installed
        return "unknown"

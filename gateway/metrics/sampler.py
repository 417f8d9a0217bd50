"""Samples, once a second, what has a level: queue, cache, feeds, the process itself."""

from __future__ import annotations

import logging
import os
import platform
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.cpu import slices
from gateway.meters import Readings
from gateway.metrics.registry import Registry

_log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
# Seconds between counts of open uploads, each a query.
_UPLOADS_EVERY_S: Final = 15.0
_PROC: Final = Path("/proc/self")
_PAGE_BYTES: Final = resource.getpagesize()


class Sampler:
    """The sampler of one worker; ``start`` is called once, after the fork."""

    def __init__(
        self,
        registry: Registry,
        version: str,
        readings: Callable[[], Readings],
        open_uploads: Callable[[], int],
    ) -> None:
        """``open_uploads`` may wait, and may raise anything where the database is out of reach."""
        self._gauges = registry.gauges
        self._counters = registry.counters
        self._worker = registry.worker
        self._readings = readings
        self._open_uploads = open_uploads
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0
        self._waited = 0
        self._refused = 0
        self._cpu_s = 0.0
        self._counted: dict[str, int] = {}
        self._counters["gateway_worker_starts_total"].inc()
        self._gauges["gateway_workers"].set(1)
        self._gauges["gateway_info"].labels(version, platform.python_version()).set(1)

    def start(self) -> None:
        for run, name in ((self._run, "metrics"), (self._run_uploads, "metrics-uploads")):
            threading.Thread(target=run, name=name, daemon=True).start()

    def sample(self) -> None:
        with self._lock:
            self._sample_gateway()
            self._sample_process()
            self._sample_slices()

    def _run(self) -> None:
        while True:
            try:
                self.sample()
            except Exception:  # noqa: BLE001 - the thread must outlive any defect
                _log.exception("the gauges can't be taken")
            time.sleep(_EVERY_S)

    def _run_uploads(self) -> None:
        while True:
            # Where the database is away, other metrics say so.
            with suppress(Exception):
                self._gauges["gateway_uploads_open"].set(self._open_uploads())
            time.sleep(_UPLOADS_EVERY_S)

    def _sample_gateway(self) -> None:
        now = self._readings()
        gauges = self._gauges
        gauges["gateway_queue_writes"].set(now.queue_requests)
        gauges["gateway_queue_bytes"].set(now.queue_bytes)
        gauges["gateway_cache_bytes"].set(now.cache.bytes)
        gauges["gateway_watchers"].set(now.feed.watchers)
        gauges["gateway_feed_lag_commits"].set(now.feed.lag_commits)
        gauges["gateway_relay_subscriptions"].set(now.relay.subscriptions)
        gauges["gateway_relay_failing_subscriptions"].set(now.relay.failing)
        gauges["gateway_relay_lag_commits"].set(now.relay.lag_commits)
        self._counters["gateway_cache_hits_total"].inc(now.cache.hits - self._hits)
        self._counters["gateway_cache_misses_total"].inc(now.cache.misses - self._misses)
        self._hits, self._misses = now.cache.hits, now.cache.misses
        gauges["gateway_memory_held_bytes"].set(now.memory.held_bytes)
        gauges["gateway_memory_unsent_bytes"].set(now.memory.unsent_bytes)
        gauges["gateway_memory_waiting_requests"].set(now.memory.waiting)
        self._counters["gateway_memory_waits_total"].inc(now.memory.waited - self._waited)
        self._counters["gateway_memory_refusals_total"].inc(now.memory.refused - self._refused)
        self._waited, self._refused = now.memory.waited, now.memory.refused

    def _sample_slices(self) -> None:
        self._gauges["gateway_longest_slice_seconds"].set(slices.longest_s)
        for name, count in (
            ("gateway_long_slices_total", slices.long),
            ("gateway_turns_total", slices.turns),
            ("gateway_broken_off_total", slices.broken_off),
        ):
            self._counters[name].inc(count - self._counted.get(name, 0))
            self._counted[name] = count

    def _sample_process(self) -> None:
        cpu_s = time.process_time()
        self._counters["gateway_worker_cpu_seconds_total"].labels(self._worker).inc(
            cpu_s - self._cpu_s
        )
        self._cpu_s = cpu_s
        self._gauges["gateway_worker_resident_bytes"].labels(self._worker).set(_resident_bytes())
        with suppress(OSError):  # only Linux tells
            open_files = len(os.listdir(_PROC / "fd"))
            self._gauges["gateway_worker_open_files"].labels(self._worker).set(open_files)


def _resident_bytes() -> int:
    try:
        return int((_PROC / "statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        # Elsewhere only the peak is known, in units of the system's own.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024

"""Turns the measurements of the layers below into Prometheus metrics; and samples levels once a
second: queue, cache, feeds, the process itself.

The children of labelled metrics are kept, because looking one up by its labels costs as much as
counting. Every label has few values, and no client chooses them, so the children stay few.

``measured`` wraps a store, to time its calls, and to count those that can't reach the database.
"""

from __future__ import annotations

import logging
import os
import platform
import resource
import sys
import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args

from prometheus_client import Counter, Histogram

from gateway.cpu import slices
from gateway.errors import StoreUnavailable
from gateway.meters import Meters, Readings, RelayOutcome, RoundOutcome, WriteEnded
from gateway.metrics.registry import Registry
from gateway.store.contract import BeingRestored, StoreUnreachable

Child = TypeVar("Child", bound=Counter | Histogram)
_OUTCOMES = (
    *("applied", "replayed", "unchanged", "dry_run"),
    *("precondition_failed", "test_failed", "too_much_work"),
    *("queue_full", "deadline_exceeded", "held_back", "store_unavailable", "outcome_unknown"),
)
_METHODS = frozenset(("GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"))


class Children(dict[tuple[str, ...], Child]):
    """The children of one metric by their label values, each made when first used."""

    def __init__(self, labels: Callable[..., Child]) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, values: tuple[str, ...]) -> Child:
        child = self[values] = self._labels(*values)
        return child


class PrometheusMeters(Meters):
    def __init__(self, registry: Registry) -> None:
        counters, histograms = registry.counters, registry.histograms
        self._requests = Children(histograms["gateway_request_seconds"].labels)
        self._problems = Children(counters["gateway_problems_total"].labels)
        self._writes = Children(counters["gateway_writes_total"].labels)
        self._attempts = histograms["gateway_write_attempts"]
        self._queue_wait = histograms["gateway_queue_wait_seconds"]
        self._batches = histograms["gateway_batch_commits"]
        self._commits = histograms["gateway_commit_seconds"]
        self._write_outs = histograms["gateway_write_out_seconds"]
        self._races_lost = counters["gateway_races_lost_total"]
        self._bases_refused = counters["gateway_bases_refused_total"]
        self._heads_back = counters["gateway_heads_went_back_total"]
        self._delays = histograms["gateway_feed_delay_seconds"]
        self._rounds = Children(counters["gateway_compaction_rounds_total"].labels)
        self._relayed = Children(counters["gateway_relay_events_total"].labels)
        self._swept = counters["gateway_compaction_commits_total"]
        self._not_compacted = counters["gateway_compaction_failures_total"]
        self._store_calls = Children(histograms["gateway_store_seconds"].labels)
        self._unreachable = Children(counters["gateway_store_unreachable_total"].labels)

    def expect(self, problems: Iterable[str]) -> None:
        """Start the counters at 0: an increase shows only from a counter's second value on.

        ``problems`` are all problem codes.
        """
        for code in problems:
            self._problems[code,].inc(0)
        for outcome in _OUTCOMES:
            self._writes[outcome,].inc(0)
        for outcome in get_args(RoundOutcome):
            self._rounds[outcome,].inc(0)
        for relayed in get_args(RelayOutcome):
            self._relayed[relayed,].inc(0)

    # Requests

    def request_ended(
        self, route: str, method: str, status: int, seconds: float, problem: str | None
    ) -> None:
        method = method if method in _METHODS else "other"
        self._requests[route, method, f"{status // 100}xx"].observe(seconds)
        if problem is not None:
            self._problems[problem,].inc()

    # The commit loop and what belongs to it

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None:
        if len(ended) == 1:  # the usual case, except for bulk
            (each,) = ended
            self._writes[each.outcome,].inc()
            if each.taken is not None:
                self._attempts.observe(each.attempts)
                self._queue_wait.observe(each.taken - each.queued)
            return
        for outcome, count in Counts(each.outcome for each in ended).items():
            self._writes[outcome,].inc(count)
        taken = [(each, each.taken) for each in ended if each.taken is not None]
        self._attempts.observe_all([each.attempts for each, _ in taken])
        self._queue_wait.observe_all([at - each.queued for each, at in taken])

    def heads_moved(self, batches: Collection[int], seconds: float) -> None:
        self._commits.observe(seconds)
        self._batches.observe_all(batches)

    def races_lost(self, heads: int) -> None:
        self._races_lost.inc(heads)

    def written_out(self, moves: Sequence[float]) -> None:
        self._write_outs.observe_all(moves)

    def delivered(self, seconds: float) -> None:
        self._delays.observe(seconds)

    def compaction_round(self, outcome: RoundOutcome) -> None:
        self._rounds[outcome,].inc()

    def compaction_failed(self) -> None:
        self._not_compacted.inc()

    def commits_swept(self, commits: int) -> None:
        self._swept.inc(commits)

    def relayed(self, outcome: RelayOutcome, count: int) -> None:
        self._relayed[outcome,].inc(count)

    def base_refused(self) -> None:
        self._bases_refused.inc()

    def head_went_back(self) -> None:
        self._heads_back.inc()

    # The store

    def store_called(self, operation: str, seconds: float) -> None:
        self._store_calls[operation,].observe(seconds)

    def store_unreachable(self, operation: str) -> None:
        self._unreachable[operation,].inc()


Wrapped = TypeVar("Wrapped")
# Methods without I/O, and methods that wait for something to happen.
_UNTIMED = frozenset(("stored_bytes", "await_reachable", "tokens", "close"))


def measured(store: Wrapped, meters: Meters) -> Wrapped:
    """``store`` with its calls measured; it has the same methods."""
    return cast(Wrapped, _Measured(store, meters))


class _Measured:
    """Wraps each method at its first call; later calls find it as an attribute."""

    def __init__(self, store: Any, meters: Meters) -> None:
        self._store = store
        self._meters = meters

    def uploads(self) -> Any:
        return measured(self._store.uploads(), self._meters)

    def subscriptions(self) -> Any:
        return measured(self._store.subscriptions(), self._meters)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith("_") or name in _UNTIMED:
            return method
        timed = _timed(name, method, self._meters)
        setattr(self, name, timed)
        return timed


def _timed(name: str, method: Callable[..., Any], meters: Meters) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return method(*arguments, **named)
        except BeingRestored:  # the database could be reached
            raise
        except StoreUnreachable:
            meters.store_unreachable(name)
            raise
        finally:
            meters.store_called(name, time.perf_counter() - begun)

    return call


_log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
# Seconds between counts of open uploads, each a query.
_UPLOADS_EVERY_S: Final = 15.0
_PROC: Final = Path("/proc/self")
_PAGE_BYTES: Final = resource.getpagesize()


class Sampler:
    """Samples the levels of one worker. Call ``start`` once, after the fork."""

    def __init__(
        self,
        registry: Registry,
        version: str,
        readings: Callable[[], Readings],
        open_uploads: Callable[[], int],
    ) -> None:
        """``open_uploads`` may wait, and raises StoreUnreachable or StoreUnavailable if the
        database can't be reached."""
        self._gauges = registry.gauges
        self._counters = registry.counters
        self._worker = registry.worker
        self._readings = readings
        self._open_uploads = open_uploads
        self._lock = threading.Lock()
        self._cpu_s = 0.0
        self._counted: dict[str, int] = {}  # by counter, the total at the last sample
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

    def sample_uploads(self) -> None:
        try:
            self._gauges["gateway_uploads_open"].set(self._open_uploads())
        except (StoreUnreachable, StoreUnavailable):  # other metrics say so
            pass
        except Exception:  # noqa: BLE001 - the thread must outlive any defect
            _log.exception("open uploads can't be counted")

    def _run_uploads(self) -> None:
        while True:
            self.sample_uploads()
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
        gauges["gateway_relay_waiting_subscriptions"].set(now.relay.waiting)
        gauges["gateway_relay_failing_subscriptions"].set(now.relay.failing)
        gauges["gateway_relay_lag_commits"].set(now.relay.lag_commits)
        self._count("gateway_cache_hits_total", now.cache.hits)
        self._count("gateway_cache_misses_total", now.cache.misses)
        gauges["gateway_memory_held_bytes"].set(now.memory.held_bytes)
        gauges["gateway_memory_unsent_bytes"].set(now.memory.unsent_bytes)
        gauges["gateway_memory_waiting_requests"].set(now.memory.waiting)
        self._count("gateway_memory_waits_total", now.memory.waited)
        self._count("gateway_memory_refusals_total", now.memory.refused)

    def _sample_slices(self) -> None:
        self._gauges["gateway_longest_slice_seconds"].set(slices.longest_s)
        self._count("gateway_long_slices_total", slices.long)
        self._count("gateway_turns_total", slices.yields)
        self._count("gateway_broken_off_total", slices.broken_off)

    def _count(self, name: str, total: int) -> None:
        self._counters[name].inc(total - self._counted.get(name, 0))
        self._counted[name] = total

    def _sample_process(self) -> None:
        cpu_s = time.process_time()
        self._counters["gateway_worker_cpu_seconds_total"].labels(self._worker).inc(
            cpu_s - self._cpu_s
        )
        self._cpu_s = cpu_s
        self._gauges["gateway_worker_resident_bytes"].labels(self._worker).set(_resident_bytes())
        with suppress(OSError):  # only Linux has this
            open_files = len(os.listdir(_PROC / "fd"))
            self._gauges["gateway_worker_open_files"].labels(self._worker).set(open_files)


def _resident_bytes() -> int:
    try:
        return int((_PROC / "statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        # Other systems only know the peak, in bytes or KiB.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024

"""The measurements of the layers below as Prometheus metrics.

The children of labelled metrics are kept, because looking one up by its labels costs as much as
counting. Every label has few values, and no client chooses them, so the children stay few.

``measured`` is a store whose calls are timed, and counted where the database is out of reach.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, cast, get_args

from prometheus_client import Counter, Histogram

from gateway.meters import Meters, RelayOutcome, RoundOutcome, WriteEnded
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
        """Start the counters at 0: an increase shows only from a counter's second value.

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
        if len(ended) == 1:  # as a rule, but for bulk
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
        for commits in batches:
            self._batches.observe(commits)

    def races_lost(self, heads: int) -> None:
        self._races_lost.inc(heads)

    def written_out(self, seconds: float) -> None:
        self._write_outs.observe(seconds)

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
    """``store`` with its calls measured; of the same type."""
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
        except BeingRestored:  # it answers
            raise
        except StoreUnreachable:
            meters.store_unreachable(name)
            raise
        finally:
            meters.store_called(name, time.perf_counter() - begun)

    return call

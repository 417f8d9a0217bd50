"""The table of metrics as objects of prometheus-client, in memory or shared by all workers."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.metrics.definitions import METRICS
from gateway.metrics.shared import WorkerPlace

_TRIES = 5


class Distribution(Histogram):
    """A histogram that looks for the bucket of a value in few steps, and takes many values in the
    time of a few."""

    def observe(
        self,
        amount: float,
        exemplar: dict[str, str] | None = None,  # noqa: ARG002 - nobody gives one
    ) -> None:
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)

    def observe_all(self, amounts: Collection[float]) -> None:
        if amounts:
            self._sum.inc(sum(amounts))
            places = Counts(bisect_left(self._upper_bounds, amount) for amount in amounts)
            for place, count in places.items():
                self._buckets[place].inc(count)


def _value_class(place: WorkerPlace) -> type:
    """prometheus-client's class of values in shared files, which doesn't look with each addition
    whether the process was forked: a worker never is, once it has these."""
    shared: type[Any] = values.MultiProcessValue(lambda: place.number)  # type: ignore[no-untyped-call]
    lock = Lock()

    class Value(shared):  # type: ignore[misc]
        def inc(self, amount: float) -> None:
            with lock:
                self._value += amount
                self._file.write_value(self._key, self._value, 0.0)

    return Value


class Registry:
    """The metrics of one process. ``place`` is where it shares its values; None: it shares none."""

    def __init__(self, place: WorkerPlace | None) -> None:
        self._place = place
        if place is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(place.directory)
            # By place, not by process id: see ``shared``.
            values.ValueClass = _value_class(place)
        self._own = CollectorRegistry()
        self.counters: Mapping[str, Counter] = {
            each.name: Counter(each.name, each.help, each.labels, registry=self._own)
            for each in METRICS
            if each.kind == "counter"
        }
        self.gauges: Mapping[str, Gauge] = {
            each.name: Gauge(
                each.name, each.help, each.labels, registry=self._own, multiprocess_mode=each.merge
            )
            for each in METRICS
            if each.kind == "gauge"
        }
        self.histograms: Mapping[str, Distribution] = {
            each.name: Distribution(
                each.name, each.help, each.labels, registry=self._own, buckets=each.buckets
            )
            for each in METRICS
            if each.kind == "histogram"
        }

    @property
    def worker(self) -> str:
        """The label ``worker`` of this process."""
        return "0" if self._place is None else str(self._place.number)

    def exposition(self) -> bytes:
        """The values of all workers in Prometheus's text format."""
        if self._place is None:
            return generate_latest(self._own)
        for _ in range(_TRIES):
            try:
                return self._merged(self._place)
            except FileNotFoundError:
                continue  # a file has just been removed
        return self._merged(self._place)

    def _merged(self, place: WorkerPlace) -> bytes:
        merged = CollectorRegistry()
        merged.register(_Files(place.directory))
        return generate_latest(merged)


class _Files(Collector):
    """The values of all workers; a file that a worker has just opened is empty, and passed over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        begun = [str(each) for each in self._directory.glob("*.db") if each.stat().st_size]
        return MultiProcessCollector.merge(begun)  # type: ignore[no-any-return,no-untyped-call]

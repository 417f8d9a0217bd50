"""The table of metrics as objects of prometheus-client, in memory or shared by all workers."""

from __future__ import annotations

import logging
import os
import sys
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Collection, Iterable, Mapping
from mmap import mmap
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.cpu import interruptible
from gateway.metrics.definitions import METRICS
from gateway.metrics.shared import WorkerSlot

_log = logging.getLogger(__name__)

_TRIES = 5
# The first size of a file of values; it doubles when it is full.
_FIRST_BYTES: Final = 64 * 1024
# The most bytes that an entry takes without its key: the key's length, padding to 8 bytes, a value
# and its time.
_BESIDE_KEY_BYTES_MAX: Final = 4 + 8 + 16


class Distribution(Histogram):
    """A histogram that finds the bucket of a value by bisection, and can observe many values at
    once."""

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
            counts = Counts(bisect_left(self._upper_bounds, amount) for amount in amounts)
            for bucket, count in counts.items():
                self._buckets[bucket].inc(count)


class _ValuesFile(MmapedDict):
    """prometheus-client's file of values, but with its disk space allocated before it is used: the
    system kills a process that writes to a mapped page for which there is no space.

    Raises OSError if there is no space for more values; the file then stays as it was.
    """

    def __init__(self, path: Path) -> None:
        with path.open("ab") as file:
            size_bytes = max(os.fstat(file.fileno()).st_size, _FIRST_BYTES)
            _take_room(file.fileno(), size_bytes)
        super().__init__(str(path))  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + _BESIDE_KEY_BYTES_MAX
        capacity = self._capacity
        while capacity < needed:
            capacity *= 2
        if capacity > self._capacity:
            _take_room(self._f.fileno(), capacity)
            self._m = mmap(self._f.fileno(), capacity)
            self._capacity = capacity
        super()._init_value(key)  # type: ignore[no-untyped-call]


def _take_room(file: int, size_bytes: int) -> None:
    if sys.platform != "darwin":  # macOS has no such call
        os.posix_fallocate(file, 0, size_bytes)


class _Value:
    """prometheus-client's value, in a file that all workers read.

    A measurement never makes the measured code fail: if there is no space for a value, only this
    process has it, until there is some. ``_value_class`` makes subclasses that know where the files
    are.
    """

    _multiprocess = True  # prometheus-client asks for it
    slot: ClassVar[WorkerSlot]
    lock: ClassVar[Lock]
    files: ClassVar[dict[Path, _ValuesFile]]

    def __init__(
        self,
        typ: str,
        metric_name: str,
        name: str,
        labelnames: list[str],
        labelvalues: list[str],
        help_text: str,
        multiprocess_mode: str = "",
        **_: Any,
    ) -> None:
        kind = f"{typ}_{multiprocess_mode}" if typ == "gauge" else typ
        self._path = self.slot.directory / f"{kind}_{self.slot.number}.db"
        self._key = mmap_key(metric_name, name, labelnames, labelvalues, help_text)
        self._value = 0.0
        self._file: _ValuesFile | None = None
        with self.lock:
            self._find_room()

    def inc(self, amount: float) -> None:
        with self.lock:
            if self._file is None:
                self._find_room()
            self._value += amount
            if self._file is not None:
                self._file.write_value(self._key, self._value, 0.0)  # type: ignore[no-untyped-call]

    def set(self, value: float, timestamp: float | None = None) -> None:
        with self.lock:
            if self._file is None:
                self._find_room()
            self._value = value
            if self._file is not None:
                self._file.write_value(self._key, value, timestamp or 0.0)  # type: ignore[no-untyped-call]

    def get(self) -> float:
        return self._value

    def get_exemplar(self) -> None:
        return None

    def _find_room(self) -> None:
        """Go on from the value that an earlier worker with this number has left."""
        files = self.files
        try:
            if self._path not in files:
                files[self._path] = _ValuesFile(self._path)
            before, _ = files[self._path].read_value(self._key)  # type: ignore[no-untyped-call]
        except OSError as error:
            _lacking_room.log(error)
        else:
            self._value += before
            self._file = files[self._path]


def _value_class(slot: WorkerSlot) -> type[_Value]:
    return type("Value", (_Value,), {"slot": slot, "lock": Lock(), "files": {}})


class _LackingRoom:
    """Logs the lack of space only once, not for each value."""

    def __init__(self) -> None:
        self._is_logged = False

    def log(self, error: OSError) -> None:
        if not self._is_logged:
            self._is_logged = True
            _log.warning("metrics are incomplete, because there is no room for more: %s", error)


_lacking_room = _LackingRoom()


class Registry:
    """The metrics of one process. ``slot``: where it shares its values; None: nowhere."""

    def __init__(self, slot: WorkerSlot | None) -> None:
        self._slot = slot
        if slot is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(slot.directory)
            # Files are named by the worker's number, not by process id: see ``shared``.
            values.ValueClass = _value_class(slot)
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
        return "0" if self._slot is None else str(self._slot.number)

    def exposition(self) -> bytes:
        """The values of all workers in Prometheus's text format."""
        if self._slot is None:
            return generate_latest(self._own)
        for _ in range(_TRIES):
            try:
                return self._merged(self._slot)
            except FileNotFoundError:
                continue  # a file has just been removed
        return self._merged(self._slot)

    @interruptible
    def _merged(self, slot: WorkerSlot) -> bytes:
        """The values of all workers, in the text format. Takes some 50 ms for each worker."""
        merged = CollectorRegistry()
        merged.register(_Files(slot.directory))
        return generate_latest(merged)


class _Files(Collector):
    """The values of all workers. Skips files that are still empty: a worker has just opened
    them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        begun = [str(each) for each in self._directory.glob("*.db") if each.stat().st_size]
        return MultiProcessCollector.merge(begun)  # type: ignore[no-any-return,no-untyped-call]

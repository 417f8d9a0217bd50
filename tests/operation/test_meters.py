"""The inner layers report what they do to the meters, and know nothing of how it is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from gateway.decide.edits import Put
from gateway.errors import StoreUnavailable
from gateway.feed.channel import Selection
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.meters import NO_METERS, RoundOutcome, WriteEnded
from gateway.metrics.prometheus import PrometheusMeters, Sampler, measured
from gateway.metrics.registry import Registry
from gateway.model import HeadMove
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Moved, StoreUnreachable
from tests.memory_store import MemoryStore
from tests.operation.conftest import samples, value
from tests.patience import WAIT_S
from tests.test_layers import INNER, imports, package
from tests.without_http import wait_until

Eventually = Callable[..., Any]


class RecordingMeters:
    """Meters that keep what is reported to them."""

    def __init__(self) -> None:
        self.writes: list[WriteEnded] = []
        self.moved: list[int] = []
        self.lost = 0
        self.written = 0
        self.rounds: list[str] = []
        self.failures = 0
        self.swept = 0
        self.delays: list[float] = []

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None:
        self.writes += ended

    def heads_moved(self, batches: Collection[int], seconds: float) -> None:
        assert seconds >= 0
        self.moved.extend(batches)

    def races_lost(self, heads: int) -> None:
        self.lost += heads

    def written_out(self, moves: Sequence[float]) -> None:
        assert all(seconds >= 0 for seconds in moves)
        self.written += len(moves)

    def delivered(self, seconds: float) -> None:
        self.delays.append(seconds)

    def compaction_round(self, outcome: RoundOutcome) -> None:
        self.rounds.append(outcome)

    def compaction_failed(self) -> None:
        self.failures += 1

    def commits_swept(self, commits: int) -> None:
        self.swept += commits


def gateway_of(store: Any, told: RecordingMeters, **limits: Any) -> GatewayService:
    return GatewayService(store, ThreadRuntime(), ServiceLimits(**limits), meters=told)


class Contended(MemoryStore):
    """Somebody else is faster, the first two times."""

    races = 2

    def move_heads(self, moves: Any) -> Any:
        if self.races:
            self.races -= 1
            return {move.catalog: Moved.LOST for move in moves}
        return super().move_heads(moves)


class Away(MemoryStore):
    def heads(self, catalogs: Collection[str]) -> Any:  # noqa: ARG002 - the contract's
        raise StoreUnreachable("away")

    tails = heads


def test_a_write_is_reported_with_its_times() -> None:
    told = RecordingMeters()
    written = gateway_of(MemoryStore(), told).write("c", "k", Put({"n": 1}, 7))
    (ended,) = told.writes
    assert (ended.outcome, ended.attempts) == ("applied", written.attempts)
    assert ended.taken is not None
    assert ended.times is not None
    times = (ended.queued, ended.taken, ended.times.decided, ended.times.moved)
    assert list(times) == sorted(times)
    wait_until(lambda: bool(told.written))
    assert (told.moved, told.written, told.lost) == ([1], 1, 0)


def test_lost_races_are_reported_and_the_write_ends_once() -> None:
    told = RecordingMeters()
    gateway_of(Contended(), told).write("c", "k", Put({}, 2))
    assert told.lost == 2
    assert [(ended.outcome, ended.attempts) for ended in told.writes] == [("applied", 3)]
    assert told.moved == [1]


def test_a_write_that_could_not_be_queued_is_reported() -> None:
    told = RecordingMeters()
    gateway = gateway_of(Away(), told, queue_requests_max=0)
    with pytest.raises(Exception, match="0 writes wait"):
        gateway.write("c", "k", Put({}, 2))
    (ended,) = told.writes
    assert (ended.outcome, ended.taken, ended.times) == ("queue_full", None, None)


def test_a_write_that_never_reached_the_database_is_reported_with_the_clients_code() -> None:
    told = RecordingMeters()
    gateway_of(Away(), told).write("c", "k", Put({}, 2), wait_s=0.1)
    assert [ended.outcome for ended in told.writes] == ["store_unavailable"]
    assert not told.moved


def test_compaction_is_reported(eventually: Eventually) -> None:
    told = RecordingMeters()
    retention = RetentionLimits(commits=2, interval_s=1, pause_ms=0, sweep_grace_s=0)
    gateway = gateway_of(MemoryStore(), told, retention=retention)
    for number in range(6):
        gateway.write("c", "k", Put({"n": number}, 7))
    # Of catalogs that have a floor the next round sweeps what is due.
    assert gateway.retention.compactor.run_round()
    assert told.swept >= 3
    gateway.retention.compactor.start()
    eventually(lambda: "finished" in told.rounds)


def test_the_delay_of_a_commit_is_reported_for_waiting_watchers_only() -> None:
    told = RecordingMeters()
    gateway = gateway_of(MemoryStore(), told)
    gateway.write("c", "k", Put({"n": 0}, 7))
    feed = gateway.feed(lambda _: b"{}")
    with feed.watch("c", after=0, selection=Selection()) as watcher:
        assert watcher.take(10, patient=True).revision == 1
        assert told.delays == []
        assert gateway.readings().feed.watchers == 1
        gateway.write("c", "k", Put({"n": 1}, 7))
        assert watcher.take(10, patient=True).revision == 2
    assert len(told.delays) == 1
    assert 0 <= told.delays[0] < 30
    assert gateway.readings().feed.watchers == 0


def test_store_calls_are_timed_and_failed_ones_counted() -> None:
    registry = Registry(None)
    meters = PrometheusMeters(registry)
    store = measured(Away(), meters)
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            store.heads(["c"])
    store.move_heads([])
    assert store.stored_bytes({}) == Away().stored_bytes({})
    found = samples(registry.exposition().decode())
    assert value(found, "gateway_store_seconds_count", operation="heads") == 2
    assert value(found, "gateway_store_unreachable_total", operation="heads") == 2
    assert value(found, "gateway_store_seconds_count", operation="move_heads") == 1
    assert value(found, "gateway_store_unreachable_total", operation="move_heads") == 0
    assert value(found, "gateway_store_seconds_count", operation="stored_bytes") == 0


def test_gauges_show_the_values_at_the_time_of_the_scrape(eventually: Eventually) -> None:
    registry = Registry(None)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits(), meters=NO_METERS)
    sampler = Sampler(registry, "1.2.3", gateway.readings, lambda: 3)

    def found(name: str, **labels: str) -> float:
        return value(samples(registry.exposition().decode()), name, **labels)

    gateway.write("c", "k", Put({"n": 1}, 7))
    gateway.write("c", "k", Put({"n": 2}, 7))
    sampler.sample()
    hits = found("gateway_cache_hits_total")
    assert hits >= 1
    sampler.sample()
    assert found("gateway_cache_hits_total") == hits
    assert found("gateway_cache_bytes") > 0
    assert found("gateway_info", version="1.2.3") == 1
    sampler.start()
    eventually(lambda: found("gateway_uploads_open") == 3)


def test_a_failed_count_of_uploads_is_logged_unless_the_database_is_unreachable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    failures: list[Exception] = [ZeroDivisionError(), StoreUnreachable("x"), StoreUnavailable("x")]

    def count() -> int:
        raise failures.pop(0)

    sampler = Sampler(Registry(None), "1.2.3", gateway.readings, count)
    told = []
    while failures:
        caplog.clear()
        sampler.sample_uploads()
        told.append("open uploads can't be counted" in caplog.text)
    assert told == [True, False, False]


@pytest.mark.parametrize("name", INNER)
def test_inner_packages_import_no_measuring_library(name: str) -> None:
    measuring = ("prometheus_client", "structlog", "opentelemetry", "gateway.metrics")
    for path in package(name):
        for module in imports(path):
            assert not module.startswith(measuring), f"{path} imports {module}"


def test_the_master_does_not_import_what_must_not_be_forked() -> None:
    program = (
        "import sys, gateway.server, gateway.cli.main\n"
        "found = {'prometheus_client', 'pymongo', 'opentelemetry'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_S)


def test_a_measured_call_passes_arguments_and_results_through() -> None:
    """What is timed stays what it is: arguments and answers pass through."""
    store = measured(MemoryStore(), PrometheusMeters(Registry(None)))
    assert store.move_heads(list[HeadMove]()) == {}

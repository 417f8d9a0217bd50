"""Values are in the file as soon as they are counted, whoever counts and however large it grows."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import values

from gateway import cpu
from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.metrics.prometheus import PrometheusMeters
from gateway.metrics.registry import Registry
from gateway.metrics.shared import WorkerSlot, forget_gauges, shared_directory
from gateway.observability import MadeForAll
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.disk import files_of_at_most
from tests.memory_store import MemoryStore
from tests.operation.conftest import samples, value
from tests.patience import WAIT_S


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # put back in the end
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    with shared_directory(tmp_path) as made:
        yield made


def exposed(registry: Registry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return samples(registry.exposition().decode())


def test_a_growing_file_keeps_earlier_and_later_counts(directory: Path) -> None:
    registry = Registry(WorkerSlot(directory, 0))
    meters = PrometheusMeters(registry)
    for number in range(100):
        meters.request_ended("/first", "GET", 200, 0.001, None)
        meters.request_ended(f"/{number}", "GET", 200, 0.001, None)
    assert (directory / "histogram_0.db").stat().st_size > 65536
    found = exposed(registry)
    assert value(found, "gateway_request_seconds_count", route="/first") == 100
    assert value(found, "gateway_request_seconds_count") == 200


def test_without_room_for_more_values_the_worker_continues(directory: Path) -> None:
    registry = Registry(WorkerSlot(directory, 0))
    meters = PrometheusMeters(registry)
    meters.request_ended("/first", "GET", 200, 0.001, None)
    with files_of_at_most(100_000):
        for number in range(100):
            for _ in range(2):
                meters.request_ended(f"/{number}", "GET", 200, 0.001, None)
        assert value(exposed(registry), "gateway_request_seconds_count", route="/first") == 1
    for number in range(100):  # there is room again
        meters.request_ended(f"/{number}", "GET", 200, 0.001, None)
    assert value(exposed(registry), "gateway_request_seconds_count") == 301


def test_without_room_for_values_a_worker_starts_and_counts_later(directory: Path) -> None:
    PrometheusMeters(Registry(WorkerSlot(directory, 0))).commits_swept(7)
    with files_of_at_most(1):
        registry = Registry(WorkerSlot(directory, 1))
        meters = PrometheusMeters(registry)
        meters.commits_swept(2)
        registry.gauges["gateway_watchers"].set(5)
        assert value(exposed(registry), "gateway_compaction_commits_total") == 7
    meters.commits_swept(1)
    registry.gauges["gateway_watchers"].set(4)
    assert value(exposed(registry), "gateway_compaction_commits_total") == 10
    assert value(exposed(registry), "gateway_watchers") == 4


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS can't reserve a file's room")
def test_no_page_is_written_without_reserved_disk_space(directory: Path) -> None:
    meters = PrometheusMeters(Registry(WorkerSlot(directory, 0)))
    for number in range(100):
        meters.request_ended(f"/{number}", "GET", 200, 0.001, None)
    for file in directory.glob("*.db"):
        found = file.stat()
        assert found.st_blocks * 512 >= found.st_size, file.name


class _Slow(float):
    """A number that takes so long to add that other threads come in between."""

    def __radd__(self, other: float) -> float:
        time.sleep(0.05)
        return float(other) + float(self)


def test_threads_lose_nothing(directory: Path) -> None:
    registry = Registry(WorkerSlot(directory, 0))
    counter = registry.counters["gateway_races_lost_total"]
    threads = [threading.Thread(target=counter.inc, args=(_Slow(1),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(exposed(registry), "gateway_races_lost_total") == 4


def _count_and_die(directory: Path) -> None:
    PrometheusMeters(Registry(WorkerSlot(directory, 0))).commits_swept(7)
    os.kill(os.getpid(), signal.SIGKILL)


def test_counts_right_before_a_crash_are_kept_and_continued(
    directory: Path,
) -> None:
    for _ in range(2):
        worker = multiprocessing.get_context("spawn").Process(
            target=_count_and_die, args=(directory,)
        )
        worker.start()
        worker.join(WAIT_S)
        assert worker.exitcode == -signal.SIGKILL
    found = exposed(Registry(WorkerSlot(directory, 1)))
    assert value(found, "gateway_compaction_commits_total") == 14


def test_a_file_just_opened_by_a_worker_is_skipped(directory: Path) -> None:
    registry = Registry(WorkerSlot(directory, 0))
    PrometheusMeters(registry).commits_swept(7)
    (directory / "counter_1.db").touch()
    assert value(exposed(registry), "gateway_compaction_commits_total") == 7


def test_the_gauges_of_an_ended_worker_are_removed_and_its_counters_kept(directory: Path) -> None:
    first = Registry(WorkerSlot(directory, 0))
    first.gauges["gateway_watchers"].set(5)
    first.counters["gateway_races_lost_total"].inc()
    second = Registry(WorkerSlot(directory, 1))
    second.gauges["gateway_watchers"].set(2)
    assert value(exposed(second), "gateway_watchers") == 7
    forget_gauges(WorkerSlot(directory, 0))
    assert value(exposed(second), "gateway_watchers") == 2
    assert value(exposed(second), "gateway_races_lost_total") == 1


def test_directories_of_masters_that_were_killed_are_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / "gateway-metrics-abandoned"
    abandoned.mkdir()
    (abandoned / "owner").touch()
    being_made = tmp_path / "gateway-metrics-begun"
    being_made.mkdir()
    elsewhere = tmp_path / "something-else"
    elsewhere.mkdir()
    with shared_directory(tmp_path) as first, shared_directory(tmp_path) as second:
        assert {*tmp_path.iterdir()} == {first, second, being_made, elsewhere}
    assert {*tmp_path.iterdir()} == {being_made, elsewhere}


def test_metrics_that_cannot_be_read_now_are_refused_for_the_moment() -> None:
    def exposition() -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    answer = create_app(gateway, exposition=exposition).test_client().get("/metrics")
    assert (answer.status_code, answer.json["code"]) == (429, "overloaded")
    assert int(answer.headers["Retry-After"]) >= 5


def test_making_the_exposition_yields_to_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_be_interrupted: list[bool] = []

    def made(_: object) -> bytes:
        may_be_interrupted.append(cpu.draw(60.0))
        return b""

    monkeypatch.setattr("gateway.metrics.registry.generate_latest", made)
    exposition = MadeForAll(Registry(WorkerSlot(directory, 0)).exposition, threading.Lock())
    cpu.begin(1.0)
    try:
        exposition()
        account = cpu.own_account()
    finally:
        cpu.work_for(None)
    assert may_be_interrupted == [True]
    assert account is not None
    assert account.left_s == account.limit_s  # no request's time is used up


class _ToldLock:
    """Tells of each who is about to take it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_concurrent_scrapes_share_one_exposition() -> None:
    lock, begun, goes_on = _ToldLock(), threading.Event(), threading.Event()
    made: list[bytes] = []

    def make() -> bytes:
        begun.set()
        assert goes_on.wait(WAIT_S)
        made.append(b"%d" % (len(made) + 1))
        return made[-1]

    shared = MadeForAll(make, lock)
    answers: list[bytes] = []
    asking = [threading.Thread(target=lambda: answers.append(shared())) for _ in range(9)]
    for each in asking:
        each.start()
        assert lock.asked.acquire(timeout=WAIT_S)
        assert begun.wait(WAIT_S)
    goes_on.set()
    for each in asking:
        each.join(WAIT_S)
    assert sorted(answers) == [b"1"] + [b"2"] * 8  # none was begun before somebody asked who has it
    assert shared() == b"3"

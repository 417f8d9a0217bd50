"""Who gives turns to whom while requests are computed: ticks by hand, on a clock that is set."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from gateway import cpu
from gateway.cpu import CpuAccount
from gateway.limits import MIB, ConnectionLimits
from gateway.server import connection_limits, time_slices
from gateway.server.connection_limits import BodiesUnderWay
from gateway.server.greenlets import _Visit
from gateway.server.time_slices import TimeSlices, Turnstile


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cpu, "slices", cpu.Slices())
    monkeypatch.setattr(connection_limits, "slices", cpu.slices)
    monkeypatch.setattr(time_slices.time, "thread_time", lambda: clock.now)
    return clock


def computes(slices: TimeSlices, clock: Clock, seconds: float) -> None:
    """Something that takes so long is computed, and then comes the signal."""
    clock.now += seconds
    slices.tick(0, sys._getframe())


def test_waiting_requests_continue_one_at_a_time_in_order(clock: Clock) -> None:
    slices, done = TimeSlices(), list[str]()
    looks: dict[int, list[str]] = {}

    def heavy(name: str) -> Callable[[], None]:
        def run() -> None:
            with cpu.section(CpuAccount(100.0)):
                for _ in range(3):
                    computes(slices, clock, 1.0)
                    done.append(name)
                    looks.setdefault(gevent.get_hub().loop.iteration, []).append(name)
                    clock.now += 1.0

        return run

    gevent.joinall([gevent.spawn(heavy(name)) for name in "abc"])
    assert "".join(done) == "abcabcabc"
    assert all(len(at_once) == 1 for at_once in looks.values()), looks


def test_requests_shorter_than_a_slice_share_one_round(clock: Clock) -> None:
    """Forty requests are ready at once, and each takes 20 ms."""
    slices, done = TimeSlices(), list[int]()
    cpu.slices.yield_now = slices.yield_now
    looks: dict[int, list[int]] = {}

    def small(number: int) -> None:
        with cpu.section(CpuAccount(100.0)):
            looks.setdefault(gevent.get_hub().loop.iteration, []).append(number)
            computes(slices, clock, 0.02)
            done.append(number)

    gevent.joinall([gevent.spawn(small, number) for number in range(40)])
    assert sorted(done) == list(range(40))
    assert all(len(at_once) <= 2 for at_once in looks.values()), looks


def test_new_and_waiting_requests_take_turns(clock: Clock) -> None:
    slices, order = TimeSlices(), list[str]()
    cpu.slices.yield_now = slices.yield_now

    def run(name: str, steps: int) -> None:
        with cpu.section(CpuAccount(100.0)):
            for _ in range(steps):
                computes(slices, clock, 0.03)
                order.append(name)

    heavy = gevent.spawn(run, "heavy", 6)
    gevent.sleep(0)
    gevent.joinall([heavy, *[gevent.spawn(run, "small", 1) for _ in range(6)]])
    assert order.index("small") < 3
    assert order[:6].count("heavy") >= 2


def test_others_run_between_two_slices(clock: Clock) -> None:
    slices, order = TimeSlices(), list[str]()

    def heavy() -> None:
        with cpu.section(CpuAccount(100.0)):
            for _ in range(2):
                order.append("heavy")
                computes(slices, clock, 1.0)

    def light() -> None:
        gevent.sleep(0)
        order.append("light")

    gevent.joinall([gevent.spawn(heavy), gevent.spawn(light)])
    assert order == ["heavy", "light", "heavy"]


def test_short_work_and_work_outside_sections_does_not_yield(clock: Clock) -> None:
    slices, order = TimeSlices(), list[str]()

    def run(account: CpuAccount | None, seconds: float) -> None:
        with cpu.section(account):
            computes(slices, clock, seconds)
        order.append("done")

    for account, seconds in ((CpuAccount(1.0), 0.001), (None, 50.0)):
        order.clear()
        gevent.sleep(0.001)  # a slice of its own
        gevent.joinall([gevent.spawn(run, account, seconds), gevent.spawn(order.append, "other")])
        assert order == ["done", "other"]


def test_a_computation_that_blocks_all_others_is_counted_and_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = cpu.Slices()
    monkeypatch.setattr(cpu, "slices", seen)
    slices = TimeSlices()
    for _ in range(3):
        computes(slices, clock, 0.2)
    gevent.sleep(0.001)
    assert (round(seen.longest_s, 6), seen.long) == (0.6, 1)
    (record,) = [each for each in caplog.records if each.name == "gateway.server.time_slices"]
    assert "computes" in record.places[0]  # type: ignore[attr-defined]


def most_per_round(looks: list[int]) -> int:
    """The most that passed between two looks at the sockets; ``looks`` has the last one of each."""
    return max(Counter(looks).values())


@pytest.mark.parametrize("count", [1, 10])
def test_reading_a_fast_body_yields_to_others(clock: Clock, count: int) -> None:
    """No read waits: neither for one body, nor for several that come at once."""
    slices, looks = TimeSlices(), list[int]()
    cpu.slices.yield_now = slices.yield_now
    under_way = BodiesUnderWay(ConnectionLimits())

    def received(size: int) -> bytes:
        looks.append(gevent.get_hub().loop.iteration)
        computes(slices, clock, 0.005)
        return b"x" * size

    def read() -> None:
        assert len(under_way.read(received, 4 * MIB, None)) == 4 * MIB

    gevent.sleep(0.001)  # a slice of its own
    gevent.joinall([gevent.spawn(read) for _ in range(count)], raise_error=True)
    assert len(looks) == count * 4 * MIB // 65_536
    # A slice is over after five; each of the others has begun with one before it knew.
    assert most_per_round(looks) <= 5 + count


def test_admitted_requests_compute_for_one_slice_per_round(clock: Clock) -> None:
    """Requests that take 10 ms each; of those that take less, a number of them."""
    slices, looks = TimeSlices(), list[int]()
    turnstile = Turnstile(lambda: False)

    def request(seconds: float) -> None:
        turnstile.go_through()
        looks.append(gevent.get_hub().loop.iteration)
        computes(slices, clock, seconds)

    for seconds, at_once in ((0.01, 3), (0.0, 32)):
        looks.clear()
        gevent.sleep(0.001)
        gevent.joinall([gevent.spawn(request, seconds) for _ in range(100)], raise_error=True)
        assert len(looks) == 100
        assert most_per_round(looks) == at_once


def test_after_its_slice_only_urgent_requests_are_admitted(clock: Clock) -> None:
    slices, passed = TimeSlices(), dict[str, int]()
    turnstile = Turnstile(lambda: False)

    def request(name: str) -> None:
        turnstile.go_through(urgent=name == "urgent")
        passed[name] = gevent.get_hub().loop.iteration

    def many() -> None:
        slices.tick(0, sys._getframe())
        computes(slices, clock, 0.03)
        assert cpu.slices.is_over
        both = [gevent.spawn(request, name) for name in ("first", "urgent")]
        gevent.joinall(both, raise_error=True)

    gevent.spawn(many).get()
    assert list(passed) == ["urgent", "first"]
    assert passed["urgent"] < passed["first"]


def test_discarding_a_body_yields_to_others(clock: Clock) -> None:
    """After a refusal, of a client that keeps sending as fast as it can."""
    slices, looks = TimeSlices(), list[int]()
    turnstile = Turnstile(lambda: False)
    worker = SimpleNamespace(turnstile=turnstile, idle={}, alive=True, is_surplus=lambda _: False)

    class Client:
        def shutdown(self, _how: int) -> None:
            pass

        def recv(self, size: int) -> bytes:
            looks.append(gevent.get_hub().loop.iteration)
            computes(slices, clock, 0.005)
            return b"x" * size

    gevent.sleep(0.001)
    visit: Any = _Visit
    gevent.joinall([gevent.spawn(visit(worker, Client()).discard)], raise_error=True)
    assert len(looks) == 16 * MIB // 65_536
    assert most_per_round(looks) <= 6

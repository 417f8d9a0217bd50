"""The queue, with turns that are granted when the test says so and a clock that it sets."""

from __future__ import annotations

import threading

import pytest

from gateway.commit.pending import Pending
from gateway.commit.queue import Queue
from gateway.errors import QueueFull
from gateway.limits import ServiceLimits
from tests.asking import SetClock, ask, put
from tests.patience import WAIT_S

BOUNDS = ServiceLimits(
    queue_requests_max=10,
    queue_bytes_max=1_000_000,
    batch_requests_max=10,
    batch_bytes_max=1_000_000,
)


class SecondTime:
    """Refuses a turn once, then grants it; the first time the worker is stopped for an hour."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self._asked = 0

    def take(self, _catalog: str) -> bool:
        self._asked += 1
        if self._asked == 1:
            self._clock.passed_s = 3600.0
        return self._asked % 2 == 0

    def give_up(self, _catalog: str) -> None: ...

    def end(self, _catalog: str) -> bool:
        return False


def test_a_worker_stopped_for_an_hour_looks_for_its_next_turn_at_once() -> None:
    """Simulation seed 6004978: it waited for minutes, and its requests' deadlines passed."""
    clock = SetClock()
    queue = Queue(clock, BOUNDS, SecondTime(clock))
    for _ in range(2):
        pending = Pending(ask(put(1)), clock.event())
        queue.put(pending)
        taken: list[object] = []
        leader = threading.Thread(target=lambda: taken.append(queue.take()), daemon=True)  # noqa: B023
        leader.start()
        leader.join(WAIT_S)
        assert taken == [{"c": [pending]}]
        queue.end_batch("c")


class Held:
    """A turn that another worker holds while ``held``; each look at it takes a while."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self.held = True
        self.looks = 0

    def take(self, _catalog: str) -> bool:
        self.looks += 1
        self._clock.passed_s += 0.1
        return not self.held

    def give_up(self, _catalog: str) -> None: ...

    def end(self, _catalog: str) -> bool:
        return False


def test_a_turn_that_never_ends_is_waited_for_once_until_it_has_ended() -> None:
    """A stopped worker holds up the others by one wait, not one for each of their batches."""
    clock = SetClock()
    turns = Held(clock)
    queue = Queue(clock, BOUNDS, turns)

    def looks_of_a_batch() -> int:
        turns.looks = 0
        queue.put(Pending(ask(put(1)), clock.event()))
        queue.take()
        queue.end_batch("c")
        return turns.looks

    assert looks_of_a_batch() > 2
    assert looks_of_a_batch() == 1
    turns.held = False
    assert looks_of_a_batch() == 1
    turns.held = True
    assert looks_of_a_batch() > 2


def test_those_that_can_wait_leave_half_of_the_room_to_the_others() -> None:
    clock = SetClock()
    queue = Queue(clock, BOUNDS)
    waiting = [Pending(ask(put(1)), clock.event()) for _ in range(7)]
    assert queue.put_first_of(waiting, 0.0) == 5
    assert queue.put_first_of(waiting[5:], 0.0) == 0
    for _ in range(5):
        queue.put(Pending(ask(put(1)), clock.event()))
    with pytest.raises(QueueFull):
        queue.put(Pending(ask(put(1)), clock.event()))

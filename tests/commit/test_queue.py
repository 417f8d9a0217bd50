"""The queue, with turns that are granted when the test says so and a clock that it sets."""

from __future__ import annotations

import threading

import pytest

from gateway.commit import queue
from gateway.commit.queue import Pending, Queue
from gateway.decide.request import Refused
from gateway.errors import QueueFull
from gateway.limits import ServiceLimits
from tests.patience import WAIT_S
from tests.without_http import SetClock, ask, put

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


def test_a_worker_stopped_for_an_hour_checks_for_its_next_turn_at_once() -> None:
    """Simulation seed 6004978: it waited for minutes, and its requests' deadlines passed."""
    clock = SetClock()
    lanes = Queue(clock, BOUNDS, SecondTime(clock))
    for _ in range(2):
        pending = Pending(ask(put(1)), clock.event())
        lanes.put(pending)
        taken: list[object] = []
        leader = threading.Thread(target=lambda: taken.append(lanes.take()), daemon=True)  # noqa: B023
        leader.start()
        leader.join(WAIT_S)
        assert taken == [{"c": [pending]}]
        lanes.end_batch("c")


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


def test_a_turn_that_never_ends_is_waited_for_only_once() -> None:
    """A stopped worker holds up the others by one wait, not one for each of their batches."""
    clock = SetClock()
    turns = Held(clock)
    lanes = Queue(clock, BOUNDS, turns)

    def looks_of_a_batch() -> int:
        turns.looks = 0
        lanes.put(Pending(ask(put(1)), clock.event()))
        lanes.take()
        lanes.end_batch("c")
        return turns.looks

    assert looks_of_a_batch() > 2
    assert looks_of_a_batch() == 1
    turns.held = False
    assert looks_of_a_batch() == 1
    turns.held = True
    assert looks_of_a_batch() > 2


def test_requests_that_can_wait_leave_half_of_the_queue_to_others() -> None:
    clock = SetClock()
    lanes = Queue(clock, BOUNDS)
    waiting = [Pending(ask(put(1)), clock.event()) for _ in range(7)]
    assert lanes.put_first_of(waiting, 0.0) == 5
    assert lanes.put_first_of(waiting[5:], 0.0) == 0
    for _ in range(5):
        lanes.put(Pending(ask(put(1)), clock.event()))
    with pytest.raises(QueueFull):
        lanes.put(Pending(ask(put(1)), clock.event()))


def test_a_round_is_bounded_in_catalogs_requests_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is taken next, in the order in which it came."""
    monkeypatch.setattr(queue, "_CATALOGS_MAX", 3)
    monkeypatch.setattr(queue, "_REQUESTS_MAX", 5)
    monkeypatch.setattr(queue, "_BYTES_MAX", 100)
    clock = SetClock()
    lanes = Queue(clock, ServiceLimits())

    def put_all(count: int, size_bytes: int, names: str) -> None:
        for name in names:
            for _ in range(count):
                request = ask(put(1), catalog=name, size_bytes=size_bytes)
                lanes.put(Pending(request, clock.event()))

    def taken() -> str:
        batches = lanes.take()
        for catalog in batches:
            lanes.end_batch(catalog)
        return "".join(batches)

    put_all(1, 1, "abcdefg")
    assert [taken() for _ in range(3)] == ["abc", "def", "g"]
    put_all(3, 1, "abcd")
    assert [taken() for _ in range(2)] == ["ab", "cd"]
    put_all(1, 60, "abcd")
    assert [taken() for _ in range(2)] == ["ab", "cd"]


def test_lanes_that_are_not_due_are_not_checked() -> None:
    """Thousands that are busy or blocked cost a leader nothing at each of its wake-ups."""
    clock = SetClock()
    asked: list[str] = []

    def may_move(catalog: str, _large: bool) -> bool:
        asked.append(catalog)
        return not catalog.startswith("blocked")

    lanes = Queue(clock, ServiceLimits(), may_move=may_move)
    for number in range(1_000):
        lanes.put(Pending(ask(put(1), catalog=f"blocked-{number}"), clock.event()))
    for number in range(3):
        lanes.put(Pending(ask(put(1), catalog=f"free-{number}"), clock.event()))
        assert lanes.take().keys() == {f"free-{number}"}
        lanes.end_batch(f"free-{number}")
    assert len(asked) == 1_003
    lanes.recheck("blocked-7")
    lanes.put(Pending(ask(put(1), catalog="free"), clock.event()))
    assert lanes.take().keys() == {"free"}
    assert asked[1_003:] == ["blocked-7", "free"]


def test_after_a_refusal_batches_are_halved_and_then_grow_again() -> None:
    clock = SetClock()
    lanes = Queue(clock, ServiceLimits(batch_requests_max=8))
    pendings = [Pending(ask(put(1)), clock.event()) for _ in range(40)]
    for pending in pendings:
        lanes.put(pending)
    sizes = []
    for most in (4, 2, None, None, None, None):
        (batch,) = lanes.take().values()
        sizes.append(len(batch))
        lanes.end_batch("c", batch if most else (), most=most)
    assert sizes == [8, 4, 2, 4, 8, 8]


class Breaking(SetClock):
    """A clock, and the turns by it; for each, whether a look at it finds no memory."""

    no_memory_for = ""

    def monotonic(self) -> float:
        self._require("clock")
        return super().monotonic()

    def take(self, catalog: str) -> bool:
        self._require(catalog)
        return True

    def give_up(self, _catalog: str) -> None: ...

    def end(self, _catalog: str) -> bool:
        self._require("turns")
        return False

    def _require(self, what: str) -> None:
        if self.no_memory_for == what:
            self.no_memory_for = ""
            raise MemoryError


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("what", ["clock", "turns"])
def test_a_batch_that_cannot_end_for_lack_of_memory_blocks_nobody(what: str, lost: bool) -> None:
    clock = Breaking()
    lanes = Queue(clock, BOUNDS, clock)
    pendings = [Pending(ask(put(1)), clock.event()) for _ in range(3)]
    lanes.put(pendings[0])
    lanes.put(pendings[1])
    (batch,) = lanes.take().values()  # type: ignore[union-attr]
    assert batch == pendings[:2]
    lanes.put(pendings[2])
    clock.no_memory_for = what
    with pytest.raises(MemoryError):
        lanes.end_batch("c", batch, lost=lost)
    taken: list[Pending] = []
    leader = threading.Thread(
        target=lambda: taken.extend(*lanes.take().values()),
        daemon=True,  # type: ignore[union-attr]
    )
    leader.start()
    leader.join(WAIT_S)
    told = [pending for pending in batch if pending.outcome is not None]
    assert [*told, *taken] == pendings
    for pending in told:
        assert isinstance(pending.outcome, Refused)
        assert pending.outcome.error.code == "overloaded"


def test_a_batch_that_cannot_be_taken_for_lack_of_memory_blocks_nobody() -> None:
    clock = Breaking()
    lanes = Queue(clock, BOUNDS, clock)
    first, second = (Pending(ask(put(1), catalog=c), clock.event()) for c in "cd")
    lanes.put(first)
    lanes.put(second)
    clock.no_memory_for = "d"
    with pytest.raises(MemoryError):
        lanes.take()
    assert isinstance(first.outcome, Refused)
    assert lanes.take() == {"d": [second]}
    lanes.end_batch("d")
    for catalog in "cd":
        pending = Pending(ask(put(1), catalog=catalog), clock.event())
        lanes.put(pending)
        assert lanes.take() == {catalog: [pending]}


class Large:
    """A request; whether the next look at its size finds no memory."""

    catalog, deadline = "c", float("inf")
    is_short_of_memory = False

    @property
    def size_bytes(self) -> int:
        if self.is_short_of_memory:
            self.is_short_of_memory = False
            raise MemoryError
        return 1


def test_a_batch_that_cannot_be_assembled_for_lack_of_memory_stays_in_its_lane() -> None:
    clock = SetClock()
    lanes = Queue(clock, BOUNDS)
    last = Large()
    pendings = [Pending(ask(put(1)), clock.event()), Pending(last, clock.event())]  # type: ignore[arg-type]
    for pending in pendings:
        lanes.put(pending)
    last.is_short_of_memory = True
    with pytest.raises(MemoryError):
        lanes.take()
    assert lanes.take() == {"c": pendings}

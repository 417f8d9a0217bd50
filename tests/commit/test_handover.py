"""Writes that a worker hands over to another one of its machine, which decides them as its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from gateway.commit.handover import Handed, HandOver
from gateway.decide.conditions import NO_CONDITIONS, CatalogTag, Composite, Conditions
from gateway.decide.ranges import RangeUnchanged
from gateway.decide.request import Applied, Outcome, Refused, Request, Unknown
from gateway.errors import DocumentNotFound, GatewayError, OverLimit, PatchDoesNotFit, QueueFull
from gateway.limits import ServiceLimits
from gateway.model import WITHHELD
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.memory import MemoryStore
from patching import ABSENT
from tests.asking import SetClock, add, applied, ask, content_of, put, refused, replace
from tests.patience import WAIT_MS

FULL = QueueFull("it is full")


class Neighbour:
    """Answers each request by ``answer``, as it would come through a socket."""

    def __init__(self, answer: Callable[[Request], Handed | None]) -> None:
        self._answer = answer
        self.asked: list[int] = []

    def ask(self, worker: int, request: Request, until: float) -> Handed | None:
        assert until > request.deadline
        self.asked.append(worker)
        return passed(self._answer(passed(request)))


def passed(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def gateway(store: MemoryStore, neighbour: Neighbour | None = None) -> Gateway:
    limits = ServiceLimits(deadline_ms=WAIT_MS)
    return Gateway(store, ThreadRuntime(), limits, neighbours=neighbour)  # type: ignore[arg-type]


def unknown(request: Request) -> Outcome:
    return Unknown(request.commit_id)


def test_a_worker_behind_anothers_turn_is_told_what_that_one_decided() -> None:
    store = MemoryStore()
    writer = gateway(store)
    neighbour = Neighbour(lambda request: writer.commit_for(request, 200))
    other = gateway(store, neighbour)
    writer.write("c", "k", put({"n": 1}))
    other._hand_over.behind("c", 100)
    written = other.write("c", "k", replace("/n", 2))
    assert applied(written.outcome).commit.id == written.commit_id
    failed = refused(other.write("c", "k", replace("/m", 2)).outcome, PatchDoesNotFit)
    assert (failed.key, failed.error.pointer) == ("k", "/m")
    assert (neighbour.asked, content_of(other)) == ([100, 100], {"n": 2})
    other.write("d", "k", put({}))
    assert len(neighbour.asked) == 2, "another catalog is its own to write"


def test_what_the_other_does_not_take_is_written_here() -> None:
    neighbour = Neighbour(lambda _: None)
    ours = gateway(MemoryStore(), neighbour)
    ours._hand_over.behind("c", 100)
    for number in range(2):
        applied(ours.write("c", "k", put(number)).outcome)
    assert neighbour.asked == [100]


def test_what_the_other_dies_with_is_unknown() -> None:
    def die(_: Request) -> Handed:
        raise ConnectionResetError

    ours = gateway(MemoryStore(), Neighbour(die))
    ours._hand_over.behind("c", 100)
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)
    assert applied(ours.write("c", "k", put(2)).outcome).commit.revision == 1


def test_a_queue_that_is_full_over_there_refuses_here() -> None:
    ours = gateway(MemoryStore(), Neighbour(lambda _: Handed(None, 1, goes_on=True, error=FULL)))
    ours._hand_over.behind("c", 100)
    with pytest.raises(QueueFull):
        ours.write("c", "k", put(1))


def test_a_large_request_is_not_handed_over() -> None:
    neighbour = Neighbour(lambda request: Handed(unknown(request), 1, goes_on=True))
    hand_over = HandOver(SetClock(), neighbour)
    hand_over.behind("c", 100)
    assert hand_over.handed(ask(put("x" * 65_536), size_bytes=65_538)) is None
    assert hand_over.handed(ask(put("x"))) is not None


def test_a_dry_run_is_not_handed_over() -> None:
    """Simulation seed 8000438: it was told as unknown, though it changes nothing."""
    hand_over = HandOver(SetClock(), Neighbour(lambda _: None))
    hand_over.behind("c", 100)
    assert hand_over.handed(ask(put(1), dry_run=True)) is None
    assert hand_over.handed(ask(put(1))) is None
    assert hand_over._neighbours.asked == [100]  # type: ignore[union-attr]


def test_it_goes_on_for_as_long_as_the_other_says_so() -> None:
    clock = SetClock()
    goes_on = [True, True, False]
    neighbour = Neighbour(lambda request: Handed(unknown(request), 1, goes_on.pop(0)))
    hand_over = HandOver(clock, neighbour)
    hand_over.behind("c", 100)
    for _ in range(3):
        clock.passed_s += 0.4
        assert hand_over.handed(ask(put(1)))
    assert hand_over.handed(ask(put(1))) is None
    hand_over.behind("c", 100)
    clock.passed_s += 0.6
    assert hand_over.handed(ask(put(1))) is None, "it has asked nothing for too long"


def test_who_is_handed_over_to_says_whether_anybody_else_asks() -> None:
    clock = SetClock()
    hand_over = HandOver(clock, None)
    outcome = Unknown("")
    hand_over.asked("c", 200)
    assert hand_over.goes_on("c", 200, outcome), "its own clients have, or it had had no turn"
    clock.passed_s += 0.6
    hand_over.asked("c", 200)
    assert not hand_over.goes_on("c", 200, outcome)
    hand_over.asked("c", 200)
    hand_over.asked("c", 300)
    clock.passed_s += 0.6
    hand_over.asked("c", 200)
    assert not hand_over.goes_on("c", 200, outcome)
    hand_over.asked("c", 200)
    hand_over.asked("c", 300)
    assert hand_over.goes_on("c", 200, outcome)
    assert hand_over.goes_on("c", 300, outcome)


def test_documents_that_take_long_to_send_are_written_in_turns() -> None:
    writer = gateway(MemoryStore())
    small = writer.commit_for(writer.request("c", ask(put("x")).edits), 200)
    large = writer.commit_for(writer.request("c", ask(put("x" * 70_000)).edits), 200)
    assert (small.goes_on, large.goes_on) == (True, False)
    assert isinstance(large.outcome, Applied)


@pytest.mark.parametrize(
    "error",
    [
        DocumentNotFound("c", "k"),
        OverLimit("too much", limit="x", maximum=1, actual=2),
        QueueFull("it is full"),
    ],
)
def test_refusals_come_through_whole(error: GatewayError) -> None:
    there = passed(error)
    assert (type(there), there.args, vars(there)) == (type(error), error.args, vars(error))


def test_what_is_there_once_stays_itself() -> None:
    """It is compared by ``is``."""
    for only in (NO_CONDITIONS, WITHHELD, ABSENT):
        assert passed(only) is only
    assert passed(ask(put(1))).conditions is NO_CONDITIONS


def test_conditions_come_through_whole() -> None:
    conditions = Conditions(
        frozenset({"a", CatalogTag(3)}),
        frozenset({Composite((("k", "b"), ("l", None)))}),
        1,
        2,
        (RangeUnchanged("tables/", 7),),
    )
    assert passed(conditions) == conditions
    assert passed(conditions).keys == {"k", "l"}


def test_all_that_a_decision_refuses_comes_through() -> None:
    store = MemoryStore()
    ours = gateway(store)
    outcome = ours.write("c", "k", add("/n", 1)).outcome
    assert isinstance(outcome, Refused)
    assert vars(passed(outcome).error) == vars(outcome.error)

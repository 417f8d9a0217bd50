"""Writes that a worker hands over to another one of its machine, which decides them as its own."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace as changed

from gateway.commit import handover
from gateway.commit.handover import Handed, HandOver, answering
from gateway.decide.conditions import NO_CONDITIONS, CatalogTag, Composite, Conditions
from gateway.decide.edits import Edit, KeyEdit
from gateway.decide.ranges import RangeUnchanged
from gateway.decide.request import Applied, Refused, Request, Unchanged, Unknown, Written
from gateway.errors import DocumentNotFound, GatewayError, OverLimit, PatchDoesNotFit, QueueFull
from gateway.http.write.bulk_lines import written_line
from gateway.limits import ServiceLimits
from gateway.model import WITHHELD
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.contract import Store
from gateway.store.memory import MemoryStore
from patching import ABSENT
from tests.asking import (
    SetClock,
    WatchedStore,
    add,
    applied,
    ask,
    content_of,
    put,
    refused,
    replace,
)
from tests.patience import WAIT_MS, WAIT_S

FULL = QueueFull("it is full")


class Neighbour:
    """Answers requests by ``answer``, as they would come through a socket."""

    def __init__(self, answer: Callable[[Sequence[Request]], Handed | None]) -> None:
        self._answer = answer
        self.asked: list[int] = []

    def ask(self, worker: int, requests: Sequence[Request], until: float) -> Handed | None:
        assert until > max(request.deadline for request in requests)
        self.asked.append(worker)
        return passed(self._answer(passed(requests)))


def passed(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def gateway(store: MemoryStore, neighbour: Neighbour | None = None) -> Gateway:
    limits = ServiceLimits(deadline_ms=WAIT_MS)
    return Gateway(store, ThreadRuntime(), limits, neighbours=neighbour)  # type: ignore[arg-type]


def unknown(requests: Sequence[Request], *, goes_on: bool = True) -> Handed:
    return Handed([(Unknown(request.commit_id), 1) for request in requests], goes_on)


def test_a_worker_behind_anothers_turn_is_told_what_that_one_decided() -> None:
    store = MemoryStore()
    writer = gateway(store)
    neighbour = Neighbour(lambda requests: writer.commit_for(requests, 200))
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
    def die(_: Sequence[Request]) -> Handed:
        raise ConnectionResetError

    ours = gateway(MemoryStore(), Neighbour(die))
    ours._hand_over.behind("c", 100)
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)
    assert applied(ours.write("c", "k", put(2)).outcome).commit.revision == 1


def test_a_queue_that_is_full_over_there_refuses_here() -> None:
    ours = gateway(MemoryStore(), Neighbour(lambda _: Handed((), goes_on=True, error=FULL)))
    ours._hand_over.behind("c", 100)
    with pytest.raises(QueueFull):
        ours.write("c", "k", put(1))


def together(ours: Gateway, *edits: tuple[str, Edit], catalog: str = "c") -> list[Request]:
    return [ours.request(catalog, (KeyEdit(key, edit),)) for key, edit in edits]


def committed(writer: Gateway, requests: Sequence[Request]) -> Handed:
    handed = writer.commit_for(requests, 200)
    assert handed is not None
    return handed


def line(written: Written) -> bytes:
    """What a client is told of it."""
    (change,) = applied(written.outcome).commit.changes
    return written_line(0, ask(put(0), key=change.key), written, "")


def test_lines_that_come_together_go_together_and_in_their_order() -> None:
    """Their answers say what the lines' own are made of, and leave the contents where they are."""
    store = MemoryStore()
    writer = gateway(store)
    neighbour = Neighbour(lambda requests: answering(writer.commit_for)(requests, 200))
    other = gateway(store, neighbour)
    writer.write("c", "k", put({"n": 1}))
    other._hand_over.behind("c", 100)
    edits = (replace("/n", 2), replace("/m", 2), replace("/n", 2), replace("/n", 3))
    requests = together(other, *(("k", edit) for edit in edits), ("new", put([1])))
    first, failed, same, last, new = other.commit_each(requests)
    assert neighbour.asked == [100]
    assert refused(failed.outcome, PatchDoesNotFit).error.pointer == "/m"
    assert isinstance(same.outcome, Unchanged)
    for written in (first, last, new):
        told = applied(written.outcome)
        made = Applied(writer.read_commit("c", told.commit.revision), {})
        here = Written(made, written.commit_id, written.attempts)
        assert told.documents == {}
        assert not told.commit.changes[0].is_whole
        assert line(written) == line(here)
    assert [each and each.content for each in same.outcome.documents.values()] == [WITHHELD]
    assert content_of(other) == {"n": 3}


def test_what_lines_are_handed_over() -> None:
    """Those of one catalog, of which none is a dry run, and that aren't large together."""
    neighbour = Neighbour(unknown)
    ours = gateway(MemoryStore(), neighbour)

    def are_handed_over(*requests: Request) -> bool:
        asked = len(neighbour.asked)
        ours._hand_over.behind("c", 100)
        ours.commit_each(requests)
        return len(neighbour.asked) > asked

    small, other = together(ours, ("k", put(1)), ("l", put(2)))
    (elsewhere,) = together(ours, ("k", put(1)), catalog="d")
    large = changed(other, size_bytes=65_537)
    assert are_handed_over(small)
    assert are_handed_over(small, other)
    assert not are_handed_over(small, elsewhere)
    assert not are_handed_over(elsewhere)
    assert not are_handed_over(small, changed(other, dry_run=True))
    assert not are_handed_over(small, large)
    half = changed(other, size_bytes=60_000)
    assert are_handed_over(small, *[half] * 4)
    assert not are_handed_over(small, *[half] * 5)
    assert not are_handed_over()


@pytest.mark.parametrize("answer", [None, Handed((), goes_on=True, error=FULL)])
def test_lines_that_are_not_taken_are_written_here(answer: Handed | None) -> None:
    ours = gateway(MemoryStore(), Neighbour(lambda _: answer))
    ours._hand_over.behind("c", 100)
    written = ours.commit_each(together(ours, ("k", put(1)), ("k", put(2))))
    assert [applied(each.outcome).commit.revision for each in written] == [1, 2]


def test_all_lines_that_the_other_dies_with_are_unknown() -> None:
    def die(_: Sequence[Request]) -> Handed:
        raise ConnectionResetError

    ours = gateway(MemoryStore(), Neighbour(die))
    ours._hand_over.behind("c", 100)
    requests = together(ours, ("k", put(1)), ("l", put(2)))
    written = ours.commit_each(requests)
    assert [each.outcome for each in written] == [Unknown(each.commit_id) for each in requests]
    again = ours.commit_each(requests)
    assert [applied(each.outcome).commit.revision for each in again] == [1, 2]


def test_lines_are_not_taken_where_they_would_wait_for_room() -> None:
    """In the half of the queue that is for bulk requests, or behind others that wait for it."""
    hold, reached = threading.Event(), threading.Event()
    store = WatchedStore(MemoryStore())

    def stop() -> None:
        reached.set()
        assert hold.wait(WAIT_S)

    store.before["move_heads"] = stop
    limits = ServiceLimits(deadline_ms=WAIT_MS, queue_requests_max=8)
    writer = Gateway(cast(Store, store), ThreadRuntime(), limits)
    first = threading.Thread(target=writer.write, args=("c", "k", put(1)))
    first.start()
    assert reached.wait(WAIT_S)
    assert writer.commit_for(together(writer, *[("k", put(1))] * 4), 200) is None
    assert writer.readings().queue_requests == 1
    with writer._loop._callers.turn("ann"):
        assert writer.commit_for(together(writer, *[("k", put(1))] * 3), 200) is None
    hold.set()
    handed = committed(writer, together(writer, *[("k", put(n)) for n in range(3)]))
    assert [applied(outcome).commit.revision for outcome, _ in handed.outcomes] == [2, 3, 4]
    first.join(WAIT_S)


def test_a_large_request_is_not_handed_over() -> None:
    neighbour = Neighbour(unknown)
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
    neighbour = Neighbour(lambda requests: unknown(requests, goes_on=goes_on.pop(0)))
    hand_over = HandOver(clock, neighbour)
    hand_over.behind("c", 100)
    for _ in range(3):
        clock.passed_s += 0.8 * handover._LASTS_S
        assert hand_over.handed(ask(put(1)))
    assert hand_over.handed(ask(put(1))) is None
    hand_over.behind("c", 100)
    clock.passed_s += 1.2 * handover._LASTS_S
    assert hand_over.handed(ask(put(1))) is None, "it has asked nothing for too long"


def test_who_is_handed_over_to_says_whether_anybody_else_asks() -> None:
    clock = SetClock()
    hand_over = HandOver(clock, None)
    outcome = Unknown("")
    hand_over.asked("c", 200)
    assert hand_over.goes_on("c", 200, outcome), "its own clients have, or it had had no turn"
    clock.passed_s += 1.2 * handover._LASTS_S
    hand_over.asked("c", 200)
    assert not hand_over.goes_on("c", 200, outcome)
    hand_over.asked("c", 200)
    hand_over.asked("c", 300)
    clock.passed_s += 1.2 * handover._LASTS_S
    hand_over.asked("c", 200)
    assert not hand_over.goes_on("c", 200, outcome)
    hand_over.asked("c", 200)
    hand_over.asked("c", 300)
    assert hand_over.goes_on("c", 200, outcome)
    assert hand_over.goes_on("c", 300, outcome)


def test_documents_that_take_long_to_send_are_written_in_turns() -> None:
    writer = gateway(MemoryStore())
    small = committed(writer, [writer.request("c", ask(put("x")).edits)])
    large = committed(writer, [writer.request("c", ask(put("x" * 70_000)).edits)])
    assert (small.goes_on, large.goes_on) == (True, False)
    assert isinstance(large.outcomes[0][0], Applied)


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

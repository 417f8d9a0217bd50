"""The loop over stores (memory, MongoDB) whose calls are noted, held up and broken on purpose."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from gateway.decide.conditions import Preconditions
from gateway.decide.edits import KeyEdit
from gateway.decide.request import Applied, Outcome, Unchanged, Unknown, WriteOutcome
from gateway.errors import (
    ConditionFailed,
    DeadlineExceeded,
    HeldBack,
    QueueFull,
    StoreUnavailable,
)
from gateway.limits import ServiceLimits
from gateway.meters import Meters, WriteEnded
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store, StoreUnreachable, Unsent
from tests.patience import WAIT_MS, WAIT_S
from tests.without_http import (
    SetClock,
    WatchedStore,
    add,
    applied,
    commit_each,
    content_of,
    once,
    put,
    refused,
    replace,
)


@pytest.fixture
def store(store: Store) -> WatchedStore:
    return WatchedStore(store)


def gateway(store: WatchedStore, **limits: int) -> GatewayService:
    return GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits(**limits))


def break_off() -> None:
    raise StoreUnreachable("the connection broke")


def test_a_database_that_refuses_at_once_does_not_flood_the_log(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each round fails then, and the next one begins soon."""
    refusals = iter(range(5))
    store.before["tails"] = lambda: break_off() if next(refusals, None) is not None else None
    begun = time.monotonic()
    applied(gateway(store, deadline_ms=WAIT_MS).write("c", "k", put(1)).outcome)
    logged = [each for each in caplog.messages if "the connection broke" in each]
    assert 1 <= len(logged) <= 1 + time.monotonic() - begun
    assert next(refusals, None) is None


def timing_out_at(
    store: WatchedStore, calls: dict[str, Callable[[], None]], call: str
) -> GatewayService:
    """Whose time is over when this call has failed: that is of ``before`` or ``after``."""
    clock = SetClock()

    def fail() -> None:
        clock.passed_s += 2 * WAIT_S
        break_off()

    calls[call] = fail
    return GatewayService(cast(Store, store), clock, ServiceLimits(deadline_ms=WAIT_MS))


def stop_at(reached: threading.Event, hold: threading.Event) -> None:
    reached.set()
    hold.wait(WAIT_S)


def revisions(gateway: GatewayService) -> list[int]:
    return [each.revision for each in gateway.commits("c", after=0, limit=9, key=None).commits]


def overtake(theirs: GatewayService) -> None:
    theirs.write("c", "k", replace("/n", 2))


def together(calls: Sequence[Callable[[], object]]) -> list[object]:
    """What the calls return, each on a thread of its own."""
    results: list[object] = [None] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return results


def test_requests_that_arrive_during_a_batch_form_the_next_one(store: WatchedStore) -> None:
    """n clients on one document cost a few writes, not n of them."""
    ours = gateway(store)
    ours.write("c", "k", put({}))
    clients = 32
    moving, waiting = threading.Event(), threading.Event()
    first = add("/first", 0)
    store.before["move_heads"] = once(lambda: stop_at(moving, waiting))

    def client(number: int) -> object:
        moving.wait(WAIT_S)
        return ours.write("c", "k", add(f"/{number}", 0)).attempts

    def let_go() -> int:
        while ours.readings().queue_requests <= clients:
            time.sleep(0.001)
        waiting.set()
        return 1

    store.calls.clear()
    calls: list[Callable[[], object]] = [lambda: ours.write("c", "k", first).attempts, let_go]
    calls += [lambda n=n: client(n) for n in range(clients)]  # type: ignore[misc]
    assert together(calls) == [1] * (clients + 2)
    assert len(content_of(ours)) == clients + 1
    assert store.calls.count("move_heads") == 2


def test_a_lost_race_counts_as_an_attempt(store: WatchedStore) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    store.before["move_heads"] = once(lambda: overtake(theirs))
    written = ours.write("c", "k", add("/m", 1))
    assert written.attempts == 2
    commit = applied(written.outcome).commit
    assert (commit.revision, commit.attempts) == (3, 2)


def test_a_refusal_is_never_decided_on_remembered_state(store: WatchedStore) -> None:
    """Kubernetes PR 77619: the condition is false in the cache and true in the database."""
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    token = theirs.write("c", "k", replace("/n", 2)).outcome.document.token  # type: ignore[union-attr]
    held = Preconditions(if_match=frozenset({token}))
    applied(ours.write("c", "k", replace("/n", 3), conditions=held).outcome)


def test_a_no_op_is_never_decided_on_remembered_state(store: WatchedStore) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    theirs.write("c", "k", replace("/n", 2))
    applied(ours.write("c", "k", replace("/n", 1)).outcome)
    assert isinstance(theirs.write("c", "k", replace("/n", 1)).outcome, Unchanged)


def test_a_busy_catalog_of_one_worker_is_written_without_reading_its_head(
    store: WatchedStore,
) -> None:
    ours = gateway(store)
    ours.write("c", "k", put({"n": 0}))
    store.calls.clear()
    ours.write("c", "k", replace("/n", 1))
    asked = [call for call in store.calls if not call.startswith("write_")]
    assert asked == ["move_heads"], "the only thing that an answer waits for"


@pytest.mark.parametrize("call", ["write_documents", "write_commits"])
def test_an_answer_does_not_wait_until_it_is_written_out(store: WatchedStore, call: str) -> None:
    """Whoever reads has it all the same; the head moves on over what isn't written out."""
    ours, other = gateway(store), gateway(store, write_out_grace_ms=60_000)
    reached, hold = threading.Event(), threading.Event()
    store.before[call] = once(lambda: stop_at(reached, hold))
    for number in range(3):
        applied(ours.write("c", "k", put({"n": number})).outcome)
    assert reached.wait(WAIT_S)
    assert content_of(ours) == content_of(other) == {"n": 2}
    assert applied(other.write("c", "k", add("/m", 1)).outcome).commit.revision == 4
    assert content_of(ours) == {"n": 2, "m": 1}
    hold.set()
    assert revisions(ours) == revisions(other) == [1, 2, 3, 4]


def test_a_worker_with_too_much_to_write_out_waits(store: WatchedStore) -> None:
    ours = gateway(store, tail_commits_max=2, deadline_ms=WAIT_MS)
    reached, hold = threading.Event(), threading.Event()
    store.before["write_documents"] = once(lambda: stop_at(reached, hold))
    for number in range(2):
        applied(ours.write("c", "k", put(number)).outcome)
    assert reached.wait(WAIT_S)
    refused(ours.write("c", "k", put(2), wait_s=0.1).outcome, DeadlineExceeded)
    hold.set()
    applied(ours.write("c", "k", put(3)).outcome)
    assert content_of(ours) == 3


def test_a_large_batch_waits_only_while_several_moves_are_not_written_out(
    store: WatchedStore,
) -> None:
    """A bulk request's next lines are decided while its last ones are written out."""
    ours = gateway(store, tail_commits_max=2, batch_requests_max=4, deadline_ms=WAIT_MS)

    def commit(writes: int, wait_s: float = WAIT_S) -> list[Outcome]:
        edits = [KeyEdit(f"k{number}", put({"n": next(values)})) for number in range(writes)]
        asked = [ours.request("c", [edit], wait_s=wait_s) for edit in edits]
        return [written.outcome for written in commit_each(ours, asked)]

    values = itertools.count()
    reached, hold = threading.Event(), threading.Event()
    store.before["write_documents"] = once(lambda: stop_at(reached, hold))
    for outcome in commit(2):
        applied(outcome)
    assert reached.wait(WAIT_S)
    for outcome in commit(1, wait_s=0.1):
        refused(outcome, DeadlineExceeded)
    for _ in range(3):
        for outcome in commit(2):
            applied(outcome)
    for outcome in commit(2, wait_s=0.1):
        refused(outcome, DeadlineExceeded)
    hold.set()
    for outcome in commit(1):
        applied(outcome)
    assert revisions(ours) == list(range(1, 10))


def test_a_commit_that_does_not_fit_into_the_head_beside_its_tail_waits(
    store: WatchedStore,
) -> None:
    """One worker's tail is large, and another one's commit."""
    ours = gateway(store, head_bytes_max=3_000_000, deadline_ms=WAIT_MS)
    other = gateway(store, head_bytes_max=3_000_000, deadline_ms=WAIT_MS, write_out_grace_ms=1)
    reached, hold = threading.Event(), threading.Event()
    store.before["write_documents"] = once(lambda: stop_at(reached, hold))
    applied(ours.write("c", "k", put("x" * 2_000_000)).outcome)
    assert reached.wait(WAIT_S)
    applied(other.write("c", "l", put("x" * 2_000_000)).outcome)
    tail = store.tails(["c"])["c"].tail
    assert [commit.revision for commit in tail] == [2]
    hold.set()
    assert revisions(ours) == [1, 2]


@pytest.mark.parametrize("call", ["write_documents", "write_commits"])
def test_a_batch_whose_writer_died_is_written_out_by_the_next(
    store: WatchedStore, call: str
) -> None:
    """The worked example of the design: A dies between moving the head and writing out."""
    dying, heir = gateway(store), gateway(store, write_out_grace_ms=1)
    dying.write("c", "k", put({"n": 7}))
    assert revisions(dying) == [1]
    hold = threading.Event()
    reached = threading.Event()
    store.before[call] = once(lambda: stop_at(reached, hold))
    writer = threading.Thread(target=dying.write, args=("c", "k", replace("/n", 8)))
    writer.start()
    assert reached.wait(WAIT_S)
    assert (content_of(heir), heir.read("c", "k").catalog_revision) == ({"n": 8}, 2)
    assert applied(heir.write("c", "k", add("/m", 9)).outcome).commit.revision == 3
    hold.set()  # the dead one was only paused: its late write-out changes nothing
    writer.join(WAIT_S)
    assert (content_of(heir), revisions(heir)) == ({"n": 8, "m": 9}, [1, 2, 3])


def test_a_lost_answer_to_a_won_move_is_recognized_by_the_commit_id(store: WatchedStore) -> None:
    """Iceberg 13867, jetcd 1444: one's own success reported as a conflict, or applied twice."""
    ours = gateway(store)
    ours.write("c", "k", put({"log": []}))
    store.after["move_heads"] = once(break_off)
    written = ours.write("c", "k", add("/log/-", 1))
    applied(written.outcome)
    assert (written.attempts, content_of(ours)) == (1, {"log": [1]})


def test_a_failure_before_the_move_is_retried(store: WatchedStore) -> None:
    ours = gateway(store)
    store.before["move_heads"] = once(break_off)
    applied(ours.write("c", "k", put(1)).outcome)
    assert revisions(ours) == [1]


def test_a_move_that_cannot_be_resolved_is_unknown(store: WatchedStore) -> None:
    ours = timing_out_at(store, store.after, "move_heads")
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)


def test_with_its_idempotency_key_the_client_learns_the_outcome(store: WatchedStore) -> None:
    ours = timing_out_at(store, store.after, "move_heads")
    other = gateway(store, write_out_grace_ms=1)
    name = Idempotency("ann", "x", "print")
    assert isinstance(ours.write("c", "k", put(1), idempotency=name).outcome, Unknown)
    store.after.clear()
    reply = other.reply("c", "ann", "x")
    assert reply is not None
    again = applied(other.write("c", "k", put(1), idempotency=name).outcome)
    assert (again.commit, again.replayed) == (reply, True)


def test_an_unreachable_database_before_the_move_is_reported_as_not_applied(
    store: WatchedStore,
) -> None:
    ours = timing_out_at(store, store.before, "tails")
    refused(ours.write("c", "k", put(1)).outcome, StoreUnavailable)
    store.before.clear()
    assert revisions(ours) == []


@pytest.mark.parametrize("known", [False, True])
def test_a_move_that_was_never_sent_is_reported_as_not_applied(
    store: WatchedStore, known: bool
) -> None:
    """Even if the catalog is cached, so that the move is the first call."""
    clock = SetClock()
    ours = GatewayService(cast(Store, store), clock, ServiceLimits(deadline_ms=WAIT_MS))
    if known:
        ours.write("c", "k", put(0))

    def nowhere() -> None:
        raise Unsent("there is no primary")

    def nowhere_in_time() -> None:
        clock.passed_s += 2 * WAIT_S
        nowhere()

    store.before["move_heads"] = nowhere_in_time
    refused(ours.write("c", "k", put(1)).outcome, StoreUnavailable)
    store.before["move_heads"] = once(nowhere)
    applied(ours.write("c", "k", put(2)).outcome)
    assert len(revisions(ours)) == 1 + known


def test_a_request_that_times_out_while_the_database_is_silent_is_not_applied(
    store: WatchedStore,
) -> None:
    """Its neighbours in the batch are decided without it."""
    ours = gateway(store, deadline_ms=WAIT_MS, leaders=1)
    moving, silent, moved, answered = (threading.Event() for _ in range(4))
    store.before["move_heads"] = once(lambda: stop_at(moving, moved))
    outcomes: dict[str, Any] = {}

    def write(key: str, wait_s: float | None) -> None:
        outcomes[key] = ours.write("c", key, put(key), wait_s=wait_s).outcome

    def writing(key: str, wait_s: float | None = None) -> threading.Thread:
        thread = threading.Thread(target=write, args=(key, wait_s))
        thread.start()
        return thread

    first = writing("first")
    assert moving.wait(WAIT_S)
    patient, hurried = writing("patient"), writing("hurried", 0.7)
    while ours.readings().queue_requests < 3 and hurried.is_alive():
        time.sleep(0.001)
    store.before["documents"] = once(lambda: stop_at(silent, answered))
    moved.set()
    assert silent.wait(WAIT_S)
    hurried.join(WAIT_S)
    refused(outcomes["hurried"], DeadlineExceeded)
    answered.set()
    for thread in (first, patient):
        thread.join(WAIT_S)
    commits = ours.commits("c", after=0, limit=9, key=None).commits
    assert [each.changes[0].key for each in commits] == ["first", "patient"]
    assert [applied(outcomes[key]).commit for key in ("first", "patient")] == list(commits)


def test_after_a_write_refused_for_the_moment_no_later_one_is_applied_on_its_document(
    store: WatchedStore,
) -> None:
    """Among writes that arrive together; they are sent again in order. Others are written."""
    moving, moved, over = (threading.Event() for _ in range(3))

    class Told(Meters):
        def writes_ended(self, ended: Sequence[WriteEnded]) -> None:
            if any(each.outcome == "deadline_exceeded" for each in ended):
                over.set()

    limits = ServiceLimits(deadline_ms=WAIT_MS, leaders=1)
    ours = GatewayService(cast(Store, store), ThreadRuntime(), limits, meters=Told())
    store.before["move_heads"] = once(lambda: stop_at(moving, moved))
    first = threading.Thread(target=lambda: ours.write("c", "first", put(0)))
    first.start()
    assert moving.wait(WAIT_S)
    edits = [("k", 1, 0.0), ("k", 2, None), ("other", 1, None), ("k", 3, None)]
    requests = [
        ours.request("c", (KeyEdit(key, put(value)),), wait_s=wait_s)
        for key, value, wait_s in edits
    ]
    written: list[WriteOutcome] = []
    bulk = threading.Thread(target=lambda: written.extend(commit_each(ours, requests)))
    bulk.start()
    assert over.wait(WAIT_S)
    moved.set()
    for each in (first, bulk):
        each.join(WAIT_S)
    hurried, behind, other, last = (each.outcome for each in written)
    refused(hurried, DeadlineExceeded)
    for each in (behind, last):
        assert refused(each, HeldBack).retryable
    applied(other)
    again = [each.outcome for each in commit_each(ours, [requests[n] for n in (1, 3)])]
    assert [applied(each).commit.revision for each in again] == [3, 4]
    assert content_of(ours) == 3


def test_a_write_out_that_breaks_does_not_lose_the_commit(store: WatchedStore) -> None:
    ours, other = gateway(store), gateway(store, write_out_grace_ms=1)
    store.before["write_commits"] = break_off
    applied(ours.write("c", "k", put(1)).outcome)
    store.before.clear()
    assert revisions(other) == [1]


@contextmanager
def a_stalled_move(store: WatchedStore, ours: GatewayService) -> Iterator[None]:
    """The first write of k is held up at its move."""
    hold, reached = threading.Event(), threading.Event()
    store.before["move_heads"] = once(lambda: stop_at(reached, hold))
    first = threading.Thread(target=ours.write, args=("c", "k", put(1)))
    first.start()
    assert reached.wait(WAIT_S)
    yield
    hold.set()
    first.join(WAIT_S)


def test_the_clients_deadline_limits_the_loop(store: WatchedStore) -> None:
    ours = gateway(store)
    with a_stalled_move(store, ours):
        refused(ours.write("c", "k", put(2), wait_s=0.05).outcome, DeadlineExceeded)
    assert revisions(ours) == [1]


def test_a_full_queue_refuses_a_request_before_trying_it(store: WatchedStore) -> None:
    ours = gateway(store, queue_requests_max=1)
    with a_stalled_move(store, ours), pytest.raises(QueueFull):
        ours.write("c", "k", put(2))
    applied(ours.write("c", "k", put(3)).outcome)


def defect() -> None:
    raise ZeroDivisionError


def test_a_defect_in_a_round_leaves_no_request_waiting(store: WatchedStore) -> None:
    ours = gateway(store)
    store.before["move_heads"] = once(defect)
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)
    applied(ours.write("c", "k", put(2)).outcome)


def test_a_defect_before_the_move_of_the_heads_is_reported_as_not_applied(
    store: WatchedStore,
) -> None:
    ours = gateway(store)
    store.before["documents"] = once(defect)
    refused(ours.write("c", "k", put(1)).outcome, StoreUnavailable)
    assert revisions(ours) == []


def test_a_worker_far_behind_a_heavy_history_catches_up_in_bounded_steps(
    store: WatchedStore,
) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put(0))
    for number in range(12):
        theirs.write("c", "big", put("x" * 3_000_000 + str(number)))
    applied(ours.write("c", "k", put(1)).outcome)
    assert ours.read("c", "k").catalog_revision == 14


def test_racing_creators_make_one_document(store: WatchedStore) -> None:
    create_only = Preconditions(if_none_match=frozenset({"*"}))
    gateways = [gateway(store) for _ in range(4)]
    barrier = threading.Barrier(16)

    def create(number: int) -> object:
        barrier.wait(WAIT_S)
        return gateways[number % 4].write("c", "k", put(number), conditions=create_only).outcome

    outcomes = together([lambda n=n: create(n) for n in range(16)])  # type: ignore[misc]
    lost = [each for each in outcomes if not isinstance(each, Applied)]
    assert len(lost) == 15
    for outcome in lost:
        refused(outcome, ConditionFailed)


def test_one_idempotency_key_racing_through_several_workers_applies_once(
    store: WatchedStore,
) -> None:
    gateways = [gateway(store) for _ in range(4)]
    gateways[0].write("c", "k", put({"log": []}))
    name = Idempotency("ann", "x", "print")
    barrier = threading.Barrier(16)
    grow = add("/log/-", 1)

    def send(number: int) -> object:
        barrier.wait(WAIT_S)
        return gateways[number % 4].write("c", "k", grow, idempotency=name).outcome

    outcomes = together([lambda n=n: send(n) for n in range(16)])  # type: ignore[misc]
    ids = {applied(outcome).commit.id for outcome in outcomes}
    assert ids == {gateways[1].reply("c", "ann", "x").id}  # type: ignore[union-attr]
    assert content_of(gateways[2]) == {"log": [1]}


@pytest.mark.parametrize("bad", ["a", "c", "e"])
@pytest.mark.parametrize("call", ["tails", "documents"])
def test_an_unreadable_record_of_one_catalog_refuses_no_write_of_another(
    store: WatchedStore, call: str, bad: str
) -> None:
    """Somebody edited it by hand, and they come in one round."""
    names = "abcde"
    for name in names:
        gateway(store).write(name, "k", put({"n": 1}))
    ours = gateway(store)
    read = getattr(store, call)

    def fail(asked: Any, *more: Any) -> Any:
        if bad in asked:
            raise KeyError("revision")
        return read(asked, *more)

    setattr(store, call, fail)
    requests = [ours.request(name, (KeyEdit("k", replace("/n", 2)),)) for name in names]
    found = {n: w.outcome for n, w in zip(names, commit_each(ours, requests), strict=True)}
    refused(found.pop(bad), StoreUnavailable)
    for outcome in found.values():
        applied(outcome)


def test_waiting_for_room_in_the_queue_does_not_use_up_a_requests_time(
    store: WatchedStore,
) -> None:
    """Each takes a second of its ten; the last ones wait for the others for most of a minute."""

    class Slow(ThreadRuntime):
        moves = 0

        def monotonic(self) -> float:
            return super().monotonic() + self.moves

    def move() -> None:
        Slow.moves += 1

    store.before["move_heads"] = move
    limits = ServiceLimits(queue_requests_max=2)
    ours = GatewayService(cast(Store, store), Slow(), limits)
    requests = [ours.request("c", (KeyEdit(f"k{n}", put(n)),)) for n in range(40)]
    commits = [applied(each.outcome).commit for each in commit_each(ours, requests)]
    assert [commit.changes[0].key for commit in commits] == [f"k{n}" for n in range(40)]
    assert Slow.moves >= 40

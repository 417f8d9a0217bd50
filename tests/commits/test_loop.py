"""The loop over stores (memory, MongoDB) whose calls are noted, held up and broken on purpose."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from gateway.decide.conditions import Conditions
from gateway.decide.request import Applied, KeyEdit, Refused, Unchanged, Unknown
from gateway.errors import DeadlineExceeded, PreconditionFailed, QueueFull, StoreUnavailable
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway, ServiceLimits
from gateway.store.contract import Store, Unreachable, Unsent
from gateway.store.memory import MemoryStore
from gateway.store.mongodb import connect
from tests.commits.conftest import patch, put, replace
from tests.patience import WAIT_MS, WAIT_S


class WatchedStore:
    """A store whose calls are noted by name; ``before`` and ``after`` run around each of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)
        if name == "await_reachable":  # asks nothing
            return method

        def watched(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            self.before.get(name, lambda: None)()
            result = method(*arguments, **named)
            self.after.get(name, lambda: None)()
            return result

        return watched


@pytest.fixture(params=["memory", pytest.param("mongodb", marks=pytest.mark.mongod)])
def store(request: pytest.FixtureRequest) -> Iterator[WatchedStore]:
    if request.param == "memory":
        yield WatchedStore(MemoryStore())
        return
    database = request.getfixturevalue("database_name")
    real = connect(request.getfixturevalue("mongodb_uri"), database, timeout_ms=WAIT_MS)
    yield WatchedStore(real)
    real.close()


def gateway(store: WatchedStore, **limits: int) -> Gateway:
    return Gateway(cast(Store, store), ThreadRuntime(), ServiceLimits(**limits))


def once(action: Callable[[], None]) -> Callable[[], None]:
    """Does ``action`` the first time it is called, and nothing afterwards."""
    left = [action]
    return lambda: left.pop()() if left else None


def break_off() -> None:
    raise Unreachable("the connection broke")


def stop_at(reached: threading.Event, hold: threading.Event) -> None:
    reached.set()
    hold.wait(WAIT_S)


def wait_for(barrier: threading.Barrier) -> None:
    barrier.wait(WAIT_S)


def overtake(theirs: Gateway) -> None:
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


def test_what_arrives_during_a_batch_forms_the_next_one(store: WatchedStore) -> None:
    """n clients on one document cost a few writes, not n of them."""
    ours = gateway(store)
    ours.write("c", "k", put({}))
    clients = 32
    arrived = threading.Barrier(clients + 1)
    first = patch({"op": "add", "path": "/first", "value": 0})
    store.before["move_heads"] = once(lambda: wait_for(arrived))

    def client(number: int) -> object:
        arrived.wait(WAIT_S)
        return ours.write("c", "k", patch({"op": "add", "path": f"/{number}", "value": 0})).attempts

    store.calls.clear()
    calls: list[Callable[[], object]] = [lambda: ours.write("c", "k", first).attempts]
    calls += [lambda n=n: client(n) for n in range(clients)]  # type: ignore[misc]
    assert together(calls) == [1] * (clients + 1)
    document = ours.read("c", "k").document
    assert document is not None
    assert len(document.content) == clients + 1  # type: ignore[arg-type]
    assert store.calls.count("move_heads") < clients / 2


def test_a_lost_race_counts_as_an_attempt(store: WatchedStore) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    store.before["move_heads"] = once(lambda: overtake(theirs))
    written = ours.write("c", "k", patch({"op": "add", "path": "/m", "value": 1}))
    assert written.attempts == 2
    assert isinstance(written.outcome, Applied)
    assert written.outcome.commit.revision == 3
    assert written.outcome.commit.attempts == 2


def test_a_refusal_is_never_decided_on_remembered_state(store: WatchedStore) -> None:
    """Kubernetes PR 77619: the condition is false in the cache and true in the database."""
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    token = theirs.write("c", "k", replace("/n", 2)).outcome.document.token  # type: ignore[union-attr]
    held = Conditions(if_match=frozenset({token}))
    assert isinstance(ours.write("c", "k", replace("/n", 3), conditions=held).outcome, Applied)


def test_a_no_op_is_never_decided_on_remembered_state(store: WatchedStore) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put({"n": 1}))
    theirs.write("c", "k", replace("/n", 2))
    assert isinstance(ours.write("c", "k", replace("/n", 1)).outcome, Applied)
    assert isinstance(theirs.write("c", "k", replace("/n", 1)).outcome, Unchanged)


def test_a_busy_catalog_of_one_worker_is_written_without_reading_its_head(
    store: WatchedStore,
) -> None:
    ours = gateway(store)
    ours.write("c", "k", put({"n": 0}))
    store.calls.clear()
    ours.write("c", "k", replace("/n", 1))
    assert store.calls == ["move_heads", "write_documents", "write_commits"]


def test_nobody_is_answered_before_the_batch_is_written_out(store: WatchedStore) -> None:
    ours = gateway(store)
    seen: list[object] = []
    answered = threading.Event()
    store.after["write_documents"] = lambda: seen.append(answered.is_set())
    store.before["write_commits"] = lambda: seen.append(answered.is_set())
    ours.write("c", "k", put(1))
    answered.set()
    assert seen == [False, False]


@pytest.mark.parametrize("call", ["write_documents", "write_commits"])
def test_a_batch_whose_writer_died_is_written_out_by_the_next(
    store: WatchedStore, call: str
) -> None:
    """The worked example of the design: A dies between moving the head and writing out."""
    dying, heir = gateway(store), gateway(store, write_out_grace_ms=1)
    dying.write("c", "k", put({"n": 7}))
    hold = threading.Event()
    reached = threading.Event()
    store.before[call] = once(lambda: stop_at(reached, hold))
    writer = threading.Thread(target=dying.write, args=("c", "k", replace("/n", 8)))
    writer.start()
    assert reached.wait(WAIT_S)
    reading = heir.read("c", "k")
    assert reading.document is not None
    assert (reading.document.content, reading.catalog_revision) == ({"n": 8}, 2)
    written = heir.write("c", "k", patch({"op": "add", "path": "/m", "value": 9}))
    assert isinstance(written.outcome, Applied)
    assert written.outcome.commit.revision == 3
    hold.set()  # the dead one was only paused: its late write-out changes nothing
    writer.join(WAIT_S)
    final = heir.read("c", "k").document
    assert final is not None
    assert final.content == {"n": 8, "m": 9}
    assert [c.revision for c in heir.commits("c", after=0, limit=9, key=None).commits] == [1, 2, 3]


def test_an_answer_lost_behind_a_won_move_is_found_by_the_commits_id(store: WatchedStore) -> None:
    """Iceberg 13867, jetcd 1444: one's own success reported as a conflict, or applied twice."""
    ours = gateway(store)
    ours.write("c", "k", put({"log": []}))
    store.after["move_heads"] = once(break_off)
    grow = patch({"op": "add", "path": "/log/-", "value": 1})
    written = ours.write("c", "k", grow)
    assert isinstance(written.outcome, Applied)
    assert written.attempts == 1
    document = ours.read("c", "k").document
    assert document is not None
    assert document.content == {"log": [1]}


def test_a_break_before_the_move_is_simply_tried_again(store: WatchedStore) -> None:
    ours = gateway(store)
    store.before["move_heads"] = once(break_off)
    assert isinstance(ours.write("c", "k", put(1)).outcome, Applied)
    assert ours.commits("c", after=0, limit=9, key=None).head_revision == 1


def test_a_move_that_can_not_be_cleared_up_is_unknown(store: WatchedStore) -> None:
    ours = gateway(store, deadline_ms=200)
    store.after["move_heads"] = break_off
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)


def test_with_its_idempotency_key_the_client_learns_what_became_of_it(store: WatchedStore) -> None:
    ours, other = gateway(store, deadline_ms=200), gateway(store, write_out_grace_ms=1)
    name = Idempotency("ann", "x", "print")
    store.after["move_heads"] = break_off
    assert isinstance(ours.write("c", "k", put(1), idempotency=name).outcome, Unknown)
    store.after.clear()
    reply = other.reply("c", "ann", "x")
    assert reply is not None
    again = other.write("c", "k", put(1), idempotency=name).outcome
    assert isinstance(again, Applied)
    assert (again.commit, again.replayed) == (reply, True)


def test_a_database_out_of_reach_before_the_move_is_certainly_not_applied(
    store: WatchedStore,
) -> None:
    ours = gateway(store, deadline_ms=150)
    store.before["heads"] = break_off
    outcome = ours.write("c", "k", put(1)).outcome
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, StoreUnavailable)
    store.before.clear()
    assert ours.commits("c", after=0, limit=9, key=None).head_revision == 0


@pytest.mark.parametrize("known", [False, True])
def test_a_move_that_was_never_sent_is_certainly_not_applied(
    store: WatchedStore, known: bool
) -> None:
    """Also where the catalog is cached, and nothing is asked before the move."""
    ours = gateway(store, deadline_ms=WAIT_MS)
    if known:
        ours.write("c", "k", put(0))

    def nowhere() -> None:
        raise Unsent("there is no primary")

    store.before["move_heads"] = nowhere
    outcome = ours.write("c", "k", put(1), wait_s=0.15).outcome
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, StoreUnavailable)
    store.before["move_heads"] = once(nowhere)
    assert isinstance(ours.write("c", "k", put(2)).outcome, Applied)
    assert ours.commits("c", after=0, limit=9, key=None).head_revision == 1 + known


def test_whose_time_is_over_while_the_database_is_silent_leaves_and_is_not_applied(
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
    assert isinstance(outcomes["hurried"], Refused)
    assert isinstance(outcomes["hurried"].error, DeadlineExceeded)
    answered.set()
    for thread in (first, patient):
        thread.join(WAIT_S)
    assert isinstance(outcomes["first"], Applied)
    assert isinstance(outcomes["patient"], Applied)
    assert [c.changes[0].key for c in ours.commits("c", after=0, limit=9, key=None).commits] == [
        "first",
        "patient",
    ]


def test_a_write_out_that_breaks_does_not_lose_the_commit(store: WatchedStore) -> None:
    ours, other = gateway(store), gateway(store, write_out_grace_ms=1)
    store.before["write_commits"] = break_off
    assert isinstance(ours.write("c", "k", put(1)).outcome, Applied)
    store.before.clear()
    assert [c.revision for c in other.commits("c", after=0, limit=9, key=None).commits] == [1]


def test_the_clients_deadline_bounds_the_loop(store: WatchedStore) -> None:
    ours = gateway(store)
    hold = threading.Event()
    reached = threading.Event()
    store.before["move_heads"] = once(lambda: stop_at(reached, hold))
    first = threading.Thread(target=ours.write, args=("c", "k", put(1)))
    first.start()
    assert reached.wait(WAIT_S)
    outcome = ours.write("c", "k", put(2), wait_s=0.05).outcome
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, DeadlineExceeded)
    hold.set()
    first.join(WAIT_S)
    assert ours.commits("c", after=0, limit=9, key=None).head_revision == 1


def test_a_full_queue_refuses_before_anything_is_tried(store: WatchedStore) -> None:
    ours = gateway(store, queue_requests_max=1)
    hold = threading.Event()
    reached = threading.Event()
    store.before["move_heads"] = once(lambda: stop_at(reached, hold))
    first = threading.Thread(target=ours.write, args=("c", "k", put(1)))
    first.start()
    assert reached.wait(WAIT_S)
    with pytest.raises(QueueFull):
        ours.write("c", "k", put(2))
    hold.set()
    first.join(WAIT_S)
    assert isinstance(ours.write("c", "k", put(3)).outcome, Applied)


def test_a_defect_in_a_round_leaves_nobody_waiting(store: WatchedStore) -> None:
    ours = gateway(store)

    def defect() -> None:
        raise ZeroDivisionError

    store.before["move_heads"] = once(defect)
    written = ours.write("c", "k", put(1))
    assert written.outcome == Unknown(written.commit_id)
    assert isinstance(ours.write("c", "k", put(2)).outcome, Applied)


def test_a_defect_before_the_heads_are_moved_says_that_nothing_was_done(
    store: WatchedStore,
) -> None:
    ours = gateway(store)

    def defect() -> None:
        raise ZeroDivisionError

    store.before["documents"] = once(defect)
    outcome = ours.write("c", "k", put(1)).outcome
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, StoreUnavailable)
    assert ours.commits("c", after=0, limit=9, key=None).head_revision == 0


def test_a_worker_far_behind_a_heavy_history_catches_up_in_bounded_steps(
    store: WatchedStore,
) -> None:
    ours, theirs = gateway(store), gateway(store)
    ours.write("c", "k", put(0))
    for number in range(12):
        theirs.write("c", "big", put("x" * 3_000_000 + str(number)))
    assert isinstance(ours.write("c", "k", put(1)).outcome, Applied)
    assert ours.read("c", "k").catalog_revision == 14


def test_racing_creators_make_one_document(store: WatchedStore) -> None:
    create_only = Conditions(if_none_match=frozenset({"*"}))
    gateways = [gateway(store) for _ in range(4)]
    barrier = threading.Barrier(16)

    def create(number: int) -> object:
        barrier.wait(WAIT_S)
        return gateways[number % 4].write("c", "k", put(number), conditions=create_only).outcome

    outcomes = together([lambda n=n: create(n) for n in range(16)])  # type: ignore[misc]
    applied = [outcome for outcome in outcomes if isinstance(outcome, Applied)]
    refused = [outcome.error for outcome in outcomes if isinstance(outcome, Refused)]
    assert len(applied) == 1
    assert [type(error) for error in refused] == [PreconditionFailed] * 15


def test_one_idempotency_key_racing_through_several_workers_applies_once(
    store: WatchedStore,
) -> None:
    gateways = [gateway(store) for _ in range(4)]
    gateways[0].write("c", "k", put({"log": []}))
    name = Idempotency("ann", "x", "print")
    barrier = threading.Barrier(16)
    grow = patch({"op": "add", "path": "/log/-", "value": 1})

    def send(number: int) -> object:
        barrier.wait(WAIT_S)
        return gateways[number % 4].write("c", "k", grow, idempotency=name).outcome

    outcomes = together([lambda n=n: send(n) for n in range(16)])  # type: ignore[misc]
    assert {outcome.commit.id for outcome in outcomes if isinstance(outcome, Applied)} == {
        gateways[1].reply("c", "ann", "x").id  # type: ignore[union-attr]
    }
    assert all(isinstance(outcome, Applied) for outcome in outcomes)
    document = gateways[2].read("c", "k").document
    assert document is not None
    assert document.content == {"log": [1]}


@pytest.mark.parametrize("bad", ["a", "c", "e"])
@pytest.mark.parametrize("call", ["commits", "documents", "heads"])
def test_what_cannot_be_read_of_one_catalog_refuses_no_others_writes(
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
    found = {
        r.catalog: w.outcome for r, w in zip(requests, ours.commit_each(requests), strict=True)
    }
    refused = found.pop(bad)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, StoreUnavailable)
    assert all(isinstance(outcome, Applied) for outcome in found.values()), found

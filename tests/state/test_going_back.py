"""A database that is put back to an earlier state while gateways run: the lost future is neither
served nor written back."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from gateway.decide.request import Applied, Unchanged
from gateway.limits import ServiceLimits
from gateway.model import Idempotency
from gateway.runtime import Runtime, ThreadRuntime, moment
from gateway.service import GatewayService
from gateway.state import write_out
from gateway.store.contract import StoreUnreachable
from tests.memory_store import MemoryStore, backup
from tests.patience import WAIT_S
from tests.retention.history_checks import findings, wait_until_written
from tests.state.sleeping import DAY_S, Noted
from tests.store.contract_suite import commit
from tests.without_http import SetClock, WatchedStore, add, applied, content_of, put, wait_until


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def gateway_on(
    store: Any, meters: Noted | None = None, runtime: Runtime | None = None
) -> GatewayService:
    limits = ServiceLimits(deadline_ms=60_000, write_out_grace_ms=1)
    return GatewayService(store, runtime or ThreadRuntime(), limits, meters=meters or Noted())


def went_on(store: MemoryStore, commits: int) -> None:
    other = gateway_on(store)
    for number in range(commits):
        applied(other.write("c", "other", put(number)).outcome)
    wait_until_written(other)


@pytest.mark.parametrize("others", [0, 1, 2, 5], ids=["behind", "level", "ahead", "far ahead"])
@pytest.mark.parametrize("ours_do", ["read", "write"])
def test_a_lost_future_is_forgotten(
    store: MemoryStore, others: int, ours_do: str, caplog: pytest.LogCaptureFixture
) -> None:
    meters = Noted()
    ours = gateway_on(store, meters)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    put_back = backup(store)
    applied(ours.write("c", "k", put({"lost": 1})).outcome)
    wait_until_written(ours)
    assert content_of(ours) == {"lost": 1}
    put_back()
    went_on(store, others)
    with caplog.at_level(logging.ERROR, logger="gateway"):
        if ours_do == "read":
            assert content_of(ours) == {"n": 0}
        applied(ours.write("c", "k", add("/x", 1)).outcome)
    assert content_of(ours) == content_of(gateway_on(store)) == {"n": 0, "x": 1}
    assert meters.went_back == 1
    assert "catalog 'c' went back" in caplog.text
    assert "was the database restored?" in caplog.text
    wait_until_written(ours)
    assert findings(store, "c") == []


@pytest.mark.parametrize("others", [0, 1, 2, 5])
def test_a_pending_write_out_of_lost_commits_is_dropped(store: MemoryStore, others: int) -> None:
    """The database is away while it is put back, so the write-out has failed before."""
    watched = WatchedStore(store)
    meters = Noted()
    ours = gateway_on(watched, meters)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    put_back = backup(store)
    failed: list[None] = []

    def away() -> None:
        failed.append(None)
        raise StoreUnreachable("away")

    watched.before["write_documents"] = away
    applied(ours.write("c", "k", put({"lost": 1})).outcome)
    wait_until(lambda: len(failed) > 0)
    put_back()
    went_on(store, others)
    watched.before.clear()
    wait_until_written(ours)
    assert store.documents({"c": ["k"]})["c", "k"].content == {"n": 0}
    assert isinstance(ours.write("c", "k", add("/x", 1)).outcome, Applied)
    assert meters.went_back == 1
    assert content_of(ours) == content_of(gateway_on(store)) == {"n": 0, "x": 1}
    wait_until_written(ours)
    assert findings(store, "c") == []


@pytest.mark.parametrize("others", [0, 1, 2, 5], ids=["behind", "level", "ahead", "far ahead"])
def test_a_lost_future_is_noticed_when_others_move_the_catalog(
    store: MemoryStore, others: int
) -> None:
    meters = Noted()
    watched = WatchedStore(store)
    ours, theirs = gateway_on(watched, meters), gateway_on(store)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    put_back = backup(store)
    for number in range(2):
        applied(theirs.write("c", "k", put({"lost": number})).outcome)
        wait_until_written(theirs)
        assert content_of(ours) == {"lost": number}
    put_back()
    went_on(store, others)
    watched.calls.clear()
    assert content_of(ours) == {"n": 0}
    assert watched.calls[0] == "tails"
    assert meters.went_back == 1


def test_a_pending_verdict_of_a_lost_future_is_dropped(store: MemoryStore) -> None:
    """In the restored history, its key is decided again."""
    asked: dict[str, Any] = {"idempotency": Idempotency("ann", "key", "print"), "once": True}
    watched = WatchedStore(store)
    meters = Noted()
    ours = gateway_on(watched, meters)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    put_back = backup(store)
    failed: list[None] = []

    def away() -> None:
        failed.append(None)
        raise StoreUnreachable("away")

    watched.before["write_verdicts"] = away
    assert isinstance(ours.write("c", "k", put({"n": 0}), **asked).outcome, Unchanged)
    wait_until(lambda: len(failed) > 0)
    put_back()
    watched.before.clear()
    wait_until_written(ours)
    assert meters.went_back == 1
    assert store.replies({"c": [("ann", "key")]}) == {}
    applied(gateway_on(store).write("c", "k", put({"n": 1})).outcome)
    assert applied(ours.write("c", "k", put({"n": 0}), **asked).outcome)
    assert content_of(ours) == content_of(gateway_on(store)) == {"n": 0}


def test_a_write_out_of_lost_commits_marks_no_new_commit_as_written(store: MemoryStore) -> None:
    """The catalog is written on, below the revision that the lost one had reached."""
    watched = WatchedStore(store)
    ours = gateway_on(watched)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    put_back = backup(store)
    for number in range(5):
        applied(ours.write("c", "k", put({"lost": number})).outcome)
    wait_until_written(ours)
    done = threading.Event()

    def overtaken() -> None:
        watched.after.clear()
        put_back()
        assert content_of(ours) == {"n": 0}
        applied(ours.write("c", "new", put(1)).outcome)  # at 2
        done.set()

    watched.after["write_commits"] = overtaken
    applied(ours.write("c", "k", put({"lost": 5})).outcome)
    assert done.wait(WAIT_S)
    wait_until_written(ours)
    assert store.heads(["c"])["c"].revision == 2
    assert [commit.revision for commit in store.commits({"c": (0, 9)})["c"]] == [1, 2]
    assert findings(store, "c") == []


def test_the_janitor_empties_no_tail_that_only_the_lost_future_had_written_out(
    store: MemoryStore,
) -> None:
    """The tail of the restored head has the only copy of its commits."""
    watched, clock = WatchedStore(store), SetClock()
    ours = gateway_on(watched, runtime=clock)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    failed = threading.Event()

    def away() -> None:
        failed.set()
        raise StoreUnreachable("away")

    watched.before["write_documents"] = away
    applied(ours.write("c", "k", add("/x", 1)).outcome)
    assert failed.wait(WAIT_S)
    put_back = backup(store)
    watched.before.clear()
    applied(ours.write("c", "k", put({"lost": 1})).outcome)
    wait_until_written(ours)
    put_back()
    clock.passed_s += 10
    ours.janitor.run_round()
    assert content_of(ours) == content_of(gateway_on(store)) == {"n": 0, "x": 1}
    applied(ours.write("c", "k", add("/y", 1)).outcome)
    wait_until_written(ours)
    assert findings(store, "c") == []


def test_an_outdated_read_of_the_head_does_no_harm(store: MemoryStore) -> None:
    """It can't be by the store's contract; what is forgotten is read again."""
    meters = Noted()
    watched = WatchedStore(store)
    ours = gateway_on(watched, meters)
    applied(ours.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(ours)
    old = dict(store.heads(["c"]))
    applied(ours.write("c", "k", add("/m", 1)).outcome)
    heads = store.heads
    store.heads = lambda catalogs: old if list(catalogs) == ["c"] else heads(catalogs)  # type: ignore[method-assign]
    try:
        content_of(ours)
    finally:
        store.heads = heads  # type: ignore[method-assign]
    assert content_of(ours) == {"n": 0, "m": 1}
    wait_until(lambda: not gateway_on(store)._write_out.moves("c"))
    assert content_of(gateway_on(store)) == {"n": 0, "m": 1}


def test_commits_remember_when_they_were_last_seen_in_the_head() -> None:
    """A catalog that is written without a pause has no need to look at its head all the time."""
    clock = SetClock()
    early, late = moment(clock), moment(clock)
    held = write_out.Tail(early)
    commits = [commit(number) for number in range(1, 4)]
    held.join(early, commits[:1])
    clock.passed_s += DAY_S
    late = moment(clock)
    held.join(late, commits[1:])
    assert held.since == early
    held.drop(1)
    assert held.since == late
    assert not held.later

"""Workers that can't see each other stand in line at the head; over both stores."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from gateway.errors import PatchDoesNotFit
from gateway.limits import ServiceLimits
from gateway.model import Claim
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.contract import Store, Unreachable
from tests.asking import (
    WatchedStore,
    add,
    applied,
    content_of,
    once,
    put,
    refused,
    replace,
    wait_until,
)
from tests.patience import WAIT_MS, WAIT_S


def gateway(store: WatchedStore, deadline_ms: int = WAIT_MS) -> Gateway:
    return Gateway(cast(Store, store), ThreadRuntime(), ServiceLimits(deadline_ms=deadline_ms))


@pytest.fixture
def far(store: Store) -> WatchedStore:
    return WatchedStore(store)


@pytest.fixture
def near(store: Store) -> WatchedStore:
    return WatchedStore(store)


def line(store: Store) -> tuple[Claim, ...]:
    return store.tails(["c"])["c"].claims


def test_who_was_overtaken_once_is_first_the_next_time(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    """A worker far from the database lost every race to one that is near it."""
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({}))
    theirs.write("c", "k", add("/warm", 1))
    threads = []

    def write(name: str) -> None:
        theirs.write("c", "k", add(f"/{name}", 1))

    def hurry() -> None:
        threads.append(threading.Thread(target=write, args=("late",)))
        threads[0].start()
        wait_until(lambda: "claim" in near.calls)

    def overtake() -> None:
        write("first")
        far.before["move_heads"] = once(hurry)

    far.before["move_heads"] = once(overtake)
    written = ours.write("c", "k", add("/ours", 1))
    threads[0].join(WAIT_S)
    assert (written.attempts, applied(written.outcome).commit.revision) == (2, 4)
    assert content_of(ours) == {"warm": 1, "first": 1, "ours": 1, "late": 1}
    assert line(store) == ()


def test_a_worker_that_is_alone_again_claims_nothing(far: WatchedStore, near: WatchedStore) -> None:
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    far.before["move_heads"] = once(lambda: theirs.write("c", "k", replace("/n", 2)))
    for number in range(3):
        ours.write("c", "k", replace("/n", number))
    assert far.calls.count("claim") == 2, "for the second try, and to see that nobody came between"


def test_a_dead_worker_is_waited_for_once(store: Store, far: WatchedStore) -> None:
    ours = gateway(far)
    ours.write("c", "k", put({}))
    store.claim("c", Claim("dead", 50))
    written = ours.write("c", "k", add("/n", 1))
    assert (written.attempts, content_of(ours)) == (2, {"n": 1})
    assert line(store) == ()
    assert ours.write("c", "k", add("/m", 1)).attempts == 1


def test_many_dead_workers_take_no_longer_than_a_share_of_a_requests_time(
    store: Store, far: WatchedStore
) -> None:
    ours = gateway(far)
    ours.write("c", "k", put({}))
    for number in range(60):
        store.claim("c", Claim(f"dead {number}", 1_000_000))
    applied(ours.write("c", "k", add("/n", 1), wait_s=WAIT_S).outcome)
    assert line(store) == ()


def test_who_has_nothing_to_write_any_more_leaves_the_line(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    far.before["move_heads"] = once(lambda: theirs.write("c", "k", put({"m": 1})))
    refused(ours.write("c", "k", replace("/n", 2)).outcome, PatchDoesNotFit)
    wait_until(lambda: "drop_claim" in far.calls and line(store) == ())


def test_a_move_that_is_sent_again_looks_at_no_claim(store: Store, far: WatchedStore) -> None:
    """Lost because of a claim, it could be won later, when the first copy of it arrives."""

    def break_off() -> None:
        raise Unreachable("the connection broke")

    ours = gateway(far)
    ours.write("c", "k", put({}))
    store.claim("c", Claim("other", 1_000_000))
    far.before["move_heads"] = once(break_off)
    written = ours.write("c", "k", add("/n", 1))
    assert (written.attempts, content_of(ours)) == (1, {"n": 1})
    assert [claim.by for claim in line(store)] == ["other"]


def test_a_claim_that_can_not_be_dropped_is_no_trouble(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    def break_off() -> None:
        raise Unreachable("the connection broke")

    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    far.before["move_heads"] = once(lambda: theirs.write("c", "k", put({"m": 1})))
    far.before["drop_claim"] = break_off
    refused(ours.write("c", "k", replace("/n", 2)).outcome, PatchDoesNotFit)
    applied(theirs.write("c", "k", add("/n", 1)).outcome)
    assert line(store) == ()

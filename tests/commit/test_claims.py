"""Workers that can't see each other stand in line at the head; over both stores."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from gateway.commit import claims
from gateway.errors import PatchDoesNotFit
from gateway.limits import ServiceLimits
from gateway.model import Claim
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store, StoreUnreachable
from tests.patience import WAIT_MS, WAIT_S
from tests.without_http import (
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


def gateway(store: WatchedStore) -> GatewayService:
    limits = ServiceLimits(deadline_ms=WAIT_MS)
    return GatewayService(cast(Store, store), ThreadRuntime(), limits)


def each_of(*actions: Callable[[], object]) -> Callable[[], None]:
    """Does one of them each time that it is called, in order, and then nothing."""
    left = list(actions)
    return lambda: left.pop(0)() and None if left else None


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim holds much longer than the slowest machine needs to use it."""
    monkeypatch.setattr(claims, "_HOLD_FIRST_MS", WAIT_MS)
    monkeypatch.setattr(claims, "_WAIT_LONGEST_S", WAIT_S)
    monkeypatch.setattr(claims, "_WAIT_SHARE", 1.0)


@pytest.fixture
def far(store: Store) -> WatchedStore:
    return WatchedStore(store)


@pytest.fixture
def near(store: Store) -> WatchedStore:
    return WatchedStore(store)


def line(store: Store) -> tuple[Claim, ...]:
    return store.tails(["c"])["c"].claims


@pytest.mark.usefixtures("lasting")
def test_a_worker_overtaken_twice_comes_first_the_next_time(
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
        """Two writes, so that the first one could be made before the line is seen."""
        for name in ("late", "later"):
            threads.append(threading.Thread(target=write, args=(name,)))
            threads[-1].start()
        wait_until(lambda: "claim" in near.calls)

    far.before["move_heads"] = each_of(lambda: write("first"), lambda: write("second"), hurry)
    written = ours.write("c", "k", add("/ours", 1))
    for thread in threads:
        thread.join(WAIT_S)
    assert (written.attempts, applied(written.outcome).commit.revision) == (3, 5)
    names = ("warm", "first", "second", "ours", "late", "later")
    assert content_of(ours) == dict.fromkeys(names, 1)
    assert line(store) == ()


def test_a_worker_that_lost_one_race_claims_nothing(far: WatchedStore, near: WatchedStore) -> None:
    """Most races lost once are won the next time, and a claim is one more call of the database."""
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    far.before["move_heads"] = once(lambda: theirs.write("c", "k", replace("/n", 2)))
    assert ours.write("c", "k", replace("/n", 3)).attempts == 2
    assert "claim" not in far.calls


def overtaken_twice(far: WatchedStore, theirs: GatewayService, last: object) -> None:
    """By two writes of the document, which leave ``last``."""
    first, second = (partial(theirs.write, "c", "k", put(value)) for value in ({"n": -1}, last))
    far.before["move_heads"] = each_of(first, second)


def test_a_worker_without_competitors_claims_nothing(far: WatchedStore, near: WatchedStore) -> None:
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    overtaken_twice(far, theirs, {"n": 2})
    for number in range(3):
        ours.write("c", "k", replace("/n", number))
    assert far.calls.count("claim") == 2, "for the third try, and to see that nobody came between"


def test_the_claim_of_a_dead_worker_is_waited_for_once(store: Store, far: WatchedStore) -> None:
    ours = gateway(far)
    ours.write("c", "k", put({}))
    store.claim(["c"], Claim("dead", 50))
    written = ours.write("c", "k", add("/n", 1))
    assert (written.attempts, content_of(ours)) == (3, {"n": 1})
    assert line(store) == ()
    assert ours.write("c", "k", add("/m", 1)).attempts == 1


def test_claims_of_many_dead_workers_cost_only_a_part_of_a_requests_time(
    store: Store, far: WatchedStore
) -> None:
    ours = gateway(far)
    ours.write("c", "k", put({}))
    for number in range(60):
        store.claim(["c"], Claim(f"dead {number}", 1_000_000))
    applied(ours.write("c", "k", add("/n", 1), wait_s=WAIT_S).outcome)
    assert line(store) == ()


def test_a_worker_with_nothing_left_to_write_leaves_the_line(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    overtaken_twice(far, theirs, {"m": 1})
    refused(ours.write("c", "k", replace("/n", 2)).outcome, PatchDoesNotFit)
    wait_until(lambda: "drop_claims" in far.calls and line(store) == ())


def break_off() -> None:
    raise StoreUnreachable("the connection broke")


def test_a_move_that_is_sent_again_ignores_claims(store: Store, far: WatchedStore) -> None:
    """Otherwise, a move that lost to a claim could still win when its first copy arrives."""
    ours = gateway(far)
    ours.write("c", "k", put({}))
    store.claim(["c"], Claim("other", 1_000_000))
    far.before["move_heads"] = once(break_off)
    written = ours.write("c", "k", add("/n", 1))
    assert (written.attempts, content_of(ours)) == (1, {"n": 1})
    assert [claim.by for claim in line(store)] == ["other"]


def test_a_claim_that_cannot_be_dropped_causes_no_failure(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    overtaken_twice(far, theirs, {"m": 1})
    far.before["drop_claims"] = break_off
    refused(ours.write("c", "k", replace("/n", 2)).outcome, PatchDoesNotFit)
    applied(theirs.write("c", "k", add("/n", 1)).outcome)
    assert line(store) == ()


@pytest.mark.usefixtures("lasting")
def test_a_move_that_was_sent_again_removes_its_workers_claim(
    store: Store, far: WatchedStore, near: WatchedStore
) -> None:
    """Left in line, it had the worker lose its next races to itself."""
    ours, theirs = gateway(far), gateway(near)
    ours.write("c", "k", put({"n": 1}))
    first, second = (partial(theirs.write, "c", "k", put({"n": n})) for n in (-1, -2))
    far.before["move_heads"] = each_of(first, second, break_off)
    assert ours.write("c", "k", replace("/n", 2)).attempts == 3
    assert line(store) == ()


MANY = [f"c{number}" for number in range(50)]


def queue_of(store: WatchedStore) -> claims.ClaimKeeper:
    return claims.ClaimKeeper(cast(Store, store), ThreadRuntime(), ServiceLimits())


def test_all_catalogs_of_a_round_are_claimed_in_one_call_and_dropped_in_another(
    store: Store, far: WatchedStore
) -> None:
    """A journaled write for each, one after the other, held up the whole round."""
    writer = gateway(WatchedStore(store))
    for catalog in MANY:
        writer.write(catalog, "k", put(1))
    ours = queue_of(far)
    for catalog in MANY:
        ours.note_lost(catalog, 2)
    heads = ours.heads(MANY)
    assert far.calls == ["claim", "tails"]
    assert {len(heads[catalog].claims) for catalog in MANY} == {1}
    ours.heads(MANY)
    assert far.calls[2:] == ["tails"], "they are held already"
    for catalog in MANY:
        ours.give_up(catalog)
    ours.leave()
    ours.leave()
    assert far.calls[3:] == ["drop_claims"]
    assert {head.claims for head in store.tails(MANY).values()} == {()}


def test_heads_are_read_even_if_the_claim_fails(far: WatchedStore) -> None:
    """A claim is a hint; if it is refused, the head is read all the same."""
    gateway(far).write("c", "k", put(1))
    ours = queue_of(far)
    far.before["claim"] = break_off
    assert ours.heads(["c"])["c"].claims == ()
    del far.before["claim"]
    assert len(ours.heads(["c"])["c"].claims) == 1, "it is tried again"


def test_an_evicted_view_is_not_a_lost_race(
    far: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that has nothing to decide on goes back, and no more."""
    ours = gateway(far)
    ours.write("c", "k", put({"n": 1}))
    ours._cache.forget("c")
    ours._loop._guesses.remove("c")
    head_reader, evict = ours._loop._parts.head_reader, once(lambda: ours._cache.forget("c"))
    observe = head_reader.observe

    def observe_and_evict(*arguments: Any) -> Any:
        heads = observe(*arguments)
        evict()
        return heads

    monkeypatch.setattr(head_reader, "observe", observe_and_evict)
    assert ours.write("c", "k", replace("/n", 2)).attempts == 1
    assert far.calls.count("move_heads") == 2
    assert "c" not in ours._loop._parts.claims.shared
    assert "claim" not in far.calls


def test_a_worker_that_repeatedly_reads_documents_newer_than_the_head_claims(
    far: WatchedStore, near: WatchedStore
) -> None:
    """A far worker that knows none of them would never decide."""
    ours, theirs = gateway(far), gateway(near)
    theirs.write("c", "k", put({"n": 1}))

    def overtake() -> None:
        theirs.write("c", "k", replace("/n", len(far.calls)))
        wait_until(lambda: not theirs._write_out.moves("c"))
        ours._cache.forget("c")

    far.before["documents"] = each_of(overtake, overtake)
    assert ours.write("c", "k", add("/ours", 1)).attempts == 1
    assert "claim" in far.calls

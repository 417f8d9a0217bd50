"""What was there at a time: final up to the newest commit, provisional above it."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.errors import RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.read.history import RevisionAt
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store, StoreUnreachable
from tests.patience import WAIT_MS
from tests.without_http import SetClock, WatchedStore, applied, once, put, wait_until


def gateway_on(store: object, runtime: ThreadRuntime | None = None) -> GatewayService:
    limits = ServiceLimits(deadline_ms=WAIT_MS)
    return GatewayService(cast(Store, store), runtime or ThreadRuntime(), limits)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_time_above_the_newest_commit_is_provisional(store: Store, breaks: bool) -> None:
    """A commit's time is taken, its move takes long, and somebody asks for a time in between."""
    clock = SetClock()
    gateway_on(store, clock).write("c", "k", put(1))
    reader, watched = gateway_on(store, clock), WatchedStore(store)
    asked: list[int] = []

    def look() -> None:
        clock.passed_s += 3.0
        asked.append(clock.now_us())
        assert reader.revision_at("c", asked[0]) == RevisionAt(1, is_final=False)
        clock.passed_s += 3.0
        if breaks:
            raise StoreUnreachable("it is sent again")

    watched.before["move_heads"] = once(look)
    outcome = applied(gateway_on(watched, clock).write("c", "k", put(2)).outcome)
    assert outcome.commit.time_us < asked[0]
    # The clock alone doesn't make it final: another one may be under way.
    assert reader.revision_at("c", asked[0]) == RevisionAt(2, is_final=False)
    gateway_on(store, clock).write("c", "k", put(3))
    assert reader.revision_at("c", asked[0]) == RevisionAt(2, is_final=True)


def test_a_lookup_overtaken_by_compaction_is_repeated(store: Store) -> None:
    """What was the newest commit then is compacted; another one is the newest by the time asked."""
    clock = SetClock()
    gateway_on(store, clock).write("c", "k", put(1))
    watched = WatchedStore(store)
    asked_us = clock.now_us() + 2_000_000

    def overtake() -> None:
        clock.passed_s += 1.0
        other = gateway_on(store, clock)
        other.write("c", "k", put(2))
        other.retention.compact("c", 2)

    watched.after["commit_at"] = once(overtake)
    clock.passed_s += 4.0
    behind = SetClock()
    behind.passed_s = clock.passed_s
    clock.passed_s -= 3.9
    assert gateway_on(watched, behind).revision_at("c", asked_us).revision == 2


def test_times_up_to_the_newest_commit_are_final(store: Store) -> None:
    gateway = gateway_on(store)
    written = [applied(gateway.write("c", "k", put(number)).outcome) for number in range(3)]
    times = [each.commit.time_us for each in written]
    for revision, time_us in enumerate(times, 1):
        assert gateway.revision_at("c", time_us) == RevisionAt(revision, is_final=True)
    assert gateway.revision_at("c", times[1] - 1) == RevisionAt(1, is_final=True)
    with pytest.raises(RevisionNotFound):
        gateway.revision_at("c", times[0] - 1)


def test_a_time_assigned_by_a_clock_ahead_is_final(store: Store) -> None:
    """Also where this worker's clock hasn't come there."""
    ahead = SetClock()
    ahead.passed_s = 3600.0
    outcome = applied(gateway_on(store, ahead).write("c", "k", put(1)).outcome)
    reader = gateway_on(store)
    assert reader.revision_at("c", outcome.commit.time_us) == RevisionAt(1, is_final=True)
    with pytest.raises(RevisionNotFound):
        reader.revision_at("c", outcome.commit.time_us + 1)


def test_the_revision_at_a_time_is_final_even_if_it_is_not_written_out(store: Store) -> None:
    """Who asks first sees to it that it is."""
    gateway_on(store).write("c", "k", put(1))
    watched = WatchedStore(store)
    found: list[RevisionAt] = []

    def look() -> None:
        head = store.heads(["c"])["c"]
        limits = ServiceLimits(write_out_grace_ms=0)
        reader = GatewayService(store, ThreadRuntime(), limits)
        found.append(reader.revision_at("c", head.time_us))

    watched.before["write_documents"] = once(look)
    gateway_on(watched).write("c", "k", put(2))
    wait_until(lambda: bool(found))
    assert found == [RevisionAt(2, is_final=True)]

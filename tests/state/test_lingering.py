"""A write-out waits a moment for more moves, unless somebody waits for it."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.limits import ServiceLimits
from gateway.read.listing import as_is
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import write_out
from gateway.store.contract import Store
from tests.memory_store import MemoryStore
from tests.state.sleeping import gateway_on
from tests.without_http import WatchedStore, put, wait_until

WRITES = ("write_documents", "write_commits")


class Clock(ThreadRuntime):
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore(MemoryStore())


@pytest.fixture
def gateway(store: WatchedStore, clock: Clock) -> GatewayService:
    return gateway_on(store, clock)


def written(store: WatchedStore) -> list[str]:
    return [name for name in store.calls if name in WRITES]


def test_a_single_move_is_written_out_after_a_pause(
    gateway: GatewayService, store: WatchedStore, clock: Clock
) -> None:
    gateway.write("c", "k", put(0))
    assert written(store) == []
    clock.now_s = write_out._LINGER_S
    gateway.write("other", "k", put(0))  # wakes a writer
    wait_until(lambda: written(store) == list(WRITES))


def test_a_move_prolongs_the_pause_but_not_for_ever(
    gateway: GatewayService, store: WatchedStore, clock: Clock
) -> None:
    tails = gateway._write_out
    gateway.write("c", "k", put(0))
    for clock.now_s in (write_out._LINGER_S * 0.9, write_out._LINGER_S * 1.8):
        gateway.write("c", "k", put(clock.now_s))
        assert tails._due_at(tails._outstanding["c"]) > clock.now_s
    clock.now_s = write_out._LINGER_MAX_S
    gateway.write("other", "k", put(0))  # wakes a writer
    wait_until(lambda: written(store) == list(WRITES))


def test_a_reader_that_needs_a_write_out_does_not_wait_for_the_pause(
    gateway: GatewayService, store: WatchedStore
) -> None:
    gateway.write("c", "k", put(0))
    page = gateway.listing.page("c", as_is, after="", prefix="", limit=10, revision=None)
    assert [document.key for document in page.documents] == ["k"]
    assert written(store) == list(WRITES)


def test_a_large_batch_that_waits_for_a_write_out_does_not_wait_for_the_pause(
    store: WatchedStore, clock: Clock
) -> None:
    limits = ServiceLimits(batch_requests_max=2)  # so that a single write is half a batch
    gateway = GatewayService(cast(Store, store), clock, limits)
    for number in range(write_out._LARGE_MOVES_MAX):
        gateway.write("c", "k", put(number))
    assert written(store) == []
    gateway.write("c", "k", put("next"))
    assert written(store)[:2] == list(WRITES)


def test_moves_share_a_write_out_until_half_of_the_commits_of_a_tail_are_there(
    gateway: GatewayService, store: WatchedStore
) -> None:
    for number in range(gateway.limits.tail_commits_max // 2 - 1):
        gateway.write("c", f"k{number}", put(number))
    assert written(store) == []
    gateway.write("c", "last", put(0))
    wait_until(lambda: written(store) == list(WRITES))
    assert store.bare_documents([("c", "k0")])[0][("c", "k0")].revision == 1


def test_a_tail_with_half_of_the_bytes_is_written_out_at_once(
    gateway: GatewayService, store: WatchedStore
) -> None:
    half = gateway.limits.tail_bytes_max // 2
    gateway.write("c", "k", put("x" * half))
    wait_until(lambda: written(store) == list(WRITES))

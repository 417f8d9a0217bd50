"""A write-out waits a moment for more moves, unless somebody waits for it."""

from __future__ import annotations

import pytest

from gateway.read.listing import as_is
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import write_out
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


def test_a_reader_that_needs_a_write_out_does_not_wait_for_the_pause(
    gateway: GatewayService, store: WatchedStore
) -> None:
    gateway.write("c", "k", put(0))
    page = gateway.listing.page("c", as_is, after="", prefix="", limit=10, revision=None)
    assert [document.key for document in page.documents] == ["k"]
    assert written(store) == list(WRITES)


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

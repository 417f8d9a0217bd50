"""The janitor's rounds: through all tails that there are, past those that can't be ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from gateway.model import ChangeRecord, HeadMove
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import janitor
from gateway.store.contract import StoreUnreachable
from tests.memory_store import MemoryStore
from tests.state.sleeping import gateway_on
from tests.store.contract_suite import commit

NAMES = [f"c{number:02}" for number in range(12)]


class Store(MemoryStore):
    """Of the catalogs ``bad`` nothing can be written."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.bad: Collection[str] = ()
        self.error = error

    def write_documents(self, documents: Any) -> None:
        if not set(self.bad).isdisjoint(documents):
            raise self.error
        super().write_documents(documents)

    def open(self) -> list[str]:
        return [head.catalog for head in self.open_tails(1 << 60, 99)]


def left_behind(store: Store) -> GatewayService:
    """A worker moved the heads and died."""
    for name in NAMES:
        made = commit(1, catalog=name, changes=(ChangeRecord("k", "put", 1, value=1),))
        store.move_heads([HeadMove(name, 0, [made], 0)])
    return gateway_on(store, ThreadRuntime())


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "_HEADS_AT_ONCE", 3)


def rounds(gateway: GatewayService, count: int) -> None:
    """The first look at a tail leaves it to its writer for a moment."""
    gateway._settler._patience._grace_s = 0.0
    for _ in range(count):
        gateway.janitor.run_round()


def test_a_round_covers_all_pages() -> None:
    store = Store(KeyError("x"))
    rounds(left_behind(store), 1)
    assert store.open() == []


@pytest.mark.parametrize("error", [KeyError("state"), StoreUnreachable("no shard")])
def test_tails_that_cannot_be_ended_do_not_starve_others(error: Exception) -> None:
    """As many as fill the first pages: somebody edited them by hand; or now and then one."""
    store = Store(error)
    gateway = left_behind(store)
    store.bad = NAMES[:7] if isinstance(error, KeyError) else NAMES[1::3]
    rounds(gateway, 1)
    assert store.open() == list(store.bad)
    store.bad = ()
    rounds(gateway, 1)
    assert store.open() == []


def test_a_round_ends_early_if_the_database_is_unreachable() -> None:
    store = Store(StoreUnreachable("away"))
    gateway = left_behind(store)
    store.bad = NAMES
    with pytest.raises(StoreUnreachable):
        rounds(gateway, 1)

"""Rule: no answer comes from a cached revision older than the head that was read for it.

An entry of the cache that is dropped (other catalogs needed its room, or the outcome of a move was
unknown) can be begun again by a reader who read the head long ago, and be filled by another one.
That takes four threads in the right order, so it is put together here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from gateway.decide.conditions import ANY_TAG, Preconditions
from gateway.decide.edits import Delete, Put
from gateway.decide.request import Refused, Unchanged
from gateway.limits import ServiceLimits
from gateway.model import Head
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state.heads import HeadReader, ObservedHead
from tests.memory_store import MemoryStore


@pytest.fixture
def fallen_back(monkeypatch: pytest.MonkeyPatch) -> GatewayService:
    """Without an entry at first; its next look finds the head at 2, and the cache falls to 1."""
    looks: list[GatewayService] = []
    observe = HeadReader.observe

    def observe_and_fall_back(
        self: HeadReader, catalogs: Collection[str], *read: Any
    ) -> dict[str, ObservedHead]:
        heads = observe(self, catalogs, *read)
        if looks and self._cache is looks[0]._cache:
            looks.clear()
            self._cache.forget("c")
            self._cache.begin(Head("c", 1, old.time_us, 1))
            self._cache.learn("c", 1, {"k": old})
        return heads

    monkeypatch.setattr(HeadReader, "observe", observe_and_fall_back)
    store = MemoryStore()
    other = GatewayService(store, ThreadRuntime(), ServiceLimits())
    other.write("c", "k", Put("old", 5))
    document = other.read("c", "k").document
    assert document is not None
    old = document
    other.write("c", "k", Delete())
    looks.append(GatewayService(store, ThreadRuntime(), ServiceLimits()))
    return looks[0]


def test_a_read_is_not_older_than_the_head_it_saw(fallen_back: GatewayService) -> None:
    reading = fallen_back.read("c", "k")
    assert reading.catalog_revision == 2
    assert reading.document is not None
    assert not reading.document.exists


def test_a_no_op_is_not_older_than_the_head_it_saw(fallen_back: GatewayService) -> None:
    outcome = fallen_back.write("c", "k", Put("old", 5), dry_run=True).outcome
    assert isinstance(outcome, Unchanged)
    assert outcome.would_change


def test_a_refusal_is_not_older_than_the_head_it_saw(fallen_back: GatewayService) -> None:
    create_only = Preconditions(if_none_match=ANY_TAG)
    outcome = fallen_back.write("c", "k", Put("new", 5), conditions=create_only).outcome
    assert not isinstance(outcome, Refused)

"""What a round reads of the documents that its requests are about is bounded, whatever they ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gateway import memory
from gateway.access import Principal
from gateway.commit import inputs
from gateway.decide import request as decision
from gateway.decide.compares import Equals, IsAbsent, TokenIs
from gateway.decide.conditions import Composite, Preconditions
from gateway.decide.edits import Delete, EditAttributes, Get, KeyEdit, Merge, Put, Touch
from gateway.decide.request import Applied, Request, Unchanged, View
from gateway.errors import AboveLimit, ConditionFailed, DocumentForbidden
from gateway.limits import ServiceLimits
from gateway.model import WITHHELD, DocumentRecord
from gateway.read import listing
from gateway.read.listing import as_is
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import replay
from gateway.state.cache import Cache
from gateway.state.replay import rebuild as rebuild_
from gateway.store.contract import Store
from tests.memory_store import MemoryStore
from tests.without_http import add, applied, put, refused, replace, run

KEYS = [f"k{number:02}" for number in range(20)]
TEXT = "x" * 1_000


class _Measured(MemoryStore):
    """Knows the most content that was read in one go."""

    most_bytes = 0

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        found = super().documents(keys, content_bytes_max)
        read = [each.size_bytes for each in found.values() if each.content is not WITHHELD]
        self.most_bytes = max(self.most_bytes, sum(read))
        return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> _Measured:
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 2_000)
    monkeypatch.setattr(inputs, "DOCUMENTS_BYTES_MAX", 5_200)
    monkeypatch.setattr(decision, "DOCUMENTS_BYTES_MAX", 5_200)
    return _Measured()


@pytest.fixture
def gateway(store: _Measured) -> GatewayService:
    """One that remembers no documents."""
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(cache_bytes_max=0))
    for key in KEYS:
        gateway.write("c", key, put({"text": TEXT}))
    store.most_bytes = 0
    return gateway


def test_documents_needed_only_for_their_tokens_are_not_read(
    gateway: GatewayService, store: _Measured
) -> None:
    tokens = {
        key: each.token
        for key, each in gateway.listing.several("c", KEYS, as_is, revision=None)[1].items()
        if each
    }
    store.most_bytes = 0
    unchanged = Composite(tuple(tokens.items()))
    conditions = Preconditions(if_match=frozenset((unchanged,)))
    applied(gateway.write("c", "new", put(1), conditions=conditions).outcome)
    compare = (*(TokenIs(key, tokens[key]) for key in KEYS), IsAbsent("never"))
    request = gateway.request("c", (KeyEdit("", Touch()),), compare=compare)
    applied(gateway.commit(request).outcome)
    deletions = tuple(KeyEdit(key, Delete()) for key in KEYS[1:])
    request = gateway.request("c", deletions, compare=compare)
    applied(gateway.commit(request).outcome)
    assert store.most_bytes < 10
    outcome = gateway.commit(gateway.request("c", (KeyEdit("", Touch()),), compare=compare)).outcome
    assert len(refused(outcome, ConditionFailed).conflict.compares) == 19


def test_large_documents_are_read_a_few_at_a_time(
    gateway: GatewayService, store: _Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_PIECE_BYTES", 2_100)
    monkeypatch.setattr(listing, "_SMALL_BYTES", 1_000)
    _, found = gateway.listing.several("c", KEYS, as_is, revision=None)
    assert [each and each.content for each in found.values()] == [{"text": TEXT}] * 20
    assert store.most_bytes <= 2_100
    few = tuple(KeyEdit(key, Get()) for key in KEYS[:5])
    outcome = gateway.commit(gateway.request("c", few)).outcome
    assert isinstance(outcome, Unchanged)
    assert all(each and each.content == {"text": TEXT} for each in outcome.documents.values())
    assert store.most_bytes <= 2_100


def test_a_request_about_too_many_large_documents_is_refused(
    gateway: GatewayService, store: _Measured
) -> None:
    for edits, compare in (
        (tuple(KeyEdit(key, Get()) for key in KEYS), ()),
        ((KeyEdit("", Touch()),), tuple(Equals(key, 1) for key in KEYS)),
    ):
        outcome = gateway.commit(gateway.request("c", edits, compare=compare)).outcome
        assert refused(outcome, AboveLimit).limit == "documents_bytes_max"
    few = tuple(KeyEdit(key, Get()) for key in KEYS[:5])
    outcome = gateway.commit(gateway.request("c", few)).outcome
    assert isinstance(outcome, Unchanged)
    assert all(each and each.content == {"text": TEXT} for each in outcome.documents.values())
    assert store.most_bytes < 5_200


@pytest.mark.parametrize("catalogs", [1, 7])
def test_many_requests_on_large_documents_are_decided_a_few_at_a_time(
    gateway: GatewayService, store: _Measured, catalogs: int
) -> None:
    for number in range(catalogs):
        for key in KEYS:
            gateway.write(str(number), key, Put({"text": TEXT}, 1_010))
    edit = add("/n", 1)
    store.most_bytes = 0

    def write(number: int) -> object:
        return gateway.write(str(number % catalogs), KEYS[number // catalogs], edit).outcome

    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(write, range(20 * catalogs)))
    assert all(isinstance(outcome, Applied) for outcome in outcomes)
    assert store.most_bytes <= 5_200


def token_of(gateway: GatewayService, key: str) -> str:
    found = gateway.read("c", key).document
    assert found is not None
    return found.token


class TestRebase:
    """The old states that patches were made against."""

    @pytest.fixture
    def tokens(self, gateway: GatewayService) -> list[str]:
        made = []
        for number in range(12):
            gateway.write("c", "k00", put({"n": number, "other": 0}))
            made.append(token_of(gateway, "k00"))
        return made

    @pytest.fixture
    def rebuilt(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        told = []

        def rebuild(
            store: Store, catalog: str, key: str, revision: int, tail: Any
        ) -> DocumentRecord | None:
            told.append((key, revision))
            return rebuild_(store, catalog, key, revision, tail)

        monkeypatch.setattr(inputs, "rebuild", rebuild)
        return told

    def request(self, gateway: GatewayService, *tokens: str, **more: Any) -> Request:
        conditions = Preconditions(if_match=frozenset(tokens))
        edits = (KeyEdit("k00", add("/other", 1)),)
        return gateway.request("c", edits, conditions=conditions, rebase=True, **more)

    def read(self, store: _Measured, *requests: Request) -> View | None:
        cache = Cache(ThreadRuntime(), ServiceLimits(cache_bytes_max=0))
        (head,) = store.tails(["c"]).values()
        cache.begin(head)
        return inputs.read_views(store, cache, {"c": requests}, memory.account()).get("c")

    def test_each_base_is_rebuilt_once_and_their_number_per_round_is_bounded(
        self, gateway: GatewayService, store: _Measured, tokens: list[str], rebuilt: list[Any]
    ) -> None:
        revisions = [int(token.split("-")[0], 16) for token in tokens]
        wrong = f"{tokens[0].split('-')[0]}-00000000"
        same = [self.request(gateway, tokens[0], wrong) for _ in range(30)]
        view = self.read(store, *same)
        assert view is not None
        assert (view.requests, list(view.bases)) == (None, [("k00", tokens[0])])
        assert rebuilt == [("k00", revisions[0])]
        rebuilt.clear()
        old = [f"{number:x}-00000000" for number in range(1, 21)]
        others = [self.request(gateway, *old[at : at + 8]) for at in range(0, 20, 8)]
        view = self.read(store, *others)
        assert view is not None
        assert view.requests == 2
        assert len(rebuilt) == 16

    def test_no_base_is_rebuilt_for_a_current_token_or_without_read_access(
        self, gateway: GatewayService, store: _Measured, tokens: list[str], rebuilt: list[Any]
    ) -> None:
        self.read(store, self.request(gateway, tokens[0], tokens[-1]))
        acl = {"acl": {"read": ["ann"], "write": ["ann"]}}
        gateway.write("c", "k00", EditAttributes(put(acl)))
        bob = Principal("bob", frozenset())
        request = self.request(gateway, tokens[0], by=bob)
        self.read(store, request)
        assert rebuilt == []
        refused(gateway.commit(request).outcome, DocumentForbidden)
        assert rebuilt == []

    def test_an_older_token_is_rebased_if_the_batch_has_moved_past_the_current_one(
        self, gateway: GatewayService, store: _Measured
    ) -> None:
        """The patch overlaps with what changed since the current one, not since the older one."""
        gateway.write("c", "k00", put({"n": 0}))
        old = token_of(gateway, "k00")
        gateway.write("c", "k00", put({"n": 0, "mine": 1}))
        current = token_of(gateway, "k00")
        first = gateway.request("c", (KeyEdit("k00", put({"n": 1})),))
        conditions = Preconditions(if_match=frozenset((old, current)))
        merge = (KeyEdit("k00", Merge({"mine": None}, 20)),)
        second = gateway.request("c", merge, conditions=conditions, rebase=True)
        view = self.read(store, first, second)
        assert view is not None
        _, outcome = run(view, first, second).outcomes
        assert isinstance(outcome, Unchanged)
        assert outcome.rebased_from == old

    def test_all_waiting_requests_are_rebased_eventually(self, gateway: GatewayService) -> None:
        for key in KEYS:
            gateway.write("c", key, put({"n": 1, "other": 0}))
        first = {}
        for key in KEYS:
            first[key] = token_of(gateway, key)
            gateway.write("c", key, put({"n": 2, "other": 0}))
        edit = replace("/other", 1)

        def write(key: str) -> object:
            conditions = Preconditions(if_match=frozenset((first[key],)))
            return gateway.write("c", key, edit, conditions=conditions, rebase=True).outcome

        with ThreadPoolExecutor(20) as pool:
            assert all(isinstance(each, Applied) for each in pool.map(write, KEYS))

"""What a round reads of the documents that its requests are about is bounded, whatever they ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.commits import decision, views
from gateway.commits.compares import Equals, IsAbsent, TokenIs
from gateway.commits.conditions import Composite, Conditions
from gateway.commits.errors import OverLimit, PreconditionFailed
from gateway.commits.requests import Applied, Delete, Get, KeyEdit, Put, Refused, Touch, Unchanged
from gateway.commits.runtime import ThreadRuntime
from gateway.commits.service import Gateway, ServiceLimits
from gateway.model import WITHHELD, Document
from gateway.store.memory import MemoryStore
from tests.commits.conftest import patch, put

KEYS = [f"k{number:02}" for number in range(20)]
TEXT = "x" * 1_000


class _Measured(MemoryStore):
    """Knows the most content that was read in one go."""

    most_bytes = 0

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], Document]:
        found = super().documents(keys, content_bytes_max)
        read = [each.size_bytes for each in found.values() if each.content is not WITHHELD]
        self.most_bytes = max(self.most_bytes, sum(read))
        return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> _Measured:
    monkeypatch.setattr(views, "_SMALL_BYTES", 2_000)
    monkeypatch.setattr(views, "DOCUMENTS_BYTES_MAX", 5_200)
    monkeypatch.setattr(decision, "DOCUMENTS_BYTES_MAX", 5_200)
    return _Measured()


@pytest.fixture
def gateway(store: _Measured) -> Gateway:
    """One that remembers no documents."""
    gateway = Gateway(store, ThreadRuntime(), ServiceLimits(cache_bytes_max=0))
    for key in KEYS:
        gateway.write("c", key, put({"text": TEXT}))
    store.most_bytes = 0
    return gateway


def test_documents_whose_tokens_alone_matter_are_not_read(
    gateway: Gateway, store: _Measured
) -> None:
    tokens = {
        key: each.token
        for key, each in gateway.listing.several("c", KEYS, revision=None)[1].items()
        if each
    }
    store.most_bytes = 0
    unchanged = Composite(tuple(tokens.items()))
    conditions = Conditions(if_match=frozenset((unchanged,)))
    assert isinstance(gateway.write("c", "new", put(1), conditions=conditions).outcome, Applied)
    compare = (*(TokenIs(key, tokens[key]) for key in KEYS), IsAbsent("never"))
    request = gateway.request("c", (KeyEdit("", Touch()),), compare=compare)
    assert isinstance(gateway.commit(request).outcome, Applied)
    deletions = tuple(KeyEdit(key, Delete()) for key in KEYS[1:])
    request = gateway.request("c", deletions, compare=compare)
    assert isinstance(gateway.commit(request).outcome, Applied)
    assert store.most_bytes < 10
    refused = gateway.commit(gateway.request("c", (KeyEdit("", Touch()),), compare=compare)).outcome
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, PreconditionFailed)
    assert len(refused.error.compares) == 19


def test_a_request_about_more_than_is_read_for_one_is_refused(
    gateway: Gateway, store: _Measured
) -> None:
    for edits, compare in (
        (tuple(KeyEdit(key, Get()) for key in KEYS), ()),
        ((KeyEdit("", Touch()),), tuple(Equals(key, 1) for key in KEYS)),
    ):
        outcome = gateway.commit(gateway.request("c", edits, compare=compare)).outcome
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, OverLimit)
        assert outcome.error.limit == "documents_bytes_max"
    few = tuple(KeyEdit(key, Get()) for key in KEYS[:5])
    outcome = gateway.commit(gateway.request("c", few)).outcome
    assert isinstance(outcome, Unchanged)
    assert all(each and each.content == {"text": TEXT} for each in outcome.documents.values())
    assert store.most_bytes < 5_200


@pytest.mark.parametrize("catalogs", [1, 7])
def test_many_requests_on_large_documents_are_decided_some_at_a_time(
    gateway: Gateway, store: _Measured, catalogs: int
) -> None:
    for number in range(catalogs):
        for key in KEYS:
            gateway.write(str(number), key, Put({"text": TEXT}, 1_010))
    edit = patch({"op": "add", "path": "/n", "value": 1})
    store.most_bytes = 0

    def write(number: int) -> object:
        return gateway.write(str(number % catalogs), KEYS[number // catalogs], edit).outcome

    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(write, range(20 * catalogs)))
    assert all(isinstance(outcome, Applied) for outcome in outcomes)
    assert store.most_bytes <= 5_200

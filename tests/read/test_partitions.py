"""Where a catalog is cut for readers who share it: counted or estimated, by what one sees."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import EditAttributes, KeyEdit, Put
from gateway.errors import CatalogNotFound, RevisionCompacted, RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.read import partitions
from gateway.read.listing import as_is
from gateway.read.partitions import KeySpan
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.without_http import applied, put

ANN = Principal("ann", (Grant(Role.READ, "*"),))
EVERYTHING = KeySpan()
SPANS = [
    EVERYTHING,
    KeySpan("open/"),
    KeySpan("", "open/1"),
    KeySpan("closed/", "closed/3", "closed/7"),
    KeySpan("", "closed/2", "open/5"),
    KeySpan("none/"),
    KeySpan("", "open/", "closed/"),
]


class NotedStore(MemoryStore):
    """Notes how many keys were asked for."""

    asked = 0

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        self.asked += limit
        return super().scan_keys(catalog, after, prefix, limit)


def commit(gateway: GatewayService, edits: Sequence[KeyEdit]) -> None:
    applied(gateway.commit(gateway.request("c", edits)).outcome)


@pytest.fixture(scope="module")
def store() -> NotedStore:
    return NotedStore()


@pytest.fixture(scope="module")
def gateway(store: NotedStore) -> GatewayService:
    """Revision 2: 450 documents, of which ann sees the third below ``open/`` and few others."""
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    luck = random.Random(20261123)
    names = [f"{luck.randrange(10**9):09d}" for _ in range(150)]
    edits = [KeyEdit(f"open/{name}", put(1)) for name in names]
    edits += [KeyEdit(f"{folder}/{name}", put(1)) for folder in ("closed", "z") for name in names]
    commit(gateway, edits[:300])
    commit(gateway, edits[300:])
    acl = Put({"acl": {"read": ["nobody"]}}, 30)
    closed = [edit.key for edit in edits[150:] if not edit.key.endswith("7")]
    commit(gateway, [KeyEdit(key, EditAttributes(acl)) for key in closed])
    return gateway


@pytest.fixture(params=["counted", "estimated"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog of more keys than are counted is much larger than a test has."""
    if request.param == "estimated":
        monkeypatch.setattr(partitions, "_KEYS_MAX", 0)
    monkeypatch.setattr(partitions, "_PAGE", 30)
    monkeypatch.setattr(partitions, "_KEPT_FOR_SIGHT", 200)
    return str(request.param)


def keys(gateway: GatewayService, span: KeySpan, viewer: Any = None) -> list[str]:
    page = gateway.listing.page(
        "c", as_is, prefix=span.prefix, after=span.after, limit=2000, revision=None, viewer=viewer
    )
    assert page.next_after is None
    return [each.key for each in page.documents if span.holds(each.key)]


def sizes(found: Sequence[str], bounds: Sequence[str]) -> list[int]:
    edges = [0, *(bisect_right(found, bound) for bound in bounds), len(found)]
    return [high - low for low, high in pairwise(edges)]


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("count", [2, 9])
def test_ranges_have_about_the_same_size(
    gateway: GatewayService, way: str, span: KeySpan, count: int
) -> None:
    found = keys(gateway, span)
    plan = gateway.partitions.plan("c", count, span, revision=None)
    assert list(plan.bounds) == sorted(set(plan.bounds))
    assert all(span.holds(bound) for bound in plan.bounds)
    if not found:
        assert not plan.bounds
        return
    assert 0 < len(plan.bounds) < count
    if way == "counted":
        assert len(plan.bounds) == count - 1
        assert max(sizes(found, plan.bounds)) <= 1.2 * len(found) / count + 2
    else:  # of many keys; `test_key_ranges.py` looks at how good estimates are
        assert max(sizes(found, plan.bounds)) < len(found)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("count", [2, 9])
def test_the_ranges_of_a_viewer_are_cut_at_visible_keys_only(
    gateway: GatewayService, way: str, span: KeySpan, count: int
) -> None:
    viewer = gateway.acls.viewer(ANN, "c")
    found = keys(gateway, span, viewer)
    assert len(found) < len(keys(gateway, span)) or span.prefix in ("open/", "none/") or not found
    plan = gateway.partitions.plan("c", count, span, revision=None, viewer=viewer)
    if way == "counted":
        assert set(plan.bounds) <= set(found)
    if span.prefix == "open/":
        assert len(plan.bounds) == count - 1
        assert max(sizes(found, plan.bounds)) <= 3 * len(found) / count


def test_no_bound_contains_characters_of_hidden_keys(way: str) -> None:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    edits = [KeyEdit(f"a/{n:03d}", put(n)) for n in range(100)]
    commit(gateway, edits)
    acl = Put({"acl": {"read": ["nobody"]}}, 30)
    secret = [KeyEdit(f"a/{n:03d}secret{n}", put(n)) for n in range(100)]
    commit(gateway, secret)
    told = gateway.partitions.plan("c", 50, EVERYTHING, revision=None).bounds
    assert any("s" in bound for bound in told), "there is something to tell"
    hidden = [KeyEdit(each.key, EditAttributes(acl)) for each in secret]
    commit(gateway, hidden)
    viewer = gateway.acls.viewer(ANN, "c")
    for count in (2, 7, 20):
        told = gateway.partitions.plan("c", count, EVERYTHING, revision=None, viewer=viewer).bounds
        assert told
        assert not set("secrt") & set("".join(told)), way


def test_the_work_is_bounded_and_reads_no_document(
    gateway: GatewayService, store: NotedStore, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "scan_documents", None)
    monkeypatch.setattr(store, "documents", None)
    before = store.asked
    gateway.partitions.plan("c", 1, EVERYTHING, revision=None)
    assert store.asked == before
    gateway.partitions.plan("c", 1000, EVERYTHING, revision=None)
    most = 500 if way == "counted" else 16 * 1200
    assert 0 < store.asked - before <= most
    monkeypatch.setattr(partitions, "_KEYS_MAX", 90)
    before = store.asked
    gateway.partitions.plan("c", 2, EVERYTHING, revision=None)
    assert 90 < store.asked - before < 90 + 16 * 64


def test_only_a_readable_revision_can_be_partitioned() -> None:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    with pytest.raises(CatalogNotFound):
        gateway.partitions.plan("c", 4, EVERYTHING, revision=None)
    for number in range(1, 5):
        applied(gateway.write("c", f"k{number}", put(number)).outcome)
    plan = gateway.partitions.plan("c", 3, EVERYTHING, revision=2)
    assert (plan.revision, len(plan.bounds)) == (2, 2)
    assert gateway.partitions.plan("c", 3, EVERYTHING, revision=None).revision == 4
    with pytest.raises(RevisionNotFound):
        gateway.partitions.plan("c", 4, EVERYTHING, revision=9)
    gateway.retention.compact("c", 3)
    with pytest.raises(RevisionCompacted):
        gateway.partitions.plan("c", 1, EVERYTHING, revision=2)

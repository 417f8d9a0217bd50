"""Rule: a deletion of a catalog that is sent again under its key gets its first outcome."""

from __future__ import annotations

import threading

import pytest

from gateway.decide.edits import Delete, Put
from gateway.decide.request import Request, Unchanged, WriteOutcome
from gateway.errors import AboveLimit, ConditionFailed, IdempotencyMismatch, RefusedBefore
from gateway.limits import ServiceLimits
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.without_http import applied, content_of, refused, wait_until


@pytest.fixture
def gateway() -> GatewayService:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    gateway.write("c", "k", Put(1, 1))
    return gateway


def delete(
    gateway: GatewayService,
    revision: int | None,
    key: str,
    fingerprint: str = "f",
    catalog: str = "c",
) -> object:
    idempotency = Idempotency("p", key, fingerprint)
    request = gateway.request(
        catalog, (), resource_version=revision, idempotency=idempotency, once=True
    )
    return gateway.catalogs.delete(request).outcome


def test_a_repeated_deletion_is_replayed_even_if_the_catalog_exists_again(
    gateway: GatewayService,
) -> None:
    first = applied(delete(gateway, 1, "x"))
    gateway.write("c", "k", Put(2, 1))
    again = applied(delete(gateway, 1, "x"))
    assert (again.commit, again.replayed) == (first.commit, True)


def test_another_request_under_the_key_is_refused(gateway: GatewayService) -> None:
    delete(gateway, 1, "x")
    gateway.write("c", "k", Put(2, 1))
    refused(delete(gateway, 1, "x", "another"), IdempotencyMismatch)


@pytest.mark.parametrize("revision", [0, 2])
def test_a_deletion_that_never_happened_must_match_the_revision(
    gateway: GatewayService, revision: int
) -> None:
    refused(delete(gateway, revision, "x"), ConditionFailed)


@pytest.mark.parametrize("catalog", ["never-written", "c"])
def test_a_deletion_with_nothing_to_delete_is_decided_once(
    gateway: GatewayService, catalog: str
) -> None:
    gateway.catalogs.delete(gateway.request("c", ()))
    first = delete(gateway, None, "x", catalog=catalog)
    assert isinstance(first, Unchanged)
    assert not first.replayed
    gateway.write(catalog, "k", Put(2, 1))
    again = delete(gateway, None, "x", catalog=catalog)
    assert isinstance(again, Unchanged)
    assert again.replayed
    assert again.catalog_revision == first.catalog_revision
    assert content_of(gateway, "k", catalog) == 2


def test_a_refused_deletion_is_decided_once(gateway: GatewayService) -> None:
    refused(delete(gateway, 5, "x"), ConditionFailed)
    for n in range(2, 6):
        gateway.write("c", "k", Put(n, 1))
    refused(delete(gateway, 5, "x"), RefusedBefore)
    assert content_of(gateway, "k") == 5


def test_a_deletion_of_too_many_documents_is_decided_once() -> None:
    limits = ServiceLimits(catalog_deletion_keys_max=1)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits)
    for key in "kl":
        gateway.write("c", key, Put(1, 1))
    refused(delete(gateway, None, "x"), AboveLimit)
    gateway.write("c", "l", Delete())
    refused(delete(gateway, None, "x"), RefusedBefore)


def test_a_late_first_try_deletes_nothing_created_after_its_repetition_was_answered() -> None:
    """The first try has listed the catalog and loses its race. Meanwhile, somebody deletes the
    catalog, the same request is sent again through another worker and gets "nothing to do", and the
    catalog is created again."""
    store = MemoryStore()
    slow, other = (GatewayService(store, ThreadRuntime(), ServiceLimits()) for _ in range(2))
    other.write("c", "k", Put(1, 1))
    commit = slow.catalogs._commit

    def commit_late(request: Request) -> WriteOutcome:
        slow.catalogs._commit = commit  # type: ignore[method-assign]
        other.catalogs.delete(other.request("c", ()))
        resent = delete(other, None, "x")
        assert isinstance(resent, Unchanged)
        other.write("c", "k", Put(2, 1))
        return commit(request)

    slow.catalogs._commit = commit_late  # type: ignore[method-assign]
    first = delete(slow, None, "x")
    assert isinstance(first, Unchanged)
    assert first.replayed
    assert content_of(other, "k") == 2


def test_a_constantly_written_catalog_is_deleted_at_once() -> None:
    """By this gateway's clients and another's: a deletion is decided like any other write."""
    store = MemoryStore()
    ours, theirs = (GatewayService(store, ThreadRuntime(), ServiceLimits()) for _ in range(2))
    over = threading.Event()
    written = [0, 0, 0, 0]

    def write(number: int) -> None:
        while not over.is_set():
            worker = (ours, theirs)[number % 2]
            applied(worker.write("c", f"k{number}", Put(written[number], 4)).outcome)
            written[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for each in writers:
        each.start()
    try:
        for _ in range(5):
            seen = sum(written)
            wait_until(lambda: sum(written) > seen + 8)  # noqa: B023
            deleted = ours.catalogs.delete(ours.request("c", ()))
            commit = applied(deleted.outcome).commit
            assert commit.deletes_catalog
    finally:
        over.set()
        for each in writers:
            each.join(WAIT_S)

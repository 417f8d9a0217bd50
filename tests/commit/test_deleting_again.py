"""Rule: a deletion of a catalog that is sent again under its key is told what became of it."""

from __future__ import annotations

import pytest

from gateway.decide.edits import Put
from gateway.errors import IdempotencyMismatch, PreconditionFailed
from gateway.limits import ServiceLimits
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.memory import MemoryStore
from tests.asking import applied, refused


@pytest.fixture
def gateway() -> Gateway:
    gateway = Gateway(MemoryStore(), ThreadRuntime(), ServiceLimits())
    gateway.write("c", "k", Put(1, 1))
    return gateway


def delete(gateway: Gateway, revision: int, key: str, fingerprint: str = "f") -> object:
    idempotency = Idempotency("p", key, fingerprint)
    request = gateway.request("c", (), resource_version=revision, idempotency=idempotency)
    return gateway.catalogs.delete(request).outcome


def test_it_is_replayed_also_where_the_catalog_was_made_again(gateway: Gateway) -> None:
    first = applied(delete(gateway, 1, "x"))
    gateway.write("c", "k", Put(2, 1))
    again = applied(delete(gateway, 1, "x"))
    assert (again.commit, again.replayed) == (first.commit, True)


def test_another_request_under_its_key_is_told_so(gateway: Gateway) -> None:
    delete(gateway, 1, "x")
    gateway.write("c", "k", Put(2, 1))
    refused(delete(gateway, 1, "x", "another"), IdempotencyMismatch)


@pytest.mark.parametrize("revision", [0, 2])
def test_one_that_was_never_done_is_held_to_the_revision(gateway: Gateway, revision: int) -> None:
    refused(delete(gateway, revision, "x"), PreconditionFailed)

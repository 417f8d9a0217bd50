"""The estimated size of a commit or verdict in a head is its real size, whoever made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import encode
from pymongo import MongoClient

from gateway.access import Principal
from gateway.decide.edits import Delete, KeyEdit, Put
from gateway.decide.request import Request
from gateway.limits import ServiceLimits
from gateway.model import CommitRecord, Idempotency, Verdict
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state.write_out import WriteOut
from gateway.store.mongodb import MongoStore, connect
from tests.patience import WAIT_MS
from tests.without_http import add, put

# Of letters that take four bytes each.
NAME = "\N{OLD ITALIC LETTER A}" * 255
KEYS = [f"tables/{'x' * 500}{n:04}" for n in range(200)]


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    yield store
    store.close()


def deletion_of_many(gateway: GatewayService) -> Request:
    gateway.commit(gateway.request("c", [KeyEdit(key, Put(1, 1)) for key in KEYS]))
    return gateway.request("c", [KeyEdit(key, Delete()) for key in KEYS])


def with_long_names(gateway: GatewayService) -> Request:
    gateway.write("c", "k", put({"n": 1}))
    return gateway.request(
        "c",
        [KeyEdit("k", add("/n", 2))],
        by=Principal(NAME, ()),
        author=NAME,
        message="\N{OLD ITALIC LETTER A}" * 1000,
        idempotency=Idempotency(NAME, "k" * 255, "f" * 64),
        once=True,
    )


def refused_with_long_names(gateway: GatewayService) -> Request:
    gateway.write("c", "k", put({"n": 1}))
    return gateway.request(
        "c",
        [KeyEdit("k", add("/m/n", 2))],
        idempotency=Idempotency(NAME, "k" * 255, "f" * 64),
        once=True,
    )


@pytest.mark.parametrize("ask", [deletion_of_many, with_long_names, refused_with_long_names])
def test_the_estimated_size_is_at_least_the_stored_size(
    ask: Any,
    store: MongoStore,
    mongodb_uri: str,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided: list[CommitRecord | Verdict] = []
    move_heads = store.move_heads

    def noting(moves: Any) -> Any:
        decided[:] = [each for move in moves for each in (*move.commits, *move.verdicts)]
        return move_heads(moves)

    monkeypatch.setattr(store, "move_heads", noting)
    monkeypatch.setattr(WriteOut, "add", lambda *_: None)  # so that it stays in the tail
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    gateway.commit(ask(gateway))
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        head = client[database_name]["catalogs"].find_one({"_id": "c"})
    assert head is not None
    read = store.tails(["c"])["c"]
    records = (*head["tail"], *head.get("verdicts", ()))
    replies = (*(read.tail or ()), *(read.verdicts or ()))
    assert [each.size_bytes for each in replies] == [len(encode(each)) for each in records]
    (ours,) = decided
    assert ours.size_bytes >= replies[-1].size_bytes

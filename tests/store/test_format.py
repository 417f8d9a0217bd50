"""A database of format 1, made by the gateways of that time, is taken over.

`data/format_1.json` is what they left: catalogs that are settled, pinned, compacted, about to be
swept, deleted, and one whose worker died before it wrote its last batch out. Only the pin's end was
put off since, to the year 2999.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from pymongo import MongoClient, UpdateOne

from gateway.decide.request import Applied
from gateway.errors import DocumentNotFound
from gateway.limits import ServiceLimits
from gateway.model import Idempotency
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.format import FORMAT
from patching import ABSENT
from tests.patience import WAIT_MS
from tests.without_http import applied, content_of, put, replace

_LEFT = json_util.loads((Path(__file__).parent / "data/format_1.json").read_text())
_REVISIONS = {"compacted": 6, "deleted": 2, "raised": 6, "settled": 8, "unfinished": 3}


@pytest.fixture
def database(mongodb_uri: str, database_name: str) -> Iterator[Any]:
    with MongoClient[Any](mongodb_uri) as client:
        database = client[database_name]
        for name, records in _LEFT.items():
            database[name].insert_many(records)
        yield database


@pytest.fixture
def store(database: Any, mongodb_uri: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database.name, timeout_ms=WAIT_MS)
    yield store
    store.close()


@pytest.fixture
def gateway(store: MongoStore) -> GatewayService:
    limits = ServiceLimits(deadline_ms=WAIT_MS, write_out_grace_ms=1)
    return GatewayService(store, ThreadRuntime(), limits)


def test_no_commit_pin_or_token_is_lost(gateway: GatewayService, store: MongoStore) -> None:
    assert {head.catalog: head.revision for head in store.list_heads("", "", 9)} == _REVISIONS
    for catalog, revision in _REVISIONS.items():
        floor = gateway._settler.settle(catalog).floor
        commits = gateway.commits(catalog, after=floor, limit=99, key=None).commits
        assert [each.revision for each in commits] == list(range(floor + 1, revision + 1))
        verification = Verification(store, gateway._settler, ThreadRuntime())
        assert list(verification.verify(catalog)) == []
    assert content_of(gateway, catalog="settled") == {"n": 5}
    assert content_of(gateway, catalog="deleted") is ABSENT
    assert [pin.revision for pin in gateway.retention.pins("settled")] == [5]
    assert [token.name for token in store.tokens().tokens()] == ["ann"]


def test_a_batch_that_was_not_written_out_is_readable(gateway: GatewayService) -> None:
    assert content_of(gateway, catalog="unfinished") == {"n": 1}
    assert content_of(gateway, "m", "unfinished") == "new"
    with pytest.raises(DocumentNotFound):
        gateway.read_at_revision("unfinished", "l", 3)


@pytest.mark.parametrize(("catalog", "key"), [("unfinished", "dead"), ("settled", "key-3")])
def test_its_keys_still_apply_once(gateway: GatewayService, catalog: str, key: str) -> None:
    again = gateway.write(catalog, "k", put(9), idempotency=Idempotency("ann", key, "print-3"))
    told = again.outcome
    assert not isinstance(told, Applied) or told.replayed


def test_the_catalogs_can_be_written(gateway: GatewayService) -> None:
    for catalog, revision in _REVISIONS.items():
        edit = put({"n": 9}) if catalog == "deleted" else replace("/n", 9)
        commit = applied(gateway.write(catalog, "k", edit).outcome).commit
        assert commit.revision == revision + 1
        assert content_of(gateway, catalog=catalog) == {"n": 9}


def test_a_pending_sweep_is_finished(store: MongoStore) -> None:
    bounds = store.heads(["raised"]) and store.retention("raised")
    assert bounds
    assert (bounds.floor, bounds.swept, bounds.sweepable(0)) == (4, 0, 4)


def test_it_is_taken_over_once(
    store: MongoStore, database: Any, gateway: GatewayService, mongodb_uri: str
) -> None:
    before = store.tails(_REVISIONS)
    gateway.write("settled", "k", replace("/n", 9))
    other = connect(mongodb_uri, database.name, WAIT_MS)
    assert other.heads(["settled"])["settled"].revision == before["settled"].revision + 1
    other.close()
    assert database["format"].find_one() == {"_id": "format", "number": FORMAT}


@pytest.mark.parametrize("number", [FORMAT + 1, str(FORMAT)])
def test_an_unknown_format_is_refused(store: MongoStore, database: Any, number: int | str) -> None:
    database["format"].insert_one({"_id": "format", "number": number})
    with pytest.raises(StoreUnreachable, match=f"the database has format {number!r}, this gateway"):
        store.heads(["settled"])
    assert database["catalogs"].find_one({"_id": "settled"})["revision"] == 8


def test_format_2_is_taken_over_unchanged(store: MongoStore, database: Any) -> None:
    database["catalogs"].delete_many({})
    database["format"].insert_one({"_id": "format", "number": 2})
    assert store.heads(["none"]) == {}
    assert database["format"].find_one() == {"_id": "format", "number": FORMAT}


def test_a_gateway_of_format_2_is_refused(
    store: MongoStore, database: Any, mongodb_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write documents without their owners."""
    store.heads(["settled"])
    monkeypatch.setattr("gateway.store.mongodb.format.FORMAT", 2)
    monkeypatch.setattr("gateway.store.mongodb.format._OLDER", (1,))
    older = connect(mongodb_uri, database.name, WAIT_MS)
    with pytest.raises(
        StoreUnreachable, match=f"the database has format {FORMAT}, this gateway knows up to 2"
    ):
        older.heads(["settled"])
    older.close()


def test_a_gateway_of_format_1_running_beside_it_changes_nothing(
    store: MongoStore, database: Any, gateway: GatewayService
) -> None:
    """Its moves are lost; a catalog that it makes is taken over."""
    gateway.write("settled", "k", replace("/n", 9))
    before = store.tails(["settled"])
    move = {"$set": {"revision": 9, "base_revision": 8, "batch": []}}
    with pytest.raises(Exception, match="duplicate key"):
        database["catalogs"].bulk_write(
            [UpdateOne({"_id": "settled", "revision": 8}, move, upsert=True)]
        )
    assert store.tails(["settled"]) == before
    made = next(record for record in _LEFT["catalogs"] if record["_id"] == "unfinished")
    database["catalogs"].insert_one({**made, "_id": "new"})
    applied(gateway.write("new", "x", put(1)).outcome)
    assert content_of(gateway, "m", "new") == "new"

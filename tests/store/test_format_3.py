"""A database of format 3 is taken over, also while a gateway of that format runs beside.

`data/format_3.json` is what such gateways left: catalogs that are settled, with a tail that is
written out, with one whose worker died before it wrote it out, and with verdicts alone. Only the
verdicts' ends were put off since, to the year 2999.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from pymongo import MongoClient, UpdateOne
from pymongo.errors import BulkWriteError

from gateway.decide.request import Applied, Unchanged
from gateway.limits import ServiceLimits
from gateway.model import CommitRecord, HeadPosition, Idempotency
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import MongoStore, connect, records
from gateway.store.mongodb.format import FORMAT
from tests.patience import WAIT_MS
from tests.without_http import applied, content_of, put, replace

_LEFT = json_util.loads((Path(__file__).parent / "data/format_3.json").read_text())
_REVISIONS = {"deleted": 2, "settled": 7, "unfinished": 3}


@pytest.fixture
def database(mongodb_uri: str, database_name: str) -> Iterator[Any]:
    with MongoClient[Any](mongodb_uri) as client:
        database = client[database_name]
        for name, left in _LEFT.items():
            database[name].insert_many(left)
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


class OldGateway:
    """What a gateway of format 3 asks for and sends, in its own words."""

    def __init__(self, database: Any) -> None:
        self._catalogs = database["catalogs"]

    def move(self, commit: CommitRecord, judged: int = 0) -> bool:
        """Whether it wins a move from the revision before ``commit``."""
        base = commit.revision - 1
        judged_is = judged or {"$in": [0, None]}
        state = {"head": commit.revision, "judged": judged, "open": True}
        state |= {"time_us": commit.time_us, "deleted": False}
        fields = records.commit_fields(commit)
        update = {
            "$set": state,
            "$max": {"written": base},
            "$push": {"tail": {"$each": [fields], "$slice": -1}},
        }
        asked = {"_id": commit.catalog, "head": base, "judged": judged_is}
        asked["claims.0"] = {"$exists": False}
        try:
            self._catalogs.bulk_write([UpdateOne(asked, update, upsert=True)])
        except BulkWriteError as error:
            if error.details["writeErrors"][0]["code"] != 11000:
                raise
            return False
        return True

    def end_tail(self, catalog: str, revision: int, judged: int = 0) -> None:
        update = {"$set": {"written": revision, "tail": []}, "$unset": {"open": ""}}
        judged_is = judged or {"$in": [0, None]}
        self._catalogs.update_one({"_id": catalog, "head": revision, "judged": judged_is}, update)

    def raise_floor(self, catalog: str, floor: int) -> None:
        self._catalogs.update_one(
            {"_id": catalog, "head": {"$gte": floor}, "floor": {"$not": {"$gte": floor}}},
            [{"$set": {"floor": floor, "written": {"$max": ["$written", floor]}}}],
        )

    def reads(self, catalog: str) -> bool:
        """Whether it finds what it needs of a head."""
        record = self._catalogs.find_one({"_id": catalog}, {"head": 1, "time_us": 1, "written": 1})
        assert "head" in record, "it would take the head for one of format 1, for ever"
        return {"head", "time_us", "written"} <= record.keys()


def made(revision: int, catalog: str = "settled", commit_id: str = "0" * 32) -> CommitRecord:
    return CommitRecord(catalog, revision, 1 << 52, commit_id, "old", None, None, 1, ())


def test_no_commit_document_or_verdict_is_lost(gateway: GatewayService, store: MongoStore) -> None:
    assert {head.catalog: head.revision for head in store.list_heads("", "", 9)} == _REVISIONS
    for catalog, revision in _REVISIONS.items():
        gateway._settler.settle(catalog)
        commits = gateway.commits(catalog, after=0, limit=99, key=None).commits
        assert [each.revision for each in commits] == list(range(1, revision + 1))
        verification = Verification(store, gateway._settler, ThreadRuntime())
        assert list(verification.verify(catalog)) == []
    assert content_of(gateway, catalog="settled") == {"n": 5}
    assert content_of(gateway, catalog="unfinished") == {"n": 1}
    assert content_of(gateway, "m", "unfinished") == "new"


@pytest.mark.parametrize(
    ("catalog", "key"),
    [
        *(("settled", "key-3"), ("settled", "noop")),
        *(("unfinished", "dead"), ("unfinished", "noop"), ("judged", "refused")),
    ],
)
def test_its_keys_still_decide_once(gateway: GatewayService, catalog: str, key: str) -> None:
    asked = Idempotency("ann", key, "print")
    again = gateway.write(catalog, "k", put(9), idempotency=asked, once=True).outcome
    assert isinstance(again, Applied | Unchanged)
    assert again.replayed


def test_the_last_commit_is_known_if_the_head_names_it(store: MongoStore) -> None:
    heads = store.tails(["settled", "unfinished", "judged"])
    unfinished = heads["unfinished"]
    assert unfinished.tail
    assert unfinished.verdicts
    last, verdict = unfinished.tail[-1].id, unfinished.verdicts[-1].id
    assert unfinished.position == HeadPosition(3, last, 1, verdict)
    assert heads["settled"].position == HeadPosition(7, "", 1, "")
    assert heads["judged"].position[:3] == (0, "", 1)


def test_a_catalog_made_at_that_moment_is_taken_over(
    store: MongoStore, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just after it was asked for, and before its commits are."""
    store.heads(["none"])
    database["catalogs"].delete_one({"_id": "settled"})
    find_one = store._on.commits.find_one

    def later(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(store._on.commits, "find_one", find_one)
        (made,) = (each for each in _LEFT["catalogs"] if each["_id"] == "settled")
        database["catalogs"].insert_one(made)
        return find_one(*given, **named)

    monkeypatch.setattr(store._on.commits, "find_one", later)
    assert store.heads(["settled"])["settled"].revision == _REVISIONS["settled"]


def test_the_catalogs_can_be_written(gateway: GatewayService, store: MongoStore) -> None:
    for catalog, revision in _REVISIONS.items():
        edit = put({"n": 9}) if catalog == "deleted" else replace("/n", 9)
        commit = applied(gateway.write(catalog, "k", edit).outcome).commit
        assert commit.revision == revision + 1
        assert content_of(gateway, catalog=catalog) == {"n": 9}
        assert store.heads([catalog])[catalog].last == commit.id
        gateway._settler.settle(catalog)
        verification = Verification(store, gateway._settler, ThreadRuntime())
        assert list(verification.verify(catalog)) == []
    applied(gateway.write("judged", "k", put(1)).outcome)


def test_a_database_can_be_taken_over_by_several_gateways_at_once(
    store: MongoStore, database: Any, gateway: GatewayService, mongodb_uri: str
) -> None:
    before = store.tails(_REVISIONS)
    applied(gateway.write("settled", "k", replace("/n", 9)).outcome)
    database["format"].update_one({}, {"$set": {"number": 3}})  # the other one died before this
    other = connect(mongodb_uri, database.name, WAIT_MS)
    assert other.heads(["settled"])["settled"].revision == before["settled"].revision + 1
    assert other.tails(["unfinished"])["unfinished"] == before["unfinished"]
    other.close()
    assert database["format"].find_one() == {"_id": "format", "number": FORMAT}


def test_a_gateway_of_format_3_that_runs_on_changes_nothing(
    store: MongoStore, database: Any, gateway: GatewayService
) -> None:
    """It has looked at the format before, and knows where the heads were."""
    old = OldGateway(database)
    assert old.move(made(8), judged=1), "it isn't what a gateway of format 3 sends"
    before = store.tails(["settled", "unfinished"])
    assert before["settled"].position == HeadPosition(8, "0" * 32, 1, "")
    assert not old.reads("settled")
    assert not old.move(made(9), judged=1)
    for judged in (0, 1):
        old.end_tail("settled", 8, judged)
        old.end_tail("unfinished", 3, judged)
    old.raise_floor("settled", 5)
    assert store.tails(["settled", "unfinished"]) == before
    commit = applied(gateway.write("settled", "k", replace("/n", 9)).outcome).commit
    assert (commit.revision, commit.parent) == (9, "0" * 32)
    assert not old.move(made(10), judged=1)
    assert store.heads(["settled"])["settled"].last == commit.id


@pytest.mark.parametrize("how", ["read", "written", "found by the janitor"])
def test_a_catalog_made_later_by_an_old_gateway_is_taken_over(
    store: MongoStore, database: Any, gateway: GatewayService, how: str
) -> None:
    store.heads(["settled"])
    old = OldGateway(database)
    assert old.move(made(1, "new"))
    assert old.move(made(2, "new", "f" * 32))
    if how == "written":
        assert applied(gateway.write("new", "k", put(1)).outcome).commit.revision == 3
    elif how == "read":
        assert store.heads(["new"])["new"].position == HeadPosition(2, "f" * 32, 0, "")
    else:
        assert "new" in {head.catalog for head in store.open_tails(1 << 60, 99)}
    assert "new" in {head.catalog for head in store.list_heads("", "", 9)}
    assert not old.move(made(3, "new"))


def test_a_gateway_of_format_3_that_starts_is_refused(
    store: MongoStore, database: Any, mongodb_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.heads(["settled"])
    monkeypatch.setattr("gateway.store.mongodb.format.FORMAT", 3)
    monkeypatch.setattr("gateway.store.mongodb.format._OLDER", (2,))
    older = connect(mongodb_uri, database.name, WAIT_MS)
    with pytest.raises(
        StoreUnreachable, match="the database has format 4, this gateway knows up to 3"
    ):
        older.heads(["settled"])
    older.close()


def test_a_gateway_of_this_format_is_kept_out_by_the_next_one(
    store: MongoStore, database: Any, gateway: GatewayService
) -> None:
    """The number is in each head, and in what each move asks for."""
    applied(gateway.write("settled", "k", replace("/n", 9)).outcome)
    gateway._settler.settle("settled")
    database["catalogs"].update_many({}, {"$set": {"head.format": FORMAT + 1}})
    before = database["catalogs"].find_one({"_id": "settled"})
    with pytest.raises(
        StoreUnreachable, match=f"the database has format {FORMAT + 1}, this gateway"
    ):
        store.heads(["settled"])
    gateway.write("settled", "k", replace("/n", 10), wait_s=0.5)
    store.end_tails({"settled": (8, 1)})
    assert database["catalogs"].find_one({"_id": "settled"}) == before

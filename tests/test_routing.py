"""The watch over the commands of all tests recognizes commands that don't name a catalog."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.connection import StorePart
from tests import routing
from tests.patience import WAIT_MS


@pytest.mark.parametrize(
    "query",
    [
        {"_id": "c\0k"},
        {"_id": {"$in": ["c\0k", "d\0k"]}},
        {"_id": {"$gt": "c\0", "$lt": "c\1"}, "keys": "k"},
        {"_id": {"$gte": "c\0k", "$lte": "c\0l"}},
        {"_id": {"$gte": "c\0", "$lt": "e\1"}, "catalog": {"$in": ["d", "e", "c"]}},
        {"reply_id": "r", "$or": [{"_id": "c\0k"}, {"_id": {"$gt": "d\0", "$lt": "d\1"}}]},
    ],
)
def test_a_query_that_names_its_catalogs_is_allowed(query: dict[str, Any]) -> None:
    assert routing.unrouted({"find": "commits", "filter": query}) == []
    assert routing.unrouted({"delete": "documents", "deletes": [{"q": query}]}) == []


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"reply_id": "r"},
        {"catalog": "c", "keys": "k"},
        {"_id": {"$gt": "c\0"}},
        {"_id": {"$gt": "c\0", "$lt": "d\0"}},
        {"_id": {"$gt": "c\0", "$lt": "d\1"}, "catalog": {"$in": ["c", "e"]}},
        {"_id": {"$in": ["c\0k", "d"]}},
        {"$or": [{"_id": "c\0k"}, {"reply_id": "r"}]},
    ],
)
def test_a_query_that_does_not_name_its_catalogs_is_found(query: dict[str, Any]) -> None:
    named = {"_id": "c\0k"}
    assert routing.unrouted({"find": "commits", "filter": query}) == [query]
    updates = [{"q": named, "u": {}}, {"q": query, "u": {}}]
    assert routing.unrouted({"update": "documents", "updates": updates}) == [query]
    assert routing.unrouted({"aggregate": "commits", "pipeline": [{"$match": query}]}) == [query]
    assert routing.unrouted({"find": "catalogs", "filter": query}) == []


def test_commands_of_a_store_are_watched(
    mongodb_uri: str, database_name: str, unrouted: list[str]
) -> None:
    class Careless(MongoStore):
        def look(self) -> None:
            with self._on.reading() as session:
                self._on.commits.find_one({"catalog": "c"}, session=session)

    connected = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    assert isinstance(connected, StorePart)
    Careless(connected._on).look()
    assert unrouted == ["find commits: {'catalog': 'c'}"]
    unrouted.clear()
    connected.close()

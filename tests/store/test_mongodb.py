from collections.abc import Iterator

import pytest
from pymongo import MongoClient

from gateway.store.contract import Move, Unreachable
from gateway.store.mongodb import MongoStore, connect
from tests.store.contract_suite import StoreContract, commit, document, head


class TestMongoStore(StoreContract):
    @pytest.fixture
    def store(self, mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
        store = connect(mongodb_uri, database_name, timeout_ms=10_000)
        yield store
        store.close()


def test_documents_can_be_queried_by_people(mongodb_uri: str, database_name: str) -> None:
    """Content is native BSON, not an opaque blob."""
    store = connect(mongodb_uri, database_name, timeout_ms=10_000)
    store.write_documents({"c": [document(1, content={"owner": {"name": "ann"}})]})
    with MongoClient(mongodb_uri) as client:
        found = client[database_name]["documents"].find_one({"state.content.owner.name": "ann"})
    assert found is not None
    assert (found["catalog"], found["key"]) == ("c", "k")
    store.close()


def test_a_read_of_replies_uses_its_index(mongodb_uri: str, database_name: str) -> None:
    store = connect(mongodb_uri, database_name, timeout_ms=10_000)
    store.heads(["c"])
    store.write_commits([commit(1)])
    with MongoClient(mongodb_uri) as client:
        plan = client[database_name].command(
            "explain",
            {
                "find": "commits",
                "filter": {"reply_id": {"$in": ["a", "b"]}},
            },
            verbosity="queryPlanner",
        )
    assert "reply_id_1" in str(plan["queryPlanner"]["winningPlan"])
    store.close()


def test_a_database_out_of_reach_is_told_within_the_timeout() -> None:
    store = connect("mongodb://127.0.0.1:1/?replicaSet=none", "x", timeout_ms=300)
    with pytest.raises(Unreachable):
        store.heads(["c"])
    with pytest.raises(Unreachable):
        store.move_heads([Move(head(0, commit(1)))])
    store.close()


def test_a_malformed_uri_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="MongoDB URI"):
        connect("mongodb://[", "x", timeout_ms=300)

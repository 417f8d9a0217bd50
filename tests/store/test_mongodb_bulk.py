"""What a bulk's error says of each operation: done, its name taken, rejected, or in doubt."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from pymongo.errors import BulkWriteError, PyMongoError, WriteConcernError, WriteError

from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import connect
from gateway.store.mongodb.connection import BulkResults, _results
from tests.patience import WAIT_MS

TAKEN = {"code": 11000, "keyPattern": {"_id": 1}, "errmsg": "E11000 duplicate key"}
FOREIGN = {"code": 11000, "keyPattern": {"mail": 1}, "errmsg": 'E11000 { : "secret" }'}
TOO_LARGE = {"code": 17419, "errmsg": "Resulting document after update is larger"}
INVALID = {"code": 121, "errmsg": "Document failed validation"}
GEO = {"code": 16755, "errmsg": "Can't extract geo keys"}


def error(*failures: dict[str, Any], unconfirmed: bool = False) -> BulkWriteError:
    told = [{**each, "index": index} for index, each in enumerate(failures)]
    concerns = [{"code": 64, "errmsg": "waiting for replication timed out"}] if unconfirmed else []
    return BulkWriteError({"writeErrors": told, "writeConcernErrors": concerns})


def test_each_operation_has_a_result_of_its_own() -> None:
    results = _results(error(TAKEN, FOREIGN, TOO_LARGE, INVALID, GEO))
    assert results.taken == {0}
    assert {n: each.too_large for n, each in results.rejected.items()} == {
        1: False,
        2: True,
        3: False,
        4: False,
    }
    assert "secret" not in results.rejected[1].reason
    assert results.in_doubt == {}


@pytest.mark.parametrize(
    "code",
    [6, 7, 50, 63, 89, 91, 112, 133, 189, 202, 262, 9001, 10107, 11600, 11602, 13388, 13435, None],
)
def test_errors_of_the_moment_or_of_the_server_leave_an_operation_in_doubt(
    code: int | None,
) -> None:
    """A router says of a shard that it has lost that the operation failed: it may not have."""
    results = _results(error({"code": code, "errmsg": "x"}, TOO_LARGE))
    assert results.in_doubt.keys() == {0}
    assert results.rejected.keys() == {1}


def test_an_unconfirmed_majority_leaves_every_operation_in_doubt() -> None:
    with pytest.raises(StoreUnreachable, match="replication"):
        _results(error(TAKEN, TOO_LARGE, unconfirmed=True))


@pytest.mark.mongod
@pytest.mark.parametrize("failure", [TAKEN, FOREIGN, TOO_LARGE, INVALID, {"code": 91}])
def test_a_single_upsert_has_the_result_that_it_has_in_a_bulk(
    mongodb_uri: str, database_name: str, failure: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = WriteError("it fails", failure["code"], failure)
    found = upserted(mongodb_uri, database_name, alone, monkeypatch)
    assert found == _results(error(failure))


@pytest.mark.mongod
def test_a_single_upsert_without_a_majority_is_in_doubt(
    mongodb_uri: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfirmed = WriteConcernError("waiting for replication timed out", 64, {"code": 64})
    with pytest.raises(StoreUnreachable, match="replication") as raised:
        upserted(mongodb_uri, database_name, unconfirmed, monkeypatch)
    assert type(raised.value) is StoreUnreachable  # not one that says that nothing was done


def upserted(
    uri: str, database: str, failure: PyMongoError, monkeypatch: pytest.MonkeyPatch
) -> BulkResults:
    """The results of a single upsert that fails so."""
    with closing(connect(uri, database, WAIT_MS)) as store:

        def fail(*_: Any, **__: Any) -> None:
            raise failure

        monkeypatch.setattr(store._on.catalogs, "update_one", fail)
        return store._on.upsert_each(store._on.catalogs, [({"_id": "c"}, {"$set": {"x": 1}})])

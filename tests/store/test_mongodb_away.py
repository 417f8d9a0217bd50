"""A read of a MongoDB that is known to be away fails soon, and waits again once it is back."""

from __future__ import annotations

import re

import pytest
from pymongo.errors import ServerSelectionTimeoutError

from gateway.store.contract import Unsent
from gateway.store.mongodb.connection import Connection
from tests.ports import refusing_url

_TIMEOUT_MS = 1500


def waited_s(connection: Connection) -> float:
    """For how long the driver looked for a primary, as it says itself."""
    with pytest.raises(Unsent) as raised, connection.reading():
        pass
    cause = raised.value.__cause__
    assert isinstance(cause, ServerSelectionTimeoutError)
    told = re.search(r"Timeout: ([\d.]+)s", str(cause))
    assert told is not None
    return float(told[1])


def test_once_an_outage_is_known_a_read_fails_within_a_second() -> None:
    host = refusing_url().removeprefix("http://")
    uri = f"mongodb://{host}/?replicaSet=rs"
    connection = Connection.to(uri, "away", _TIMEOUT_MS, appname="test")
    try:
        assert 1.0 < waited_s(connection) <= 1.5
        assert waited_s(connection) < 1.0
        assert waited_s(connection) < 1.0
    finally:
        connection.client.close()


def test_a_read_that_works_ends_the_outage(mongodb_uri: str, database_name: str) -> None:
    connection = Connection.to(mongodb_uri, database_name, 10_000, appname="test")
    try:
        connection._is_away = True
        with connection.reading() as session:
            connection.catalogs.find_one({"_id": "x"}, session=session)
        assert not connection._is_away
    finally:
        connection.client.close()

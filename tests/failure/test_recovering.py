"""A member that is connected to while it recovers, and becomes primary later.

The driver learns when it connects whether a member has sessions, and one that recovers says it has
none; it never asks again. The connection itself outlives the recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.connection import known_election
from gateway.store.mongodb.indexes import BY_KEY
from tests.failure.clients import CATALOG, DOCUMENT, send
from tests.failure.replica_set import Member, ReplicaSet
from tests.patience import WAIT_MS
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod

Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with ReplicaSet(tmp_path_factory.mktemp("alone"), members=1) as running:
        yield running.members[0]


def test_a_member_that_is_elected_again_is_recognized(
    alone: Member, eventually: Eventually
) -> None:
    """Also where the URI would have the driver look every ten minutes."""
    rare = "serverMonitoringMode=poll&heartbeatFrequencyMS=600000"
    store = connect(f"{direct_uri(alone)}&{rare}", f"test_{uuid4().hex}", WAIT_MS)
    store.heads(["c"])
    before = known_election(store._on.client)
    with alone.recovering():
        pass
    eventually(lambda: known_election(store._on.client) not in (None, before))
    assert store.heads(["c"]) == {}
    store.close()


def test_a_refusal_that_comes_late_does_not_hide_a_primary(
    alone: Member, eventually: Eventually
) -> None:
    """The member stepped down and is primary again, before the driver sees that answer."""
    rare = "heartbeatFrequencyMS=600000"
    store = connect(f"{direct_uri(alone)}&{rare}", f"test_{uuid4().hex}", timeout_ms=500)
    eventually(lambda: answers(store))
    refusal = {"failCommands": ["find"], "errorCode": 10107, "appName": "metadata-gateway"}
    with alone.stalled("failCommand", **refusal), pytest.raises(StoreUnreachable):
        store.documents({"c": ["k"]})
    eventually(lambda: answers(store))
    store.close()


def direct_uri(member: Member) -> str:
    """The only member there is, which the driver would ask again and again, without a pause."""
    return f"mongodb://{member.address}/?directConnection=true&retryReads=false"


def test_connections_opened_for_a_recovery_are_closed_after_it(
    alone: Member, eventually: Eventually
) -> None:
    """From when /readyz says so, requests are served again by the same worker."""
    with RunningGateway(direct_uri(alone), f"test_{uuid4().hex}", workers=1) as service:
        port, workers = service.port, service.worker_pids()
        with alone.recovering():
            assert send(port, "GET", DOCUMENT)[0] == 503
            assert send(port, "GET", "/readyz")[0] == 503
        eventually(lambda: send(port, "GET", "/readyz")[0] == 200)
        assert send(port, "PUT", DOCUMENT, 1, Content_Type="application/json")[0] == 201
        assert send(port, "GET", DOCUMENT) == (200, 1)
        assert send(port, "GET", f"/v1/catalogs/{CATALOG}")[0] == 200
        assert service.worker_pids() == workers


def test_an_index_that_takes_longer_than_a_call_is_made_once(
    alone: Member, eventually: Eventually
) -> None:
    """When a call's time is over, MongoDB drops an unfinished index. If each call began a new one,
    it would never be finished."""
    name = f"test_{uuid4().hex}"
    store = connect(direct_uri(alone), name, timeout_ms=500)
    eventually(lambda: answers(store))
    commits = alone.client[name]["commits"]
    commits.insert_one({"_id": "of an empty collection, an index is made at once"})
    commits.drop_indexes()
    with alone.stalled("hangAfterStartingIndexBuild"):
        with pytest.raises(StoreUnreachable, match="hint"):
            store.changes_of("c", "k", 1)
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="makes an index that was missing"):
                store.changes_of("c", "k", 1)
    eventually(lambda: BY_KEY in commits.index_information())
    eventually(lambda: answers(store))
    assert store.changes_of("c", "k", 1) == []
    store.close()


def answers(store: MongoStore) -> bool:
    try:
        store.heads(["c"])
    except StoreUnreachable:  # it takes longer than a call may
        return False
    return True

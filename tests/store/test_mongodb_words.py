"""What is said of a database that is out of reach, in an operator's words."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from gateway.decide.request import Refused
from gateway.errors import DeadlineExceeded, StoreUnavailable
from gateway.limits import ServiceLimits
from gateway.model import Claim, CommitRecord, Head
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable, Unsent
from gateway.store.mongodb import MongoStore, connect
from gateway.store.mongodb.connection import explained
from tests.patience import WAIT_MS
from tests.without_http import applied, put, wait_until


def client(*kinds: str) -> Any:
    servers = {
        (f"m{number}", 27017): SimpleNamespace(server_type_name=kind)
        for number, kind in enumerate(kinds)
    }
    found = SimpleNamespace(server_descriptions=lambda: servers)
    return SimpleNamespace(topology_description=found)


@pytest.mark.parametrize(
    ("kinds", "said", "told"),
    [
        (
            ("Unknown", "Unknown"),
            "Could not reach any servers in [('m0', 27017), ('m1', 27017)]. Replica set is"
            " configured with internal hostnames or IPs?, Timeout: 5.0s, Topology Description: <x>",
            "none of m0:27017, m1:27017 can be reached",
        ),
        (
            ("Unknown",),
            "m0:27017: [Errno 111] Connection refused (configured timeouts: connectTimeoutMS: 2),"
            " Timeout: 5.0s",
            "m0:27017: [Errno 111] Connection refused",
        ),
        (
            ("Unknown",),
            "not primary, full error: RawBSONDocument(b'$clusterTime') (configured timeouts: ), x",
            "not primary",
        ),
        (
            ("RSSecondary", "Unknown"),
            "No replica set members match selector",
            "there is no primary among m0:27017, m1:27017: is a majority of the members up?",
        ),
    ],
)
def test_the_guesses_of_the_driver_are_not_quoted(
    kinds: tuple[str, ...], said: str, told: str
) -> None:
    assert explained(client(*kinds), ServerSelectionTimeoutError(said)) == told


def test_a_socket_is_named_without_a_port() -> None:
    servers = {("/d/mongod.sock", 27017): SimpleNamespace(server_type_name="Unknown")}
    found = SimpleNamespace(server_descriptions=lambda: servers)
    away = ServerSelectionTimeoutError("configured with internal hostnames or IPs?")
    told = explained(cast(Any, SimpleNamespace(topology_description=found)), away)
    assert told == "none of /d/mongod.sock can be reached"


def test_a_refusal_by_the_server_is_reported_without_the_whole_answer() -> None:
    """That has cluster times and signatures, of no use to anybody."""
    answer = {"ok": 0.0, "errmsg": "not primary", "code": 10107, "$clusterTime": {}}
    refused = OperationFailure("not primary", 10107, answer)
    assert "$clusterTime" in str(refused)
    assert explained(client(), refused) == "not primary"


def test_a_missing_majority_is_named() -> None:
    """A primary and an arbiter are left, for example: the primary answers, but confirms nothing."""
    said = "Error waiting for snapshot not less than { ts: Timestamp(1, 2), t: -1 }, current …"
    told = "MongoDB confirms no write: is a majority of the members that hold data up?"
    assert explained(client("RSPrimary"), OperationFailure(said, 50)) == told


_FORBIDDEN = OperationFailure(
    'not authorized on m to execute command { update: "documents", updates: [ {} ] }',
    13,
)


def test_for_a_missing_right_only_the_kind_of_operation_is_shown() -> None:
    """The document to be written would follow."""
    told = explained(client(), _FORBIDDEN)
    role = "it needs the role readWrite in database m"
    assert told == f"the MongoDB user may not do update on m.documents: {role}"


@pytest.mark.mongod
@pytest.mark.parametrize("refusal", [_FORBIDDEN, OperationFailure("Authentication failed.", 18)])
def test_an_operation_without_the_right_is_reported_as_not_applied(
    mongodb_uri: str, database_name: str, refusal: OperationFailure, monkeypatch: Any
) -> None:
    """Otherwise the writer would wait long for an unknown outcome."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        patient = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
        applied(patient.write("c", "k", put(1)).outcome)

        def refuse(*given: Any, **named: Any) -> None:
            del given, named
            raise refusal

        for write in ("bulk_write", "update_one"):
            monkeypatch.setattr(store._on.catalogs, write, refuse)
        with pytest.raises(Unsent):
            store.claim(["c"], Claim("a", 50))
        gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=300))
        outcome = gateway.write("c", "k", put(2)).outcome
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, StoreUnavailable | DeadlineExceeded)


def _written(store: MongoStore) -> tuple[CommitRecord, Head]:
    """A commit, and the head that it has made."""
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    made = applied(gateway.write("c", "k", put(1)).outcome).commit
    wait_until(lambda: bool(store.last_written({"c": [1]})))
    return made, store.heads(["c"])["c"]


@pytest.mark.mongod
@pytest.mark.parametrize(
    "second", [OperationFailure("Authentication failed.", 18), ServerSelectionTimeoutError("away")]
)
def test_a_commit_that_was_sent_again_may_have_been_made(
    mongodb_uri: str, database_name: str, second: PyMongoError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one may have been, whatever becomes of the second."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        made, head = _written(store)
        far = replace(made, revision=9, id="f" * 32, parent=made.id, changes=())
        first = OperationFailure("lost", 91)
        first._add_error_label("UnknownTransactionCommitResult")
        answers: list[PyMongoError] = [first, second]
        commit = ClientSession.commit_transaction

        def lost(session: ClientSession) -> None:
            if len(answers) == 2:
                commit(session)
            raise answers.pop(0)

        with monkeypatch.context() as patched:
            patched.setattr(ClientSession, "commit_transaction", lost)
            with pytest.raises(StoreUnreachable) as raised:
                store.advance_head(head.position, far)
        assert not answers
        assert not isinstance(raised.value, Unsent)
        assert store.heads(["c"])["c"].revision == 9


@pytest.mark.mongod
def test_an_operation_refused_before_the_commit_is_reported_as_not_applied(
    mongodb_uri: str, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        made, head = _written(store)

        def refuse(*_: Any, **__: Any) -> None:
            raise _FORBIDDEN

        with monkeypatch.context() as patched:
            patched.setattr(store._on.catalogs, "update_one", refuse)
            with pytest.raises(Unsent):
                store.advance_head(head.position, replace(made, revision=9, changes=()))
        assert store.heads(["c"])["c"].revision == 1

"""Somebody has edited a record of the database by hand, so that it can't be read: every route
answers by the log, as if nobody had."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gateway.store.mongodb import connect
from gateway.store.mongodb.records import document_id
from tests.access.service import Caller, Service
from tests.patience import WAIT_MS
from tests.retention.history_checks import wait_until_written
from tests.state.sleeping import gateway_on
from tests.state.test_bases import UNREADABLE

pytestmark = pytest.mark.mongod

_C = "/v1/catalogs/c"
_RANGE = {"prefix": "k", "count": {"equal": 2}}
_READS = (
    "documents",
    "documents?key=ka&key=kb",
    "documents?limit=1&after=a",
    "documents?select=key",
    "documents?select=digest",
    "documents?select=digest&limit=1&after=a",
    "documents?select=digest&revision=4",
    "documents?select=digest&manager=ann",
    "documents?select=key&contains=K",
    "documents?select=key&delimiter=a",
    "documents/ka",
    "owners/ka",
    "export",
    "partitions?count=3",
    "differences?from=1",
    "differences?from=4&prefix=k",
    "commits",
    "commits?key=ka",
    "changes?after=0",
)
_WRITES: tuple[tuple[str, Any], ...] = (
    ("transactions", {"compare": [_RANGE], "then": [{"action": "delete", "prefix": "k"}]}),
    ("transactions", {"compare": [{"prefix": "ka", "absent": True}], "then": []}),
    ("transactions", {"then": [{"action": "replace", "prefix": "k", "documents": {"ka": 1}}]}),
    ("reverts", {"to": 4}),
    ("reverts", {"to": 4, "key": "ka"}),
    ("reverts", {"to": 4, "prefix": "k"}),
)


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[Any]:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        yield store


def answers(store: Any) -> Iterator[tuple[str, int, Any]]:
    """To an admin, to whom the document is open, and to whom it is not."""
    service = Service(gateway=gateway_on(store))
    for who in (
        service.caller("root", "admin:*"),
        service.caller("ann", "write:*"),
        service.caller("eve", "write:*"),
    ):
        for path in _READS:
            yield path, *_told(who.send("GET", f"{_C}/{path}"))
        for path, body in _WRITES:
            yield f"{path} {body}", *_told(who.send("POST", f"{_C}/{path}?dry_run=true", body))


def _told(answer: Any) -> tuple[int, Any]:
    told = answer.get_json()
    if isinstance(told, dict):
        told.pop("request_id", None)
    return answer.status_code, told


def filled(store: Any) -> None:
    gateway = gateway_on(store)
    writer: Caller = Service(gateway=gateway).caller("ann", "write:*")
    for key in ("a", "ka", "kb", "z"):
        assert writer.send("PUT", f"{_C}/documents/{key}", {"n": 0}).status_code == 201
    patch = [{"op": "add", "path": "/m", "value": 1}]
    typed = {"Content_Type": "application/json-patch+json"}
    assert writer.send("PATCH", f"{_C}/documents/ka", patch, **typed).status_code == 200
    acl = {"acl": {"read": ["ann"]}}
    assert writer.send("PUT", f"{_C}/attributes/ka", acl).status_code == 200
    wait_until_written(gateway)


@pytest.mark.parametrize("how", UNREADABLE)
def test_every_route_answers_by_the_log(
    store: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    before = list(answers(store))
    assert {status for _, status, _ in before} <= {200, 403, 412}
    store._on.documents.update_one({"_id": document_id("c", "ka")}, UNREADABLE[how])
    with caplog.at_level(logging.ERROR, logger="gateway"):
        for told, told_before in zip(answers(store), before, strict=True):
            assert told == told_before
    assert "document 'ka' can't be read" in caplog.text


def test_what_no_commit_has_made_is_no_document(store: Any) -> None:
    filled(store)
    before = list(answers(store))
    store._on.documents.insert_one({"_id": document_id("c", "kaa"), "state": "x"})
    for told, told_before in zip(answers(store), before, strict=True):
        if not told[0].startswith("partitions"):  # whose bounds needn't be keys of documents
            assert told == told_before


@pytest.mark.parametrize("member", ["time_us", "floor", "out", "judged_out"])
def test_a_catalog_whose_head_cant_be_read_keeps_nobody_from_the_others(
    store: Any, member: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    gateway = gateway_on(store)
    reader: Caller = Service(gateway=gateway).caller("ann", "write:*")
    assert reader.send("PUT", "/v1/catalogs/d/documents/k", 1).status_code == 201
    wait_until_written(gateway, "d")
    store._on.catalogs.update_one({"_id": "c"}, {"$set": {member: "x"}})
    answer = reader.send("GET", "/v1/catalogs")
    assert [each["catalog"] for each in answer.get_json()["catalogs"]] == ["d"]
    assert reader.send("GET", "/v1/catalogs/d/documents/k").get_json() == 1
    assert "catalog 'c': the head can't be read" in caplog.text

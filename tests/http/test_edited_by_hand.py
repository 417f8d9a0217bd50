"""Somebody has edited the database by hand. If a document's record can't be read, every route
answers from the log, as if nothing had happened. If a commit, a verdict or a head can't be read, or
the head is gone, requests that need it get an error, and nothing is decided."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument

from gateway.retention.backup import Backup
from gateway.retention.verification import Verification
from gateway.runtime import ThreadRuntime
from gateway.store.contract import BackupRefused, ForeignRecord
from gateway.store.mongodb import connect
from gateway.store.mongodb.records import commit_id, document_id
from tests.access.service import Caller, Service
from tests.http.event_stream import events
from tests.patience import WAIT_MS
from tests.retention.history_checks import settler_of, wait_until_written
from tests.state.sleeping import gateway_on
from tests.state.test_bases import UNREADABLE
from tests.store.undecodable import UNDECODABLE, without_utf8
from tests.without_http import wait_until

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
            yield path, *_comparable_answer(who.send("GET", f"{_C}/{path}"))
        for path, body in _WRITES:
            yield (
                f"{path} {body}",
                *_comparable_answer(who.send("POST", f"{_C}/{path}?dry_run=true", body)),
            )


def _comparable_answer(answer: Any) -> tuple[int, Any]:
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
def test_every_route_answers_from_the_log(
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


def test_a_document_that_no_commit_made_is_ignored(store: Any) -> None:
    filled(store)
    before = list(answers(store))
    store._on.documents.insert_one({"_id": document_id("c", "kaa"), "state": "x"})
    for told, told_before in zip(answers(store), before, strict=True):
        if not told[0].startswith("partitions"):  # whose bounds needn't be keys of documents
            assert told == told_before


@pytest.mark.parametrize(("gone", "told"), [((3,), "3"), ((1, 2), "1 to 2"), ((4, 5), "4 to 5")])
def test_a_history_with_a_gap_is_not_shown_as_complete(
    store: Any, gone: tuple[int, ...], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    for revision in gone:
        store._on.commits.delete_one({"_id": commit_id("c", revision)})
    reader: Caller = Service(gateway=gateway_on(store)).caller("ann", "write:*")
    before_gap = [*range(1, min(gone))]
    for path in ("commits", "commits?limit=6", "commits?newest_first=true", "changes?after=0"):
        caplog.clear()
        answer = reader.send("GET", f"{_C}/{path}")
        if path.startswith("changes") and answer.status_code == 200:
            # The gateway's own reading of the log was faster, and has come as far as it can.
            assert [each["revision"] for each in answer.get_json()["commits"]] == before_gap
            answer = reader.send("GET", f"{_C}/changes?after={before_gap[-1]}")
        assert (path, answer.status_code) == (path, 500)
        assert "run `gateway verify`" in answer.get_json()["detail"]
        assert f"the log has no commit {told};" in caplog.text
    rest = [*range(max(gone) + 1, 7)]
    for path in ("commits", "changes"):
        answer = reader.send("GET", f"{_C}/{path}?after={max(gone)}")
        assert [each["revision"] for each in answer.get_json()["commits"]] == rest
    before = reader.send("GET", f"{_C}/commits?before={min(gone)}")
    assert [each["revision"] for each in before.get_json()["commits"]] == before_gap


@pytest.mark.parametrize("gone", [4, 5])
def test_a_history_of_a_key_or_author_with_a_gap_is_not_shown_as_complete(
    store: Any, gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose own commits needn't be next to each other: 5 is one of them, 4 isn't."""
    filled(store)
    store._on.commits.delete_one({"_id": commit_id("c", gone)})
    reader: Caller = Service(gateway=gateway_on(store)).caller("ann", "write:*")
    for path in ("commits?author=ann", "commits?author=ann&newest_first=true", "changes?key=ka"):
        caplog.clear()
        answer = reader.send("GET", f"{_C}/{path}")
        if path.startswith("changes") and answer.status_code == 200:
            # As above.
            assert [each["revision"] for each in answer.get_json()["commits"]] == [2]
            answer = reader.send("GET", f"{_C}/changes?key=ka&after={gone - 1}")
        assert (path, answer.status_code) == (path, 500)
        assert "the log lacks 1 of the commits" in caplog.text or "has no commit" in caplog.text
    for path in ("commits?author=ann", "changes?key=ka"):
        rest = reader.send("GET", f"{_C}/{path}&after={gone}").get_json()["commits"]
        assert [each["revision"] for each in rest] == [n for n in (5, 6) if n > gone]


def test_a_stream_ends_with_an_error_at_a_gap_in_the_log(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With whole documents beside the changes, too: after the commits that could be read."""
    filled(store)
    store._on.commits.delete_one({"_id": commit_id("c", 2)})
    for query, revision in (("after=1", 1), ("after=4&include=before", 5)):
        caplog.clear()
        reader: Caller = Service(gateway=gateway_on(store)).caller("ann", "write:*")
        told = reader.send("GET", f"{_C}/changes?{query}", Accept="text/event-stream")
        assert (query, told.status_code) == (query, 200)
        with closing(told):
            pieces: Any = told.response
            lines = (line for piece in pieces for line in piece.splitlines(keepends=True))
            event = next(each for each in events(lines) if each.name in ("end", "bookmark"))
        detail = ForeignRecord.public_detail
        said = {"code": "internal_error", "detail": detail, "revision": revision}
        assert (query, event.name, event.data) == (query, "end", said)
        assert " failed" in caplog.text


@pytest.mark.parametrize("value", ["x", *UNDECODABLE])
@pytest.mark.parametrize("member", ["time_us", "floor", "out", "judged_out"])
def test_an_unreadable_head_blocks_no_other_catalog(
    store: Any, member: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    gateway = gateway_on(store)
    reader: Caller = Service(gateway=gateway).caller("ann", "write:*")
    assert reader.send("PUT", "/v1/catalogs/d/documents/k", 1).status_code == 201
    wait_until_written(gateway, "d")
    store._on.catalogs.update_one({"_id": "c"}, {"$set": {member: value}})
    answer = reader.send("GET", "/v1/catalogs")
    assert [each["catalog"] for each in answer.get_json()["catalogs"]] == ["d"]
    assert reader.send("GET", "/v1/catalogs/d/documents/k").get_json() == 1
    assert "catalog 'c': the head can't be read" in caplog.text
    assert [each.catalog for each in store.open_tails(2**60, 9)] == ["d"]


_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("commits", "revision", "x"),
    ("commits", "revision", 7),
    ("commits", "catalog", None),
    ("commits", "catalog", {"x": 1}),
    ("commits", "time_us", None),
    ("commits", "time_us", 2**62),
    ("commits", "id", 7),
    ("commits", "author", None),
    ("commits", "message", {"x": 1}),
    ("commits", "attempts", "x"),
    ("commits", "idempotency", {"x": 1}),
    ("commits", "changes", "[{}]"),
    ("commits", "changes", 7),
    ("catalogs", "head", None),
    ("catalogs", "head", 7),
    ("catalogs", "head.format", "x"),
    ("catalogs", "head.last", None),
    ("catalogs", "deleted", "x"),
    ("catalogs", "claims", 7),
    ("catalogs", "time_us", -1),
    ("catalogs", "head.more", 1),
    *(
        (*named, value)
        for named in (("commits", "author"), ("commits", "changes"), ("catalogs", "head.last"))
        for value in UNDECODABLE
    ),
)


# Of these, what isn't UTF-8.
_TEXTS: tuple[tuple[str, RawBSONDocument], ...] = tuple(
    (collection, without_utf8(member))
    for collection, member in (
        *(("commits", each) for each in ("id", "author", "message", "parent", "rebased_from")),
        *(("commits", each) for each in ("changes", "skipped", "catalog")),
        ("catalogs", "head.last"),
        ("catalogs", "head.verdict"),
    )
)


@pytest.mark.parametrize(
    ("collection", "update"),
    [*((at, {"$set": {member: value}}) for at, member, value in _FIELDS), *_TEXTS],
)
def test_a_read_of_an_unreadable_record_fails_and_the_log_names_the_record(
    store: Any, collection: str, update: Any, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    name = "c" if collection == "catalogs" else commit_id("c", 5)
    what = "the head" if collection == "catalogs" else "commit 5"
    found = store._on.database[collection].update_one({"_id": name}, update)
    assert found.modified_count == 1
    reader: Caller = Service(gateway=gateway_on(store, deadline_ms=WAIT_MS)).caller("ann", "read:*")
    answer = reader.send("GET", f"{_C}/commits?after=3")
    assert answer.status_code == 500
    assert "`gateway verify`" in answer.get_json()["detail"]
    assert f"catalog 'c': {what} can't be read" in caplog.text
    assert "Traceback" not in caplog.text
    runtime = ThreadRuntime()
    found = [*Verification(store, settler_of(store, runtime), runtime).verify("c")]
    assert any(f"{what} can't be read" in each.detail for each in found)
    with pytest.raises((BackupRefused, ForeignRecord), match=f"{what} can't be read"):
        Backup(store, store.copies(), settler_of(store, runtime), runtime).save("c", BytesIO())


_VERDICT = ("number", "time_us", "idempotency", "outcome", "catalog")


@pytest.mark.parametrize(
    "update",
    [
        *({"$set": {each: None}} for each in _VERDICT),
        *map(without_utf8, ("id", "outcome", "catalog", "idempotency.fingerprint")),
    ],
)
def test_a_key_with_an_unreadable_verdict_decides_nothing(
    store: Any, update: Any, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    gateway = gateway_on(store)
    writer: Caller = Service(gateway=gateway).caller("ann", "write:*")
    headers = {"Content_Type": "application/json-patch+json", "Idempotency_Key": "once"}
    patch = [{"op": "test", "path": "/n", "value": 7}, {"op": "replace", "path": "/n", "value": 8}]
    assert writer.send("PATCH", f"{_C}/documents/a", patch, **headers).status_code == 409
    wait_until(lambda: store._on.verdicts.count_documents({}) == 1)
    store._on.verdicts.update_one({}, update)
    assert writer.send("PUT", f"{_C}/documents/a", {"n": 7}).status_code == 200
    others = Service(gateway=gateway_on(store)).caller("ann", "write:*")
    answer = others.send("PATCH", f"{_C}/documents/a", patch, **headers)
    assert (answer.status_code, answer.get_json()["applied"]) == (503, "no")
    assert "`gateway verify`" in answer.get_json()["detail"]
    assert "the verdict of key 'once' of 'ann' can't be read" in caplog.text
    assert others.send("PUT", f"{_C}/documents/a", {"n": 9}).status_code == 200


def test_a_catalog_whose_head_is_missing_is_not_started_again(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its commits would get the names of those that are there, and be lost in the log."""
    filled(store)
    gateway = gateway_on(store)
    remembering = Service(gateway=gateway).caller("ann", "write:*")
    assert remembering.send("PUT", f"{_C}/documents/a", {"n": 1}).status_code == 200
    wait_until_written(gateway)
    store._on.catalogs.delete_one({"_id": "c"})
    commits = [*store.list_commits("c", 0, 99, 99, None, 10**6)]
    for writer in (remembering, Service(gateway=gateway_on(store)).caller("ann", "write:*")):
        for key in ("a", "new"):
            answer = writer.send("PUT", f"{_C}/documents/{key}", {"n": 2})
            assert (answer.status_code, answer.get_json()["applied"]) == (503, "no")
            answer = writer.send("GET", f"{_C}/documents/{key}")
            assert answer.status_code == 500
            assert "`gateway verify`" in answer.get_json()["detail"]
    assert "catalog 'c': it has commits or documents, but no head" in caplog.text
    assert writer.send("PUT", "/v1/catalogs/d/documents/k", 1).status_code == 201
    assert [*store.list_commits("c", 0, 99, 99, None, 10**6)] == commits
    assert store._on.catalogs.find_one({"_id": "c"}) is None


@pytest.mark.parametrize("member", ["head.last", "head.verdict"])
def test_a_head_with_invalid_utf8_refuses_writes(
    store: Any, member: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    store._on.catalogs.update_one({"_id": "c"}, without_utf8(member))
    writer: Caller = Service(gateway=gateway_on(store)).caller("ann", "write:*")
    answer = writer.send("PUT", f"{_C}/documents/a", {"n": 1})
    assert (answer.status_code, answer.get_json()["applied"]) == (503, "no")
    assert "catalog 'c': the head can't be read" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("member", ["id", "note", "owner"])
def test_a_pin_with_invalid_utf8_is_reported_as_an_unreadable_head(
    store: Any, member: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store)
    admin: Caller = Service(gateway=gateway_on(store)).caller("root", "admin:*")
    made = admin.send("POST", f"{_C}/pins", {"revision": 3, "seconds": 600})
    assert made.status_code == 201, made.get_json()
    store._on.catalogs.update_one({"_id": "c"}, without_utf8(f"pins.0.{member}"))
    answer = admin.send("GET", f"{_C}/pins")
    assert answer.status_code == 500
    assert "`gateway verify`" in answer.get_json()["detail"]
    assert "catalog 'c': the head can't be read" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("update", [{"$unset": {"id": 1}}, without_utf8("id")])
def test_a_commit_with_an_unreadable_id_is_not_known(store: Any, update: Any) -> None:
    filled(store)
    store._on.commits.update_one({"_id": commit_id("c", 2)}, update)
    assert store.commit_id("c", 2) is None
    assert store.commit_id("c", 3) is not None


def test_a_foreign_record_blocks_no_write_out(store: Any) -> None:
    filled(store)
    store._on.catalogs.insert_one({"_id": "e", "open": True, "time_us": 1})
    assert [each.catalog for each in store.open_tails(2**60, 9)] == ["c"]


@pytest.mark.parametrize("member", ["catalog", "id", "key", "principal", "terms", "expires_us"])
def test_an_unreadable_upload_is_treated_as_missing(
    store: Any, member: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer: Caller = Service(gateway=gateway_on(store)).caller("ann", "write:*")
    upload = writer.send("POST", f"{_C}/uploads", {"key": "k"}).get_json()["upload"]
    assert writer.send("GET", f"{_C}/uploads/{upload}").status_code == 200
    name = {"_id": f"c\0{upload}"}
    store._on.database["uploads"].update_one(name, {"$set": {member: None}})
    for method, path in (("GET", ""), ("PUT", "/parts/1"), ("POST", "/commit"), ("DELETE", "")):
        body = b"{}" if method == "PUT" else {} if method == "POST" else None
        typed = {"Content_Type": "application/octet-stream"} if method == "PUT" else {}
        answer = writer.send(method, f"{_C}/uploads/{upload}{path}", body, **typed)
        assert answer.status_code == (204 if method == "DELETE" else 404)
    assert f"the upload {name['_id']!r} can't be read" in caplog.text
    assert writer.send("POST", f"{_C}/uploads", {"key": "k"}).status_code == 201


@pytest.mark.parametrize("edit", [{"position": "five"}, {"number": None}, {"catalog": 7}])
@pytest.mark.parametrize("headers", [{}, {"If_Match": "*"}])
def test_an_unreadable_subscription_can_be_deleted(
    store: Any, edit: dict[str, Any], headers: dict[str, str]
) -> None:
    admin: Caller = Service(gateway=gateway_on(store)).caller("root", "admin:*")
    path = f"{_C}/subscriptions/s"
    made = admin.send("PUT", path, {"to": "https://search.example.com/in"})
    assert made.status_code == 201
    there = store._on.database["subscriptions"]
    there.update_one({"_id": "c\0s"}, {"$set": edit})
    assert admin.send("GET", path).status_code == 404
    refused = admin.send("DELETE", path, If_Match=made.headers["ETag"])
    assert refused.status_code == 412
    assert "which exists" in refused.get_json()["detail"]
    assert admin.send("DELETE", path, If_None_Match="*").status_code == 412
    assert admin.send("DELETE", path, **headers).status_code == 204
    assert there.count_documents({}) == 0
    assert admin.send("DELETE", path).status_code == 404
    assert admin.send("DELETE", path, If_Match="*").status_code == 412


def test_a_subscription_repaired_in_between_is_not_deleted_as_unreadable(store: Any) -> None:
    admin: Caller = Service(gateway=gateway_on(store)).caller("root", "admin:*")
    path = f"{_C}/subscriptions/s"
    assert admin.send("PUT", path, {"to": "https://search.example.com/in"}).status_code == 201
    subscriptions = store.subscriptions()
    assert not subscriptions.has_unreadable_subscription("c", "s")
    assert not subscriptions.drop_subscription("c", "s", None)
    assert admin.send("GET", path).status_code == 200

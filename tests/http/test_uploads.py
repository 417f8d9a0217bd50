"""Two-phase replace over HTTP; the rows O1 to O10 as a client meets them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem
from tests.http.served import Server, serving


class Uploads:
    """The routes of one catalog's uploads."""

    def __init__(self, catalog: Catalog) -> None:
        self._client = catalog.client
        self.path = f"{catalog.path}/uploads"

    def open(self, key: str = "k", headers: Any = None, **members: Any) -> TestResponse:
        return self._client.post(self.path, json={"key": key, **members}, headers=headers)

    def opened(self, key: str = "k", content: bytes = b"2", **members: Any) -> str:
        """The id of an upload with one part."""
        answer = self.open(key, **members)
        assert answer.status_code == 201, answer.json
        assert answer.headers["Location"].endswith(answer.json["upload"])
        upload = str(answer.json["upload"])
        assert self.part(upload, 1, content).status_code == 200
        return upload

    def part(
        self, upload: str, number: Any, content: bytes, kind: str = "application/octet-stream"
    ) -> TestResponse:
        return self._client.put(
            f"{self.path}/{upload}/parts/{number}", data=content, content_type=kind
        )

    def commit(
        self, upload: str, body: Any = None, query: str = "", **headers: str
    ) -> TestResponse:
        sent: dict[str, Any] = {} if body is None else {"json": body}
        return self._client.post(f"{self.path}/{upload}/commit{query}", headers=headers, **sent)

    def get(self, upload: str) -> TestResponse:
        return self._client.get(f"{self.path}/{upload}")

    def drop(self, upload: str) -> TestResponse:
        return self._client.delete(f"{self.path}/{upload}")


@pytest.fixture
def uploads(catalog: Catalog) -> Uploads:
    return Uploads(catalog)


def token(catalog: Catalog, key: str = "k") -> str:
    return str(catalog.get(key).headers["ETag"].strip('"'))


def test_an_upload_replaces_the_document_and_is_answered_like_a_put(
    catalog: Catalog, uploads: Uploads
) -> None:
    created = catalog.put({"a": 1}).json
    upload = uploads.opened(if_match=created["etag"], content=b'{"a": [1')
    part = uploads.part(upload, 2, b", 2]}").json
    assert part == {"number": 2, "size_bytes": 5, "sha256": hashlib.sha256(b", 2]}").hexdigest()}
    shown = uploads.get(upload).json
    assert shown["if_match"] == [created["etag"]]
    assert [each["number"] for each in shown["parts"]] == [1, 2]
    assert shown["attributes"] == {"mode": "keep"}
    answer = uploads.commit(upload)
    assert answer.status_code == 200
    assert answer.json == {
        "catalog": catalog.name,
        "key": "k",
        "etag": token(catalog),
        "revision": 2,
        "create_revision": 1,
        "changed": True,
        "attempts": 1,
        "rebased_from": None,
    }
    assert answer.headers["ETag"] == f'"{answer.json["etag"]}"'
    assert answer.headers["Catalog-Revision"] == "2"
    assert catalog.get().json == {"a": [1, 2]}


def test_a_commit_sent_again_gives_the_first_result(catalog: Catalog, uploads: Uploads) -> None:
    upload = uploads.opened(if_none_match="*")
    first = uploads.commit(upload)
    assert (first.status_code, first.headers["Location"]) == (201, catalog.document("k"))
    catalog.put(9)
    again = uploads.commit(upload)
    assert (again.status_code, again.json) == (201, first.json)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert catalog.get().json == 9
    assert uploads.get(upload).json["committed"] == 1
    problem(uploads.part(upload, 1, b"1"), 409, "upload_committed")


def test_a_commit_that_was_a_no_op_stays_one_when_repeated(
    catalog: Catalog, uploads: Uploads
) -> None:
    catalog.put(1)
    upload = uploads.opened(content=b"1")
    first = uploads.commit(upload)
    assert (first.status_code, first.json["changed"]) == (200, False)
    catalog.put(2)
    again = uploads.commit(upload)
    assert (again.status_code, again.json) == (200, first.json)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert catalog.get().json == 2
    assert uploads.get(upload).json["committed"] == 1
    problem(uploads.part(upload, 1, b"3"), 409, "upload_committed")


def test_a_dry_run_of_a_commit_commits_nothing(catalog: Catalog, uploads: Uploads) -> None:
    catalog.put(1)
    upload = uploads.opened(content=b"1")
    dry = uploads.commit(upload, query="?dry_run=true")
    assert (dry.status_code, dry.json["changed"]) == (200, False)
    assert uploads.get(upload).json["committed"] is None
    catalog.put(2)
    assert uploads.commit(upload).json["changed"] is True
    assert catalog.get().json == 1


@pytest.mark.parametrize("content", [b"{", b"", b"2**64", b"18446744073709551616"])
def test_an_upload_that_is_not_a_document_keeps_its_parts(
    catalog: Catalog, uploads: Uploads, content: bytes
) -> None:
    upload = uploads.opened()
    uploads.part(upload, 1, content or b" ")
    assert uploads.commit(upload).status_code in (400, 422)
    uploads.part(upload, 1, b"3")
    assert uploads.commit(upload).status_code == 201
    assert catalog.get().json == 3


def test_parts_that_are_missing_are_named(uploads: Uploads) -> None:
    upload = uploads.open().json["upload"]
    problem(uploads.commit(upload), 409, "upload_incomplete")
    uploads.part(upload, 1, b"1")
    assert (
        "part 2"
        in problem(uploads.commit(upload, {"parts": [1, 2]}), 409, "upload_incomplete")["detail"]
    )


def test_dropping_an_upload_twice_succeeds(uploads: Uploads) -> None:
    upload = uploads.opened()
    assert uploads.drop(upload).status_code == 204
    assert uploads.drop(upload).status_code == 204
    for answer in (uploads.get(upload), uploads.commit(upload), uploads.part(upload, 1, b"1")):
        problem(answer, 404, "upload_not_found")


@pytest.mark.parametrize(
    ("members", "code", "pointer"),
    [
        ({"if_match": []}, "invalid_condition", "/if_match"),
        ({"if_match": ""}, "invalid_condition", "/if_match"),
        ({"if_match": None}, "invalid_condition", "/if_match"),
        ({"if_match": ["1-a", 3]}, "invalid_condition", "/if_match/1"),
        ({"if_match": ["*", "1-a"]}, "invalid_condition", "/if_match/0"),
        ({"if_match": '"1-a"'}, "invalid_condition", "/if_match"),
        ({"if_match": "a b"}, "invalid_condition", "/if_match"),
        ({"if_match": "*", "if_none_match": "*"}, "invalid_condition", "/if_none_match"),
        ({"if_match": "1-a", "if_none_match": ["1-a"]}, "invalid_condition", "/if_none_match"),
        ({"ifmatch": "*"}, "invalid_body", "/ifmatch"),
        ({"key": 1}, "invalid_body", "/key"),
        ({"attributes": {"mode": "clear", "x": 1}}, "invalid_body", "/attributes/x"),
    ],
)
def test_an_opening_that_is_not_well_formed_is_refused_by_pointer(
    uploads: Uploads, members: dict[str, Any], code: str, pointer: str
) -> None:
    assert problem(uploads.open(**{"key": "k", **members}), 400, code)["pointer"] == pointer


@pytest.mark.parametrize("body", [{"parts": []}, {"parts": [0]}, {"parts": [1, 1]}, {"x": 1}, []])
def test_a_list_of_parts_that_is_not_well_formed_is_refused(uploads: Uploads, body: Any) -> None:
    problem(uploads.commit(uploads.opened(), body), 400, "invalid_body")


@pytest.mark.parametrize("number", ["0", "10001", "x", "-1"])
def test_part_numbers_are_1_to_10000(uploads: Uploads, number: str) -> None:
    problem(uploads.part(uploads.opened(), number, b"1"), 400, "invalid_parameter")


def test_headers_that_have_no_meaning_here_are_refused(uploads: Uploads) -> None:
    upload = uploads.opened()
    problem(uploads.open(headers={"If-Match": "*"}), 400, "invalid_condition")
    problem(uploads.open(headers={"Idempotency-Key": "x"}), 400, "invalid_header")
    problem(uploads.commit(upload, **{"If-Match": "*"}), 400, "invalid_condition")
    problem(uploads.commit(upload, **{"Idempotency-Key": "x"}), 400, "invalid_header")
    problem(uploads.commit(upload, query="?x=1"), 400, "invalid_parameter")
    problem(uploads.part(upload, 1, b"1", "application/json"), 415, "unsupported_media_type")


# On a real database, over the wire, through two workers.


@pytest.fixture
def server(mongodb_uri: str, database_name: str) -> Iterator[Server]:
    with serving(mongodb_uri, database_name) as running:
        yield running


def _sent(server: Server, method: str, path: str, body: Any = None, kind: str = "") -> Any:
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = [("Content-Type", kind or "application/json")] if raw is not None else []
    return server.send(method, path, raw, headers)


def test_an_upload_on_mongodb_replaces_once_and_drops_its_parts(
    server: Server, mongodb_uri: str, database_name: str
) -> None:
    from pymongo import MongoClient

    catalog = f"/v1/catalogs/{uuid.uuid4().hex}"
    etag = _sent(server, "PUT", f"{catalog}/documents/k", {"a": 1}).json()["etag"]
    opened = _sent(server, "POST", f"{catalog}/uploads", {"key": "k", "if_match": etag})
    assert opened.status == 201
    place = opened.headers["Location"]
    half = 3_000_000
    content = b'{"a": "' + b"x" * half + b'"}'
    for number, part in ((2, content[half:]), (1, content[:half])):
        answer = _sent(server, "PUT", f"{place}/parts/{number}", part, "application/octet-stream")
        assert answer.json()["sha256"] == hashlib.sha256(part).hexdigest()
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        assert client[database_name]["upload_parts"].count_documents({}) == 2
        first = _sent(server, "POST", f"{place}/commit")
        assert (first.status, first.json()["changed"]) == (200, True)
        assert client[database_name]["upload_parts"].count_documents({}) == 0
    for _ in range(4):  # by either worker
        assert _sent(server, "POST", f"{place}/commit").json() == first.json()
    assert (
        _sent(server, "GET", f"{catalog}/documents/k").body == content.replace(b": ", b":") + b"\n"
    )

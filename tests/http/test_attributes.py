"""Attributes: an object beside the document, under the document's own token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import JSON_PATCH, MERGE_PATCH, Catalog, problem

EXTENDED = "application/vnd.metadata.patch+json"


class Attributes:
    """The attributes of document ``k``, which is ``{"x": 1}``."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.path = f"{catalog.path}/attributes/k"

    def send(
        self,
        method: str,
        body: Any = None,
        kind: str = "application/json",
        query: str = "",
        **h: str,
    ) -> TestResponse:
        headers = {name.replace("_", "-"): value for name, value in h.items()}
        sent = {} if method in ("GET", "HEAD", "DELETE") else {"content_type": kind}
        data = json.dumps(body) if sent else None
        return self.catalog.client.open(
            self.path + query, method=method, data=data, headers=headers, **sent
        )

    def get(self, query: str = "", **headers: str) -> TestResponse:
        return self.send("GET", query=query, **headers)

    def put(self, value: Any, **headers: str) -> TestResponse:
        return self.send("PUT", value, **headers)


@pytest.fixture
def attributes(catalog: Catalog) -> Attributes:
    assert catalog.put({"x": 1}).status_code == 201
    return Attributes(catalog)


def test_a_new_document_has_no_attributes(attributes: Attributes) -> None:
    answer = attributes.get()
    assert (answer.status_code, answer.get_json()) == (200, {})
    assert answer.headers["ETag"] == attributes.catalog.get().headers["ETag"]


def test_deleting_attributes_keeps_the_document(attributes: Attributes) -> None:
    attributes.put({"owner": "a"})
    assert attributes.send("DELETE").status_code == 204
    assert attributes.get().get_json() == {}
    revision = attributes.catalog.head_revision()
    assert attributes.send("DELETE").status_code == 204
    assert attributes.catalog.head_revision() == revision
    assert attributes.catalog.get().get_json() == {"x": 1}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON_PATCH, [{"op": "add", "path": "/n", "value": 2}]),
        (MERGE_PATCH, {"n": 2}),
        (EXTENDED, {"patch": [{"op": "increment", "path": "/n"}]}),
    ],
)
def test_attributes_accept_every_kind_of_patch(
    attributes: Attributes, kind: str, body: Any
) -> None:
    attributes.put({"n": 1, "m": 1})
    answer = attributes.send("PATCH", body, kind)
    assert answer.status_code == 200
    assert attributes.get().get_json() == {"n": 2, "m": 1}


@pytest.mark.parametrize("value", [None, [], 1, "x", True])
def test_attributes_must_be_an_object(attributes: Attributes, value: Any) -> None:
    problem(attributes.put(value), 422, "invalid_attributes")
    body = [{"op": "add", "path": "", "value": value}]
    problem(attributes.send("PATCH", body, JSON_PATCH), 422, "invalid_attributes")


def test_attributes_have_their_own_size_limit(attributes: Attributes) -> None:
    content = problem(attributes.put({"x": "y" * 70_000}), 413, "over_limit")
    assert content["limit"] == "attributes_bytes_max"


def test_unstorable_attributes_are_refused(attributes: Attributes) -> None:
    assert problem(attributes.put({"a": 2**64}), 422, "unstorable_value")["pointer"] == "/a"
    body = [{"op": "add", "path": "/\0", "value": 1}]
    problem(attributes.send("PATCH", body, JSON_PATCH), 422, "unstorable_value")


def test_an_absent_document_has_no_attributes(catalog: Catalog) -> None:
    attributes = Attributes(catalog)
    problem(attributes.get(), 404, "document_not_found")
    problem(attributes.put({}), 404, "document_not_found")
    problem(attributes.send("PATCH", [], JSON_PATCH), 404, "document_not_found")
    assert attributes.send("DELETE").status_code == 204
    problem(attributes.send("DELETE", If_Match="*"), 412, "precondition_failed")
    assert catalog.head_revision() == 0


class TestConditions:
    def test_attributes_can_be_read_conditionally(self, attributes: Attributes) -> None:
        answer = attributes.get()
        token = answer.headers["ETag"]
        not_modified = attributes.get(If_None_Match=token)
        assert (not_modified.status_code, not_modified.data) == (304, b"")
        problem(attributes.get(If_Match='"x"'), 412, "precondition_failed")
        problem(attributes.get(If_Match='"k=1-x"'), 400, "invalid_condition")
        head = attributes.send("HEAD")
        assert (head.status_code, head.data, head.headers["ETag"]) == (200, b"", token)

    def test_a_rebase_compares_the_attributes_only(self, attributes: Attributes) -> None:
        attributes.put({"a": 1, "b": 1})
        token = attributes.get().headers["ETag"]
        attributes.put({"a": 2, "b": 1})
        attributes.catalog.put({"x": 5})
        headers = {"If_Match": token, "Prefer": "rebase"}
        body = [{"op": "replace", "path": "/b", "value": 3}]
        answer = attributes.send("PATCH", body, JSON_PATCH, **headers)
        assert answer.get_json()["rebased_from"] == token.strip('"')
        assert attributes.get().get_json() == {"a": 2, "b": 3}
        body = [{"op": "replace", "path": "/a", "value": 3}]
        content = problem(
            attributes.send("PATCH", body, JSON_PATCH, **headers), 412, "precondition_failed"
        )
        assert content["overlap"] == ["/a"]


def test_attributes_can_be_read_at_an_earlier_revision_or_time(attributes: Attributes) -> None:
    attributes.put({"v": 2})
    attributes.catalog.put({"x": 3})
    attributes.put({"v": 4})
    attributes.send("DELETE")
    told = [attributes.get(f"?revision={n}").get_json() for n in range(1, 6)]
    assert told == [{}, {"v": 2}, {"v": 2}, {"v": 4}, {}]
    time = attributes.catalog.client.get(f"{attributes.catalog.path}/commits/2").get_json()["time"]
    assert attributes.get(f"?at={time}").get_json() == {"v": 2}
    problem(attributes.get("?revision=6"), 404, "revision_not_found")


def test_commits_show_changes_of_attributes(attributes: Attributes) -> None:
    attributes.put({"v": 2})
    attributes.catalog.patch({"op": "add", "path": "/y", "value": 1})
    attributes.catalog.put(5)
    attributes.send("DELETE")
    attributes.catalog.delete()
    commits = attributes.catalog.client.get(f"{attributes.catalog.path}/commits").get_json()
    told = [
        (change["action"], change["patch"], change["attributes"])
        for commit in commits["commits"]
        for change in commit["changes"]
    ]
    assert told == [
        ("put", [{"op": "add", "path": "", "value": {"x": 1}}], {}),
        ("attributes", [], {"v": 2}),
        ("patch", [{"op": "add", "path": "/y", "value": 1}], None),
        ("put", [{"op": "add", "path": "", "value": 5}], {"v": 2}),
        ("attributes", [], {}),
        ("delete", [{"op": "remove", "path": ""}], None),
    ]


def test_an_idempotency_key_distinguishes_attributes_from_the_document(
    attributes: Attributes,
) -> None:
    first = attributes.put({"v": 1}, Idempotency_Key="i")
    attributes.put({"v": 2})
    again = attributes.put({"v": 1}, Idempotency_Key="i", Prefer="return=representation")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.get_json() == {"v": 1}
    answer = attributes.catalog.put({"v": 1}, Idempotency_Key="i")
    problem(answer, 422, "idempotency_key_reused")


def test_allowed_methods_of_attributes(attributes: Attributes) -> None:
    answer = attributes.catalog.client.options(attributes.path)
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
    assert EXTENDED in answer.headers["Accept-Patch"]
    problem(attributes.catalog.client.post(attributes.path), 405, "method_not_allowed")
    problem(attributes.send("PATCH", {}, "text/plain"), 415, "unsupported_media_type")

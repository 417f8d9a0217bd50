"""`Prefer: return=representation`: a refusal carries the document that it met."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.write import explain
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore

SHOW = {"Prefer": "return=representation"}
STALE = '"1-00000000"'


@pytest.fixture
def written(catalog: Catalog) -> Catalog:
    """`k` is {"n": 2} with attributes, at revision 3; `other` {"o": 1}, at revision 4."""
    catalog.put({"n": 1})
    catalog.put({"n": 2})
    send(catalog, "PUT", "/attributes/k", {"team": "a"})
    catalog.put({"o": 1}, key="other")
    return catalog


def send(
    catalog: Catalog,
    method: str,
    path: str,
    body: Any,
    content_type: str = "application/json",
    **headers: str,
) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.open(
        catalog.path + path,
        method=method,
        data=body if isinstance(body, bytes) else json.dumps(body),
        content_type=content_type,
        headers=named,
    )


def token_of(catalog: Catalog, key: str = "k") -> str:
    return catalog.get(key).headers["ETag"].strip('"')


def shown(catalog: Catalog) -> dict[str, Any]:
    """What a refusal shows of `k`."""
    return {
        "etag": token_of(catalog),
        "revision": 3,
        "value": {"n": 2},
        "attributes": {"team": "a"},
    }


@pytest.mark.parametrize("prefer", ["return=representation", "refusal=representation, wait=5"])
@pytest.mark.parametrize(
    ("method", "path", "headers", "query", "code"),
    [
        ("PUT", "documents", {"If_Match": STALE}, "", "precondition_failed"),
        ("PUT", "documents", {"If_None_Match": "*"}, "", "precondition_failed"),
        ("PUT", "documents", {}, "?resource_version=2", "precondition_failed"),
        ("PUT", "documents", {"If_Match": '"@2"'}, "", "precondition_failed"),
        ("PUT", "documents", {"If_Match": STALE}, "?dry_run=true", "precondition_failed"),
        (
            "PUT",
            "documents",
            {"If_Unmodified_Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
            "",
            "precondition_failed",
        ),
        ("DELETE", "documents", {"If_Match": STALE}, "", "precondition_failed"),
        ("PUT", "attributes", {"If_Match": STALE}, "", "precondition_failed"),
        ("DELETE", "attributes", {"If_Match": STALE}, "", "precondition_failed"),
    ],
)
def test_a_false_condition_shows_the_document(
    written: Catalog,
    prefer: str,
    method: str,
    path: str,
    headers: dict[str, str],
    query: str,
    code: str,
) -> None:
    address = f"/{path}/k{query}"
    refused = problem(send(written, method, address, {}, Prefer=prefer, **headers), 412, code)
    assert refused["current"] == shown(written)
    plain = problem(send(written, method, address, {}, **headers), 412, code)
    assert "value" not in plain.get("current", {})
    assert {**refused, "current": 0, "request_id": 0} == {**plain, "current": 0, "request_id": 0}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/n", "value": 1}, "test_failed"),
        ({"op": "remove", "path": "/x"}, "path_missing"),
    ],
)
def test_a_patch_that_does_not_fit_shows_the_document(
    written: Catalog, operation: Any, code: str
) -> None:
    refused = problem(written.patch(operation, **SHOW), 409, code)
    assert (refused["current"], refused["key"]) == (shown(written), "k")
    action = {"action": "patch", "key": "k", "patch": [operation]}
    body = {"then": [{"action": "put", "key": "new", "value": 1}, action]}
    refused = problem(send(written, "POST", "/transactions", body, **SHOW), 409, code)
    assert (refused["current"], refused["action"]) == (shown(written), 1)


def test_a_transaction_shows_each_document_of_a_failed_compare(written: Catalog) -> None:
    body = {
        "compare": [
            {"key": "k", "etag": "1-00000000"},
            {"key": "other", "absent": True},
            {"key": "none", "equals": 1},
        ],
        "then": [{"action": "delete", "key": "k"}],
    }
    refused = problem(
        send(written, "POST", "/transactions", body, **SHOW), 412, "precondition_failed"
    )
    first, second, third = refused["failed_compares"]
    assert first["current"] == refused["current"] == shown(written)
    assert second["current"]["value"] == {"o": 1}
    assert third["current"] is None
    moved = {"then": [{"action": "move", "from": "other", "to": "k"}]}
    refused = problem(send(written, "POST", "/transactions", moved, **SHOW), 409, "target_exists")
    assert refused["current"] == shown(written)


def test_a_composite_shows_each_stale_document(written: Catalog) -> None:
    composite = '"k=1-00000000;other=1-00000000;none=absent"'
    refused = problem(
        written.put(1, key="fresh", If_Match=composite, **SHOW), 412, "precondition_failed"
    )
    assert [each["current"]["value"] for each in refused["stale"]] == [{"n": 2}, {"o": 1}]
    assert refused["current"] == shown(written)


def test_large_contents_are_shown_although_the_decision_did_not_read_them() -> None:
    """Large documents of which only the token counts are decided on without their contents."""
    store = MemoryStore()
    large = {f"large-{n}": ["x" * 1000] * 900 for n in range(30)}
    for key, value in large.items():
        _catalog_on(store).put(value, key=key)
    compares = [{"key": key, "etag": "1-00000000"} for key in large]
    body = {"compare": compares, "then": [{"action": "touch"}]}
    anew = _catalog_on(store)  # whose cache is empty
    refused = problem(send(anew, "POST", "/transactions", body, **SHOW), 412, "precondition_failed")
    told = [each["current"] for each in refused["failed_compares"]]
    values = [each["value"] for each in told if "value" in each]
    count = explain.VALUES_BYTES_MAX // len(json.dumps(large["large-0"]))
    assert len(values) == count - 1  # the first one is told twice
    assert all(value in large.values() for value in values)
    assert [each["too_large"] for each in told if "value" not in each] == [True] * (
        len(large) - len(values)
    )


def _catalog_on(store: MemoryStore) -> Catalog:
    return Catalog(
        create_app(GatewayService(store, ThreadRuntime(), ServiceLimits())).test_client(), "c"
    )


def test_a_refused_bulk_line_shows_the_document(written: Catalog) -> None:
    lines = [
        {"op": "put", "value": 1, "if_match": "1-00000000"},
        {"op": "patch", "patch": [{"op": "test", "path": "/n", "value": 1}]},
        {"op": "put", "value": {"n": 3}},
    ]
    body = b"".join(
        json.dumps({"catalog": written.name, "key": "k", **line}).encode() + b"\n" for line in lines
    )
    before = shown(written)
    answer = written.client.post(
        "/v1/bulk",
        data=body,
        content_type="application/x-ndjson",
        headers={"Prefer": "return=representation"},
    )
    stale, tested, done = [json.loads(line) for line in answer.get_data().splitlines()]
    assert stale["problem"]["current"] == tested["problem"]["current"] == before
    assert (done["status"], done["changed"]) == (200, True)


def test_a_refused_upload_shows_the_document_at_opening_and_at_commit(written: Catalog) -> None:
    asked = {"key": "k", "if_match": "1-00000000"}
    refused = problem(send(written, "POST", "/uploads", asked, **SHOW), 412, "precondition_failed")
    assert refused["current"] == shown(written)
    asked["if_match"] = token_of(written)
    upload = send(written, "POST", "/uploads", asked).get_json()["upload"]
    send(written, "PUT", f"/uploads/{upload}/parts/1", b"{}", "application/octet-stream")
    written.put({"n": 5})
    refused = problem(
        send(written, "POST", f"/uploads/{upload}/commit", {}, **SHOW), 409, "upload_conflict"
    )
    assert refused["current"]["value"] == {"n": 5}


def test_settings_are_shown_too(written: Catalog) -> None:
    settings = {"require_precondition": False}
    send(written, "PUT", "", settings)
    refused = problem(
        send(written, "PUT", "", {}, If_None_Match="*", **SHOW), 412, "precondition_failed"
    )
    assert refused["current"]["value"] == settings


def test_a_replayed_refusal_shows_the_document_of_the_first_time(
    written: Catalog,
) -> None:
    def put() -> dict[str, Any]:
        answer = written.put(1, If_Match=STALE, Idempotency_Key="once", **SHOW)
        return problem(answer, 412, "precondition_failed")

    first = put()["current"]
    assert first == shown(written)
    written.put({"n": 7})
    assert put()["current"] == first
    written.delete()
    assert put()["current"] == first


def test_a_refusal_without_a_document_shows_none(written: Catalog) -> None:
    answer = written.put(1, key="none", If_Match=STALE, **SHOW)
    assert "current" not in problem(answer, 412, "precondition_failed")
    missing = written.patch({"op": "add", "path": "/a", "value": 1}, key="none", **SHOW)
    assert "current" not in problem(missing, 404, "document_not_found")


def test_an_applied_write_is_answered_as_usual(written: Catalog) -> None:
    answer = written.put({"n": 3}, Prefer="refusal=representation")
    assert answer.get_json()["changed"] is True
    assert "Preference-Applied" not in answer.headers

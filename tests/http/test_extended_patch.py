"""The extended patch as a media type of PATCH; what it does is tested with the patch language."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem

EXTENDED = "application/vnd.metadata.patch+json"
SCHEMA = {"fields": [{"path": "user.name", "tags": ["a"]}, {"path": "id", "tags": []}], "n": 1}
KEYS = {"/fields": ["path"]}


def send(catalog: Catalog, body: Any, query: str = "", **headers: str) -> TestResponse:
    return catalog.client.patch(
        catalog.document("k") + query,
        data=json.dumps(body),
        content_type=EXTENDED,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


@pytest.fixture
def schema(catalog: Catalog) -> Catalog:
    catalog.put(SCHEMA)
    return catalog


def last_patch(catalog: Catalog) -> Any:
    commits = catalog.client.get(f"{catalog.path}/commits").get_json()["commits"]
    return commits[-1]["changes"][0]["patch"]


def test_items_are_addressed_by_key_and_recorded_by_index(schema: Catalog) -> None:
    body = {
        "patch": [
            {"op": "contains", "path": "/fields/user.name/path", "value": "name"},
            {"op": "add_to_set", "path": "/fields/user.name/tags", "value": "b"},
            {"op": "increment", "path": "/n", "value": 2},
        ],
        "array_primary_keys": KEYS,
    }
    answer = send(schema, body)
    assert (answer.status_code, answer.get_json()["changed"]) == (200, True)
    content = schema.get().get_json()
    assert (content["fields"][0]["tags"], content["n"]) == (["a", "b"], 3)
    assert {each["op"] for each in last_patch(schema)} <= {"add", "replace", "remove"}
    assert all("user.name" not in each["path"] for each in last_patch(schema))


def test_a_false_predicate_is_a_failed_test(schema: Catalog) -> None:
    body = {"patch": [{"op": "increment", "path": "/n"}, {"op": "less", "path": "/n", "value": 2}]}
    content = problem(send(schema, body), 409, "test_failed")
    assert (content["operation"], content["pointer"], content["actual"]) == (1, "/n", 2)
    assert content["current"]["revision"] == 1
    assert schema.get().get_json() == SCHEMA


def test_an_extended_patch_can_create_a_document(catalog: Catalog) -> None:
    problem(
        send(catalog, {"patch": [{"op": "increment", "path": "/n"}]}), 404, "document_not_found"
    )
    body = {"patch": [{"op": "add", "path": "/a/b", "value": 1, "create_parents": True}]}
    answer = send(catalog, body)
    assert (answer.status_code, "Location" in answer.headers) == (201, True)
    assert catalog.get().get_json() == {"a": {"b": 1}}
    assert catalog.get(query="?revision=1").get_json() == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "invalid_patch"),
        ({}, "invalid_patch"),
        ({"patch": {}}, "invalid_patch"),
        ({"patch": [], "keys": {}}, "invalid_patch"),
        ({"patch": [], "array_primary_keys": []}, "invalid_patch"),
        ({"patch": [{"op": "append", "path": "/n"}]}, "unknown_operation"),
        ({"patch": [{"op": "remove", "path": "n", "if_exists": True}]}, "invalid_pointer"),
        ({"patch": [{"op": "increment", "path": "/n", "value": "1"}]}, "invalid_patch"),
    ],
)
def test_an_invalid_extended_patch_is_400(schema: Catalog, body: Any, code: str) -> None:
    problem(send(schema, body), 400, code)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/x", "value": 2**64},
        {"op": "add", "path": "/a\0/b", "value": 1, "create_parents": True},
        {"op": "add_to_set", "path": "/fields", "value": {"\0": 1}},
    ],
)
def test_an_unstorable_value_is_422(schema: Catalog, operation: Any) -> None:
    content = problem(send(schema, {"patch": [operation]}), 422, "unstorable_value")
    assert content["operation"] == 0
    assert schema.get().get_json() == SCHEMA


def test_a_sum_beyond_64_bits_does_not_fit(schema: Catalog) -> None:
    body = {"patch": [{"op": "increment", "path": "/n", "value": 2**63 - 1}]}
    problem(send(schema, body), 409, "patch_does_not_fit")


def test_limits_of_operations_and_nesting(schema: Catalog) -> None:
    many = [{"op": "increment", "path": "/n"}] * 1001
    content = problem(send(schema, {"patch": many}), 413, "over_limit")
    assert content["limit"] == "patch_operations_max"
    nested: Any = 1
    for _ in range(101):
        nested = [nested]
    body = {"patch": [{"op": "add", "path": "/x", "value": nested}]}
    problem(send(schema, body), 422, "nesting_too_deep")


def test_an_increment_under_an_idempotency_key_counts_once(schema: Catalog) -> None:
    body = {"patch": [{"op": "increment", "path": "/n"}]}
    first = send(schema, body, Idempotency_Key="i")
    again = send(schema, body, Idempotency_Key="i")
    assert again.get_json() == first.get_json()
    assert schema.get().get_json()["n"] == 2
    answer = send(schema, {"patch": [*body["patch"], *body["patch"]]}, Idempotency_Key="i")
    problem(answer, 422, "idempotency_key_reused")


def test_a_rebase_by_key_ignores_changes_of_other_fields(schema: Catalog) -> None:
    token = schema.get().headers["ETag"]
    schema.patch({"op": "add", "path": "/fields/1/tags/-", "value": "new"})
    body = {
        "patch": [{"op": "add", "path": "/fields/user.name/doc", "value": "d"}],
        "array_primary_keys": KEYS,
    }
    answer = send(schema, body, If_Match=token, Prefer="rebase")
    assert answer.get_json()["rebased_from"] == token.strip('"')
    schema.patch({"op": "replace", "path": "/fields/0/path", "value": "renamed"})
    content = problem(
        send(schema, body, If_Match=token, Prefer="rebase"), 412, "precondition_failed"
    )
    assert content["overlap"]


def test_a_commit_stamps_its_time_revision_and_author(schema: Catalog) -> None:
    stamps = [
        {"op": "stamp", "path": f"/by/{each}", "value": each, "create_parents": True}
        for each in ("time", "revision", "author")
    ]
    body = {"patch": [{"op": "max", "path": "/n", "value": 5}, *stamps]}
    planned = send(schema, body, "?dry_run=true")
    assert planned.get_json()["changed"]
    answer = send(schema, body, Commit_Author="ada")
    commit = schema.client.get(f"{schema.path}/commits").get_json()["commits"][-1]
    expected = {name: commit[name] for name in ("time", "revision", "author")}
    assert (answer.status_code, expected["author"]) == (200, "ada")
    assert schema.get().get_json() == {**SCHEMA, "n": 5, "by": expected}

    again = send(schema, body, Commit_Author="bob")
    assert (again.status_code, again.get_json()["changed"]) == (200, False)
    assert schema.get().get_json()["by"] == expected


def test_each_patch_of_a_transaction_stamps_the_documents_it_changes(schema: Catalog) -> None:
    def patched(key: str, number: int) -> dict[str, Any]:
        stamp = {"op": "stamp", "path": "/at", "value": "revision"}
        patch = [{"op": "set", "path": "/n", "value": number}, stamp]
        return {"action": "patch", "key": key, "patch": patch}

    schema.put({"n": 7}, key="unchanged")
    path = f"{schema.path}/transactions"
    then = [patched("k", 2), patched("unchanged", 7)]
    answer = schema.client.post(path, json={"then": then})
    assert answer.status_code == 200, answer.get_json()
    assert schema.get().get_json()["at"] == answer.get_json()["revision"]
    assert schema.client.get(schema.document("unchanged")).get_json() == {"n": 7}


@pytest.mark.parametrize(
    ("operation", "member"),
    [
        ({"op": "max", "path": "/n", "value": "a text"}, "value"),
        ({"op": "stamp", "path": "/n", "value": "weather"}, "value"),
        ({"op": "append_text", "path": "/n", "value": "x", "max_length": -1}, "max_length"),
    ],
)
def test_a_malformed_operation_is_named(
    schema: Catalog, operation: dict[str, Any], member: str
) -> None:
    content = problem(send(schema, {"patch": [operation]}), 400, "invalid_patch")
    assert (content["operation"], content["pointer"]) == (0, "/n")
    assert f"'{member}'" in content["detail"]
    assert schema.get().get_json() == SCHEMA


def test_bulk_lines_and_transactions_accept_extended_patches(catalog: Catalog) -> None:
    operations: list[dict[str, Any]] = [
        {"op": "max", "path": "/high", "value": 7},
        {"op": "min", "path": "/low", "value": 3, "create_parents": True},
        {"op": "set", "path": "/owner", "value": "ana"},
        {"op": "append_text", "path": "/log", "value": "+", "once": True, "create_parents": True},
        {"op": "stamp", "path": "/by", "value": "author"},
    ]
    made = {"high": 7, "low": 3, "owner": "ana", "log": "+", "by": "anonymous"}
    catalog.put({"high": 1})
    line = {"catalog": catalog.name, "key": "k", "op": "patch", "patch": operations}
    answer = catalog.client.post(
        "/v1/bulk",
        data=f"{json.dumps(line)}\n{json.dumps(line)}\n",
        content_type="application/x-ndjson",
    )
    told = [json.loads(each) for each in answer.text.splitlines()]
    assert [(each["status"], each["changed"]) for each in told] == [(200, True), (200, False)]
    assert catalog.get().get_json() == made
    then = [{"action": "patch", "key": "k", "patch": operations}]
    path = f"{catalog.path}/transactions"
    assert catalog.client.post(path, json={"then": then}).get_json()["changed"] is False


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "max", "path": "/name", "value": 1},
        {"op": "min", "path": "/name", "value": 1},
        {"op": "append_text", "path": "/n", "value": "x"},
        {"op": "append_text", "path": "/name", "value": "x", "max_length": 1},
    ],
)
def test_a_watermark_of_a_string_and_a_string_of_a_number_do_not_fit(
    catalog: Catalog, operation: dict[str, Any]
) -> None:
    catalog.put({"name": "a", "n": 1})
    content = problem(send(catalog, {"patch": [operation]}), 409, "patch_does_not_fit")
    assert (content["operation"], content["pointer"]) == (0, operation["path"])
    assert catalog.get().get_json() == {"name": "a", "n": 1}


def test_operations_without_the_object_are_refused_with_the_form_to_send(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    operations = [{"op": "increment", "path": "/n", "value": 1}]
    told = problem(send(catalog, operations), 400, "invalid_patch")
    assert told["detail"].endswith('; send {"patch": [{"op":"increment","path":"/n","value":1}]}')
    sent = json.loads(told["detail"].partition("; send ")[2])
    assert send(catalog, sent).status_code == 200
    assert catalog.get().get_json() == {"n": 2}
    long = [{"op": "increment", "path": "/n", "value": 1}] * 50
    told = problem(send(catalog, long), 400, "invalid_patch")
    assert told["detail"].endswith('; send {"patch": […]}')

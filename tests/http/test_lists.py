"""Lists whose items have keys, on every route that writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Catalog, problem

EXTENDED = "application/vnd.metadata.patch+json"
FIELDS = {"keys": "t*", "pointer": "/fields", "item_key": ["path"]}
TAGS = {"keys": "*", "pointer": "/tags", "set": True}
SETTINGS = {"arrays": [FIELDS, TAGS]}
ORDERS = {"fields": [{"path": "id", "n": 1}, {"path": "user", "n": 1}], "tags": ["x"]}
DOUBLE = {"fields": [{"path": "id"}, {"path": "id"}]}
SECOND = {"op": "replace", "path": "/fields/1/n", "value": 2}


def declare(catalog: Catalog, settings: Any = SETTINGS, query: str = "", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.put(catalog.path + query, json=settings, headers=named)


def by_key(catalog: Catalog, *operations: Any, key: str = "t") -> Any:
    body = json.dumps({"patch": operations}).encode()
    return catalog.client.patch(catalog.document(key), data=body, content_type=EXTENDED)


@pytest.fixture
def declared(catalog: Catalog) -> Catalog:
    assert declare(catalog).status_code == 201
    assert catalog.put(ORDERS, "t").status_code == 201
    return catalog


def test_settings_declare_which_lists_have_keys(declared: Catalog) -> None:
    assert declared.client.get(declared.path).get_json()["settings"] == SETTINGS
    assert by_key(declared, {**SECOND, "path": "/fields/user/n"}).status_code == 200
    assert declared.get("t").get_json()["fields"][1] == {"path": "user", "n": 2}


def test_two_items_with_one_key_are_refused_with_both_pointers(declared: Catalog) -> None:
    for answer in (
        declared.put(DOUBLE, "t"),
        declared.merge(DOUBLE, "t"),
        declared.patch({"op": "add", "path": "/fields/-", "value": {"path": "id"}}, key="t"),
        by_key(declared, {"op": "replace", "path": "/fields/user/path", "value": "id"}),
    ):
        told = problem(answer, 422, "list_violation")
        assert (told["key"], told["other"]) == ("t", "/fields/0")
        assert told["pointer"] in ("/fields/1", "/fields/2")
    missing = problem(declared.put({"fields": [{}]}, "t"), 422, "list_violation")
    assert (missing["pointer"], missing["other"]) == ("/fields/0", "/fields/0/path")
    assert declared.get("t").get_json() == ORDERS


def test_an_index_needs_a_test_or_a_token(declared: Catalog) -> None:
    told = problem(declared.patch(SECOND, key="t"), 422, "index_needs_test")
    assert (told["operation"], told["pointer"]) == (0, "/fields/1/n")
    assert told["tests"] == ["/fields/1/path"]
    tested = {"op": "test", "path": told["tests"][0], "value": "user"}
    assert declared.patch(tested, SECOND, key="t").status_code == 200
    token = declared.get("t").headers["ETag"]
    third = {**SECOND, "value": 3}
    assert declared.patch(third, key="t", If_Match=token).status_code == 200
    other = {**tested, "value": "id"}
    problem(declared.patch(other, SECOND, key="t"), 409, "test_failed")


def test_bulk_lines_and_transactions_must_keep_declared_lists(declared: Catalog) -> None:
    line: dict[str, Any] = {"catalog": declared.name, "key": "t", "op": "patch"}
    lines: list[dict[str, Any]] = [
        {**line, "patch": [SECOND]},
        {**line, "op": "put", "value": DOUBLE},
        {**line, "patch": [{**SECOND, "path": "/fields/user/n"}], "array_primary_keys": {}},
    ]
    body = "".join(json.dumps(each) + "\n" for each in lines)
    answer = declared.client.post("/v1/bulk", data=body, content_type="application/x-ndjson")
    answers = [json.loads(each) for each in answer.data.splitlines()]
    told = {each["index"]: each.get("problem", each).get("code") for each in answers}
    assert told == {0: "index_needs_test", 1: "list_violation", 2: None}

    def transaction(*actions: Any, **more: Any) -> Any:
        asked = {"then": actions, **more}
        return declared.client.post(f"{declared.path}/transactions", json=asked)

    action = {"action": "patch", "key": "t", "patch": [{**SECOND, "value": 3}]}
    told = problem(transaction(action, {"action": "touch"}), 422, "index_needs_test")
    assert told["action"] == 0
    token = declared.get("t").headers["ETag"].strip('"')
    compare = [{"key": "t", "etag": token}]
    assert transaction(action, compare=compare).get_json()["succeeded"]
    double = {"action": "put", "key": "t", "value": DOUBLE}
    assert problem(transaction(double), 422, "list_violation")["pointer"] == "/fields/1"


def test_settings_that_documents_break_are_refused_with_the_list_of_them(catalog: Catalog) -> None:
    catalog.put(DOUBLE, "t1")
    catalog.put(ORDERS, "t2")
    catalog.put({"fields": [1]}, "t3")
    catalog.put(DOUBLE, "elsewhere")
    revision = catalog.head_revision()
    for query in ("", "?dry_run=true"):
        told = problem(declare(catalog, query=query), 422, "documents_break_settings")
        broken = [(each["key"], each["pointer"], each["other"]) for each in told["documents"]]
        assert broken == [("t1", "/fields/1", "/fields/0"), ("t3", "/fields/0", "/fields/0")]
        assert told["complete"]
    assert catalog.head_revision() == revision
    catalog.put(ORDERS, "t1")
    catalog.delete("t3")
    assert declare(catalog, query="?dry_run=true").get_json()["changed"]
    assert declare(catalog).status_code == 201
    problem(catalog.put(DOUBLE, "t1"), 422, "list_violation")


def test_the_list_of_documents_is_bounded(catalog: Catalog) -> None:
    broken = {"action": "put", "value": DOUBLE}
    actions = [{**broken, "key": f"t{n}"} for n in range(103)]
    catalog.client.post(f"{catalog.path}/transactions", json={"then": actions})
    told = problem(declare(catalog), 422, "documents_break_settings")
    assert (len(told["documents"]), told["complete"]) == (100, False)


def test_a_catalog_too_large_to_check_can_still_declare_lists(
    catalog: Catalog,
) -> None:
    catalog.put({**DOUBLE, "n": 1}, "t")
    problem(declare(catalog, Idempotency_Key="k"), 422, "documents_break_settings")
    unchecked = declare(catalog, query="?check_documents=false", Idempotency_Key="k")
    problem(unchecked, 422, "idempotency_key_reused")
    assert declare(catalog, query="?check_documents=false").status_code == 201
    # What is there stays, also beside a change; what a write touches must be right.
    assert catalog.patch({"op": "replace", "path": "/n", "value": 2}, key="t").status_code == 200
    problem(catalog.put({**DOUBLE, "n": 3}, "t"), 422, "list_violation")
    problem(declare(catalog, query="?check_documents=maybe"), 400, "invalid_parameter")


def test_a_refusal_because_of_documents_is_recorded_under_the_key(catalog: Catalog) -> None:
    catalog.put(DOUBLE, "t")
    problem(declare(catalog, Idempotency_Key="once"), 422, "documents_break_settings")
    catalog.put(ORDERS, "t")
    again = declare(catalog, Idempotency_Key="once")
    problem(again, 422, "documents_break_settings")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert declare(catalog, Idempotency_Key="another").status_code == 201


def test_settings_that_run_out_of_time_are_reported_as_not_applied(catalog: Catalog) -> None:
    catalog.put(ORDERS, "t")
    told = problem(declare(catalog, Prefer="wait=0"), 503, "deadline_exceeded")
    assert "applied" not in told or told["applied"] == "no"
    assert catalog.client.get(catalog.path).get_json()["settings"] is None

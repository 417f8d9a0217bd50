"""An idempotency key decides once, whatever the outcome."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem
from tests.http.test_writes import same

NO_N = {"op": "test", "path": "/n", "value": 9}
SET_N = {"op": "replace", "path": "/n", "value": 2}
NDJSON = "application/x-ndjson"


def again(answer: TestResponse) -> TestResponse:
    assert answer.headers["Idempotency-Replayed"] == "true"
    return answer


def transact(catalog: Catalog, body: Any, **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.post(f"{catalog.path}/transactions", json=body, headers=named)


def test_a_no_op_stays_a_no_op_when_it_is_sent_again(catalog: Catalog) -> None:
    """A, B and A, B again, where A changed nothing the first time."""
    catalog.put({"n": 1})
    a = catalog.put({"n": 1}, Idempotency_Key="a")
    assert a.get_json()["changed"] is False
    b = catalog.put({"n": 2}, Idempotency_Key="b")
    same(a, catalog.put({"n": 1}, Idempotency_Key="a"))
    same(b, catalog.put({"n": 2}, Idempotency_Key="b"))
    assert catalog.get().get_json() == {"n": 2}
    assert catalog.head_revision() == 2


@pytest.mark.parametrize("prefer", ["return=minimal", "return=representation"])
def test_a_replay_gives_the_first_result_in_any_form(catalog: Catalog, prefer: str) -> None:
    catalog.put({"n": 1})
    first = catalog.put({"n": 1}, Idempotency_Key="a", Prefer=prefer)
    catalog.put({"n": 5})
    same(first, catalog.put({"n": 1}, Idempotency_Key="a", Prefer=prefer))


def refused_by_a_test(catalog: Catalog) -> TestResponse:
    answer: TestResponse = catalog.patch(NO_N, SET_N, Idempotency_Key="a")
    return answer


def refused_by_a_condition(catalog: Catalog) -> TestResponse:
    return catalog.put({"n": 3}, If_None_Match="*", Idempotency_Key="a")


def refused_for_absence(catalog: Catalog) -> TestResponse:
    answer: TestResponse = catalog.patch(SET_N, key="other", Idempotency_Key="a")
    return answer


def refused_in_a_transaction(catalog: Catalog) -> TestResponse:
    compare = [{"key": "k", "equals": {"n": 9}}]
    body = {"compare": compare, "then": [{"action": "put", "key": "k", "value": {"n": 3}}]}
    return transact(catalog, body, Idempotency_Key="a")


@pytest.mark.parametrize(
    "ask",
    [refused_by_a_test, refused_by_a_condition, refused_for_absence, refused_in_a_transaction],
)
def test_a_refused_request_stays_refused(catalog: Catalog, ask: Any) -> None:
    catalog.put({"n": 1})
    first = ask(catalog)
    assert first.status_code >= 400
    catalog.put({"n": 9})
    catalog.put({"n": 9}, "other")
    catalog.delete() if ask is refused_by_a_condition else None
    second = again(ask(catalog))
    told, then = second.get_json(), first.get_json()
    assert second.status_code == first.status_code
    for name in ("code", "title", "detail", "key", "operation", "pointer"):
        assert told.get(name) == then.get(name), name


def test_a_new_attempt_needs_a_new_key(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    problem(catalog.patch(NO_N, SET_N, Idempotency_Key="a"), 409, "test_failed")
    catalog.put({"n": 9})
    assert catalog.patch(NO_N, SET_N, Idempotency_Key="b").status_code == 200


def test_reusing_the_key_of_a_refused_request_is_refused(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    catalog.put({"n": 1}, Idempotency_Key="a")
    content = problem(catalog.put({"n": 4}, Idempotency_Key="a"), 422, "idempotency_key_reused")
    assert "changed nothing" in content["detail"]
    assert catalog.get().get_json() == {"n": 1}


def test_a_dry_run_uses_up_no_key(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    catalog.put({"n": 1}, query="?dry_run=true", Idempotency_Key="a")
    catalog.put({"n": 2})
    assert catalog.put({"n": 1}, Idempotency_Key="a").get_json()["changed"] is True


def test_an_undecided_request_is_not_remembered(catalog: Catalog) -> None:
    assert catalog.send("PUT", b"{", "application/json", Idempotency_Key="a").status_code == 400
    assert catalog.put({"n": 1}, Idempotency_Key="a").status_code == 201


def test_bulk_lines_decide_once_and_across_routes(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    noop = {"op": "put", "value": {"n": 1}, "idempotency_key": "a"}
    refused = {"op": "patch", "patch": [NO_N, SET_N], "idempotency_key": "b"}

    def send() -> list[dict[str, Any]]:
        where = {"catalog": catalog.path.rpartition("/")[2], "key": "k"}
        lines = [json.dumps({**where, **line}) for line in (noop, refused)]
        answer = catalog.client.post("/v1/bulk", data="\n".join(lines), content_type=NDJSON)
        return [json.loads(line) for line in answer.data.splitlines()]

    first = send()
    catalog.put({"n": 9})
    second = send()
    assert (second[0]["replayed"], second[0]["changed"]) == (True, False)
    assert second[0]["etag"] == first[0]["etag"]
    assert second[1]["problem"]["code"] == first[1]["problem"]["code"] == "test_failed"
    assert second[1]["replayed"] is True
    assert "replayed" not in first[1]
    again(catalog.put({"n": 1}, Idempotency_Key="a"))
    again(catalog.patch(NO_N, SET_N, Idempotency_Key="b"))
    assert catalog.get().get_json() == {"n": 9}


def test_a_transaction_that_changed_nothing_is_replayed(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    body = {"then": [{"action": "put", "key": "k", "value": {"n": 1}}]}
    first = transact(catalog, body, Idempotency_Key="a")
    catalog.put({"n": 2})
    same(first, transact(catalog, body, Idempotency_Key="a"))
    shown = transact(catalog, body, Idempotency_Key="a", Prefer="return=representation")
    assert shown.get_json()["results"][0]["value"] == {"n": 1}


def test_the_outcome_route_reports_requests_without_a_commit(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    catalog.put({"n": 1}, Idempotency_Key="a")
    catalog.patch(NO_N, SET_N, Idempotency_Key="b")
    told = [catalog.client.get(f"{catalog.path}/outcomes/{key}").get_json() for key in "ab"]
    assert [(each["applied"], each["revision"]) for each in told] == [(False, 1)] * 2
    assert told[0]["problem"] is None
    assert told[1]["problem"]["code"] == "test_failed"


def test_a_refusal_creates_no_catalog(catalog: Catalog) -> None:
    problem(catalog.patch(SET_N, Idempotency_Key="a"), 404, "document_not_found")
    name = catalog.path.rpartition("/")[2]
    listed = catalog.client.get(f"/v1/catalogs?prefix={name}").get_json()["catalogs"]
    assert listed == []
    assert catalog.client.get(catalog.path).status_code == 404
    pinned = catalog.client.post(f"{catalog.path}/pins", json={"seconds": 1})
    problem(pinned, 404, "catalog_not_found")
    assert catalog.put({"n": 1}).status_code == 201
    again(catalog.patch(SET_N, Idempotency_Key="a"))

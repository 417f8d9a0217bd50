"""Transactions over HTTP: what is checked, committed, answered and answered again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.limits import RequestLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore

AT_ATTRIBUTES_VALUE = ("invalid_body", "/attributes/value")
ABSENT: dict[str, Any] = {"etag": None, "revision": None, "exists": False}


def send(catalog: Catalog, body: Any, query: str = "", **headers: str) -> TestResponse:
    return catalog.client.post(
        f"{catalog.path}/transactions{query}",
        data=json.dumps(body),
        content_type="application/json",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def then(catalog: Catalog, *actions: Any, **headers: str) -> TestResponse:
    return send(catalog, {"then": actions}, **headers)


def put(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"action": "put", "key": key, "value": value, **more}


def patch(key: str, *operations: Any, **more: Any) -> dict[str, Any]:
    return {"action": "patch", "key": key, "patch": operations, **more}


def act(action: str, key: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "key": key, **more}


def move(source: str, to: str) -> dict[str, Any]:
    return {"action": "move", "from": source, "to": to}


TOUCH = {"action": "touch"}


def done(answer: TestResponse) -> dict[str, Any]:
    assert answer.status_code == 200, answer.data
    content = answer.get_json()
    assert {"catalog", "succeeded", "changed", "revision", "commit_id", "attempts"} <= set(content)
    assert answer.headers["Catalog-Revision"] == str(content["revision"])
    assert answer.headers["Attempts"] == str(content["attempts"])
    assert answer.headers.get("Commit-Id") == content["commit_id"]
    return dict(content)


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    """``info`` and ``route`` at revision 1."""
    done(then(catalog, put("info", {"n": 1}), put("route", [1])))
    return catalog


class TestAnswers:
    def test_each_action_has_its_result(self, catalog: Catalog) -> None:
        content = done(
            then(
                catalog,
                put("a", {"x": 1}, attributes={"mode": "replace", "value": {"o": 1}}),
                patch("a", {"op": "add", "path": "/y", "value": 2}),
                act("merge", "a", value={"x": None}),
                move("a", "b"),
                act("attributes", "b", patch=[{"op": "remove", "path": "/o"}]),
                act("get", "b"),
                act("delete", "never"),
                TOUCH,
            )
        )
        token = catalog.get("b").headers["ETag"].strip('"')
        there = {"etag": token, "revision": 1, "exists": True}
        assert content.pop("commit_id")
        assert content == {
            "catalog": catalog.name,
            "succeeded": True,
            "changed": True,
            "revision": 1,
            "attempts": 1,
            "results": [
                {"action": "put", "key": "a", **ABSENT},
                {"action": "patch", "key": "a", **ABSENT},
                {"action": "merge", "key": "a", **ABSENT},
                {"action": "move", "from": "a", "key": "b", **there},
                {"action": "attributes", "key": "b", **there},
                {"action": "get", "key": "b", **there, "value": {"y": 2}},
                {"action": "delete", "key": "never", **ABSENT},
                {"action": "touch", "key": None, **dict.fromkeys(ABSENT)},
            ],
        }

    def test_the_tag_names_all_written_documents_that_exist(self, catalog: Catalog) -> None:
        actions = [put("a;b", 1), put("c", 2), act("delete", "d")]
        answer = then(catalog, *actions, act("get", "e"))
        first, second = (catalog.get(key).headers["ETag"].strip('"') for key in ("a;b", "c"))
        assert answer.headers["ETag"] == f'"a%3Bb={first};c={second}"'
        assert then(catalog, put("c", 3), If_Match=answer.headers["ETag"]).status_code == 200
        assert then(catalog, put("c", 4), If_Match=answer.headers["ETag"]).status_code == 412

    def test_a_tag_that_would_be_too_long_is_omitted(self, catalog: Catalog) -> None:
        answer = then(catalog, *(put(f"key-{n}" * 20, n) for n in range(100)))
        assert done(answer)["changed"]
        assert "ETag" not in answer.headers

    def test_a_transaction_that_changes_nothing_has_no_commit(self, table: Catalog) -> None:
        for body in ({}, {"then": [put("info", {"n": 1.0})]}, {"then": [act("get", "x")]}):
            content = done(send(table, body))
            assert (content["changed"], content["revision"]) == (False, 1)
            assert content["commit_id"] is None

    def test_a_touch_alone_moves_the_revision(self, table: Catalog) -> None:
        assert done(then(table, TOUCH))["revision"] == 2

    def test_a_representation_has_the_values(self, table: Catalog) -> None:
        answer = then(table, put("info", 3), Prefer="return=representation")
        assert done(answer)["results"][0]["value"] == 3
        assert answer.headers["Preference-Applied"] == "return=representation"

    def test_a_dry_run_shows_the_changes_and_makes_none(self, table: Catalog) -> None:
        actions = [put("info", {"n": 2}), move("route", "r")]
        for answer in (
            send(table, {"then": actions}, "?dry_run=true"),
            send(table, {"then": actions, "dry_run": True}),
        ):
            content = done(answer)
            assert (content["dry_run"], content["changed"], content["revision"]) == (True, True, 1)
            assert [(each["key"], each["action"]) for each in content["changes"]] == [
                ("info", "put"),
                ("route", "delete"),
                ("r", "put"),
            ]
            assert [each["etag"] for each in content["results"]] == [None, None]
            assert [each["exists"] for each in content["results"]] == [True, True]
            assert "ETag" not in answer.headers
        assert table.head_revision() == 1

    def test_values_too_large_for_one_answer_are_omitted(self, catalog: Catalog) -> None:
        for key in "abcde":
            catalog.put("x" * 4_000_000, key)
        got = done(then(catalog, *(act("get", key) for key in "abcde")))["results"]
        assert ["value" in each for each in got] == [True, True, True, True, False]
        assert got[4]["too_large"] is True
        assert got[4]["etag"]


class TestCompares:
    def test_without_else_the_refusal_shows_the_current_state(self, table: Catalog) -> None:
        compare = [
            {"key": "info", "etag": "1-x"},
            {"key": "route", "equals": [1]},
            {"key": "never", "equals": 1},
            {"resource_version": 0},
        ]
        body = {"compare": compare, "then": [put("a", 1)]}
        content = problem(send(table, body), 412, "precondition_failed")
        current = table.get("info")
        token = {"etag": current.headers["ETag"].strip('"'), "revision": 1}
        failed = content["failed_compares"]
        assert [(each["index"], each["key"]) for each in failed] == [
            (0, "info"),
            (2, "never"),
            (3, None),
        ]
        assert failed[0]["current"] == {**token, "value": {"n": 1}}
        assert failed[1]["current"] is None
        assert all(each["detail"] for each in failed)
        assert content["resource_version"] == 1
        assert table.get("a").status_code == 404

    def test_a_star_for_a_token_requires_only_a_document(self, table: Catalog) -> None:
        exists = [{"key": "info", "etag": "*"}]
        absent = [{"key": "x", "etag": "*"}]
        body = {"compare": exists, "then": [put("a", 1), {**put("b", 1), "if": absent}]}
        assert [each.get("left_out", False) for each in done(send(table, body))["results"]] == [
            False, True,
        ]  # fmt: skip
        refusal = send(table, {"compare": absent, "then": [TOUCH]})
        (failed,) = problem(refusal, 412, "precondition_failed")["failed_compares"]
        assert failed["detail"] == "there is no such document"

    def test_values_in_a_refusal_are_bounded_in_sum(self, catalog: Catalog) -> None:
        keys = [f"k{n}" for n in range(5)]
        for key in keys:
            catalog.put("x" * 400_000, key)
        body = {"compare": [{"key": key, "absent": True} for key in keys]}
        answer = send(catalog, body)
        content = problem(answer, 412, "precondition_failed")
        assert [each["current"]["etag"] is not None for each in content["failed_compares"]]
        assert len(answer.data) < 1_100_000

    def test_an_impossible_action_in_else_is_named(self, table: Catalog) -> None:
        body = {"compare": [{"key": "info", "absent": True}], "else": [TOUCH, move("x", "y")]}
        content = problem(send(table, body), 404, "document_not_found")
        assert (content["action"], content["branch"], content["key"]) == (1, "else", "x")
        assert table.head_revision() == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("action", "status", "code"),
        [
            (move("info", "route"), 409, "target_exists"),
            (move("x", "y"), 404, "document_not_found"),
            (act("merge", "x", value={}), 404, "document_not_found"),
            (patch("info", {"op": "remove", "path": "/x"}), 409, "path_missing"),
            (patch("info", {"op": "defined", "path": "/x"}), 409, "test_failed"),
            (act("attributes", "x", value={}), 404, "document_not_found"),
            (act("attributes", "info", value=5), 422, "invalid_attributes"),
            (act("attributes", "info", value={"x": "y" * 70_000}), 413, "over_limit"),
        ],
    )
    @pytest.mark.parametrize("before", [0, 1])
    def test_an_impossible_action_is_named_and_refuses_the_whole_transaction(
        self, table: Catalog, action: Any, status: int, code: str, before: int
    ) -> None:
        for _ in ("decided", "replayed"):
            actions = [*[put("new", 1)] * before, action]
            content = problem(then(table, *actions, Idempotency_Key="k"), status, code)
            assert content["action"] == before
        assert (table.head_revision(), table.get("new").status_code) == (1, 404)

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ([], ""),
            ({"compares": []}, "/compares"),
            ({"then": {}}, "/then"),
            ({"else": None}, "/else"),
            ({"message": 1}, "/message"),
            ({"message": "x" * 1001}, "/message"),
            ({"dry_run": "true"}, "/dry_run"),
            ({"else": [act("get", 1)]}, "/else/0/key"),
            ({"else": [{"action": "get"}]}, "/else/0"),
        ],
    )
    def test_a_malformed_body_names_the_place(
        self, table: Catalog, body: Any, pointer: str
    ) -> None:
        assert problem(send(table, body), 400, "invalid_body")["pointer"] == pointer
        assert table.head_revision() == 1

    @pytest.mark.parametrize(
        ("action", "code", "pointer"),
        [
            (5, "invalid_body", ""),
            ({}, "invalid_body", ""),
            (act("drop", "a"), "invalid_body", "/action"),
            ({"action": ["put"]}, "invalid_body", "/action"),
            (act("touch", "k"), "invalid_body", "/key"),
            (act("get", ""), "invalid_name", "/key"),
            (move("a", ""), "invalid_name", "/to"),
            (act("put", "a"), "invalid_body", ""),
            (put("a", 1, values=1), "invalid_body", "/values"),
            (put("a", 1, attributes={}), "invalid_body", "/attributes/mode"),
            (put("a", 1, attributes={"mode": "drop"}), "invalid_body", "/attributes/mode"),
            (put("a", 1, attributes={"mode": ["keep"]}), "invalid_body", "/attributes/mode"),
            (put("a", 1, attributes={"mode": "keep", "value": {}}), *AT_ATTRIBUTES_VALUE),
            (put("a", 1, attributes={"mode": "replace", "value": 1}), *AT_ATTRIBUTES_VALUE),
            (act("attributes", "a"), "invalid_body", ""),
            (act("patch", "a"), "invalid_body", ""),
            (act("patch", "a", patch={}), "invalid_patch", "/patch"),
            (patch("a", {"op": "x", "path": ""}), "unknown_operation", "/patch/0/op"),
            (patch("a", {"op": "remove", "path": "x"}), "invalid_pointer", "/patch/0/path"),
            (patch("a", array_primary_keys={"/x": []}), "invalid_patch", "/array_primary_keys"),
        ],
    )
    def test_a_malformed_action_names_the_place(
        self, table: Catalog, action: Any, code: str, pointer: str
    ) -> None:
        content = problem(send(table, {"then": [action]}), 400, code)
        assert content["pointer"] == f"/then/0{pointer}"
        assert table.head_revision() == 1

    @pytest.mark.parametrize(
        ("compare", "code", "pointer"),
        [
            ({}, "invalid_body", ""),
            ({"key": "a"}, "invalid_body", ""),
            ({"key": "a", "absent": False}, "invalid_body", "/absent"),
            ({"key": "a", "absent": 1}, "invalid_body", "/absent"),
            ({"key": "a", "etag": '"1-x"'}, "invalid_body", "/etag"),
            ({"key": "a", "etag": None}, "invalid_body", "/etag"),
            ({"key": "a", "etag": "x", "equals": 1}, "invalid_body", ""),
            ({"key": "a", "resource_version": 1}, "invalid_body", "/key"),
            ({"resource_version": True}, "invalid_body", "/resource_version"),
            ({"key": "a", "test": {}}, "invalid_patch", "/test"),
            ({"key": "a", "test": [{"op": "remove"}]}, "unknown_operation", "/test/0/op"),
        ],
    )
    def test_a_malformed_compare_names_the_place(
        self, table: Catalog, compare: Any, code: str, pointer: str
    ) -> None:
        content = problem(send(table, {"compare": [compare], "then": [TOUCH]}), 400, code)
        assert content["pointer"] == f"/compare/0{pointer}"
        assert table.head_revision() == 1

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"then": [put("a", {"a": 2**64})]}, "/then/0/value/a"),
            ({"then": [put("a", [{"\0": 1}])]}, "/then/0/value/0"),
            ({"else": [put("a", "\ud800")]}, "/else/0/value"),
            ({"compare": [{"key": "a", "equals": [2**64]}]}, "/compare/0/equals/0"),
            ({"then": [act("merge", "a", value={"x": 2**64})]}, "/then/0/value/x"),
            ({"then": [patch("a", {"op": "add", "path": "/\0", "value": 1})]}, "/then/0/patch/0"),
            ({"then": [act("get", "\ud800")]}, "/then/0/key"),
            ({"message": "\ud800"}, "/message"),
        ],
    )
    def test_an_unstorable_value_is_refused_with_its_pointer(
        self, table: Catalog, body: Any, pointer: str
    ) -> None:
        assert problem(send(table, body), 422, "unstorable_value")["pointer"] == pointer

    def test_each_value_must_keep_the_limits_of_a_document(self) -> None:
        small = Catalog(behind(document_bytes_max=50, depth_max=3, transaction_actions_max=3), "c")
        deep = [[[1]]]
        assert then(small, put("deep", deep)).status_code == 200
        content = problem(then(small, put("deep", [deep])), 422, "nesting_too_deep")
        assert content["pointer"] == "/then/0/value"
        content = problem(then(small, put("a", "x" * 60)), 413, "over_limit")
        assert (content["pointer"], content["limit"]) == ("/then/0/value", "document_bytes_max")
        content = problem(then(small, *[TOUCH] * 4), 413, "over_limit")
        assert (content["limit"], content["actual"]) == ("transaction_actions_max", 4)
        problem(then(small, put("k" * 1025, 1)), 414, "name_too_long")

    @pytest.mark.parametrize(
        "headers",
        [
            {"If_Match": "*"},
            {"If_Match": '"1-x"'},
            {"If_Match": '"a=1-x", "1-x"'},
            {"If_Match": '"a=1-x;a=2-x"'},
            {"If_Match": '"a=1-x;a=absent"'},
            {"If_None_Match": "*"},
            {"If_None_Match": '"a=1-x"'},
            {"If_Unmodified_Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
            {"If_Modified_Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
        ],
    )
    def test_conditions_on_a_single_document_are_refused(
        self, table: Catalog, headers: dict[str, str]
    ) -> None:
        problem(then(table, put("a", 1), **headers), 400, "invalid_condition")

    def test_other_media_types_methods_and_parameters_are_refused(self, table: Catalog) -> None:
        path = f"{table.path}/transactions"
        answer = table.client.post(path, data=b"{}", content_type="text/plain")
        problem(answer, 415, "unsupported_media_type")
        problem(table.client.get(path), 405, "method_not_allowed")
        problem(send(table, {}, "?dryrun=true"), 400, "invalid_parameter")

    def test_deeply_nested_bodies_are_refused(self, table: Catalog) -> None:
        path = f"{table.path}/transactions"
        for count in (500, 100_000):
            raw = b'{"then":' + b"[" * count + b"]" * count + b"}"
            answer = table.client.post(path, data=raw, content_type="application/json")
            assert answer.status_code in (400, 422)
            raw = b'{"compare":[{"key":"a","equals":' + b"[" * count + b"]" * count + b"}]}"
            answer = table.client.post(path, data=raw, content_type="application/json")
            problem(answer, 422, "nesting_too_deep")

    def test_a_message_in_the_body_and_in_the_header_must_be_equal(self, table: Catalog) -> None:
        body = {"then": [TOUCH], "message": "naïve"}
        problem(send(table, body, Commit_Message="other"), 400, "invalid_header")
        assert done(send(table, body, Commit_Message="na%C3%AFve"))["revision"] == 2
        commit = table.client.get(f"{table.path}/commits/2").get_json()
        assert commit["message"] == "naïve"


def behind(**limits: Any) -> FlaskClient:
    """A service of its own behind other limits."""
    store = MemoryStore()
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    return create_app(gateway, RequestLimits(**limits)).test_client()


class TestReplays:
    def test_a_replay_gives_the_first_result(self, table: Catalog) -> None:
        body = {
            "compare": [{"key": "a", "absent": True}],
            "then": [
                put("a", 1),
                act("get", "route"),
                act("get", "a"),
                act("delete", "info"),
                put("route", [1]),
            ],
        }
        first = send(table, body, Idempotency_Key="i")
        table.put("later", "route")
        table.put("later", "a")
        again = send(table, body, Idempotency_Key="i")
        assert done(again) == done(first)
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Idempotency-Replayed"] == "true"
        assert "Idempotency-Replayed" not in first.headers
        represented = send(table, body, Idempotency_Key="i", Prefer="return=representation")
        values = [each.get("value") for each in done(represented)["results"]]
        assert values == [1, [1], 1, None, [1]]

    def test_else_is_replayed_as_else(self, table: Catalog) -> None:
        body = {
            "compare": [{"key": "info", "absent": True}],
            "then": [put("info", 1)],
            "else": [put("b", 1), act("get", "info")],
        }
        first = done(send(table, body, Idempotency_Key="i"))
        table.delete("info")
        assert done(send(table, body, Idempotency_Key="i")) == first
        assert first["succeeded"] is False

    @pytest.mark.parametrize(
        "body",
        [
            {"then": [put("a", True)]},
            {"then": [put("a", 1)], "compare": [{"key": "a", "absent": True}]},
            {"then": [put("a", 1)], "else": []},
        ],
    )
    def test_another_request_under_the_same_key_is_refused(self, table: Catalog, body: Any) -> None:
        done(then(table, put("a", 1), Idempotency_Key="i"))
        problem(send(table, body, Idempotency_Key="i"), 422, "idempotency_key_reused")

    def test_the_same_request_written_otherwise_is_the_same(self, table: Catalog) -> None:
        first = done(send(table, {"then": [put("a", 1)], "message": "m"}, Idempotency_Key="i"))
        body = {"then": [{"value": 1, "key": "a", "action": "put"}]}
        again = send(table, body, Idempotency_Key="i", Commit_Message="m", Prefer="wait=9")
        assert done(again) == first
        dry = done(send(table, {**body, "message": "m", "dry_run": True}, Idempotency_Key="i"))
        assert (dry["changed"], dry["dry_run"], dry["revision"]) == (False, True, first["revision"])

    def test_a_key_of_a_single_write_cannot_be_reused(self, table: Catalog) -> None:
        table.put(1, "a", Idempotency_Key="i")
        problem(then(table, put("a", 1), Idempotency_Key="i"), 422, "idempotency_key_reused")


def test_settings_appear_in_commits_without_a_key(table: Catalog) -> None:
    table.client.put(table.path, json={"require_precondition": False})
    (change,) = table.client.get(f"{table.path}/commits/2").get_json()["changes"]
    assert (change["key"], change["action"]) == (None, "settings")
    problem(then(table, put("", 1)), 400, "invalid_name")

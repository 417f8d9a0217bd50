"""Actions on ranges of documents, and actions with a condition of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.commit import inputs as reading
from gateway.decide import ranges
from tests.http.conftest import Catalog, problem
from tests.http.test_transactions import act, done, put, send, then

NO_DOCUMENT = {"key": None, "etag": None, "revision": None, "exists": None}


def delete(prefix: str, **more: Any) -> dict[str, Any]:
    return {"action": "delete", "prefix": prefix, **more}


def replace(prefix: str, documents: Any, **more: Any) -> dict[str, Any]:
    return {"action": "replace", "prefix": prefix, "documents": documents, **more}


def contents(catalog: Catalog) -> dict[str, Any]:
    exported = catalog.client.get(f"{catalog.path}/export")
    return dict(json.loads(exported.data)["metadata"])


@pytest.fixture
def tables(catalog: Catalog) -> Catalog:
    """Two tables with attributes, and another document, at revision 1."""
    owned = {"mode": "replace", "value": {"team": "sales"}}
    done(
        then(catalog, *(put(f"tables/{k}", {"n": 1}, attributes=owned) for k in "ab"), put("x", 1))
    )
    return catalog


class TestDeletion:
    def test_deleting_a_range_is_one_commit(self, tables: Catalog) -> None:
        content = done(then(tables, delete("tables/")))
        (result,) = content["results"]
        assert result == {
            "action": "delete", **NO_DOCUMENT, "prefix": "tables/", "written": 0, "deleted": 2,
        }  # fmt: skip
        assert content["revision"] == 2
        assert contents(tables) == {"x": 1}
        commit = tables.client.get(f"{tables.path}/commits/2").get_json()
        told = [(each["key"], each["action"]) for each in commit["changes"]]
        assert told == [("tables/a", "delete"), ("tables/b", "delete")]

    def test_documents_are_deleted_in_the_order_of_their_keys(self, tables: Catalog) -> None:
        names = [f"many/{n:02}" for n in range(30)]
        done(then(tables, *(put(name, 1) for name in reversed(names))))
        revision = done(then(tables, delete("many/")))["revision"]
        commit = tables.client.get(f"{tables.path}/commits/{revision}").get_json()
        assert [each["key"] for each in commit["changes"]] == names

    def test_a_range_includes_the_effects_of_earlier_actions(self, tables: Catalog) -> None:
        actions = [
            put("tables/c", 1),
            act("delete", "tables/a"),
            {"action": "move", "from": "x", "to": "tables/x"},
            delete("tables/"),
            put("tables/a", {"n": 2}),
        ]
        content = done(then(tables, *actions))
        assert content["results"][3]["deleted"] == 1, "tables/b: no other was there and goes"
        assert contents(tables) == {"tables/a": {"n": 2}}

    def test_an_empty_range_changes_nothing(self, tables: Catalog) -> None:
        content = done(then(tables, delete("none/")))
        assert (content["changed"], content["revision"]) == (False, 1)
        assert content["results"][0]["deleted"] == 0

    def test_settings_are_in_no_range(self, tables: Catalog) -> None:
        tables.client.put(tables.path, json={"retention": {"commits": 9}})
        assert done(then(tables, delete("")))["results"][0]["deleted"] == 3
        assert tables.client.get(tables.path).get_json()["settings"]["retention"] == {"commits": 9}

    def test_a_dry_run_lists_the_documents_to_delete(self, tables: Catalog) -> None:
        content = done(send(tables, {"then": [delete("tables/")], "dry_run": True}))
        assert content["results"][0]["deleted"] == 2
        assert [each["key"] for each in content["changes"]] == ["tables/a", "tables/b"]
        assert len(contents(tables)) == 3

    def test_a_replay_deletes_nothing_new(self, tables: Catalog) -> None:
        first = done(then(tables, delete("tables/"), Idempotency_Key="one"))
        tables.put(1, "tables/new")
        again = done(then(tables, delete("tables/"), Idempotency_Key="one"))
        assert again["results"] == first["results"]
        assert tables.get("tables/new").status_code == 200

    def test_too_many_are_refused_whole(
        self, tables: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ranges, "DOCUMENTS_MAX", 2)
        told = problem(then(tables, put("y", 1), delete("")), 413, "over_limit")
        assert (told["limit"], told["maximum"], told["action"]) == ("range_documents_max", 2, 1)
        assert tables.get("y").status_code == 404
        assert done(then(tables, delete("tables/")))["changed"]

    def test_many_large_ranges_refuse_the_whole_transaction(
        self, tables: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading, "_LISTED_MAX", 3)
        assert len(contents(tables)) == 3  # and they are written out
        told = problem(then(tables, delete("tables/"), delete("")), 413, "over_limit")
        assert told["limit"] == "range_documents_max"
        assert len(contents(tables)) == 3

    def test_deleting_a_range_is_not_a_precondition(self, tables: Catalog) -> None:
        tables.client.put(tables.path, json={"require_precondition": True})
        problem(then(tables, delete("tables/")), 428, "precondition_required")
        guarded = {"compare": [{"prefix": "tables/", "count": {"equal": 2}}]}
        assert done(send(tables, {**guarded, "then": [delete("tables/")]}))["changed"]


class TestReplacement:
    def test_documents_not_sent_are_deleted_and_the_others_keep_their_attributes(
        self, tables: Catalog
    ) -> None:
        sent = {"tables/b": {"n": 2}, "tables/c": {"n": 3}}
        (result,) = done(then(tables, replace("tables/", sent)))["results"]
        assert (result["written"], result["deleted"]) == (2, 1)
        assert contents(tables) == {**sent, "x": 1}
        attributes = tables.client.get(f"{tables.path}/attributes/tables%2Fb")
        assert attributes.get_json() == {"team": "sales"}

    def test_equal_documents_are_not_written(self, tables: Catalog) -> None:
        token = tables.get("tables/a").headers["ETag"]
        sent = {"tables/a": {"n": 1.0}, "tables/b": {"n": 2}}
        (result,) = done(then(tables, replace("tables/", sent)))["results"]
        assert (result["written"], result["deleted"]) == (1, 0)
        assert tables.get("tables/a").headers["ETag"] == token
        assert not done(then(tables, replace("tables/", sent)))["changed"]

    def test_an_export_can_be_sent_back_unchanged(self, tables: Catalog) -> None:
        exported = contents(tables)
        done(then(tables, delete("tables/"), put("y", 1)))
        done(then(tables, replace("", exported)))
        assert contents(tables) == exported

    def test_a_schema_violation_refuses_the_whole_replacement(self, tables: Catalog) -> None:
        schemas = {"schemas": {"tables/*": {"type": "object"}}}
        assert tables.client.put(tables.path, json=schemas).status_code == 201
        told = problem(then(tables, replace("tables/", {"tables/z": 1})), 422, "schema_violation")
        assert told["key"] == "tables/z"
        assert len(contents(tables)) == 3

    def test_a_replacement_sent_again_is_a_no_op(self, tables: Catalog) -> None:
        body = {
            "compare": [{"prefix": "new/", "absent": True}],
            "then": [replace("new/", {"new/a": 1, "new/b": 2})],
        }
        assert done(send(tables, body))["changed"]
        assert not done(send(tables, body))["changed"]
        tables.put(1, "new/c")
        problem(send(tables, body), 412, "precondition_failed")

    def test_too_many_documents_refuse_the_whole_replacement(
        self, tables: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ranges, "DOCUMENTS_MAX", 3)
        sent = {f"tables/{n}": n for n in range(4)}
        told = problem(then(tables, replace("tables/", sent)), 413, "over_limit")
        assert (told["limit"], told["actual"]) == ("range_documents_max", 4)
        assert len(contents(tables)) == 3


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        (delete("a", key="b"), "/key"),
        (delete(1), "/prefix"),
        (delete("a", documents={}), "/documents"),
        ({"action": "put", "prefix": "a", "value": 1}, "/prefix"),
        ({"action": "replace", "prefix": "a"}, ""),
        ({"action": "replace", "documents": {}}, ""),
        (replace("a", []), "/documents"),
        (replace("a/", {"a/b": 1, "b": 1}), "/documents/b"),
        (replace("", {"": 1}), "/documents/"),
        (put("a", 1, **{"if": []}), "/if"),
        (put("a", 1, **{"if": {"key": "a", "absent": True}}), "/if"),
        (put("a", 1, **{"if": [{"key": "a"}]}), "/if/0"),
        (put("a", 1, **{"if": [{"prefix": "", "count": {"less": -1}}]}), "/if/0/count/less"),
    ],
)
def test_malformed_actions_are_refused_with_their_place(
    catalog: Catalog, wrong: Any, at: str
) -> None:
    answer = then(catalog, {"action": "touch"}, wrong)
    told = answer.get_json()
    assert answer.status_code == 400, told
    assert told["code"] in ("invalid_body", "invalid_name")
    assert told["pointer"] == f"/then/1{at}"


class TestConditions:
    def test_an_action_with_a_false_condition_is_left_out(self, tables: Catalog) -> None:
        missing, there = {"key": "y", "absent": True}, {"key": "x", "absent": True}
        actions = [put("y", 2, **{"if": [missing]}), put("x", 2, **{"if": [missing, there]})]
        content = done(then(tables, *actions))
        token = tables.get("x").headers["ETag"].strip('"')
        assert content["results"][1] == {
            "action": "put", "key": "x", "left_out": True,
            "etag": token, "revision": 1, "exists": True,
        }  # fmt: skip
        assert "left_out" not in content["results"][0]
        assert (contents(tables)["x"], contents(tables)["y"]) == (1, 2)

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [
            ({"key": "new", "absent": True}, False),
            ({"key": "new", "equals": {"n": 1}}, True),
            ({"key": "new", "test": [{"op": "less", "path": "/n", "value": 2}]}, True),
            ({"key": "new", "etag": '2-"'}, None),
            ({"key": "new", "unchanged_since": 1}, False),
            ({"key": "new", "unchanged_since": 2}, False),
            ({"key": "tables/a", "unchanged_since": 1}, True),
            ({"key": "x", "absent": True}, True),
            ({"key": "x", "unchanged_since": 1}, False),
            ({"prefix": "new", "absent": True}, False),
            ({"prefix": "", "count": {"equal": 3}}, True),
            ({"prefix": "tables/", "unchanged_since": 1}, True),
            ({"prefix": "new", "unchanged_since": 1}, False),
            ({"prefix": "x", "unchanged_since": 1}, False),
            ({"resource_version": 1}, True),
            ({"resource_version": 2}, False),
        ],
    )
    def test_a_condition_sees_the_effects_of_earlier_actions(
        self, tables: Catalog, condition: Any, holds: bool | None
    ) -> None:
        before = [put("new", {"n": 1}), act("delete", "x")]
        answer = then(tables, *before, put("y", 1, **{"if": [condition]}))
        if holds is None:
            problem(answer, 400, "invalid_body")
            return
        left_out = done(answer)["results"][2].get("left_out", False)
        assert (left_out, tables.get("y").status_code) == (not holds, 200 if holds else 404)

    def test_a_condition_is_true_after_a_change_is_undone_in_the_request(
        self, tables: Catalog
    ) -> None:
        token = tables.get("x").headers["ETag"].strip('"')
        actions = [put("x", 2), put("x", 1), put("y", 1, **{"if": [{"key": "x", "etag": token}]})]
        assert "left_out" not in done(then(tables, *actions))["results"][2]

    def test_every_kind_of_action_may_have_a_condition(self, tables: Catalog) -> None:
        false = {"if": [{"key": "x", "absent": True}]}
        actions = [
            put("x", 2),
            {"action": "patch", "key": "x", "patch": [{"op": "remove", "path": "/no"}]},
            act("merge", "never", value={}),
            act("delete", "x"),
            {"action": "move", "from": "never", "to": "x"},
            act("attributes", "never", value={}),
            {"action": "touch"},
            act("get", "x"),
            delete(""),
            replace("", {"z": 1}),
        ]
        content = done(then(tables, *({**each, **false} for each in actions)))
        assert (content["changed"], content["revision"]) == (False, 1)
        assert all(each["left_out"] for each in content["results"])
        assert all("value" not in each for each in content["results"])

    def test_a_replay_reports_the_same_actions_as_left_out(self, tables: Catalog) -> None:
        for key, changing in (("one", put("y", 1)), ("two", act("get", "x"))):
            actions = [changing, put("x", 2, **{"if": [{"key": "z", "equals": 1}]})]
            first = done(then(tables, *actions, Idempotency_Key=key))
            tables.put(1, "z")
            again = then(tables, *actions, Idempotency_Key=key)
            assert again.headers["Idempotency-Replayed"] == "true"
            results = done(again)["results"]
            assert [each.get("left_out") for each in results] == [None, True]
            assert first["results"][1]["left_out"]
            tables.delete("z")

    def test_conditions_work_in_else_and_errors_name_the_branch(self, tables: Catalog) -> None:
        body = {
            "compare": [{"key": "x", "absent": True}],
            "then": [],
            "else": [
                put("y", 1, **{"if": [{"key": "x", "absent": True}]}),
                act("merge", "never", value={}, **{"if": [{"key": "never", "absent": True}]}),
            ],
        }
        told = problem(send(tables, body), 404, "document_not_found")
        assert (told["action"], told["branch"]) == (1, "else")

    def test_conditions_of_actions_count_toward_the_limit_of_compares(
        self, tables: Catalog
    ) -> None:
        many = [{"key": "x", "absent": True}] * 4096
        told = problem(then(tables, put("y", 1, **{"if": many})), 413, "over_limit")
        assert (told["limit"], told["actual"]) == ("transaction_actions_max", 4097)
        ranges_ = [{"prefix": f"{n}", "absent": True} for n in range(65)]
        told = problem(then(tables, put("y", 1, **{"if": ranges_})), 413, "over_limit")
        assert told["limit"] == "ranges_max"

    def test_the_work_of_all_tests_is_bounded_together(self, catalog: Catalog) -> None:
        catalog.put({"text": "x" * 3_000_000}, "large")
        test = {"key": "large", "test": [{"op": "starts", "path": "/text", "value": "y"}]}
        actions = [put("y", 1, **{"if": [test]})] * 60
        assert problem(then(catalog, *actions), 413, "over_limit")["limit"] == "tested_bytes_max"


def test_the_condition_of_an_action_counts_as_a_precondition(tables: Catalog) -> None:
    tables.client.put(tables.path, json={"require_precondition": True})
    problem(then(tables, put("x", 2)), 428, "precondition_required")
    assert done(then(tables, put("x", 2, **{"if": [{"key": "x", "equals": 1}]})))["changed"]

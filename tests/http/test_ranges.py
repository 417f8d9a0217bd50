"""Conditions on ranges of documents, and actions on them, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem
from tests.http.test_transactions import act, done, put, send, then

TOUCH = {"action": "touch"}


@pytest.fixture
def tables(catalog: Catalog) -> Catalog:
    """Two tables and a relationship, at revision 3."""
    for key in ("tables/a", "tables/b", "relationships/a/1"):
        assert catalog.put({}, key).status_code == 201
    return catalog


def compared(catalog: Catalog, *compares: Any) -> TestResponse:
    return send(catalog, {"compare": compares, "then": [TOUCH], "dry_run": True})


def unchanged(prefix: str, since: int) -> dict[str, Any]:
    return {"prefix": prefix, "unchanged_since": since}


def count(prefix: str, **relation: int) -> dict[str, Any]:
    return {"prefix": prefix, "count": relation}


class TestCompares:
    @pytest.mark.parametrize(
        "true",
        [
            unchanged("tables/", 2),
            unchanged("", 3),
            unchanged("none/", 0),
            {"prefix": "none/", "absent": True},
            count("tables/", less=3),
            count("tables/", equal=2),
            count("", greater=2),
            {"key": "tables/a", "unchanged_since": 1},
        ],
    )
    def test_true_range_conditions(self, tables: Catalog, true: Any) -> None:
        assert done(compared(tables, true))["succeeded"]

    @pytest.mark.parametrize(
        ("false", "detail", "more"),
        [
            (unchanged("tables/", 1), "they changed at revision 2, after 1", {"changed_at": 2}),
            (unchanged("", 4), "the catalog is at revision 3, and hasn't reached 4 yet", {}),
            ({"prefix": "tables/", "absent": True}, "there are some", {}),
            (count("tables/", less=2), "there are 2, not fewer than 2", {}),
            (count("tables/", equal=1), "there are 2, not 1", {}),
            (count("tables/", greater=2), "there are 2, not more than 2", {}),
        ],
    )
    def test_a_false_range_condition_explains_why(
        self, tables: Catalog, false: Any, detail: str, more: dict[str, Any]
    ) -> None:
        told = problem(compared(tables, count("", less=9), false), 412, "precondition_failed")
        prefix = false["prefix"]
        # How many were counted depends on what is written out.
        told = json.loads(json.dumps(told).replace("is at least ", "is "))
        assert told["detail"] == f"compare 1 is false for the documents under {prefix!r}: {detail}"
        assert told["failed_compares"] == [
            {"index": 1, "key": None, "prefix": prefix, "detail": detail, "current": None, **more}
        ]

    def test_a_document_that_changed_is_shown(self, tables: Catalog) -> None:
        tables.put({"n": 2}, "tables/a")
        stale = {"key": "tables/a", "unchanged_since": 3}
        told = problem(compared(tables, stale), 412, "precondition_failed")
        (failed,) = told["failed_compares"]
        assert failed["detail"] == "it changed at revision 4, after 3"
        assert failed["current"]["value"] == {"n": 2}
        assert [each["revision"] for each in told["changes_since"]] == [4]

    def test_the_refusal_lists_the_changes_in_the_range(self, tables: Catalog) -> None:
        then(tables, put("tables/c", {}), put("other", {}))
        tables.put(1, "unrelated")
        tables.delete("tables/a")
        told = problem(compared(tables, unchanged("tables/", 2)), 412, "precondition_failed")
        since = [(each["revision"], each["changes"]) for each in told["changes_since"]]
        assert since == [
            (4, [{"key": "tables/c", "action": "put"}]),
            (6, [{"key": "tables/a", "action": "delete"}]),
        ]

    def test_else_works_for_range_conditions(self, tables: Catalog) -> None:
        body = {
            "compare": [{"prefix": "tables/", "absent": True}],
            "then": [put("tables/a", 1)],
            "else": [act("get", "tables/a")],
        }
        assert not done(send(tables, body))["succeeded"]

    def test_a_range_condition_below_the_floor_is_410(self, tables: Catalog) -> None:
        assert (
            tables.client.post(f"{tables.path}/compactions", json={"revision": 3}).status_code < 300
        )
        told = problem(compared(tables, unchanged("none/", 1)), 410, "revision_compacted")
        assert told["oldest_revision"] == 3
        assert done(compared(tables, unchanged("none/", 3)))["succeeded"]

    @pytest.mark.parametrize(
        ("wrong", "pointer"),
        [
            ({"prefix": "a"}, ""),
            ({"prefix": 1, "absent": True}, "/prefix"),
            ({"prefix": "a", "absent": False}, "/absent"),
            ({"prefix": "a", "unchanged_since": -1}, "/unchanged_since"),
            ({"prefix": "a", "unchanged_since": 1.5}, "/unchanged_since"),
            ({"prefix": "a", "unchanged_since": 1, "absent": True}, ""),
            ({"prefix": "a", "key": "a", "absent": True}, "/key"),
            ({"prefix": "a", "etag": "1-0"}, "/etag"),
            ({"prefix": "a", "count": 3}, "/count"),
            ({"prefix": "a", "count": {}}, "/count"),
            ({"prefix": "a", "count": {"less": 1, "equal": 1}}, "/count"),
            ({"prefix": "a", "count": {"more": 1}}, "/count/more"),
            ({"prefix": "a", "count": {"less": 10_001}}, "/count/less"),
            ({"prefix": "a", "count": {"less": "1"}}, "/count/less"),
            ({"key": "a", "unchanged_since": "1"}, "/unchanged_since"),
            ({"key": "a", "count": {"less": 1}}, "/count"),
        ],
    )
    def test_malformed_range_conditions_are_refused_with_their_place(
        self, catalog: Catalog, wrong: Any, pointer: str
    ) -> None:
        told = problem(compared(catalog, count("", less=1), wrong), 400, "invalid_body")
        assert told["pointer"] == f"/compare/1{pointer}"

    def test_long_prefixes_and_too_many_ranges_are_refused(self, catalog: Catalog) -> None:
        long = problem(compared(catalog, unchanged("x" * 1025, 1)), 414, "name_too_long")
        assert long["pointer"] == "/compare/0/prefix"
        many = compared(catalog, *(unchanged(f"{n}", 0) for n in range(65)))
        told = problem(many, 413, "over_limit")
        assert (told["limit"], told["maximum"]) == ("ranges_max", 64)
        assert compared(catalog, *(unchanged(f"{n}", 0) for n in range(64))).status_code == 200


class TestHeader:
    @pytest.mark.parametrize(
        ("header", "prefix"),
        [
            ('"tables/";revision=1', "tables/"),
            ('"none/";revision=0,"tables/"; revision=1', "tables/"),
            (' %"tables/";revision=1 ', "tables/"),
            ('%"t%61bles/";revision=1', "tables/"),
            ('"";revision=2', ""),
        ],
    )
    def test_the_header_is_a_list_of_strings_with_revisions(
        self, tables: Catalog, header: str, prefix: str
    ) -> None:
        refused = tables.put(1, "other", If_Unchanged_Under=header)
        told = problem(refused, 412, "precondition_failed")
        assert told["prefix"] == prefix
        assert told["expected"].startswith(f'"{prefix}";revision=')

    def test_a_prefix_may_be_any_text(self, catalog: Catalog) -> None:
        for text, written in (("märkte/", "m%c3%a4rkte/"), ('a"b\\c%', "a%22b\\c%25")):
            first = catalog.put(1, f"{text}1").headers["Catalog-Revision"]
            header = f'%"{written}";revision={first}'
            assert catalog.put(1, "other", If_Unchanged_Under=header).status_code in (200, 201)
            catalog.put(2, f"{text}1")
            told = problem(
                catalog.put(2, "other", If_Unchanged_Under=header), 412, "precondition_failed"
            )
            assert told["prefix"] == text
        again = catalog.put(3, "other", If_Unchanged_Under='"a\\"b\\\\c%";revision=0')
        assert problem(again, 412, "precondition_failed")["prefix"] == 'a"b\\c%'

    @pytest.mark.parametrize(
        "header",
        [
            "",
            "tables/;revision=1",
            "tables/",
            '"tables/"',
            '"tables/";revision',
            '"tables/";revision=x',
            '"tables/";revision=-1',
            '"tables/";revision=1.5',
            '"tables/";revision=1;more=2',
            '"tables/";other=1',
            '"tables/";revision=1,',
            '"tables/;revision=1',
            '"t\\ables/";revision=1',
            '%"t%C3%A4";revision=1',
            '%"%ff";revision=1',
            '"a";revision=1 "b";revision=1',
        ],
    )
    def test_malformed_headers_are_refused(self, catalog: Catalog, header: str) -> None:
        told = problem(catalog.put(1, If_Unchanged_Under=header), 400, "invalid_condition")
        assert told["header"] == "If-Unchanged-Under"

    def test_too_many_ranges_in_the_header_are_refused_not_cut_off(self, catalog: Catalog) -> None:
        header = ", ".join(f'"{n}";revision=0' for n in range(65))
        told = problem(catalog.put(1, If_Unchanged_Under=header), 413, "over_limit")
        assert (told["limit"], told["header"]) == ("ranges_max", "If-Unchanged-Under")

    def test_reads_refuse_the_header(self, tables: Catalog) -> None:
        for path in ("/documents/tables%2Fa", "/documents", "/export", "/commits", ""):
            answer = tables.client.get(
                tables.path + path, headers={"If-Unchanged-Under": '"a";revision=1'}
            )
            assert problem(answer, 400, "invalid_condition")["header"] == "If-Unchanged-Under"

    def test_the_header_counts_as_a_precondition(self, tables: Catalog) -> None:
        assert (
            tables.client.put(tables.path, json={"require_precondition": True}).status_code == 201
        )
        problem(tables.put(1, "tables/a"), 428, "precondition_required")
        header = '"tables/";revision=2'
        assert tables.put(1, "tables/a", If_Unchanged_Under=header).status_code == 200

    def test_an_idempotency_key_covers_the_ranges(self, tables: Catalog) -> None:
        for _ in range(2):
            first = tables.put(
                1, "new", If_Unchanged_Under='"tables/";revision=2', Idempotency_Key="one"
            )
            assert first.status_code == 201
        other = tables.put(
            1, "new", If_Unchanged_Under='"tables/";revision=3', Idempotency_Key="one"
        )
        problem(other, 422, "idempotency_key_reused")

    def test_below_the_floor_the_write_is_refused(self, tables: Catalog) -> None:
        assert (
            tables.client.post(f"{tables.path}/compactions", json={"revision": 3}).status_code < 300
        )
        header = '"none/";revision=1'
        told = problem(tables.put(1, "new", If_Unchanged_Under=header), 410, "revision_compacted")
        assert told["oldest_revision"] == 3
        assert tables.get("new").status_code == 404

    @pytest.mark.parametrize(
        ("wrong", "at"),
        [
            ([], ""),
            ("tables/", ""),
            ([{"prefix": "a"}], "/0"),
            ([{"prefix": "a", "revision": 1}, {"prefix": 1, "revision": 1}], "/1/prefix"),
            ({"prefix": "a", "revision": "1"}, "/revision"),
            ({"prefix": "a", "revision": 1, "more": 1}, "/more"),
        ],
    )
    def test_malformed_members_are_refused(self, catalog: Catalog, wrong: Any, at: str) -> None:
        line = {"catalog": catalog.name, "key": "k", "op": "put", "value": 1}
        line["if_unchanged_under"] = wrong
        answer = catalog.client.post(
            "/v1/bulk", data=json.dumps(line), content_type="application/x-ndjson"
        )
        told = json.loads(answer.data)["problem"]
        assert (told["code"], told["pointer"]) == ("invalid_body", f"/if_unchanged_under{at}")

    def test_a_touch_may_have_range_conditions_only(self, tables: Catalog) -> None:
        lines = [
            {
                "catalog": tables.name,
                "op": "touch",
                "if_unchanged_under": {"prefix": "", "revision": n},
            }
            for n in (3, 1)
        ]
        body = "\n".join(map(json.dumps, lines))
        answer = tables.client.post("/v1/bulk", data=body, content_type="application/x-ndjson")
        assert [json.loads(each)["status"] for each in answer.data.splitlines()] == [200, 412]

"""Condition headers: none is ignored, and each means the same on every route."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.decide.conditions import ANY_TAG, Preconditions
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import read_conditions, write_conditions
from tests.http.conftest import Catalog, problem

PAST = "Sun, 06 Nov 1994 08:49:37 GMT"
FUTURE = "Fri, 06 Nov 2099 08:49:37 GMT"
ADD = {"op": "add", "path": "", "value": 2}


def environ_of(**headers: str) -> dict[str, Any]:
    return {f"HTTP_{name.upper()}": value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("headers", "conditions"),
    [
        ({}, Preconditions()),
        ({"if_match": '"a"'}, Preconditions(if_match=frozenset("a"))),
        ({"if_match": '"a","b"'}, Preconditions(if_match=frozenset("ab"))),
        ({"if_match": ' "a" ,, \t"b", '}, Preconditions(if_match=frozenset("ab"))),
        ({"if_match": '"a,b"'}, Preconditions(if_match=frozenset({"a,b"}))),
        ({"if_match": '""'}, Preconditions(if_match=frozenset({""}))),
        ({"if_match": "*"}, Preconditions(if_match=ANY_TAG)),
        ({"if_match": " * "}, Preconditions(if_match=ANY_TAG)),
        ({"if_match": '"*"'}, Preconditions(if_match=frozenset({'"*"'}))),
        ({"if_match": 'W/"a"'}, Preconditions(if_match=frozenset({'W/"a"'}))),
        ({"if_none_match": 'W/"a", "b"'}, Preconditions(if_none_match=frozenset("ab"))),
        ({"if_none_match": "*"}, Preconditions(if_none_match=ANY_TAG)),
        ({"if_unmodified_since": PAST}, Preconditions(if_unmodified_since=784111777)),
        (
            {"if_unmodified_since": "Sunday, 06-Nov-94 08:49:37 GMT"},
            Preconditions(if_unmodified_since=784111777),
        ),
        (
            {"if_unmodified_since": "Sun Nov  6 08:49:37 1994"},
            Preconditions(if_unmodified_since=784111777),
        ),
        (
            {"if_match": '"a"', "if_none_match": '"b"'},
            Preconditions(if_match=frozenset("a"), if_none_match=frozenset("b")),
        ),
        (
            {"if_match": "*", "if_none_match": '"b"'},
            Preconditions(if_match=ANY_TAG, if_none_match=frozenset("b")),
        ),
    ],
)
def test_well_formed_conditions_are_understood(
    headers: dict[str, str], conditions: Preconditions
) -> None:
    assert read_conditions(environ_of(**headers)) == conditions
    assert write_conditions(environ_of(**headers)) == conditions


@pytest.mark.parametrize(
    ("headers", "at_fault"),
    [
        ({"if_match": ""}, "If-Match"),
        ({"if_match": "  "}, "If-Match"),
        ({"if_match": ","}, "If-Match"),
        ({"if_match": "a"}, "If-Match"),
        ({"if_match": '"a'}, "If-Match"),
        ({"if_match": 'a"'}, "If-Match"),
        ({"if_match": '"a" "b"'}, "If-Match"),
        ({"if_match": '"a b"'}, "If-Match"),
        ({"if_match": 'w/"a"'}, "If-Match"),
        ({"if_match": 'W/a"'}, "If-Match"),
        ({"if_match": '"a", *'}, "If-Match"),
        ({"if_match": "*, *x"}, "If-Match"),
        ({"if_none_match": ""}, "If-None-Match"),
        ({"if_none_match": '*, "a"'}, "If-None-Match"),
        ({"if_none_match": "**"}, "If-None-Match"),
        ({"if_unmodified_since": ""}, "If-Unmodified-Since"),
        ({"if_unmodified_since": "yesterday"}, "If-Unmodified-Since"),
        ({"if_unmodified_since": "2026-01-01T00:00:00Z"}, "If-Unmodified-Since"),
        ({"if_unmodified_since": f"{PAST}, {PAST}"}, "If-Unmodified-Since"),
        ({"if_unmodified_since": "Sun, 31 Feb 1994 08:49:37 GMT"}, "If-Unmodified-Since"),
        ({"if_match": "*", "if_none_match": "*"}, "If-None-Match"),
        ({"if_match": '"a"', "if_none_match": "*"}, "If-None-Match"),
        ({"if_match": '"a", "b"', "if_none_match": '"c", "b"'}, "If-None-Match"),
    ],
)
def test_empty_malformed_and_contradictory_conditions_are_refused(
    headers: dict[str, str], at_fault: str
) -> None:
    for parse in (read_conditions, write_conditions):
        with pytest.raises(RequestRefused) as refused:
            parse(environ_of(**headers))
        assert refused.value.code == "invalid_condition"
        assert refused.value.members == {"header": at_fault}


METHODS = ["get", "head", "put", "patch", "merge", "delete"]


def send(catalog: Catalog, method: str, **headers: str) -> Any:
    body = {"put": [2], "patch": [ADD], "merge": [{"a": 2}]}.get(method, [])
    return getattr(catalog, method)(*body, **headers)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "headers",
    [
        {"If_Match": '"other"'},
        {"If_Match": "W/{etag}"},
        {"If_Match": '"*"'},
        {"If_Unmodified_Since": PAST},
        {"If_Match": '"other"', "If_Unmodified_Since": FUTURE},
    ],
)
def test_a_false_condition_is_412_on_every_method(
    catalog: Catalog, method: str, headers: dict[str, str]
) -> None:
    etag = catalog.put({"a": 1}).headers["ETag"]
    filled = {name: value.replace("{etag}", etag) for name, value in headers.items()}
    answer = send(catalog, method, **filled)
    assert answer.status_code == 412
    assert catalog.head_revision() == 1
    if method != "head":
        content = problem(answer, 412, "precondition_failed")
        assert content["current"] == {"etag": etag.strip('"'), "revision": 1}
        assert (content["applied"], content["retryable"]) == ("no", False)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "headers",
    [
        {"If_Match": "{etag}"},
        {"If_Match": '"other", {etag}'},
        {"If_Match": "*"},
        {"If_None_Match": '"other"'},
        {"If_Unmodified_Since": FUTURE},
        {"If_Match": "{etag}", "If_Unmodified_Since": PAST},  # tokens win over dates
    ],
)
def test_a_true_condition_allows_every_method(
    catalog: Catalog, method: str, headers: dict[str, str]
) -> None:
    etag = catalog.put({"a": 1}).headers["ETag"]
    filled = {name: value.replace("{etag}", etag) for name, value in headers.items()}
    assert send(catalog, method, **filled).status_code in (200, 204)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("header", ["If_Match", "If_None_Match", "If_Unmodified_Since"])
def test_a_malformed_condition_is_400_on_every_method(
    catalog: Catalog, method: str, header: str
) -> None:
    catalog.put({"a": 1})
    answer = send(catalog, method, **{header: "unquoted"})
    assert answer.status_code == 400
    if method != "head":
        assert problem(answer, 400, "invalid_condition")["header"] == header.replace("_", "-")
    assert catalog.head_revision() == 1


@pytest.mark.parametrize("method", ["put", "patch", "merge", "delete"])
def test_writes_refuse_the_condition_they_cant_honour(catalog: Catalog, method: str) -> None:
    catalog.put({"a": 1})
    answer = send(catalog, method, If_Modified_Since=PAST)
    assert problem(answer, 400, "invalid_condition")["header"] == "If-Modified-Since"


@pytest.mark.parametrize("method", ["get", "head"])
@pytest.mark.parametrize(
    "headers",
    [
        {"If_None_Match": "{etag}"},
        {"If_None_Match": "W/{etag}"},
        {"If_None_Match": "*"},
        {"If_Modified_Since": FUTURE},
        {"If_Match": "{etag}", "If_Modified_Since": FUTURE},
        {"If_None_Match": "{etag}", "If_Modified_Since": PAST},  # tokens win over dates
    ],
)
def test_an_unmodified_document_is_304_without_a_body(
    catalog: Catalog, method: str, headers: dict[str, str]
) -> None:
    written = catalog.put({"a": 1})
    etag = written.headers["ETag"]
    filled = {name: value.replace("{etag}", etag) for name, value in headers.items()}
    answer = send(catalog, method, **filled)
    assert (answer.status_code, answer.data) == (304, b"")
    assert answer.headers["ETag"] == etag
    assert answer.headers["Last-Modified"] == written.headers["Last-Modified"]
    assert answer.headers["Catalog-Revision"] == "1"
    assert "Content-Type" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [{"If_None_Match": '"other"', "If_Modified_Since": FUTURE}, {"If_Modified_Since": PAST}],
)
def test_a_modified_document_is_returned_in_full(catalog: Catalog, headers: dict[str, str]) -> None:
    catalog.put({"a": 1})
    assert catalog.get(**headers).get_json() == {"a": 1}


def test_reading_an_absent_document_is_404_whatever_the_conditions(catalog: Catalog) -> None:
    problem(catalog.get(If_Match='"other"'), 404, "document_not_found")


@pytest.mark.parametrize("revision", ["1", "-5", "0", "0x1", "1_0", "7" * 15, "f" * 16, "f" * 30])
def test_a_token_of_another_origin_does_not_match(catalog: Catalog, revision: str) -> None:
    catalog.put(1)
    problem(catalog.put(2, If_Match=f'"{revision}-x"'), 412, "precondition_failed")


def test_changes_since_has_at_most_twenty_commits(catalog: Catalog) -> None:
    etag = catalog.put(0).headers["ETag"]
    for number in range(1, 25):
        catalog.put(number)
    content = problem(catalog.put(-1, If_Match=etag), 412, "precondition_failed")
    assert [change["revision"] for change in content["changes_since"]] == list(range(2, 22))

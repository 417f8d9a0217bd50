"""Predicates hold or fail as JSON Predicates defines them, and a failed one says why."""

import contextlib
import time

import pytest
from extended_calls import refused, run

from patching import ABSENT, LimitExceeded, Limits, PatchError, TestFailed, apply_extended
from patching.extended import parse_tests
from tests.patience import WAIT_S

DOCUMENT = {
    "text": "Straße",
    "n": 5,
    "f": 1.0,
    "t": True,
    "null": None,
    "list": [1, "A"],
    "o": {"x": {"y": 3}},
    "": "empty",
}


def p(op, path, value=ABSENT, **options):
    own = {} if value is ABSENT else {"value": value}
    return {"op": op, "path": path, **own, **options}


TABLE = [
    (p("test", "/n", 5), True),
    (p("test", "/n", 5.0), True),
    (p("test", "/t", 1), False),
    (p("test", "/f", True), False),
    (p("test", "/missing", None), False),
    (p("defined", "/null"), True),
    (p("defined", "/missing"), False),
    (p("defined", "/list/1"), True),
    (p("defined", "/list/2"), False),
    (p("defined", ""), True),
    (p("undefined", "/missing/deeper"), True),
    (p("undefined", "/null"), False),
    (p("contains", "/text", "raß"), True),
    (p("contains", "/text", "RASS"), False),
    (p("contains", "/text", "RASS", ignore_case=True), True),
    (p("contains", "/text", ""), True),
    (p("contains", "/list", "A"), False),
    (p("contains", "/missing", ""), False),
    (p("starts", "/text", "Str"), True),
    (p("starts", "/text", "str"), False),
    (p("starts", "/text", "str", ignore_case=True), True),
    (p("starts", "/n", "5"), False),
    (p("ends", "/text", "ße"), True),
    (p("ends", "/text", "SSE", ignore_case=True), True),
    (p("ends", "/text", "Str"), False),
    (p("in", "/n", [1, 5]), True),
    (p("in", "/t", [1]), False),
    (p("in", "/f", [True]), False),
    (p("in", "/list", [[1, "A"]]), True),
    (p("in", "/text", ["STRASSE"]), False),
    (p("in", "/text", [1, "STRASSE"], ignore_case=True), True),
    (p("in", "/null", []), False),
    (p("in", "/missing", [None]), False),
    (p("less", "/n", 5), False),
    (p("less", "/n", 5.5), True),
    (p("less", "/t", 2), False),
    (p("less", "/text", 9), False),
    (p("less", "/missing", 9), False),
    (p("more", "/n", 4), True),
    (p("more", "/n", 5), False),
    (p("more", "/t", 0), False),
    (p("more", "/null", -1), False),
    (p("type", "/text", "string"), True),
    (p("type", "/n", "number"), True),
    (p("type", "/f", "number"), True),
    (p("type", "/t", "number"), False),
    (p("type", "/t", "boolean"), True),
    (p("type", "/o", "object"), True),
    (p("type", "/list", "array"), True),
    (p("type", "/null", "null"), True),
    (p("type", "/missing", "undefined"), True),
    (p("type", "/missing", "null"), False),
    (p("matches", "/text", "^Str.*e$"), True),
    (p("matches", "/text", "a."), True),
    (p("matches", "/text", "^a"), False),
    (p("matches", "/text", "^STRA", ignore_case=True), True),
    (p("matches", "/text", "(?i)^STRA"), True),
    (p("matches", "/n", "5"), False),
    (p("matches", "/missing", ""), False),
    (p("and", "/o", apply=[p("defined", "/x"), p("less", "/x/y", 4)]), True),
    (p("and", "/o", apply=[p("defined", "/x"), p("less", "/x/y", 3)]), False),
    (p("or", "/o", apply=[p("defined", "/z"), p("more", "/x/y", 2)]), True),
    (p("or", "/o", apply=[p("defined", "/z"), p("defined", "/w")]), False),
    (p("not", "/o", apply=[p("defined", "/z"), p("defined", "/w")]), True),
    (p("not", "/o", apply=[p("defined", "/z"), p("defined", "/x")]), False),
    ({"op": "and", "apply": [{"op": "test", "path": "/n", "value": 5}]}, True),
    (p("and", "/n", apply=[{"op": "more", "value": 4}, {"op": "less", "value": 6}]), True),
    (p("and", "/o", apply=[p("not", "/x", apply=[p("more", "/y", 3)])]), True),
    (p("or", "/", apply=[{"op": "starts", "value": "emp"}]), True),
]


@pytest.mark.parametrize(("predicate", "holds"), TABLE, ids=str)
def test_a_predicate_is_true_or_fails_the_patch(predicate, holds):
    change = {"op": "remove", "path": "/n"}
    if holds:
        assert "n" not in run(DOCUMENT, predicate, change).content
        assert run(DOCUMENT, predicate).content is DOCUMENT
    else:
        error = refused(TestFailed, DOCUMENT, predicate, change)
        assert (error.operation, error.pointer) == (0, predicate.get("path", ""))
        assert error.code == "test_failed"


def test_a_failed_test_carries_the_value_and_other_predicates_themselves():
    error = refused(TestFailed, DOCUMENT, p("defined", ""), p("test", "/n", 6))
    assert (error.operation, error.expected, error.actual) == (1, 6, 5)
    error = refused(TestFailed, DOCUMENT, p("contains", "/text", "x", ignore_case=True))
    assert error.expected == {"op": "contains", "value": "x", "ignore_case": True}
    assert error.actual == "Straße"
    error = refused(TestFailed, DOCUMENT, p("defined", "/missing"))
    assert (error.expected, error.actual) == ({"op": "defined"}, ABSENT)
    inner = {"op": "defined", "path": "/z"}
    error = refused(TestFailed, DOCUMENT, {"op": "and", "path": "/o", "apply": [inner]})
    assert error.expected == {"op": "and", "apply": [inner]}
    assert error.actual == {"x": {"y": 3}}


def test_predicates_see_the_effects_of_earlier_operations():
    assert run({"n": 1}, {"op": "increment", "path": "/n"}, p("test", "/n", 2)).content == {"n": 2}


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        (p("undefined", ""), True),
        (p("undefined", "/a"), True),
        (p("type", "", "undefined"), True),
        (p("not", "", apply=[p("defined", "")]), True),
        (p("test", "", None), False),
        (p("test", "/a", 1), False),
        (p("defined", ""), False),
        (p("matches", "/a", ""), False),
        (p("in", "", [None]), False),
        (p("and", "/a", apply=[{"op": "defined"}]), False),
    ],
    ids=str,
)
def test_tests_of_an_absent_document_only_pass_or_fail(predicate, holds):
    tests = parse_tests([predicate])
    if holds:
        result = apply_extended(ABSENT, tests, document_bytes=0)
        assert (result.content, result.size_bytes, result.effective) == (ABSENT, 0, [])
    else:
        with pytest.raises(TestFailed):
            apply_extended(ABSENT, tests, document_bytes=0)


CATASTROPHES = ["(a*)*b", "(x+x+)+y", "(a|aa)+$", "(.{1,30}){1,20}$", "((a?){1,60}a{1,60}){1,3}b"]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_no_pattern_takes_long_on_a_long_text(pattern):
    document = {"a": "a" * 200_000, "x": "x" * 200_000}
    started = time.thread_time()
    for path in ("/a", "/x"):
        with contextlib.suppress(LimitExceeded, TestFailed):
            run(document, p("not", "", apply=[p("matches", path, pattern)]))
    assert time.thread_time() - started < WAIT_S


def test_the_searched_text_is_bounded_and_the_error_names_the_pointer():
    predicate = p("matches", "/a", "(.{1,30}){1,20}$")
    error = refused(LimitExceeded, {"a": "a" * 200_000}, p("defined", ""), predicate)
    assert (error.limit, error.operation, error.pointer) == ("items_examined_max", 1, "/a")


def test_the_texts_of_all_predicates_count_together():
    limits = Limits(items_examined_max=1000)
    document = {"a": "a" * 100_000}
    held = p("contains", "/a", "a")
    run(document, *[held] * 10, limits=limits)
    assert refused(LimitExceeded, document, *[held] * 11, limits=limits).operation == 10


def test_a_pattern_that_fails_writes_nothing_to_standard_error(capfd):
    with pytest.raises(PatchError):
        parse_tests([p("matches", "/a", "(")])
    assert capfd.readouterr().err == ""

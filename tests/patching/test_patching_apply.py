"""Applying: corner cases of RFC 6901 and RFC 6902, and documents that don't exist."""

import pytest

from patching import (
    ABSENT,
    DocumentAbsent,
    PatchConflict,
    PathMissing,
    TestFailed,
    apply,
    equal,
)


def add(path, value=9):
    return {"op": "add", "path": path, "value": value}


def remove(path):
    return {"op": "remove", "path": path}


def replace(path, value=9):
    return {"op": "replace", "path": path, "value": value}


def move(source, path):
    return {"op": "move", "from": source, "path": path}


def copy(source, path):
    return {"op": "copy", "from": source, "path": path}


def check(path, value):
    return {"op": "test", "path": path, "value": value}


APPLIED = [
    ({"a": 1}, [add("/a", 2)], {"a": 2}),
    ({}, [add("/", 1)], {"": 1}),
    ({"": {"": 1}}, [replace("//", 2)], {"": {"": 2}}),
    ({"~1": 1, "/": 2}, [remove("/~01")], {"/": 2}),
    ({"~": {"/": 1}}, [replace("/~0/~1", 2)], {"~": {"/": 2}}),
    ({"0": 1, "-": 2, "01": 3}, [remove("/0"), remove("/-"), remove("/01")], {}),
    ([], [add("/0", 1)], [1]),
    ([], [add("/-", 1)], [1]),
    ([1, 2], [add("/2", 3)], [1, 2, 3]),
    ([1, 2], [add("/0", 0)], [0, 1, 2]),
    ([[1]], [add("/0/-", 2)], [[1, 2]]),
    ([1, 2, 3], [move("/0", "/-")], [2, 3, 1]),
    ([1, 2, 3], [move("/2", "/0")], [3, 1, 2]),
    ([1, 2, 3], [copy("/0", "/-")], [1, 2, 3, 1]),
    (list(range(12)), [remove("/10")], [*range(10), 11]),
    ({"a": 1}, [replace("", [1])], [1]),
    ({"a": 1}, [add("", None)], None),
    (5, [replace("", 6)], 6),
    ({"a": {"b": 1}}, [move("/a", "")], {"b": 1}),
    ({"a": {"b": 1}}, [copy("/a/b", "")], 1),
    ({"a": 1}, [copy("", "/b")], {"a": 1, "b": {"a": 1}}),
    ({"a": 1}, [copy("", "/b"), copy("", "/b/c")],
     {"a": 1, "b": {"a": 1, "c": {"a": 1, "b": {"a": 1}}}}),
    ({"a": 1}, [move("/a", "/a")], {"a": 1}),
    ({"a": 1}, [move("", "")], {"a": 1}),
    ({"a": [1]}, [copy("/a", "/b"), add("/b/-", 2), add("/a/-", 3)], {"a": [1, 3], "b": [1, 2]}),
    ({"a": [1]}, [add("/a/-", 2), copy("/a", "/b"), add("/b/-", 3), add("/a/-", 4)],
     {"a": [1, 2, 4], "b": [1, 2, 3]}),
    ({"a": {"x": {}}},
     [add("/a/x/k", 1), copy("/a", "/b"), add("/b/x/y", 2), add("/a/x/z", 3)],
     {"a": {"x": {"k": 1, "z": 3}}, "b": {"x": {"k": 1, "y": 2}}}),
    ({"a": {}}, [add("/a/x", {}), copy("/a", "/b"), add("/b/x/y", 1), add("/a/x/z", 2)],
     {"a": {"x": {"z": 2}}, "b": {"x": {"y": 1}}}),
    ({"foo": 1}, [move("/foo", "/bar"), add("/foo", 2)], {"bar": 1, "foo": 2}),
    ({"a": 1}, [], {"a": 1}),
    ({"a": 1}, [check("", {"a": 1.0})], {"a": 1}),
    ({"a": None}, [check("/a", None), replace("/a", 0)], {"a": 0}),
    ({"a": 2**70}, [check("/a", 2**70)], {"a": 2**70}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "patch", "expected"), APPLIED)
def test_apply_gives_the_expected_document(document, patch, expected):
    assert equal(apply(document, patch), expected)


MISSING = [
    ([1, 2], [add("/3")]),
    ([1, 2], [add("/01")]),
    ([1, 2], [add("/-1")]),
    ([1, 2], [add("/1e0")]),
    ([1, 2], [add("/+1")]),
    ([1, 2], [add("/ 1")]),
    ([1, 2], [add("/")]),
    ([1, 2], [add("/١")]),
    ([1, 2], [add("/²")]),
    ([1, 2], [add("/" + "9" * 5000)]),
    ([1, 2], [replace("/2")]),
    ([1, 2], [replace("/-")]),
    ([1, 2], [remove("/-")]),
    ([1, 2], [remove("/2")]),
    ([1, 2], [remove("/00")]),
    ([1, 2], [move("/-", "/0")]),
    ([1, 2], [copy("/-", "/0")]),
    ([1, 2], [move("/0", "/2")]),
    ([[1]], [add("/-/0")]),
    ({}, [remove("/a")]),
    ({}, [replace("/a")]),
    ({}, [move("/a", "/a")]),
    ({}, [move("/a", "/b")]),
    ({}, [copy("/a", "/b")]),
    ({"a": 1}, [add("/a/b")]),
    ({"a": "text"}, [add("/a/0")]),
    ({"a": "text"}, [remove("/a/0")]),
    ({"a": None}, [add("/a/b")]),
    (5, [add("/a")]),
    ("text", [replace("/0")]),
    ({"a": {}}, [add("/b/c")]),
    ({"a": {"b": 1}}, [move("/a", "/b/c")]),
]


@pytest.mark.parametrize(("document", "patch"), MISSING)
def test_apply_reports_missing_places(document, patch):
    with pytest.raises(PathMissing) as caught:
        apply(document, patch)
    assert caught.value.code == "path_missing"
    assert caught.value.operation == 0
    assert caught.value.pointer in (patch[0]["path"], patch[0].get("from"))


FAILED = [
    ({"a": 1}, check("/a", True)),
    ({"a": True}, check("/a", 1)),
    ({"a": 0}, check("/a", False)),
    ({"a": 0}, check("/a", None)),
    ({"a": [1]}, check("/a", [True])),
    ({"a": "1"}, check("/a", 1)),
    ({"a": 2**53 + 1}, check("/a", float(2**53))),
    ({"a": [1, 2]}, check("/a", [2, 1])),
    ({"a": {}}, check("/a", [])),
    ({"a": 1}, check("", {"a": 1, "b": 2})),
]


@pytest.mark.parametrize(("document", "operation"), FAILED)
def test_a_test_that_finds_another_value_fails_and_the_error_has_both(document, operation):
    with pytest.raises(TestFailed) as caught:
        apply(document, [check("", document), operation])
    error = caught.value
    assert (error.code, error.operation, error.pointer) == ("test_failed", 1, operation["path"])
    assert error.expected is operation["value"]
    assert error.actual is (document if operation["path"] == "" else document["a"])


@pytest.mark.parametrize("path", ["/b", "/a/b", "/l/-", "/l/1", "/l/00"])
def test_a_test_of_a_missing_place_is_a_failed_test(path):
    with pytest.raises(TestFailed) as caught:
        apply({"a": 1, "l": [0]}, [check(path, None)])
    assert caught.value.actual is ABSENT


def test_adding_the_root_makes_an_absent_document():
    assert apply(ABSENT, [add("", {}), add("/a", 1)]) == {"a": 1}


def test_after_removing_the_root_a_document_can_be_added_again():
    assert apply({"a": 1}, [remove("")]) is ABSENT
    assert apply({"a": 1}, [remove(""), add("", [])]) == []


@pytest.mark.parametrize(
    "operation",
    [
        add("/a"),
        remove(""),
        remove("/a"),
        replace(""),
        move("", ""),
        copy("", ""),
        check("", None),
        check("/a", 1),
    ],
)
def test_nothing_but_add_at_the_root_applies_to_an_absent_document(operation):
    for document, patch in [(ABSENT, [operation]), ({"a": 1}, [remove(""), operation])]:
        with pytest.raises(DocumentAbsent) as caught:
            apply(document, patch)
        assert caught.value.operation == len(patch) - 1
        assert isinstance(caught.value, PatchConflict)


def test_an_empty_patch_keeps_an_absent_document_absent():
    assert apply(ABSENT, []) is ABSENT

"""The examples of RFC 6902, appendix A."""

import pytest

from patching import InvalidPatch, PathMissing, TestFailed, apply, equal

EXAMPLES = {
    "A.1 adding an object member": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux"}],
        {"baz": "qux", "foo": "bar"},
    ),
    "A.2 adding an array element": (
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    "A.3 removing an object member": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "remove", "path": "/baz"}],
        {"foo": "bar"},
    ),
    "A.4 removing an array element": (
        {"foo": ["bar", "qux", "baz"]},
        [{"op": "remove", "path": "/foo/1"}],
        {"foo": ["bar", "baz"]},
    ),
    "A.5 replacing a value": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    "A.6 moving a value": (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    "A.7 moving an array element": (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    "A.8 testing a value: success": (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [
            {"op": "test", "path": "/baz", "value": "qux"},
            {"op": "test", "path": "/foo/1", "value": 2},
        ],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    "A.9 testing a value: error": (
        {"baz": "qux"},
        [{"op": "test", "path": "/baz", "value": "bar"}],
        TestFailed,
    ),
    "A.10 adding a nested member object": (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.11 ignoring unrecognized elements": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    "A.12 adding to a nonexistent target": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz/bat", "value": "qux"}],
        PathMissing,
    ),
    "A.13 invalid JSON Patch document (duplicate op; decoders keep the last)": (
        {"foo": "bar"},
        [{"op": "remove", "path": "/baz", "value": "qux"}],
        PathMissing,
    ),
    "A.14 ~ escape ordering": (
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": 10}],
        {"/": 9, "~1": 10},
    ),
    "A.15 comparing strings and numbers": (
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": "10"}],
        TestFailed,
    ),
    "A.16 adding an array value": (
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
}


@pytest.mark.parametrize(("document", "patch", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_rfc6902_appendix_a(document, patch, expected):
    if isinstance(expected, type):
        with pytest.raises(expected):
            apply(document, patch)
    else:
        assert equal(apply(document, patch), expected)


def test_rfc6902_section_5_a_failed_operation_undoes_those_before_it():
    document = {"a": {"b": {"c": "x"}}}
    patch = [
        {"op": "replace", "path": "/a/b/c", "value": 42},
        {"op": "test", "path": "/a/b/c", "value": "C"},
    ]
    with pytest.raises(TestFailed):
        apply(document, patch)
    assert document == {"a": {"b": {"c": "x"}}}


def test_rfc6902_section_4_4_nothing_moves_into_its_own_child():
    with pytest.raises(InvalidPatch):
        apply({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}])

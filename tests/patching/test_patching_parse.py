"""Parsing: what is refused, and where the error says it is."""

import pickle

import pytest

from patching import InvalidPatch, LimitExceeded, Limits, parse

OK = {"op": "remove", "path": "/a"}


def refusal(patch):
    with pytest.raises(InvalidPatch) as caught:
        parse(patch)
    return caught.value


@pytest.mark.parametrize("patch", [{}, "[]", None, 1, {"op": "remove", "path": "/a"}])
def test_a_patch_that_is_not_an_array_is_refused(patch):
    error = refusal(patch)
    assert (error.code, error.operation) == ("invalid_patch", None)


@pytest.mark.parametrize(
    ("operation", "code", "member"),
    [
        ("remove", "invalid_patch", None),
        (None, "invalid_patch", None),
        ([], "invalid_patch", None),
        ({}, "invalid_patch", "op"),
        ({"path": "/a"}, "invalid_patch", "op"),
        ({"op": None, "path": "/a"}, "invalid_patch", "op"),
        ({"op": ["add"], "path": "/a", "value": 1}, "invalid_patch", "op"),
        ({"op": "spam", "path": "/a"}, "unknown_operation", "op"),
        ({"op": "Add", "path": "/a", "value": 1}, "unknown_operation", "op"),
        ({"op": "remove"}, "invalid_patch", "path"),
        ({"op": "remove", "path": None}, "invalid_patch", "path"),
        ({"op": "remove", "path": 1}, "invalid_patch", "path"),
        ({"op": "remove", "path": ["a"]}, "invalid_patch", "path"),
        ({"op": "remove", "path": "a"}, "invalid_pointer", "path"),
        ({"op": "remove", "path": "#/a"}, "invalid_pointer", "path"),
        ({"op": "remove", "path": "/a~"}, "invalid_pointer", "path"),
        ({"op": "remove", "path": "/~2"}, "invalid_pointer", "path"),
        ({"op": "remove", "path": "/~~0"}, "invalid_pointer", "path"),
        ({"op": "add", "path": "/a"}, "invalid_patch", "value"),
        ({"op": "replace", "path": "/a"}, "invalid_patch", "value"),
        ({"op": "test", "path": "/a"}, "invalid_patch", "value"),
        ({"op": "move", "path": "/a"}, "invalid_patch", "from"),
        ({"op": "copy", "path": "/a", "from": 5}, "invalid_patch", "from"),
        ({"op": "copy", "path": "/a", "from": "b"}, "invalid_pointer", "from"),
        ({"op": "move", "from": "/a", "path": "/a/b"}, "invalid_patch", "path"),
        ({"op": "move", "from": "", "path": "/a"}, "invalid_patch", "path"),
    ],
)
def test_an_error_names_the_operation_and_the_member(operation, code, member):
    error = refusal([OK, OK, operation])
    assert (error.code, error.operation, error.member) == (code, 2, member)


def test_an_invalid_pointer_is_named():
    assert refusal([{"op": "remove", "path": "/~2"}]).pointer == "/~2"


def test_members_an_operation_does_not_define_are_ignored():
    patch = parse([{"op": "remove", "path": "/a", "value": object, "from": 7, "x": 1}])
    assert patch.to_json() == [OK]


def test_a_null_value_is_a_value():
    (operation,) = parse([{"op": "add", "path": "/a", "value": None}])
    assert operation.value is None


def test_a_sibling_with_a_common_prefix_is_not_a_child():
    assert len(parse([{"op": "move", "from": "/a", "path": "/ab"}])) == 1


def test_to_json_returns_the_parsed_patch():
    patch = [
        {"op": "add", "path": "/~01~1/-", "value": {"x": [1]}},
        OK,
        {"op": "replace", "path": "", "value": 1.0},
        {"op": "move", "from": "/b", "path": "/a"},
        {"op": "copy", "from": "", "path": "/c"},
        {"op": "test", "path": "/é", "value": True},
    ]
    parsed = parse(patch)
    assert parsed.to_json() == patch
    assert parse(parsed.to_json()).to_json() == patch
    assert pickle.loads(pickle.dumps(parsed)).to_json() == patch
    assert [type(each).__name__ for each in parsed] == [
        "Add", "Remove", "Replace", "Move", "Copy", "Test",
    ]  # fmt: skip


def test_without_tests_keeps_the_other_operations():
    test = {"op": "test", "path": "/a", "value": 1}
    assert parse([test, OK, test]).without_tests().to_json() == [OK]


def test_too_many_operations_are_refused():
    limits = Limits(operations_max=2)
    parse([OK] * 2, limits=limits)
    with pytest.raises(LimitExceeded) as caught:
        parse([OK] * 3, limits=limits)
    error = caught.value
    assert (error.limit, error.maximum, error.actual) == ("operations_max", 2, 3)


@pytest.mark.parametrize("name", ["add", "replace", "test"])
def test_a_value_nested_too_deeply_is_refused(name):
    limits = Limits(depth_max=3)
    parse([{"op": name, "path": "/a", "value": [{"b": 1}]}], limits=limits)
    with pytest.raises(LimitExceeded) as caught:
        parse([OK, {"op": name, "path": "/a", "value": [{"b": []}]}], limits=limits)
    error = caught.value
    assert (error.limit, error.actual, error.operation, error.pointer) == ("depth_max", 4, 1, "/a")


def test_a_value_nested_beyond_any_recursion_limit_is_refused_as_too_deep():
    value = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(LimitExceeded):
        parse([{"op": "add", "path": "/a", "value": value}])


@pytest.mark.parametrize(
    ("operation", "growth"),
    [
        ({"op": "add", "path": "/ab", "value": "x"}, len('"ab":"x",')),
        ({"op": "add", "path": "", "value": [1, 2]}, len("[1,2]")),
        ({"op": "replace", "path": "/ab", "value": {"é": None}}, len('{"é":null}'.encode())),
        ({"op": "move", "from": "/a", "path": "/ab"}, len('"ab":,')),
        ({"op": "add", "path": "/a", "value": "\ud800"}, len('"a":"\\ud800",')),
        ({"op": "remove", "path": "/a"}, 0),
        ({"op": "test", "path": "/a", "value": "long"}, 0),
    ],
)
def test_growth_is_the_json_size_of_the_values_and_names(operation, growth):
    assert parse([operation]).growth_bytes == growth

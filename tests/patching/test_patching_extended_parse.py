"""Parsing an extended patch: what is refused, and where the error says it is."""

import copy
import pickle

import pytest
from extended_calls import extended

from patching import (
    InvalidPatch,
    LimitExceeded,
    Limits,
    PatchError,
    TestFailed,
    apply_extended,
    parse,
    parse_extended,
)
from patching.extended import is_conditional, parse_tests

OK = {"op": "defined", "path": ""}


def op(name, path="/a", **members):
    return {"op": name, "path": path, **members}


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (None, None),
        ([], None),
        ("{}", None),
        ({}, "patch"),
        ({"array_primary_keys": {}}, "patch"),
        ({"patch": [], "array_primary_key": {}}, "array_primary_key"),
        ({"patch": [], "": 1}, ""),
        ({"patch": {}}, "patch"),
        ({"patch": None}, "patch"),
        ({"patch": [], "array_primary_keys": None}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": ["/a"]}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"a": ["k"]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/~2": ["k"]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": []}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": "k"}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": [1]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": [""]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": ["/k"]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": ["k~"]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": ["k", "k"]}}, "array_primary_keys"),
        ({"patch": [], "array_primary_keys": {"/a": ["k/x", "k"]}}, "array_primary_keys"),
        (
            {"patch": [], "array_primary_keys": {f"/{n}": ["k"] for n in range(101)}},
            "array_primary_keys",
        ),
        ({"patch": [], "array_primary_keys": {"/a" * 101: ["k"]}}, "array_primary_keys"),
    ],
    ids=repr,
)
def test_another_form_is_refused_and_the_member_named(value, member):
    with pytest.raises(InvalidPatch) as caught:
        parse_extended(value)
    assert (caught.value.member, caught.value.operation) == (member, None)
    if (
        member == "array_primary_keys"
        and isinstance(value[member], dict)
        and len(value[member]) == 1
    ):
        assert caught.value.pointer == next(iter(value[member]))


REFUSED = [
    (1, None, None),
    ({}, "op", None),
    ({"op": 1}, "op", None),
    (op("spam"), "op", None),
    (op("Add", value=1), "op", None),
    ({"op": "remove"}, "path", None),
    (op("remove", "a"), "path", "a"),
    (op("remove", if_exists="yes"), "if_exists", "/a"),
    (op("remove", if_exists=None), "if_exists", "/a"),
    (op("add"), "value", "/a"),
    (op("add", value=1, create_parents=1), "create_parents", "/a"),
    (op("add_to_set"), "value", "/a"),
    (op("add_to_set", value=1, create_parents="no"), "create_parents", "/a"),
    ({"op": "add_to_set", "value": 1}, "path", None),
    (op("pull"), "value", "/a"),
    (op("increment", value="1"), "value", "/a"),
    (op("increment", value=True), "value", "/a"),
    (op("increment", value=None), "value", "/a"),
    (op("increment", value=float("inf")), "value", "/a"),
    (op("increment", create_parents=[]), "create_parents", "/a"),
    (op("set"), "value", "/a"),
    (op("set", value=1, create_parents="no"), "create_parents", "/a"),
    (op("max"), "value", "/a"),
    (op("max", value="a text"), "value", "/a"),
    (op("min", value=True), "value", "/a"),
    (op("append_text", value=1), "value", "/a"),
    (op("append_text", value="x", once=1), "once", "/a"),
    (op("append_text", value="x", max_length=0), "max_length", "/a"),
    (op("append_text", value="x", max_length=True), "max_length", "/a"),
    (op("append_text", value="x", max_length=None), "max_length", "/a"),
    (op("stamp"), "value", "/a"),
    (op("stamp", value="commit"), "value", "/a"),
    ({"op": "test", "value": 1}, "path", None),
    (op("test"), "value", "/a"),
    ({"op": "defined"}, "path", None),
    (op("contains"), "value", "/a"),
    (op("contains", value=1), "value", "/a"),
    (op("contains", value="x", ignore_case="yes"), "ignore_case", "/a"),
    (op("starts", value=["x"]), "value", "/a"),
    (op("ends", value=None), "value", "/a"),
    (op("in", value="abc"), "value", "/a"),
    (op("less", value="1"), "value", "/a"),
    (op("more", value=True), "value", "/a"),
    (op("type", value="integer"), "value", "/a"),
    (op("type", value=["string"]), "value", "/a"),
    (op("matches", value=1), "value", "/a"),
    (op("matches", value="("), "value", "/a"),
    (op("matches", value="(a)\\1"), "value", "/a"),
    (op("matches", value="(?=a)"), "value", "/a"),
    (op("matches", value="((a{100}){100}){10}"), "value", "/a"),
    (op("matches", value="a" * 1001), "value", "/a"),
    (op("matches", value="\ud800"), "value", "/a"),
    (op("and"), "apply", "/a"),
    (op("and", apply=[]), "apply", "/a"),
    (op("not", apply=op("defined")), "apply", "/a"),
    (op("or", apply=["defined"]), "apply", "/a"),
    (op("and", apply=[op("remove", "/b")]), "op", "/a"),
    (op("and", apply=[OK, {"path": "/b"}]), "op", "/a"),
    (op("and", apply=[op("less", "/b", value="1")]), "value", "/a/b"),
    (op("and", apply=[op("or", "/b", apply=[])]), "apply", "/a/b"),
    (op("and", apply=[op("defined", "b")]), "path", "b"),
]


@pytest.mark.parametrize(("operation", "member", "pointer"), REFUSED, ids=repr)
def test_an_error_names_the_operation_the_pointer_and_the_member(operation, member, pointer):
    with pytest.raises(InvalidPatch) as caught:
        extended([OK, OK, operation])
    error = caught.value
    assert (error.operation, error.member, error.pointer) == (2, member, pointer)
    assert len(str(error)) < 1000
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_an_unknown_operation_is_refused_with_the_list_of_operations():
    with pytest.raises(InvalidPatch) as caught:
        extended([op("spam")])
    assert caught.value.code == "unknown_operation"
    for name in ("add", "pull", "add_to_set", "increment", "matches", "not"):
        assert name in caught.value.detail


PATCH = [
    op("add", value={"x": [1]}),
    op("add", value=1, create_parents=True),
    op("remove"),
    op("remove", if_exists=True),
    op("replace", value=None),
    {"op": "move", "from": "/b", "path": "/c"},
    {"op": "copy", "from": "/b", "path": "/c"},
    op("test", value=1.0),
    op("add_to_set", value=1),
    op("add_to_set", value=1, create_parents=True),
    op("pull", value={}),
    op("increment", value=2.5),
    op("increment", value=1, create_parents=True),
    op("set", value={}, create_parents=True),
    op("max", value=2.5, create_parents=True),
    op("min", value=1),
    op("append_text", value="x", once=True, max_length=3, create_parents=True),
    op("append_text", value="x"),
    op("contains", value="x", ignore_case=True),
    op("matches", value="^x+"),
    op("in", value=[1, 2]),
    op("undefined"),
    op("not", apply=[op("less", "", value=1), op("and", "/b", apply=[op("defined", "/c")])]),
    op("stamp", value="time", create_parents=True),
    op("stamp", value="revision"),
]
KEYED = {"/f": ["a", "b/c"], "/f/*/g": ["d"]}


def test_to_json_returns_the_parsed_patch():
    whole = {"patch": PATCH, "array_primary_keys": KEYED}
    parsed = parse_extended(whole)
    assert parsed.to_json() == whole
    assert parse_extended({"patch": PATCH}).to_json() == {"patch": PATCH}
    assert parse_extended(parsed.to_json()).to_json() == whole
    assert pickle.loads(pickle.dumps(parsed)).to_json() == whole
    assert copy.deepcopy(parsed).to_json() == whole
    assert len(parsed) == len(list(parsed)) == len(PATCH)


def test_only_stamps_follow_a_stamp():
    stamp = op("stamp", value="time")
    for after in (op("set", value=1), op("defined")):
        with pytest.raises(InvalidPatch, match="only another 'stamp' may follow") as caught:
            extended([op("add", value=1), stamp, stamp, after])
        assert (caught.value.operation, caught.value.pointer) == (3, "/a")


def test_members_an_operation_does_not_define_are_ignored():
    junk = {"value": object, "ignore_case": 1, "create_parents": 7, "x": 1}
    assert extended([op("remove", **junk)]).to_json()["patch"] == [op("remove")]
    assert extended([op("defined", **junk)]).to_json()["patch"] == [op("defined")]
    (increment,) = extended([op("increment")])
    assert increment.to_json() == op("increment", value=1)


def test_predicates_in_apply_count_as_operations():
    limits = Limits(operations_max=5)
    nested = op("and", apply=[OK, op("or", apply=[OK, OK])])
    extended([nested], limits=limits)
    for patch in ([nested, OK], [OK] * 6):
        with pytest.raises(LimitExceeded) as caught:
            extended(patch, limits=limits)
        error = caught.value
        assert (error.limit, error.maximum, error.actual) == ("operations_max", 5, 6)


def test_the_depth_of_a_nested_predicate_includes_its_outer_pointers():
    limits = Limits(depth_max=3)
    extended([op("and", "/a/b", apply=[op("defined", "/c")])], limits=limits)
    with pytest.raises(LimitExceeded) as caught:
        extended([OK, op("and", "/a/b", apply=[op("defined", "/c/d")])], limits=limits)
    error = caught.value
    assert (error.limit, error.operation, error.pointer) == ("depth_max", 1, "/a/b/c/d")


def test_the_nesting_of_predicates_is_bounded():
    def nested(levels):
        predicate = OK
        for _ in range(levels):
            predicate = {"op": "and", "apply": [predicate]}
        return predicate

    extended([nested(32)])
    for levels in (33, 5000):
        with pytest.raises(InvalidPatch) as caught:
            extended([nested(levels)])
        assert caught.value.member == "apply"


def test_a_patch_parsed_with_looser_limits_must_keep_the_depth_limit_of_apply():
    patch = extended([op("add", value=[[[]]])])
    with pytest.raises(LimitExceeded) as caught:
        apply_extended({}, patch, limits=Limits(depth_max=3), document_bytes=2)
    assert (caught.value.operation, caught.value.pointer) == (0, "/a")


@pytest.mark.parametrize(
    ("operation", "conditional"),
    [
        (op("test", value=1), True),
        (op("undefined"), True),
        (op("or", apply=[OK]), True),
        (op("add", value=1), False),
        (op("remove", if_exists=True), False),
        (op("add_to_set", value=1), False),
    ],
)
def test_a_patch_is_conditional_if_it_has_a_predicate(operation, conditional):
    assert is_conditional(extended([op("remove"), operation])) is conditional
    if operation["op"] in ("test", "add"):
        assert is_conditional(parse([op("remove"), operation])) is conditional


@pytest.mark.parametrize("name", ["add", "remove", "replace", "move", "pull", "increment", "spam"])
def test_tests_may_contain_no_operation_that_changes(name):
    with pytest.raises(InvalidPatch) as caught:
        parse_tests([OK, {"op": name, "from": "/b", "path": "/a", "value": 1}])
    assert (caught.value.operation, caught.value.member) == (1, "op")
    assert caught.value.code == "unknown_operation"
    with pytest.raises(InvalidPatch):
        parse_tests({"patch": [OK]})
    assert len(parse_tests([OK, op("test", value=1)])) == 2


def test_errors_of_applying_can_be_pickled():
    patch = extended([OK, op("less", value=1)])
    with pytest.raises(PatchError) as caught:
        apply_extended({"a": 1}, patch, document_bytes=7)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is TestFailed
    assert vars(again) == vars(caught.value)

"""Errors are data for programs, short for people, and survive pickling."""

import pickle

import pytest

import patching.errors
import patching.ownership
from patching import (
    ABSENT,
    DocumentAbsent,
    InvalidPatch,
    LimitExceeded,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
    apply,
    parse,
)
from patching.errors import IndexNeedsTest, ListViolation
from patching.ownership import OwnedByOthers

TREE = {
    InvalidPatch: PatchError,
    IndexNeedsTest: PatchError,
    PatchConflict: PatchError,
    TestFailed: PatchConflict,
    PathMissing: PatchConflict,
    DocumentAbsent: PatchConflict,
    ListViolation: PatchConflict,
    OwnedByOthers: PatchConflict,
    LimitExceeded: PatchError,
}


def test_the_class_tree_matches_its_docstring():
    for error, parent in TREE.items():
        assert error.__base__ is parent
        assert error.__name__ in PatchError.__doc__
        code = "invalid_patch" if error is InvalidPatch else error.code
        assert error is PatchConflict or code in PatchError.__doc__
    public = [*vars(patching.errors).values(), *vars(patching.ownership).values()]
    errors = {each for each in public if isinstance(each, type) and issubclass(each, Exception)}
    assert errors == {PatchError, *TREE}


HUGE = "x" * 100_000
WIDE = {f"name{n}": HUGE for n in range(1000)}
CASES = [
    (None, {HUGE: 1}),
    (None, [HUGE]),
    (None, [WIDE]),
    (None, [{"op": HUGE, "path": ""}]),
    (None, [{"op": "remove", "path": HUGE}]),
    (None, [{"op": "remove", "path": "/" + HUGE + "~"}]),
    (None, [{"op": "remove", "path": WIDE}]),
    (None, [{"op": "move", "from": "/" + HUGE, "path": f"/{HUGE}/a"}]),
    (ABSENT, [{"op": "remove", "path": "/" + HUGE}]),
    ({}, [{"op": "remove", "path": "/" + HUGE}]),
    ({HUGE: 1}, [{"op": "remove", "path": f"/{HUGE}/a"}]),
    (WIDE, [{"op": "test", "path": "", "value": [HUGE]}]),
    (HUGE, [{"op": "test", "path": "", "value": "\ud800"}]),
    (10**5000, [{"op": "test", "path": "", "value": [10**5000]}]),
]


@pytest.mark.parametrize(("document", "patch"), CASES, ids=range(len(CASES)))
def test_messages_are_short_and_errors_can_be_pickled(document, patch):
    with pytest.raises(PatchError) as caught:
        apply(document, patch)
    error = caught.value
    assert len(str(error)) < 1000
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_message_names_the_place_and_the_reason():
    with pytest.raises(PathMissing) as caught:
        apply({"a": {"l": [1]}}, [{"op": "remove", "path": "/a/l/5/x"}])
    assert str(caught.value) == (
        "operation 0 at '/a/l/5/x': '/a/l' is an array of 1 item and has no item at \"5\""
    )
    with pytest.raises(TestFailed) as caught:
        apply({"a": {"l": [1]}}, [{"op": "test", "path": "/a", "value": True}])
    assert str(caught.value) == "operation 0 at '/a': expected true, found {\"l\": [1]}"


def test_absent_keeps_its_identity_when_pickled():
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert not ABSENT


def test_pointers_can_be_split_and_joined():
    for pointer in ("", "/", "/a/0/-", "/~01/~1", "//"):
        assert patching.join_pointer(patching.split_pointer(pointer)) == pointer
    assert patching.join_pointer(["a", 0, "b/c"]) == "/a/0/b~1c"
    with pytest.raises(InvalidPatch) as caught:
        patching.split_pointer("a")
    assert caught.value.code == "invalid_pointer"
    assert parse([]).to_json() == []

"""Only what a patch touches is copied, once, and nothing that is shared is ever modified."""

import contextlib
import copy

import pytest
from hypothesis import given, settings
from patch_strategies import at, locations, patched_documents

from patching import PatchError, apply, parse, split_pointer
from patching.footprints import footprint


class CountingDict(dict):
    copies = 0

    def copy(self):
        CountingDict.copies += 1
        return CountingDict(self)


@pytest.fixture
def copies():
    CountingDict.copies = 0
    return lambda: CountingDict.copies


def wide():
    return CountingDict(
        a=CountingDict(x=CountingDict(), y=CountingDict()), b=CountingDict(z=CountingDict())
    )


def replace(path, value=9):
    return {"op": "replace", "path": path, "value": value}


def add(path, value=9):
    return {"op": "add", "path": path, "value": value}


def test_a_change_copies_the_containers_on_its_path_and_no_other(copies):
    before = wide()
    after = apply(before, [add("/a/x/new")])
    assert copies() == 3
    assert after["b"] is before["b"]
    assert after["a"]["y"] is before["a"]["y"]
    assert before == wide()


def test_a_container_is_copied_once_however_many_operations_touch_it(copies):
    apply(wide(), [add(f"/a/x/{n}") for n in range(50)] + [add(f"/a/{n}") for n in range(50)])
    assert copies() == 3


def test_a_private_container_that_was_moved_is_not_copied_again(copies):
    patch = [add("/a/x/1"), {"op": "move", "from": "/a/x", "path": "/c"}, add("/c/2")]
    assert apply(wide(), patch)["c"] == {"1": 9, "2": 9}
    assert copies() == 3


def test_tests_copy_nothing(copies):
    before = wide()
    assert apply(before, [{"op": "test", "path": "/a/x", "value": {}}] * 3) is before
    assert copies() == 0


def test_a_copied_value_is_shared_until_it_changes(copies):
    before = wide()
    after = apply(before, [{"op": "copy", "from": "/a", "path": "/c"}])
    assert after["c"] is after["a"] is before["a"]
    assert copies() == 1


def test_an_inserted_value_is_shared_with_the_patch_and_never_modified():
    value = {"list": [1]}
    patch = parse([add("/a", value), add("/b", value), add("/a/list/-", 2)])
    first = apply({}, patch)
    assert first == {"a": {"list": [1, 2]}, "b": {"list": [1]}}
    assert value == {"list": [1]}
    assert apply({}, patch) == first
    assert apply(first, [add("/b/list/-", 3)])["b"] == {"list": [1, 3]}
    assert value == {"list": [1]}


def test_replacing_the_root_shares_the_value_and_never_modifies_it():
    value = {"a": 1}
    assert apply([], [replace("", value), add("/b", 2)]) == {"a": 1, "b": 2}
    assert value == {"a": 1}


@settings(max_examples=200)
@given(patched_documents())
def test_neither_document_nor_patch_is_ever_modified(case):
    document, patch = case
    before = copy.deepcopy((document, patch))
    parsed = parse([each for each in patch if not own_child(each)])
    for _ in range(2):  # the second run would see what the first one spoiled
        with contextlib.suppress(PatchError):
            apply(document, parsed)
        assert repr((document, patch)) == repr(before)


@settings(max_examples=200)
@given(patched_documents())
def test_parts_outside_the_footprint_keep_their_identity(case):
    document, patch = case
    try:
        after = apply(document, patch)
        writes = [split_pointer(each) for each in footprint(patch, document).writes]
    except PatchError:
        return
    for tokens in locations(document):
        untouched = all(
            tokens[: len(each)] != each and each[: len(tokens)] != tokens for each in writes
        )
        if untouched:
            assert at(after, tokens) is at(document, tokens)


def own_child(operation):
    source = operation.get("from")
    return source is not None and operation["path"].startswith(source + "/")

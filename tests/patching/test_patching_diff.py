"""`diff` leads from one document to the other, and doesn't say more than it has to."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_strategies import documents, patched_documents

from patching import ABSENT, Limits, PatchError, apply, diff, equal, parse

maybe_absent = documents | st.just(ABSENT)


@settings(max_examples=200)
@given(maybe_absent, maybe_absent, st.booleans())
def test_applying_the_diff_gives_the_other_document(a, b, compact):
    patch = diff(a, b, compact=compact)
    assert equal(apply(a, patch), b)
    assert (patch == []) == equal(a, b)
    assert all(each["op"] in ("add", "remove", "replace") for each in patch)


@settings(max_examples=200)
@given(patched_documents(), st.booleans())
def test_applying_the_diff_gives_the_result_of_the_patch(case, compact):
    a, patch = case
    try:
        b = apply(a, patch)
    except PatchError:
        return
    assert equal(apply(a, diff(a, b, compact=compact)), b)


letters = st.lists(st.sampled_from("abcd"), max_size=12)


@settings(max_examples=200)
@given(st.recursive(letters, lambda inner: st.lists(inner, max_size=5)), st.data())
def test_nested_arrays_are_followed(a, data):
    b = json.loads(json.dumps(a))
    for _ in range(data.draw(st.integers(1, 4))):
        inner = b
        while inner and data.draw(st.booleans()) and isinstance(inner[0], list):
            inner = inner[data.draw(st.integers(0, len(inner) - 1))]
            if not isinstance(inner, list):
                break
        if isinstance(inner, list):
            inner.insert(data.draw(st.integers(0, len(inner))), "new")
    for compact in (True, False):
        assert equal(apply(a, diff(a, b, compact=compact)), b)


@settings(max_examples=200)
@given(letters, letters)
def test_arrays_keep_a_longest_common_subsequence(a, b):
    wide = [["padding", "padding", letter] for letter in a]
    patch = diff(wide, [["padding", "padding", letter] for letter in b], compact=False)
    whole_items = sum(each["path"].count("/") == 1 for each in patch)
    edits = len(patch) - whole_items  # a change inside an item stands for a removal and an addition
    if not any(each["path"] == "" for each in patch):
        assert whole_items + 2 * edits <= len(a) + len(b) - 2 * longest_common(a, b)


def longest_common(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for index, y in enumerate(b):
            row.append(before[index] + 1 if x == y else max(row[index], before[index + 1]))
    return row[-1]


THOUSAND = [{"path": f"field{n}", "type": "string"} for n in range(1000)]
NEW = {"path": "new", "type": "long"}


@pytest.mark.parametrize("at", [0, 500, 1000])
def test_one_insertion_into_a_long_array_is_one_operation(at):
    longer = [*THOUSAND[:at], NEW, *THOUSAND[at:]]
    assert diff(THOUSAND, longer) == [{"op": "add", "path": f"/{at}", "value": NEW}]
    assert diff(longer, THOUSAND) == [{"op": "remove", "path": f"/{at}"}]


def test_changes_at_both_ends_of_a_long_array_leave_its_middle_untouched():
    changed = [NEW, *THOUSAND[1:700], {**THOUSAND[700], "type": "int"}, *THOUSAND[702:], NEW]
    patch = diff(THOUSAND, changed)
    assert len(patch) <= 6
    assert equal(apply(THOUSAND, patch), changed)


def test_arrays_too_far_apart_are_compared_by_position():
    a = [[n] for n in range(1000)]
    b = [[-n - 1] for n in range(1000)]
    assert diff(a, b) == [{"op": "replace", "path": "", "value": b}]
    assert equal(apply(a, diff(a, b, compact=False)), b)


def test_a_shuffled_long_array_is_diffed_correctly():
    shuffled = THOUSAND[:]
    random.Random(7).shuffle(shuffled)
    assert equal(apply(THOUSAND, diff(THOUSAND, shuffled)), shuffled)


def test_numbers_of_one_value_need_no_operation_but_booleans_do():
    assert diff({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}) == []
    assert diff([1] * 9, [1] * 8 + [True]) == [{"op": "replace", "path": "/8", "value": True}]


def test_absent_documents_are_made_and_removed_at_the_root():
    assert diff(ABSENT, None) == [{"op": "add", "path": "", "value": None}]
    assert diff({"a": 1}, ABSENT) == [{"op": "remove", "path": ""}]
    assert diff(ABSENT, ABSENT) == []


def test_compact_takes_the_shorter_of_changing_and_replacing():
    a, b = {"x": {"a": 1, "b": 2}, "pad": "p" * 200}, {"x": {"a": 3, "b": 4}, "pad": "p" * 200}
    assert diff(a, b) == [{"op": "replace", "path": "/x", "value": {"a": 3, "b": 4}}]
    assert diff(a, b, compact=False) == [
        {"op": "replace", "path": "/x/a", "value": 3},
        {"op": "replace", "path": "/x/b", "value": 4},
    ]


@settings(max_examples=200)
@given(patched_documents())
def test_without_compact_no_object_is_replaced_by_an_object(case):
    a, patch = case
    try:
        b = apply(a, patch)
    except PatchError:
        return
    state = a
    for operation in diff(a, b, compact=False):
        if operation["op"] == "replace" and isinstance(operation["value"], dict):
            is_object = [{"op": "copy", "from": operation["path"], "path": ""}]
            assert not isinstance(apply(state, is_object), dict)
        state = apply(state, [operation])


def test_a_diff_of_too_many_operations_replaces_the_document():
    a = {str(n): {"pad": "p" * 100, "n": n} for n in range(20)}
    b = {str(n): {"pad": "p" * 100, "n": -n} for n in range(20)}
    assert len(diff(a, b)) == 19
    (only,) = diff(a, b, limits=Limits(operations_max=18))
    assert (only["op"], only["path"]) == ("replace", "")


def test_places_deeper_than_the_limit_are_replaced_as_a_whole():
    def deep(core):
        for _ in range(300):
            core = {"n": core}
        return core

    (only,) = diff(deep(1), deep(2), compact=False, limits=Limits(depth_max=5))
    assert only["path"] == "/n" * 5


def test_names_are_escaped():
    patch = diff({"~/": 1, "pad": "p" * 99}, {"~/": 2, "pad": "p" * 99})
    assert patch == [{"op": "replace", "path": "/~0~1", "value": 2}]
    parse(patch)

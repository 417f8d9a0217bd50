"""The six operations do what jsonpatch does with a copy of the whole document."""

import copy

import jsonpatch
import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonpointer import JsonPointerException
from patch_strategies import patched_documents

from patching import ABSENT, PatchError, apply, join_pointer

REFUSALS = (jsonpatch.JsonPatchException, JsonPointerException)

# tells 1 from 1.0 and from true, and knows no order of members
canonical = msgspec.json.Encoder(order="sorted").encode


@settings(max_examples=200)
@given(patched_documents())
def test_apply_agrees_with_jsonpatch_in_results_and_refusals(case):
    document, patch = case
    before = copy.deepcopy((document, patch))
    try:
        expected = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(patch))
    except REFUSALS:
        expected = ABSENT
    event("refused" if expected is ABSENT else f"applied {len(patch)}")
    if expected is ABSENT:
        with pytest.raises(PatchError):
            apply(document, patch)
    else:
        assert canonical(apply(document, patch)) == canonical(expected)
    assert repr((document, patch)) == repr(before)  # repr tells 1 from 1.0 and True


def test_jsonpatch_refuses_to_remove_the_whole_document_and_apply_does_not():
    # The one deviation known: RFC 6902 section 4.2 asks only that the target exist.
    patch = [{"op": "remove", "path": ""}]
    with pytest.raises(jsonpatch.JsonPatchConflict):
        jsonpatch.apply_patch({"a": 1}, patch)
    assert apply({"a": 1}, patch) is ABSENT


crowded = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(join_pointer)
crowding = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "copy", "copy", "move"]), "from": crowded, "path": crowded}
).map(lambda operation: {**operation, "value": {}})


@settings(max_examples=200)
@given(st.lists(crowding, max_size=12))
def test_copies_of_one_place_stay_independent(patch):
    # few places and many copies, so that what was copied is changed again, on either side
    document = {"a": {"a": {}, "b": {"a": {}}}, "b": {"a": {"b": {}}}}
    performed = []
    for operation in patch:
        try:
            apply(document, [*performed, operation])
        except PatchError:
            continue
        performed.append(operation)
    event(f"performed {len(performed)}")
    expected = jsonpatch.apply_patch(copy.deepcopy(document), performed)
    assert canonical(apply(document, performed)) == canonical(expected)

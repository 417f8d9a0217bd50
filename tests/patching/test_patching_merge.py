"""RFC 7396: its examples, its pseudo-code as the reference, and what merging shares."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers
from patch_strategies import containers, documents, objects

from patching import ABSENT, LimitExceeded, Limits, equal, merge
from patching.merging import merge_within
from patching.values import encoded_bytes

# RFC 7396, appendix A
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
OTHERS = [
    (ABSENT, {"a": 1, "b": None}, {"a": 1}),
    (ABSENT, {}, {}),
    (ABSENT, None, None),
    (ABSENT, [None], [None]),
    ({"a": 1}, {"a": True}, {"a": True}),
    ({"a": 1}, {"a": {"b": None}}, {"a": {}}),
    ({"a": 1}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ({"": 1}, {"": {"": None}}, {"": {}}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), EXAMPLES + OTHERS)
def test_merge_gives(document, patch, expected):
    assert equal(merge(document, patch), expected)


def reference(target, patch):
    """The pseudo-code of RFC 7396 section 2, on copies."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = reference(target.get(name), value)
    return target


@settings(max_examples=200)
@given(objects | containers, objects | documents)
def test_merge_is_the_reference_without_touching_its_arguments(document, patch):
    before = repr((document, patch))
    expected = reference(copy.deepcopy(document), copy.deepcopy(patch))
    merged = merge(document, patch)
    assert equal(merged, expected)
    assert repr((document, patch)) == before
    assert (merged is document) == equal(merged, document) or not isinstance(document, dict | list)
    assert merge(merged, patch) is merged or not isinstance(merged, dict | list)  # idempotent


def test_unchanged_members_keep_their_identity():
    document = {"a": {"x": [1], "y": {"z": 1}}, "b": {"c": 1}}
    merged = merge(document, {"a": {"x": [1.0], "y": {"z": 2}}, "b": {"c": 1, "d": None}})
    assert merged["b"] is document["b"]
    assert merged["a"]["x"] is document["a"]["x"]
    assert merged["a"]["y"] == {"z": 2}
    assert document["a"]["y"] == {"z": 1}


def test_a_merge_that_changes_nothing_returns_the_document_itself():
    document = {"a": {"x": [1, True]}, "b": None}
    assert merge(document, {"a": {"x": [1.0, True], "q": None}}) is document
    assert merge(document, {}) is document
    assert merge(document, {"a": {"x": [1, 1]}}) is not document


@settings(max_examples=200)
@given(document=documents, patch=documents, maximum=integers(2, 60))
def test_the_bound_that_merge_within_returns_is_never_too_low(document, patch, maximum):
    limits = Limits(result_bytes_max=maximum)
    before, more = encoded_bytes(document), encoded_bytes(patch)
    try:
        expected = merge(document, patch, limits=limits)
    except LimitExceeded:
        with pytest.raises(LimitExceeded):
            merge_within(document, patch, more, limits=limits, document_bytes=before)
        return
    after, bound = merge_within(document, patch, more, limits=limits, document_bytes=before)
    assert equal(after, expected)
    assert bound >= encoded_bytes(after)

"""JSON equality is neither Python's nor that of the text."""

import json

import pytest
from hypothesis import given, settings
from patch_strategies import documents

from patching import ABSENT, equal

SAME = [
    (1, 1.0),
    (0, -0.0),
    (2**53, float(2**53)),
    ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
    ([1, [2]], [1.0, [2.0]]),
    (None, None),
    ("é", "\u00e9"),
    (ABSENT, ABSENT),
]
DIFFERENT = [
    (True, 1),
    (False, 0),
    (True, 1.0),
    (False, ""),
    (None, False),
    (None, 0),
    (ABSENT, None),
    (ABSENT, False),
    ("1", 1),
    ([], {}),
    ([], ""),
    ({}, None),
    (2**53 + 1, float(2**53)),
    (10**400, 1e308),
    ([1, 2], [2, 1]),
    ([1], [1, 1]),
    ([[True]], [[1]]),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 1}),
    ({"a": {"b": [0]}}, {"a": {"b": [False]}}),
    ("é", "e\u0301"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_equal(a, b):
    assert equal(a, b)
    assert equal(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_not_equal(a, b):
    assert not equal(a, b)
    assert not equal(b, a)


def deep(core):
    value = core
    for _ in range(20_000):
        value = [{"n": value}]
    return value


def test_no_value_is_too_deep_to_be_compared():
    assert equal(deep(1), deep(1.0))
    assert not equal(deep(1), deep(True))


@settings(max_examples=200)
@given(documents, documents)
def test_equal_is_equality_of_normalised_json(a, b):
    assert equal(a, b) == (normalised(a) == normalised(b))
    assert equal(a, json.loads(json.dumps(a)))


def normalised(value):
    """A text in which numbers of one value have one form."""
    if isinstance(value, dict):
        return {name: normalised(child) for name, child in value.items()}
    if isinstance(value, list):
        return [normalised(child) for child in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)

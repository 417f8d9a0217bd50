"""Digests agree with equality: over generated documents, and with a slow form of their own."""

from __future__ import annotations

import hashlib
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patching import Json, digest, equal
from patching.canonical_json import canonical

_NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e16, 1e22, 1e-5, 1e-6, 1e-7, 5e-324, 1.5e-6]),
    st.sampled_from([2**53, 2**53 + 1, 2.0**53, 2**64, 2.0**64, -(2**70), -(2.0**70), 10**22]),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)
_TEXTS = st.one_of(
    st.sampled_from(["", "1.0", "1e5", "e5,", ".0,", "null", "é", "e\u0301", "\ud800", "\udc00"]),
    st.sampled_from(
        ["😀", "\ud83d\ude00", "\\ud800", "\uffff", '"', "\\", "\x00\x1f\x7f", "\u2028"]
    ),
    st.text(st.characters(exclude_categories=()), max_size=4),
)
_DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


def slow_form(value: Any) -> Any:
    """A hashable value that is the same exactly for equal documents; none of patching's code."""
    if isinstance(value, dict):
        members = {tuple(map(ord, name)): slow_form(child) for name, child in value.items()}
        return ("object", frozenset(members.items()))
    if isinstance(value, list):
        return ("array", tuple(map(slow_form, value)))
    if isinstance(value, str):
        return ("string", tuple(map(ord, value)))
    if isinstance(value, bool) or value is None:
        return ("literal", str(value))
    return ("number", value.as_integer_ratio())


def slow_canonical(value: Any) -> str:
    """The canonical JSON by another way, with the digits of Decimal."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda each: [ord(c) for c in each[0]])
        inside = ",".join(f"{slow_canonical(n)}:{slow_canonical(child)}" for n, child in members)
        return "{" + inside + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(slow_canonical, value)) + "]"
    if isinstance(value, bool | str) or value is None:
        return json.dumps(value, ensure_ascii=False)
    if value == int(value):
        return f"{int(value):d}"
    shortest = Decimal(repr(value))
    if abs(value) >= 1e-6:
        return f"{shortest:f}"
    sign, digits, _ = shortest.as_tuple()
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' * sign}{mantissa}e{shortest.adjusted()}"


@st.composite
def spelled_differently(draw: st.DrawFn, documents: st.SearchStrategy[Any] = _DOCUMENTS) -> Any:
    """A document and an equal one: in another order, whole numbers of the other type."""
    document = draw(documents)

    def other(value: Any) -> Any:
        if isinstance(value, dict):
            names = draw(st.permutations(list(value)))
            return {name: other(value[name]) for name in names}
        if isinstance(value, list):
            return [other(child) for child in value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        if isinstance(value, float):
            return int(value) if value.is_integer() else value
        return float(value) if abs(value) < 2**1000 and int(float(value)) == value else value

    return document, other(document)


@given(_DOCUMENTS, _DOCUMENTS)
def test_two_documents_have_one_digest_exactly_where_they_are_equal(a: Json, b: Json) -> None:
    assert (digest(a) == digest(b)) == equal(a, b) == (slow_form(a) == slow_form(b))


@given(spelled_differently())
def test_the_same_value_spelled_differently_has_the_same_digest(pair: tuple[Json, Json]) -> None:
    a, b = pair
    assert equal(a, b)
    assert digest(a) == digest(b)


@given(_DOCUMENTS)
def test_the_canonical_text_is_what_an_independent_writer_writes(value: Json) -> None:
    text = slow_canonical(value).encode("utf-8", "backslashreplace")
    assert canonical(value) == text
    assert digest(value) == hashlib.sha256(text).hexdigest()


@given(_DOCUMENTS)
def test_the_canonical_text_reads_as_the_document(value: Json) -> None:
    read = json.loads(canonical(value))
    if "\\ud" not in canonical(value).decode():  # json joins escaped halves of a character
        assert digest(read) == digest(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (100, 1e2),
        (10**22, 1e22),
        (2**64, 2.0**64),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (json.loads('"\\u00e9"'), "é"),
        (json.loads("1E2"), 100),
        ([1.0, "1.0", "1e5,"], [1, "1.0", "1e5,"]),
    ],
)
def test_equal_documents_have_one_digest(one: Json, other: Json) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (0, None),
        (2**53 + 1, 2.0**53),
        (2**64 + 1, 2.0**64),
        ("1", 1),
        ("é", "e\u0301"),
        ("\ud800", "\\ud800"),
        ("\ud83d\ude00", "😀"),
        ([], {}),
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
    ],
)
def test_other_documents_have_another_digest(one: Json, other: Json) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_json_is_refused(value: float) -> None:
    for document in (value, [None, {"a": value}], {"a": [1.0, value]}):
        with pytest.raises(ValueError, match="isn't JSON"):
            digest(document)


def test_the_canonical_text_is_that_of_the_documentation() -> None:
    document: Json = {"b": [1.0, -0.0, 1e22, 0.10, 1e-7, 1e-6], "a": "é\n", "😀": 1, "\uffff": 2}
    assert canonical(document).decode() == (
        '{"a":"é\\n","b":[1,0,10000000000000000000000,0.1,1e-7,0.000001],"\uffff":2,"😀":1}'
    )
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_no_document_is_too_deep() -> None:
    deep: Json = 1.0
    for _ in range(5_000):
        deep = [deep]
    assert canonical(deep) == b"[" * 5_000 + b"1" + b"]" * 5_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1.0, "b": [2.0, -3.0]}, '{"a":1,"b":[2,-3]}'),
        ({"a": 1.0, "b": "x,1.0,y"}, '{"a":1,"b":"x,1.0,y"}'),
        ({"a": 1.0, ",2.0]": 0}, '{",2.0]":0,"a":1}'),
        ({"a": 1.0, "b": '"'}, r'{"a":1,"b":"\""}'),
        ({"a": 1.0, "b": "\\"}, r'{"a":1,"b":"\\"}'),
        ({"a": 1.0, "b": -0.0}, '{"a":1,"b":0}'),
        ({"a": 1.0, "b": 1e22}, '{"a":1,"b":10000000000000000000000}'),
        ({"a": 1.0, "b": "1e5,"}, '{"a":1,"b":"1e5,"}'),
        (1.0, "1"),
    ],
)
def test_a_whole_number_loses_its_fraction_and_nothing_else_does(value: Json, text: str) -> None:
    assert canonical(value) == text.encode()

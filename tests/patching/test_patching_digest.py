"""Digests agree with equality: over generated documents, and with a slow form of their own."""

from __future__ import annotations

import hashlib
import json
import math
import struct
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
def test_the_canonical_text_equals_that_of_an_independent_implementation(value: Json) -> None:
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
def test_unequal_documents_have_different_digests(one: Json, other: Json) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(value: float) -> None:
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
def test_only_whole_numbers_lose_their_fraction(value: Json, text: str) -> None:
    assert canonical(value) == text.encode()


def _double(bits: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    return float(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (_double(bits), text)
            for bits, text in (
                ("0000000000000000", "0"),
                ("8000000000000000", "0"),
                ("0000000000000001", "5e-324"),
                ("8000000000000001", "-5e-324"),
                ("4340000000000000", "9007199254740992"),
                ("c340000000000000", "-9007199254740992"),
                ("3eb0c6f7a0b5ed8d", "0.000001"),
                ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
                ("3e7ad7f29abcaf48", "1e-7"),
                ("41b3de4355555553", "333333333.3333332"),
                ("41b3de4355555554", "333333333.33333325"),
                ("41b3de4355555557", "333333333.33333343"),
                ("becbf647612f3696", "-0.0000033333333333333333"),
                ("43143ff3c1cb0959", "1424953923781206.2"),
            )
        ),
        (json.loads("[2.50, 7e-3, 56.0, 1E-27]"), "[2.5,0.007,56,1e-27]"),
        (
            json.loads(r'"\u20ac\u000F\u000a\u0008\t\f\r\u0042\u0022\u005c\/\u007f\u2028"'),
            '"€\\u000f\\n\\b\\t\\f\\rB\\"\\\\/\x7f\u2028"',
        ),
        (
            {"€": 1, "\r": 2, "\ufb33": 3, "1": 4, "\x80": 5, "ö": 6, "</a>": 7, "": 8},
            '{"":8,"\\r":2,"1":4,"</a>":7,"\x80":5,"ö":6,"€":1,"\ufb33":3}',
        ),
        (
            {"10": {}, "1": {"f": 1, "F": 2}, "111": [{}], "A": 0, "a": 0},
            '{"1":{"F":2,"f":1},"10":{},"111":[{}],"A":0,"a":0}',
        ),
        ({"p\xe9": 0, "pe": 0, "p\xea": 0}, '{"pe":0,"p\xe9":0,"p\xea":0}'),
        ("\u1e0d\u0307", '"\u1e0d\u0307"'),
    ],
)
def test_the_canonical_text_is_that_of_rfc_8785(value: Json, text: str) -> None:
    assert canonical(value).decode() == text


@pytest.mark.parametrize(
    ("value", "text", "rfc_8785"),
    [
        (2**53 + 1, "9007199254740993", "9007199254740992"),
        (1e30, "1000000000000000019884624838656", "1e+30"),
        (_double("4430000000000000"), "295147905179352825856", "295147905179352830000"),
        (_double("444b1ae4d6e2ef50"), "1000000000000000000000", "1e+21"),
        ({"😂": 1, "\ufb33": 2}, '{"\ufb33":2,"😂":1}', '{"😂":1,"\ufb33":2}'),
    ],
)
def test_the_canonical_text_differs_from_rfc_8785_only_as_documented(
    value: Json, text: str, rfc_8785: str
) -> None:
    assert canonical(value).decode() == text != rfc_8785
    if isinstance(value, dict):
        utf_16 = sorted(value, key=lambda name: name.encode("utf-16-be"))
        ordered = {name: value[name] for name in utf_16}
        assert rfc_8785 == json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))

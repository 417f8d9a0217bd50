"""JSON with many numbers that take long to decode has the same value as any other."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from patching import equal, values
from patching.values import decoded, has_many_exponents


def test_numbers_with_many_exponents_are_decoded_to_the_same_values() -> None:
    luck = Random(29)
    numbers = [
        luck.choice((1, -1)) * luck.random() * 10.0 ** luck.randrange(-300, 300)
        for _ in range(6_000)
    ]
    value = {"n": numbers, "text": '1e5 \\ " é', "k": [None, True, 2**62, {}]}
    text = msgspec.json.encode(value)
    assert has_many_exponents(text)
    assert equal(decoded(text), value)
    assert equal(decoded(text.decode()), json.loads(text))


def test_few_exponents_and_text_that_looks_like_them_do_not_trigger_the_slow_decoder() -> None:
    assert not has_many_exponents(b"[1e5,1E5]")
    assert not has_many_exponents(b'"' + b"see the tree " * 10_000 + b'"')


def test_decoding_many_exponents_can_be_interrupted_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python handles signals whenever it calls one of its own functions."""
    called = []

    def counted(text: str) -> float:
        called.append(text)
        return float(text)

    monkeypatch.setattr(values, "float_of", counted)
    assert decoded(b"[" + b"1e300," * 5_000 + b"1]") == [1e300] * 5_000 + [1]
    assert called == ["1e300"] * 5_000

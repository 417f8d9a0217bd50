"""Filters on keys: rows are held to them exactly, and what is asked for misses none that hold."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from pyspark.sql import datasource as spark

from patching.spark.key_filters import Keys, is_taken

TEXTS = ["", "a", "a/", "a/b", "a/b\x00", "a/\ue000", "a0", "b", "é", "漢", "\U0010ffff", "z" * 5]
KINDS = [
    spark.EqualTo,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
    spark.StringStartsWith,
]


def filters(seed: int) -> list[spark.Filter]:
    chance = random.Random(seed)
    found: list[Any] = [
        chance.choice(KINDS)(("key",), chance.choice(TEXTS)) for _ in range(chance.randrange(1, 4))
    ]
    if chance.random() < 0.2:
        found.append(spark.In(("key",), tuple(chance.sample(TEXTS, 3))))
    return found


@pytest.mark.parametrize("seed", range(200))
def test_what_is_asked_for_misses_no_key_that_holds(seed: int) -> None:
    keys = Keys(filters(seed))
    for key in TEXTS[1:]:
        if keys.holds(key):
            assert keys.names is None or key in keys.names
            assert key.startswith(keys.prefix)
            assert key > keys.after
            assert keys.until is None or key <= keys.until
        else:
            assert keys.names is None or key not in keys.names


def test_only_what_can_be_held_is_taken() -> None:
    equal = spark.EqualTo(("key",), "a")
    assert is_taken(equal)
    assert is_taken(spark.IsNotNull(("key",)))
    assert not is_taken(spark.EqualTo(("value",), "a"))
    assert not is_taken(spark.EqualTo(("key",), 7))
    assert not is_taken(spark.In(("key",), ("a", None)))
    assert not is_taken(spark.EqualTo(("key",), "a" * 2000))
    assert not is_taken(spark.Not(equal))
    assert not is_taken(spark.StringEndsWith(("key",), "a"))

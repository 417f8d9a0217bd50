"""Where keys are cut: every key is in one piece, and the pieces are about as large."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.read.partitions import cuts, evenly


class Keys:
    """A catalog's keys, as the gateway lists them."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = sorted(set(keys))
        self.probes = 0

    def probe(self, after: str, limit: int) -> Sequence[str]:
        self.probes += 1
        start = bisect_right(self.keys, after)
        return self.keys[start : start + limit]

    def sizes(self, bounds: Sequence[str]) -> list[int]:
        edges = [0, *(bisect_right(self.keys, bound) for bound in bounds), len(self.keys)]
        return [high - low for low, high in pairwise(edges)]


def _hexadecimal(luck: random.Random) -> str:
    return f"{luck.getrandbits(64):016x}"


def _name(luck: random.Random) -> str:
    return "".join(luck.choices("etaoinshrdluETAOIN_/", k=luck.randint(3, 14)))


def _unicode(luck: random.Random) -> str:
    return "".join(luck.choices("äöü€漢字🎉/a", k=luck.randint(3, 12)))


def _number(luck: random.Random) -> str:
    return f"tables/{luck.randrange(50_000):06d}"


@pytest.mark.parametrize("pieces", [2, 8, 32])
@pytest.mark.parametrize("key", [_hexadecimal, _name, _unicode, _number])
def test_pieces_have_about_the_same_size(key: Callable[[random.Random], str], pieces: int) -> None:
    luck = random.Random(1)
    keys = Keys([key(luck) for _ in range(20_000)])
    sizes = keys.sizes(cuts(keys.probe, pieces))
    assert len(sizes) == pieces
    assert max(sizes) < 2 * len(keys.keys) / pieces
    assert keys.probes < 64 + 20 * pieces


@given(st.lists(st.text(min_size=1, max_size=6), max_size=60), st.integers(1, 6))
def test_cuts_ascend_and_are_never_too_many(keys: list[str], pieces: int) -> None:
    found = Keys([key for key in keys if key.isprintable()])
    bounds = cuts(found.probe, pieces)
    assert bounds == sorted(set(bounds))
    assert len(bounds) < pieces
    for bound in bounds:
        bound.encode()  # it can be sent
    assert found.probes < 100 + 30 * pieces


@pytest.mark.parametrize("pieces", range(2, 9))
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_counted_keys_are_cut_evenly(count: int, pieces: int) -> None:
    keys = Keys([f"k{i:05d}" for i in range(count)])
    sizes = keys.sizes(evenly(keys.keys, pieces))
    assert len(sizes) == max(min(count, pieces), 1)
    assert max(sizes) - min(sizes) <= 1

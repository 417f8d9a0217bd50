"""Which items two arrays have in common, in order (Myers, An O(ND) Difference Algorithm, 1986)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ._json import Json

DISTANCE_MAX = 256  # the cost grows with its square: some 10 ms at this distance

_encode = msgspec.json.Encoder(order="sorted").encode


def common_items(a: list[Any], b: list[Any]) -> list[tuple[int, int]]:
    """A longest common subsequence of `a` and `b`, as ascending pairs of indexes.

    [] where they are more than 256 insertions and removals apart, so that the cost stays within
    (len(a) + len(b)) * 256. Items are the same if their JSON text is, up to the order of members;
    1 and 1.0 are told apart here, which makes a patch longer but not wrong."""
    if not a or not b or abs(len(a) - len(b)) > DISTANCE_MAX:
        return []
    numbers: dict[bytes | str, int] = {}
    keys_a = [numbers.setdefault(_text(item), len(numbers)) for item in a]
    keys_b = [numbers.setdefault(_text(item), len(numbers)) for item in b]
    rounds = _search(keys_a, keys_b)
    return _traced(rounds, len(a), len(b)) if rounds else []


def _text(item: Json) -> bytes | str:
    try:
        return _encode(item)
    except (UnicodeEncodeError, ValueError):  # lone surrogates
        return json.dumps(item, sort_keys=True)


def _search(a: list[int], b: list[int]) -> list[dict[int, int]]:
    """Per distance d, how far along `a` each diagonal (index in a minus index in b) had been
    reached before the d-th edit; [] if `b` is too far from `a`."""
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    last = len(a) - len(b)
    for distance in range(min(len(a) + len(b), DISTANCE_MAX) + 1):
        rounds.append(furthest.copy())
        for diagonal in range(-distance, distance + 1, 2):
            inserts = _inserts(furthest, diagonal, distance)
            x = furthest[diagonal + 1] if inserts else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x += 1
                y += 1
            furthest[diagonal] = x
            if diagonal == last and x >= len(a):
                return rounds
    return []


def _inserts(furthest: dict[int, int], diagonal: int, distance: int) -> bool:
    """Whether the path that goes furthest enters `diagonal` by an insertion, not by a removal."""
    if diagonal in (-distance, distance):
        return diagonal == -distance
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _traced(rounds: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Walks the rounds back from the end and collects the steps that kept an item."""
    kept: list[tuple[int, int]] = []
    for distance in range(len(rounds) - 1, -1, -1):
        furthest = rounds[distance]
        diagonal = x - y
        inserts = _inserts(furthest, diagonal, distance)
        entered = furthest[diagonal + 1] if inserts else furthest[diagonal - 1] + 1
        while x > entered:
            x -= 1
            y -= 1
            kept.append((x, y))
        if inserts:
            y -= 1
        else:
            x -= 1
    kept.reverse()
    return kept

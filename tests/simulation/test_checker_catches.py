"""Rule: a protocol with any of its rules broken gives a history that the checker turns down."""

from __future__ import annotations

import pytest

from .checker import check
from .mutations import MUTATIONS, broken
from .simulation import simulate

_SEEDS_MAX = 2_000
# Where the search begins for those that the first seeds don't show: at one that does. When the
# histories change, it goes on from there.
_BEGIN = {
    "head-condition": 4,
    "replies-in-tail": 6,
    "verdicts-move": 21,
    "verdicts-in-tail": 9,
    "floor-below-written": 17,
    "tail-ends-written": 9,
    "fresh-head": 26,
    "commit-id-lookup": 6,
    "unknown-is-not-lost": 10,
    "documents-guard": 4,
    "commits-in-order": 31,
    "leave-the-queue": 7,
    "back-in-time": 469,
    "readers-look-afterwards": 4,
    "cached-at-a-revision": 8,
    "compares-in-order": 18,
    "done-before": 12,
    "rebase": 21,
    "deletion-of-all": 20,
    "floor-last": 19,
    "present-stays": 5,
    "provisional-times": 46,
    "oldest-first": 574,
    "late-guard": 295,
    "signals-are-hints": 35,
    "whole-commits": 345,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_caught(name: str) -> None:
    seen: set[str] = set()
    with broken(name) as mutation:
        begin = _BEGIN.get(name, 1)
        for seed in range(begin, begin + _SEEDS_MAX):
            kinds = {violation.kind for violation in check(simulate(seed, mutation.adjust))}
            if kinds & mutation.kinds:
                return
            seen |= kinds
    pytest.fail(f"without {mutation.rule!r}, {_SEEDS_MAX} seeds only show {sorted(seen)}")

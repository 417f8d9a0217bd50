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
    "replies-in-tail": 6,
    "floor-below-written": 4,
    "tail-ends-written": 6,
    "fresh-head": 21,
    "commit-id-lookup": 11,
    "unknown-is-not-lost": 15,
    "documents-guard": 21,
    "idempotency-lookup": 14,
    "commits-in-order": 14,
    "back-in-time": 655,
    "pausing-lanes": 17,
    "cached-at-a-revision": 113,
    "compares-in-order": 35,
    "touch": 12,
    "rebase": 16,
    "whole-batches": 75,
    "bulk-order": 9,
    "deletion-of-all": 13,
    "floor-last": 4,
    "present-stays": 50,
    "provisional-times": 18,
    "oldest-first": 100,
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

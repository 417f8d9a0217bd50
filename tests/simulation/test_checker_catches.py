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
    "touch": 9,
    "only-doubts-are-unknown": 4,
    "back-in-time": 5,
    "signals-are-hints": 24,
    "present-stays": 39,
    "held-back": 31,
    "head-condition": 4,
    "replies-in-tail": 4,
    "verdicts-move": 47,
    "verdicts-in-tail": 20,
    "floor-below-written": 30,
    "tail-ends-written": 17,
    "fresh-head": 3,
    "commit-id-lookup": 5,
    "unknown-is-not-lost": 10,
    "documents-guard": 65,
    "commits-in-order": 97,
    "replay-is-idempotent": 26,
    "leave-the-queue": 7,
    "pausing-lanes": 20,
    "readers-look-afterwards": 15,
    "cached-at-a-revision": 39,
    "compares-in-order": 51,
    "ranges-in-order": 103,
    "ranges-overlay": 12,
    "done-before": 18,
    "rebase": 21,
    "floor-last": 52,
    "provisional-times": 56,
    "oldest-first": 119,
    "late-guard": 5,
    "whole-commits": 5,
    "force-where-asked": 14,
    "let-go-of-own": 31,
    "prune-nobodys": 43,
    "indexes-tell": 6,
    "items-in-place": 20,
    "reverts-by-key": 3,
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

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
    "touch": 14,
    "only-doubts-are-unknown": 4,
    "back-in-time": 7,
    "signals-are-hints": 24,
    "present-stays": 39,
    "held-back": 65,
    "head-condition": 4,
    "replies-in-tail": 5,
    "verdicts-move": 47,
    "verdicts-in-tail": 21,
    "floor-below-written": 42,
    "tail-ends-written": 41,
    "fresh-head": 5,
    "commit-id-lookup": 10,
    "unknown-is-not-lost": 11,
    "documents-guard": 65,
    "commits-in-order": 103,
    "replay-is-idempotent": 28,
    "leave-the-queue": 7,
    "pausing-lanes": 21,
    "readers-look-afterwards": 20,
    "cached-at-a-revision": 48,
    "compares-in-order": 69,
    "ranges-in-order": 103,
    "ranges-overlay": 14,
    "done-before": 32,
    "rebase": 31,
    "floor-last": 90,
    "provisional-times": 98,
    "oldest-first": 497,
    "late-guard": 12,
    "whole-commits": 9,
    "force-where-asked": 14,
    "let-go-of-own": 32,
    "prune-nobodys": 43,
    "indexes-tell": 6,
    "items-in-place": 20,
    "reverts-by-key": 3,
    "documents-before-commits": 11,
    "doubt-goes-on": 27,
    "let-go-whole": 16,
    "look-again": 60,
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

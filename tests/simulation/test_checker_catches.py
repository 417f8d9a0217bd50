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
    "held-back": 18,
    "doubt-goes-on": 21000383,
    "head-condition": 4,
    "replies-in-tail": 4,
    "verdicts-move": 21,
    "verdicts-in-tail": 9,
    "floor-below-written": 17,
    "tail-ends-written": 9,
    "fresh-head": 26,
    "commit-id-lookup": 5,
    "unknown-is-not-lost": 10,
    "documents-guard": 18,
    "commits-in-order": 74,
    "replay-is-idempotent": 10,
    "leave-the-queue": 7,
    "back-in-time": 583,
    "pausing-lanes": 20,
    "readers-look-afterwards": 4,
    "cached-at-a-revision": 7,
    "compares-in-order": 37,
    "ranges-in-order": 175,
    "ranges-overlay": 115,
    "ranges-floor": 9,
    "done-before": 12,
    "rebase": 21,
    "deletion-of-all": 11,
    "floor-last": 19,
    "provisional-times": 46,
    "oldest-first": 77,
    "late-guard": 74,
    "whole-commits": 233,
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

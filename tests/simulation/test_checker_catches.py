"""Rule: a protocol with any of its rules broken gives a history that the checker turns down."""

from __future__ import annotations

import inspect

import pytest

from .checker import check
from .mutations import MUTATIONS, broken
from .simulation import simulate

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SEEDS_MAX = 2_000
# Where the search begins for those that the first seeds don't show: at one that does. When the
# histories change, it goes on from there.
_BEGIN = {
    "touch": 17,
    "only-doubts-are-unknown": 4,
    "back-in-time": 8,
    "signals-are-hints": 33,
    "present-stays": 50,
    "held-back": 70,
    "head-condition": 4,
    "replies-in-tail": 12,
    "verdicts-move": 51,
    "verdicts-in-tail": 21,
    "floor-below-written": 42,
    "tail-ends-written": 58,
    "fresh-head": 22,
    "commit-id-lookup": 10,
    "unknown-is-not-lost": 15,
    "documents-guard": 73,
    "commits-in-order": 152,
    "replay-is-idempotent": 28,
    "leave-the-queue": 7,
    "pausing-lanes": 15,
    "readers-look-afterwards": 21,
    "cached-at-a-revision": 81,
    "compares-in-order": 99,
    "ranges-in-order": 153,
    "ranges-overlay": 19,
    "done-before": 32,
    "rebase": 59,
    "floor-last": 128,
    "provisional-times": 266,
    "oldest-first": 1101,
    "late-guard": 23,
    "whole-commits": 9,
    "force-where-asked": 35,
    "let-go-of-own": 90,
    "prune-nobodys": 108,
    "indexes-tell": 6,
    "items-in-place": 237,
    "reverts-by-key": 3,
    "documents-before-commits": 85,
    "doubt-goes-on": 170,
    "let-go-whole": 31,
    "items-by-key": 36,
    "rings-end": 4,
    "look-again": 601,
    "state-goes-on": 21,
    "state-of-the-watcher": 7,
    "give-back-own": 29,
    "declared-of-all": 5,
    "marks-on-now": 14,
    "append-once": 14,
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


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_breaks_a_rule_takes_what_the_whole_one_takes(name: str) -> None:
    """Otherwise every call fails, and that would be what the checker sees."""
    for owner, attribute, instead in MUTATIONS[name].patches:
        taken = inspect.signature(getattr(owner, attribute)).parameters.values()
        inspect.signature(instead).bind(
            *(each for each in taken if each.kind in _BY_PLACE),
            **{each.name: each for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY},
        )

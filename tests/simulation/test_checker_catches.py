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
    "touch": 28,
    "only-doubts-are-unknown": 4,
    "back-in-time": 10,
    "signals-are-hints": 82,
    "present-stays": 52,
    "held-back": 70,
    "head-condition": 17,
    "replies-in-tail": 15,
    "verdicts-move": 65,
    "verdicts-in-tail": 27,
    "floor-below-written": 50,
    "tail-ends-written": 63,
    "fresh-head": 25,
    "commit-id-lookup": 21,
    "unknown-is-not-lost": 17,
    "documents-guard": 86,
    "commits-in-order": 217,
    "replay-is-idempotent": 28,
    "leave-the-queue": 7,
    "pausing-lanes": 15,
    "readers-look-afterwards": 22,
    "cached-at-a-revision": 101,
    "compares-in-order": 115,
    "ranges-in-order": 195,
    "ranges-overlay": 29,
    "done-before": 32,
    "rebase": 65,
    "floor-last": 156,
    "provisional-times": 270,
    "oldest-first": 2098,
    "late-guard": 63,
    "whole-commits": 13,
    "force-where-asked": 42,
    "let-go-of-own": 125,
    "prune-nobodys": 126,
    "indexes-tell": 7,
    "items-in-place": 264,
    "reverts-by-key": 3,
    "documents-before-commits": 115,
    "doubt-goes-on": 308,
    "let-go-whole": 41,
    "items-by-key": 52,
    "rings-end": 4,
    "look-again": 622,
    "state-goes-on": 28,
    "state-of-the-watcher": 9,
    "give-back-own": 32,
    "declared-of-all": 9,
    "marks-on-now": 59,
    "append-once": 16,
    "whole-batches": 3,
    "bulk-order": 19,
    "hold-what-is-answered": 7,
    "deletion-of-all": 4,
    "applied-once": 6,
    "stamps-of-changes": 3,
    "repeatables-meet": 8,
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
def test_a_broken_rule_takes_the_same_arguments_as_the_real_one(name: str) -> None:
    """Otherwise every call fails, and that would be what the checker sees."""
    for owner, attribute, instead in MUTATIONS[name].patches:
        taken = inspect.signature(getattr(owner, attribute)).parameters.values()
        inspect.signature(instead).bind(
            *(each for each in taken if each.kind in _BY_PLACE),
            **{each.name: each for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY},
        )

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
    "guess-once": 52,
    "back-in-time": 634,
    "cached-at-a-revision": 58,
    "whole-batches": 73,
    "present-stays": 39,
    "oldest-first": 73,
    "late-guard": 190,
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

"""Rule: a protocol with any of its rules broken gives a history that the checker turns down."""

from __future__ import annotations

import pytest

from .checker import check
from .mutations import MUTATIONS, broken
from .simulation import simulate

_SEEDS_MAX = 2_000


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_caught(name: str) -> None:
    seen: set[str] = set()
    with broken(name) as mutation:
        for seed in range(1, _SEEDS_MAX + 1):
            kinds = {violation.kind for violation in check(simulate(seed, mutation.adjust))}
            if kinds & mutation.kinds:
                return
            seen |= kinds
    pytest.fail(f"without {mutation.rule!r}, {_SEEDS_MAX} seeds only show {sorted(seen)}")

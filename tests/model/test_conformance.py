"""Rule: what the gateway's own code does to a store is what the model allows, at every step."""

from __future__ import annotations

import pytest

from gateway.state import replay
from tests.simulation.mutations import broken
from tests.simulation.plans import keeping

from .conformance import conform, conform_all

_SEEDS = 40
_SEEDS_MAX = 400
# By rule of the code (``tests.simulation.mutations``), what the model says of code without it.
CAUGHT = {
    "head-condition": "the model doesn't let it",
    "drops-only-written": "has left the tail and isn't written out",
    "whole-tail-in-order": "isn't there, and a later one is",
    "verdicts-stay": "a verdict is lost",
    "documents-before-commits": "is in the log, and",
    "commits-in-order": "isn't there, and a later one is",
    "documents-guard": "in the model",
    "replies-in-tail": "a key has decided twice",
    "late-guard": "comes back, after its deletion was compacted",
    "look-again": "isn't what its commits made",
}

# Where the search begins, if that isn't at 1: it shows in few histories.
_BEGINS = {"look-again": 300}


def test_every_step_of_a_history_is_a_step_of_the_model() -> None:
    assert conform_all(range(1, _SEEDS + 1)) > 20 * _SEEDS


def test_compaction_steps_are_allowed_by_the_model_too() -> None:
    assert conform_all(range(1, _SEEDS + 1), keeping) > 20 * _SEEDS


@pytest.mark.parametrize("name", CAUGHT)
def test_code_without_a_rule_takes_a_step_that_the_model_forbids(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = set()
    if name == "look-again":  # ``base-named`` stands behind it, and refuses what would be written
        monkeypatch.setattr(replay, "_require_base", lambda *_: None)
    with broken(name) as mutation:
        first = _BEGINS.get(name, 1)
        for seed in range(first, first + _SEEDS_MAX):
            _, wrong = conform(seed, mutation.adjust)
            if CAUGHT[name] in wrong:
                return
            told.add(wrong)
    pytest.fail(f"without {mutation.rule!r} the model only objects to {sorted(told)}")

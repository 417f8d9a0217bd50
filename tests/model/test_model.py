"""Rule: no state of the model is wrong, and without any one of its rules some state is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .explore import explore
from .rules import RULES, left_out
from .worlds import WORLDS, bounded

ROOT = Path(__file__).parent.parent.parent
# By world, how many of its requests are explored here; `python -m tests.model` explores more.
BOUNDS = {
    "write-out": 2,
    "carry": 3,
    "doubt": 3,
    "keys": 3,
    "compaction": 2,
    "catch-up": 4,
    "restore": 4,
}
# By rule, the world that shows it, how many requests that takes, and what then is wrong.
SHOWN = {
    "head-condition": ("doubt", 3, "is done twice"),
    "last-commit": ("restore", 3, "was decided on another"),
    "verdict-with-move": ("keys", 3, "a key has decided twice"),
    "drops-only-written": ("write-out", 2, "has left the tail and isn't written out"),
    "verdicts-stay": ("keys", 3, "a verdict is lost"),
    "whole-tail": ("carry", 2, "isn't there, and a later one is"),
    "documents-first": ("write-out", 2, "is in the log, and a isn't written"),
    "commits-in-order": ("write-out", 2, "isn't there, and a later one is"),
    "documents-guard": ("write-out", 2, "is in the log, and a isn't written"),
    "look-again": ("write-out", 3, "2 was made from another document"),
    "base-named": ("write-out", 3, "a at 2 isn't what its commits made"),
    "late-guard": ("compaction", 2, "comes back, after its deletion was compacted"),
    "sweep-grace": ("compaction", 2, "comes back, after its deletion was compacted"),
    "oldest-first": ("compaction", 3, "above the floor"),
    "floor-written": ("compaction", 2, "has left the tail and isn't written out"),
    "floor-last": ("catch-up", 4, "1 is what compaction has left of it"),
    "swept-refused": ("catch-up", 4, "an answer was never true"),
    "parent-named": ("restore", 5, "an answer was never true"),
    "goes-on": ("restore", 5, "an answer was never true"),
    "gives-up": ("restore", 3, "is in the log, and the head is at"),
    "fresh-head": ("doubt", 3, "an answer was never true"),
    "tail-overlay": ("write-out", 2, "was decided on another document"),
    "keys-in-tail": ("keys", 2, "a key has decided twice"),
    "commit-id-lookup": ("doubt", 2, "is done twice"),
    "tail-before-log": ("doubt", 2, "is done twice"),
    "unknown-is-not-lost": ("doubt", 2, "is done twice"),
    "handed-once": ("doubt", 2, "is done twice"),
}
NAMED = {world.name: world for world in WORLDS}


def test_every_rule_and_every_world_is_covered() -> None:
    assert SHOWN.keys() == RULES.keys()
    assert BOUNDS.keys() == NAMED.keys()


@pytest.mark.parametrize("name", BOUNDS)
def test_no_reachable_state_is_wrong(name: str) -> None:
    explored = explore(bounded(NAMED[name], BOUNDS[name]))
    assert not explored.wrong, "\n".join((*explored.history, explored.wrong))
    assert explored.states > 100


@pytest.mark.parametrize("rule", SHOWN)
def test_a_missing_rule_makes_some_state_wrong(rule: str) -> None:
    name, requests, wrong = SHOWN[rule]
    explored = explore(bounded(NAMED[name], requests), left_out(rule))
    assert wrong in explored.wrong, explored
    assert explored.history


def test_a_wrong_history_is_printed_step_by_step() -> None:
    told = _run("--without", "commit-id-lookup", "--world", "doubt")
    assert told.returncode == 1, told.stderr
    assert "A takes #1 (patch a)" in told.stdout
    assert "WRONG: #1 is done twice" in told.stdout


def test_the_number_of_explored_states_is_printed() -> None:
    told = _run("--world", "keys", "--bound", "2")
    assert told.returncode == 0, told.stderr
    assert "states" in told.stdout
    assert _run("--without", "no-such-rule").returncode == 2


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.model", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

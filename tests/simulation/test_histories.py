"""Rule: whatever fails, each answer is one that a single, sequential catalog could have given.

``GATEWAY_SIM_SEEDS`` sets how many seeds are run (200 unless told).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.commit import loop
from gateway.decide import decide as deciding

from .checker import check
from .plan import as_chosen, listing, owning, repeating
from .plans import from_state, listing_at_a_distance
from .simulation import simulate
from .trace import history, outcome_name

_SEEDS = int(os.environ.get("GATEWAY_SIM_SEEDS", "200"))
_CHUNK = 100


@cache  # the first of them are asked for twice
def _assert_right(seed: int) -> Counter[str]:
    adjust, option = (listing, "--lists ") if seed % 2 else (owning, "--owners ")
    if seed % 3:  # a third of the histories are so
        adjust, option = as_chosen, ""
    repeats = seed // 6 % 2 == 0  # a half of all
    option += "--repeating " if repeats else ""
    recording = simulate(seed, lambda plan: repeating(adjust(plan)) if repeats else adjust(plan))
    violations = check(recording)
    if violations:
        found = "\n".join(f"{v.kind}: {v.detail}" for v in violations[:10])
        again = f"python -m tests.simulation {option}--trace --seed {seed}"
        pytest.fail(f"{found}\n\n{again}", pytrace=False)
    return Counter(outcome_name(call) for call in recording.calls)


def test_a_defect_that_a_leader_logs_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    decide, batch = deciding.decide, count()

    def broken_once(*given: Any, **named: Any) -> Any:
        if next(batch) == 3:
            raise RuntimeError("a defect")
        return decide(*given, **named)

    monkeypatch.setattr(loop, "decide", broken_once)
    assert "RuntimeError('a defect')" in str(simulate(1).defects)


@pytest.mark.parametrize("first", range(1, _SEEDS + 1, _CHUNK))
def test_every_history_is_linearizable(first: int) -> None:
    for seed in range(first, min(first + _CHUNK, _SEEDS + 1)):
        _assert_right(seed)


def test_every_kind_of_answer_occurs_in_the_histories() -> None:
    """Twice within so many seeds; the histories of all seeds up to there are right."""
    outcomes: Counter[str] = Counter()
    rare = {
        *("applied", "replayed", "unchanged", "dry-run", "unknown", "no-answer"),
        *("precondition_failed", "patch_does_not_fit", "document_not_found"),
        *("idempotency_key_reused", "queue_full", "deadline_exceeded", "store_unavailable"),
        *("precondition_required", "schema_violation", "target_exists", "catalog_not_found"),
        *("read-ok", "read-at-ok", "read-then-ok", "page-ok", "reply-ok"),
        *("pin-ok", "pin_holds", "compact-ok", "snapshot_exists", "revision_compacted"),
        *("rebased", "catalog-deleted", "otherwise", "owned_by_others", "changed_since"),
        *("list-ok", "several-ok", "export-ok", "revision-at-ok", "revision_not_found"),
    }
    for seed in range(1, 301):
        outcomes += _assert_right(seed)
        rare = {name for name in rare if outcomes[name] < 2}
        if not rare:
            return
    pytest.fail(f"too rare: {rare}")


def test_every_answer_about_lists_occurs_in_the_histories() -> None:
    """Some seed shows each; the histories of all seeds up to there are right."""
    outcomes: Counter[str] = Counter()
    rare = {"list_violation", "index_needs_test", "documents_break_settings", "rebased"}
    for seed in range(1, 101):
        recording = simulate(seed, listing_at_a_distance)
        assert not check(recording)
        outcomes.update(outcome_name(call) for call in recording.calls)
        if not (missing := {name for name in rare if outcomes[name] < 2}):
            return
    pytest.fail(f"too rare: {missing}")


def test_feeds_that_begin_with_the_state_list_what_existed() -> None:
    """Rule: the state that a client has once it is told so is the export at that revision; also
    where it was cut off within the list, and history compacted beside it."""
    synced = 0
    for seed in range(1, _SEEDS // 5 + 1):
        recording = simulate(seed, from_state)
        assert not check(recording), seed
        heard = [each for following in recording.followings for each in following.heard]
        synced += sum(each.what == "synced" for each in heard)
    assert synced > 2 * (_SEEDS // 5)


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    seed = 7
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--trace", "--seed", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0].splitlines()[:-2] == told[1].splitlines()[:-2]
    assert history(simulate(seed)) in told[0]

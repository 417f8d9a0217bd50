"""docs/commit-loop.md draws the stages of requests and lanes as the code has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest

from gateway.commit.queue import (
    LANE_TRANSITIONS,
    TRANSITIONS,
    Lane,
    LaneStage,
    Pending,
    Stage,
)
from gateway.runtime import ThreadRuntime
from tests.without_http import ask, put

PAGE = Path(__file__).parents[2] / "docs" / "commit-loop.md"


def drawn(
    transitions: Mapping[Stage, Mapping[Stage, str]] | Mapping[LaneStage, Mapping[LaneStage, str]],
) -> str:
    """A Mermaid diagram; it begins at the first stage, and ends where no way leads on."""
    lines = ["stateDiagram-v2"]
    first: Enum = next(iter(transitions))
    lines.append(f"  [*] --> {first.value}")
    for stage, further in transitions.items():
        lines += [f"  {stage.value} --> {to.value}: {why}" for to, why in further.items()]
        lines += [] if further else [f"  {stage.value} --> [*]"]
    return "\n".join(lines)


def test_the_state_diagrams_match_the_tables() -> None:
    pictures = re.findall(r"```mermaid\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert pictures == [drawn(TRANSITIONS), drawn(LANE_TRANSITIONS)]


def test_every_stage_has_a_row_and_can_be_reached() -> None:
    for stages, transitions in ((Stage, TRANSITIONS), (LaneStage, LANE_TRANSITIONS)):
        assert list(transitions) == list(stages)
        reached = {to for further in transitions.values() for to in further}
        assert reached | {next(iter(stages))} == set(stages)


def test_a_transition_outside_the_tables_raises() -> None:
    pending = Pending(ask(put(1)), ThreadRuntime().event())
    with pytest.raises(AssertionError, match="waiting can't be held"):
        pending.enter(Stage.HELD)
    lane = Lane()
    with pytest.raises(AssertionError, match="open can't be doubting"):
        lane.enter(LaneStage.DOUBTING)
    assert (pending.stage, lane.stage) == (Stage.WAITING, LaneStage.OPEN)

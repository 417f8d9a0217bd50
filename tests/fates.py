"""Writes whose outcome is chosen by a test: done, refused, unknown, or applied and lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.commit import queue
from gateway.decide.request import Outcome, Refused, Request, Unknown
from gateway.errors import StoreUnavailable

Fate = str
"""``done``; ``away``, ``unknown``: that outcome, not applied; ``lost``: applied, and unknown."""


def fated(monkeypatch: pytest.MonkeyPatch, fate_of: Callable[[Request], Fate]) -> None:
    """``fate_of`` chooses the outcome of each request before it is decided."""
    is_held_back, answer = queue.Pending.is_held_back, queue.Pending.answer
    lost: set[str] = set()

    def meets_its_fate(pending: queue.Pending) -> bool:
        if is_held_back(pending):
            return True
        request = pending.request
        fate = fate_of(request)
        if fate in ("done", "lost"):
            lost.update([request.commit_id] if fate == "lost" else ())
            return False
        away = Refused(StoreUnavailable("away"))
        pending.enter(queue.Stage.LEFT)
        answer(pending, away if fate == "away" else Unknown(request.commit_id))
        return True

    def tell(pending: queue.Pending, outcome: Outcome) -> None:
        commit_id = pending.request.commit_id
        answer(pending, Unknown(commit_id) if commit_id in lost else outcome)

    monkeypatch.setattr(queue.Pending, "is_held_back", meets_its_fate)
    monkeypatch.setattr(queue.Pending, "answer", tell)

"""Writes whose outcome a test forces: done, refused, unknown, or applied and lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.commit import queue
from gateway.decide.request import Outcome, Refused, Request, Unknown
from gateway.errors import StoreUnavailable

Forced = str
"""``done``; ``away``, ``unknown``: that outcome, not applied; ``lost``: applied, and unknown."""


def force_outcomes(monkeypatch: pytest.MonkeyPatch, choose: Callable[[Request], Forced]) -> None:
    """``choose`` says the outcome of each request before it is decided."""
    is_held_back, answer = queue.Pending.is_held_back, queue.Pending.answer
    lost: set[str] = set()

    def answered_at_once(pending: queue.Pending) -> bool:
        if is_held_back(pending):
            return True
        request = pending.request
        forced = choose(request)
        if forced in ("done", "lost"):
            lost.update([request.commit_id] if forced == "lost" else ())
            return False
        away = Refused(StoreUnavailable("away"))
        pending.enter(queue.Stage.LEFT)
        answer(pending, away if forced == "away" else Unknown(request.commit_id))
        return True

    def answer_or_lose(pending: queue.Pending, outcome: Outcome) -> None:
        commit_id = pending.request.commit_id
        answer(pending, Unknown(commit_id) if commit_id in lost else outcome)

    monkeypatch.setattr(queue.Pending, "is_held_back", answered_at_once)
    monkeypatch.setattr(queue.Pending, "answer", answer_or_lose)

"""A history as text, for people and for comparing two runs."""

from __future__ import annotations

from gateway.decide.request import Applied, Refused, Unchanged
from gateway.errors import code_of
from gateway.model import CommitRecord
from patching.errors import IndexNeedsTest
from patching.ownership import OwnedByOthers

from .recorder import Call, Recording


def outcome_name(call: Call) -> str:
    """One word for what became of a call."""
    outcome = call.outcome
    if call.answered is None:
        return "no-answer"
    if isinstance(outcome, Refused):
        code = code_of(outcome.error)
        return code if code in (OwnedByOthers.code, IndexNeedsTest.code) else outcome.error.code
    if isinstance(outcome, Applied):
        return "replayed" if outcome.replayed else _applied_name(outcome.commit)
    if isinstance(outcome, Unchanged):
        return "dry-run" if outcome.would_change else "unchanged"
    if outcome is not None:
        return "unknown"
    if call.error is not None:
        return getattr(call.error, "code", type(call.error).__name__)
    return f"{call.ask.kind}-ok"


def _applied_name(commit: CommitRecord) -> str:
    if commit.rebased_from:
        return "rebased"
    if commit.deletes_catalog:
        return "catalog-deleted"
    return "applied" if commit.succeeded else "otherwise"


def history(recording: Recording) -> str:
    """Every call, answer and move in the order they came."""
    lines: list[tuple[int, str]] = []
    for call in recording.calls:
        ask = call.ask
        lines.append((call.called, f"{call.called_s:10.4f} {call.worker} <- {ask}"))
        if call.answered is not None:
            told = (
                call.reading or call.page or call.listed or call.reply or call.error or call.outcome
            )
            text = f"{call.answered_s:10.4f} {call.worker} -> {ask.label} {outcome_name(call)}"
            lines.append((call.answered, f"{text} {told}"))
    for catalog, log in recording.logs.items():
        for made in log:
            commit = made.commit
            text = f"{'':10} {catalog}: {made.base_revision} => {commit.revision} {commit.message}"
            lines.append((made.tick, f"{text} {commit.id[:8]} {made.changes.decode()}"))
    return "\n".join(f"{tick:5} {text}" for tick, text in sorted(lines, key=lambda line: line[0]))

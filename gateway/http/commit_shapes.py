"""A commit as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.model import Change, Commit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def commit_shape(commit: Commit) -> dict[str, Any]:
    """With each document's effective patch, whatever kind of write it was."""
    return {
        "revision": commit.revision,
        "time": rfc3339(commit.time_us),
        "commit_id": commit.id,
        "author": commit.author,
        "message": commit.message,
        "idempotency_key": None if commit.idempotency is None else commit.idempotency.key,
        "attempts": commit.attempts,
        "changes": [_change_shape(change) for change in commit.changes],
    }


def commit_summary(commit: Commit, key: str | None) -> dict[str, Any]:
    """What a commit did to ``key``, or (None) to which keys it did what; without the values."""
    if key is None:
        done: dict[str, Any] = {
            "changes": [{"key": each.key, "action": each.action} for each in commit.changes]
        }
    else:
        actions = [change.action for change in commit.changes if change.key == key]
        done = {"action": actions[0] if actions else None}
    return {
        "revision": commit.revision,
        "time": rfc3339(commit.time_us),
        "commit_id": commit.id,
        "author": commit.author,
        "message": commit.message,
        **done,
    }


def rfc3339(time_us: int) -> str:
    """In UTC with six digits: 2026-11-21T10:00:00.000000Z."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _change_shape(change: Change) -> dict[str, Any]:
    if change.action == "delete":
        patch: list[dict[str, Any]] = [{"op": "remove", "path": ""}]
    elif change.patch is not None:
        patch = change.patch
    else:
        patch = [{"op": "add", "path": "", "value": change.value}]
    return {
        "key": change.key,
        "action": change.action,
        "create_revision": change.create_revision,
        "patch": patch,
    }

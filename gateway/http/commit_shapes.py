"""A commit as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.model import SETTINGS_KEY, Change, Commit
from patching import ABSENT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def commit_shape(commit: Commit) -> dict[str, Any]:
    """With each document's effective patch, whatever kind of write it was.

    The catalog's settings are the document whose key is null, and a change of them is called so.
    """
    return {
        "revision": commit.revision,
        "time": rfc3339(commit.time_us),
        "commit_id": commit.id,
        "author": commit.author,
        "message": commit.message,
        "idempotency_key": None if commit.idempotency is None else commit.idempotency.key,
        "attempts": commit.attempts,
        "succeeded": commit.succeeded,
        "rebased_from": commit.rebased_from,
        "deletes_catalog": commit.deletes_catalog,
        "changes": [change_shape(change, commit.revision) for change in commit.changes],
    }


def commit_summary(commit: Commit, key: str | None) -> dict[str, Any]:
    """What a commit did to ``key``, or (None) to which keys it did what; without the values."""
    if key is None:
        done: dict[str, Any] = {
            "changes": [
                {"key": each.key or None, "action": _action(each)} for each in commit.changes
            ]
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


def change_shape(change: Change, revision: int) -> dict[str, Any]:
    """What a commit at ``revision`` did to one document.

    ``patch`` is null where only the name of the change was kept (its history was compacted);
    ``attributes`` are those afterwards, null where they are as before or there is no document.
    """
    patch: list[dict[str, Any]] | None = change.patch
    if change.action == "delete":
        patch = [{"op": "remove", "path": ""}]
    elif change.action == "attributes":
        patch = []
    elif patch is None and change.value is not ABSENT:
        patch = [{"op": "add", "path": "", "value": change.value}]
    attributes = change.attributes
    if attributes is None and patch is not None and change.action != "delete":
        attributes = {} if change.begins_at(revision) else None
    return {
        "key": change.key or None,
        "action": _action(change),
        "create_revision": change.create_revision,
        "patch": patch,
        "attributes": attributes,
    }


def _action(change: Change) -> str:
    return "settings" if change.key == SETTINGS_KEY else change.action

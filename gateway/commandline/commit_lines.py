"""A commit in one line, for people."""

from __future__ import annotations

from datetime import UTC
from typing import Final

from patching.client import Commit

_CHANGES_SHOWN: Final = 3


def commit_line(commit: Commit) -> str:
    """`     7  2026-11-21 10:00:00.123Z  ana  patch tables/orders  add the total`"""
    time = commit.time.astimezone(UTC)
    shown = f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}Z"
    message = f"  {commit.message}" if commit.message else ""
    return f"{commit.revision:>6}  {shown}  {commit.author}  {_changes(commit)}{message}"


def _changes(commit: Commit) -> str:
    changes = commit.changes
    if commit.deletes_catalog:
        return f"deletes the catalog ({len(changes)} documents)"
    if not changes:
        return "touch"
    shown = [
        "settings" if each.key is None else f"{each.action} {each.key}"
        for each in changes[:_CHANGES_SHOWN]
    ]
    more = [f"{len(changes) - _CHANGES_SHOWN} more"] if len(changes) > _CHANGES_SHOWN else []
    return ", ".join([*shown, *more])

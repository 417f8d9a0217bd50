"""The in-memory twin: the same contract in one process, for simulation and fast unit tests.

Nothing survives the process; it is never a default of the service.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from gateway.model import Commit, Document, Head
from gateway.store.contract import Move, Moved
from patching import Json


class MemoryStore:
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._commits: dict[str, dict[int, Commit]] = {}

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        with self._lock:
            found = {c: self._heads[c] for c in catalogs if c in self._heads}
        return {catalog: replace(head, batch=None) for catalog, head in found.items()}

    def head_with_batch(self, catalog: str) -> Head | None:
        with self._lock:
            return self._heads.get(catalog)

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
        with self._lock:
            return {
                catalog: self._prefix(catalog, after, through)
                for catalog, (after, through) in spans.items()
            }

    def _prefix(self, catalog: str, after: int, through: int) -> list[Commit]:
        written = self._commits.get(catalog, {})
        prefix = []
        for revision in range(after + 1, through + 1):
            if revision not in written:
                break
            prefix.append(written[revision])
        return prefix

    def documents(self, keys: Mapping[str, Collection[str]]) -> Mapping[tuple[str, str], Document]:
        names = [(catalog, key) for catalog, wanted in keys.items() for key in wanted]
        with self._lock:
            return {name: self._documents[name] for name in names if name in self._documents}

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Commit]:
        found = {}
        with self._lock:
            for catalog, wanted in keys.items():
                for commit in self._commits.get(catalog, {}).values():
                    asked = commit.idempotency
                    if asked is not None and (asked.principal, asked.key) in wanted:
                        found[catalog, asked.principal, asked.key] = commit
        return found

    def move_heads(self, moves: Sequence[Move]) -> Mapping[str, Moved]:
        with self._lock:
            return {move.to.catalog: self._move(move.to) for move in moves}

    def _move(self, to: Head) -> Moved:
        current = self._heads.get(to.catalog) or Head(to.catalog)
        if current.revision != to.base_revision:
            return Moved.LOST
        self._heads[to.catalog] = replace(to, floor=current.floor)
        return Moved.WON

    def write_documents(self, documents: Mapping[str, Sequence[Document]]) -> None:
        with self._lock:
            for catalog, changed in documents.items():
                for document in changed:
                    stored = self._documents.get((catalog, document.key))
                    if stored is None or stored.revision < document.revision:
                        self._documents[catalog, document.key] = document

    def write_commits(self, commits: Sequence[Commit]) -> None:
        with self._lock:
            for commit in commits:
                self._commits.setdefault(commit.catalog, {}).setdefault(commit.revision, commit)

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[Commit]:
        found = []
        for commit in reversed(self._ascending(catalog)):
            if commit.revision <= through and _changes(commit, key):
                found.append(commit)
                if commit.change_of(key).begins_at(commit.revision):
                    break
        return found

    def commit_at(self, catalog: str, time_us: int) -> Commit | None:
        commits = self._ascending(catalog)
        index = bisect_right([commit.time_us for commit in commits], time_us)
        return commits[index - 1] if index else None

    def list_commits(
        self, catalog: str, after: int, through: int, limit: int, key: str | None, bytes_max: int
    ) -> Sequence[Commit]:
        listed: list[Commit] = []
        for commit in self._ascending(catalog):
            if after < commit.revision <= through and (key is None or _changes(commit, key)):
                listed.append(commit)
                bytes_max -= sum(len(repr((c.patch, c.value))) for c in commit.changes)
                if len(listed) == limit or bytes_max <= 0:
                    break
        return listed

    def _ascending(self, catalog: str) -> list[Commit]:
        with self._lock:
            return [commit for _, commit in sorted(self._commits.get(catalog, {}).items())]

    def stored_bytes(self, content: Json) -> int:
        return len(msgspec.json.encode(content))

    def ping(self) -> None:
        return


def _changes(commit: Commit, key: str) -> bool:
    return any(change.key == key for change in commit.changes)

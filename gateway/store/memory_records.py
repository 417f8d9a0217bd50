"""What the in-memory twin holds; its parts share it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic as _monotonic

from gateway.model import Commit, Document, Head, Pin


class MemoryRecords:
    """``monotonic`` (seconds) is the clock that leases are measured by."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._commits: dict[str, dict[int, Commit]] = {}
        # What was swept: the keys that (catalog, revision) is still found under.
        self._kept_keys: dict[tuple[str, int], frozenset[str]] = {}
        self._swept: dict[str, int] = {}
        self._pins: dict[str, dict[str, Pin]] = {}

    def _ascending(self, catalog: str) -> list[Commit]:
        with self._lock:
            return [commit for _, commit in sorted(self._commits.get(catalog, {}).items())]

    def _keys_of(self, commit: Commit) -> frozenset[str]:
        """The keys that a stored commit is found under."""
        kept = self._kept_keys.get((commit.catalog, commit.revision))
        return frozenset(change.key for change in commit.changes) if kept is None else kept

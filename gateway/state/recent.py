"""The keys that a catalog's last commits changed, so that who asks what has changed since a moment
ago needn't look into the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gateway.model import OWN_KEYS, CommitRecord

_COMMITS_MAX = 1_000
_KEYS_MAX = 4_000
# What a commit, and a key, take in memory beside their text.
_COMMIT_BYTES = 200
_KEY_BYTES = 60


class Recent:
    """The commits above ``since``, without a gap. Not thread-safe.

    ``memory_bytes`` is about what it takes.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self.memory_bytes = 0
        self._keys = 0
        self._commits: deque[tuple[int, tuple[str, ...]]] = deque()

    def add(self, commits: Iterable[CommitRecord]) -> None:
        """``commits`` are the next ones."""
        for commit in commits:
            keys = tuple(change.key for change in commit.changes)
            self._keys += len(keys)
            self.memory_bytes += _memory(keys)
            self._commits.append((commit.revision, keys))
        while len(self._commits) > _COMMITS_MAX or self._keys > _KEYS_MAX:
            self.since, dropped = self._commits.popleft()
            self._keys -= len(dropped)
            self.memory_bytes -= _memory(dropped)

    def changed(self, prefix: str, since: int, through: int) -> int | None:
        """The newest one above ``since`` up to ``through`` that changed a document whose key begins
        with ``prefix``."""
        for revision, keys in reversed(self._commits):
            if revision <= since:
                break
            if revision <= through and any(
                key.startswith(prefix) and key not in OWN_KEYS for key in keys
            ):
                return revision
        return None


def _memory(keys: tuple[str, ...]) -> int:
    return _COMMIT_BYTES + sum(_KEY_BYTES + len(key) for key in keys)

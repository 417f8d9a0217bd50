"""What watchers and their hub speak of: bounds, selections, and commits ready to be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.commits.acls import Life, lives_of
from gateway.model import Commit

# How a commit is told, made once for all watchers: bytes that only the layer above can read.
Encode = Callable[[Commit], bytes]


@dataclass(frozen=True, slots=True)
class WatchBounds:
    """The bounds of one process; those with a setting are described in ``gateway.settings``.

    ``ring_commits_max`` and ``ring_bytes_max`` bound the recent commits kept for the watchers of
    one catalog, ``rings_bytes_max`` those of all catalogs. ``bookmark_commits``: after how many
    commits that a watcher doesn't want it is told how far it has come.
    """

    watchers_max: int = 2000
    lag_max: int = 10_000
    ring_commits_max: int = 1024
    ring_bytes_max: int = 4 * 1024 * 1024
    rings_bytes_max: int = 64 * 1024 * 1024
    bookmark_commits: int = 1000


@dataclass(frozen=True, slots=True)
class Told:
    """A commit as watchers are told it, when it was made, and the keys that it touched.

    ``lives`` are the documents behind those keys, as their acls are looked up by.
    """

    revision: int
    keys: frozenset[str]
    encoded: bytes
    time_us: int = 0
    lives: frozenset[Life] = frozenset()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which commits a watcher wants: those that touch one of ``keys``, or a key with ``prefix``.

    Neither given: all, those among them that touch nothing. A commit is told whole or not at all.
    """

    keys: frozenset[str] = frozenset()
    prefix: str = ""

    @property
    def is_everything(self) -> bool:
        return not self.keys and not self.prefix

    @property
    def single_key(self) -> str | None:
        """The only key that is wanted, where there is just one."""
        return next(iter(self.keys)) if len(self.keys) == 1 and not self.prefix else None

    def wants(self, told: Told) -> bool:
        if self.is_everything:
            return True
        if not self.keys.isdisjoint(told.keys):
            return True
        return bool(self.prefix) and any(key.startswith(self.prefix) for key in told.keys)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a watcher took: wanted commits, ascending, and the revision it has come to by that.

    Everything wanted up to ``revision`` has been told; whoever goes on from there misses nothing.
    """

    told: Sequence[Told]
    revision: int


class WatchEnded(Exception):
    """The gateway ends this watch, not the watcher; ``code`` says why.

    ``watcher_too_slow``: it fell further behind than is allowed. ``shutting_down``: the process
    stops. Going on from the last revision that was told is always right.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def told_of(commit: Commit, encode: Encode) -> Told:
    keys = frozenset(change.key for change in commit.changes)
    return Told(commit.revision, keys, encode(commit), commit.time_us, lives_of((commit,)))

"""One watched catalog: where it has been read to, its recent commits, and who waits for more."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.commits.watch_values import Selection, Told, WatchBounds


class Waiting(Protocol):
    """What a channel knows of a watcher that waits: it has come to ``position``."""

    position: int
    bookmarked: int
    selection: Selection

    def wake(self) -> None: ...


class Watching(Protocol):
    """What is asked of every watcher, whether it waits or not: how far behind it is."""

    @property
    def lag(self) -> int: ...


@dataclass(eq=False, slots=True)
class Channel:
    """The ring holds the commits from somewhere up to ``position``, without a gap.

    A ring is a shortcut: what it has dropped is read from the log. Nothing in here waits or locks;
    the hub does that. ``known_head`` is the newest revision heard of; ``due`` is when it may be
    read again; ``left_at`` is when the last watcher left, None while there are any.
    """

    catalog: str
    position: int
    known_head: int
    due: float = 0.0
    left_at: float | None = None
    watchers: int = 0
    waiting: dict[Waiting, None] = field(default_factory=dict)  # as they came
    bytes: int = 0
    ring: deque[Told] = field(default_factory=deque)

    def covers(self, position: int) -> bool:
        """Whether the ring has every commit above ``position`` up to its own."""
        return position >= self.position - len(self.ring)

    def above(self, position: int, limit: int, bytes_max: int) -> list[Told]:
        """From a ring that covers ``position``; one at least if there is any."""
        taken: list[Told] = []
        first = len(self.ring) - (self.position - position)
        for index in range(first, min(first + limit, len(self.ring))):
            taken.append(self.ring[index])
            bytes_max -= len(taken[-1].encoded)
            if bytes_max <= 0:
                break
        return taken

    def append(self, told: Sequence[Told], bounds: WatchBounds) -> None:
        """``told`` begins right behind ``position``. The last commit is kept, whatever its size."""
        for each in told:
            self.ring.append(each)
            self.bytes += len(each.encoded)
        self.position = told[-1].revision
        self.known_head = max(self.known_head, self.position)
        while len(self.ring) > 1 and (
            len(self.ring) > bounds.ring_commits_max or self.bytes > bounds.ring_bytes_max
        ):
            self.bytes -= len(self.ring.popleft().encoded)

    def clear(self) -> None:
        self.ring.clear()
        self.bytes = 0

    def skip_to(self, floor: int) -> None:
        """History was compacted beyond ``position``: go on from the floor."""
        self.clear()
        self.position = floor
        self.known_head = max(self.known_head, floor)

    def release(self, told: Collection[Told], bookmark_commits: int) -> list[Waiting]:
        """Those who wait and want some of ``told``, or a bookmark; they wait no longer.

        The others are moved on where they wait: it costs them nothing.
        """
        released = []
        for watcher in tuple(self.waiting):
            behind = self.position - watcher.bookmarked >= bookmark_commits
            if behind or any(map(watcher.selection.wants, told)):
                del self.waiting[watcher]
                released.append(watcher)
            else:
                watcher.position = max(watcher.position, self.position)
        return released

    def release_all(self) -> list[Waiting]:
        released = list(self.waiting)
        self.waiting.clear()
        return released

"""Sweeping what a raised floor leaves to be swept, a window at a time; ``sweep`` has the rules.

Memory doesn't grow with the history: a window is at most ``_WINDOW_COMMITS`` commits or
``_WINDOW_BYTES`` of changes, and the older commits are looked up for a few keys at a time.

Every step may be broken off and repeated, by this process or another. What a window superseded is
taken from the older commits first, and only then from the window itself: while any of it is left,
the window still says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.commits.sweep import Keeping, Window, sweep_older, sweep_window
from gateway.store.contract import Store, Swept

_WINDOW_COMMITS = 1_000
_WINDOW_BYTES = 8 * 1024 * 1024
_KEYS_AT_ONCE = 50
_SWEPT_AT_ONCE = 100


def _nothing(_: str) -> None:
    """Where nobody wants to know how far a sweep is."""


@dataclass(frozen=True, slots=True)
class Sweeper:
    """``step`` is called with the name of what has just been done; what it raises ends the sweep.

    Tests choose smaller windows, and break off at a step.
    """

    store: Store
    step: Callable[[str], None] = _nothing
    window_commits: int = _WINDOW_COMMITS
    keys_at_once: int = _KEYS_AT_ONCE
    swept_at_once: int = _SWEPT_AT_ONCE

    def finish(self, catalog: str, replies_since_us: int, rest: Callable[[], None]) -> int:
        """Sweep all that the floor has passed; how many commits were changed or deleted.

        Replies made since ``replies_since_us`` are kept. ``rest`` is called between two windows.
        Raises Unreachable, and what ``rest`` and ``step`` raise.
        """
        bounds = self.store.retention(catalog)
        if bounds is None:
            return 0
        swept, changed = bounds.swept, 0
        keeping = Keeping(bounds.floor, replies_since_us)
        while swept < keeping.floor:
            through, count = self._sweep(catalog, swept, keeping)
            self.store.end_sweep(catalog, through)
            self.step("end_sweep")
            swept, changed = through, changed + count
            rest()
        return changed

    def _sweep(self, catalog: str, swept: int, keeping: Keeping) -> tuple[int, int]:
        """Sweep the next window; the revision that it reaches to, and what was changed."""
        commits = self.store.list_commits(
            catalog, swept, keeping.floor, self.window_commits, None, _WINDOW_BYTES
        )
        through = commits[-1].revision if commits else keeping.floor
        window = sweep_window(commits, keeping)
        count = self._sweep_older(catalog, swept, window, keeping)
        self._apply(catalog, window.swept, "sweep_window")
        return through, count + len(window.swept)

    def _sweep_older(self, catalog: str, swept: int, window: Window, keeping: Keeping) -> int:
        count = 0
        # The commit at the last floor was kept for its time, whatever its keys.
        marker = self.store.list_commits(catalog, swept - 1, swept, 1, None, 1) if swept else ()
        count += self._apply(
            catalog, sweep_older(marker, window.superseded, keeping), "sweep_marker"
        )
        keys = sorted(window.superseded)
        for first in range(0, len(keys), self.keys_at_once):
            group = keys[first : first + self.keys_at_once]
            older = self.store.commits_of_keys(catalog, group, swept)
            count += self._apply(catalog, sweep_older(older, group, keeping), "sweep_older")
        return count

    def _apply(self, catalog: str, swept: Sequence[Swept], step: str) -> int:
        for first in range(0, len(swept), self.swept_at_once):
            self.store.sweep(catalog, swept[first : first + self.swept_at_once])
            self.step(step)
        return len(swept)

"""Sweeping: what compaction removes of the commits at or below the floor, and what it keeps.

The rule, for each key, over its changes at or below the floor, newest first: if the newest one is a
delete, none is needed; otherwise, they are needed down to the first one that needs no earlier state
(``ChangeRecord.begins_at``). No read at or above the floor needs older ones. A commit is kept under
the keys that need it. A commit that no key needs is removed, unless it is the one at the floor
(times are looked up by it) or its idempotency key is recent enough to be asked for.

History is swept in windows: the commits above what was swept before, up to a revision that isn't
above the floor. A key's changes in the window decide what its older ones are for. If one of them
begins anew or deletes, the key needs nothing from before the window; otherwise, it needs whatever
earlier sweeps have kept. So older commits are read only for *superseded* keys, and never more than
a window is held at once.

Why a sweep may be broken off anywhere. Worked example, floor 6; a was put at 1, patched at 3, put
at 5 and patched at 6; b was put at 2 and deleted at 4::

    revision    1      2      3        4         5      6
    change      put a  put b  patch a  delete b  put a  patch a

5 and 6 are kept. The others are swept in ascending order: 1, 2, 3, 4. A reader at 6 or later reads
a's changes newest first: 6, then 5, which contains the whole state. It never gets to 1 and 3, even
if they are still there. For b, it finds 4, the delete, as long as any older change of b is there,
and nothing once they are all gone. If 4 were removed before 2, the reader would find b alive.

For the same reason, two compactions may work on one window at a time: a change is removed only
because of a newer one at or below the floor that makes it needless, which stays true whatever else
is removed; and a commit that is gone is never written again.

``Sweeper`` does this for everything that a raised floor leaves to be swept, window by window.
Memory doesn't grow with the history: a window has at most ``_WINDOW_COMMITS`` commits or
``_WINDOW_BYTES`` of changes, and older commits are looked up for a few keys at a time.

Every step may be broken off and repeated, by this process or another. The changes that a window
superseded are removed from the older commits first, and only then from the window itself: as long
as any of them are left, the window still shows why they can go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.limits import MIB
from gateway.model import ChangeRecord, CommitRecord, Retention
from gateway.store.contract import Store, Swept


@dataclass(frozen=True, slots=True)
class SweepRules:
    """What is kept although no key needs it: the commit at ``floor``, and commits with an
    idempotency key since ``replies_since_us``."""

    floor: int
    replies_since_us: int


@dataclass(frozen=True, slots=True)
class SweepWindow:
    """The result for a window: what remains of its commits (``swept``), and the keys whose older
    changes it ``superseded``."""

    superseded: frozenset[str]
    swept: Sequence[Swept]


def sweep_window(commits: Sequence[CommitRecord], rules: SweepRules) -> SweepWindow:
    """The result for the window of these ``commits``, ascending. Some may be swept already."""
    superseded: set[str] = set()
    needed: dict[int, set[str]] = {commit.revision: set() for commit in commits}
    for commit in reversed(commits):
        for change in commit.changes:
            if change.key in superseded or change.is_reduced:
                continue
            if change.action != "delete":
                needed[commit.revision].add(change.key)
            if change.begins_at(commit.revision):
                superseded.add(change.key)
    swept = [
        left_of(commit, needed[commit.revision], rules)
        for commit in commits
        if not commit.changes or len(needed[commit.revision]) < len(commit.changes)
    ]
    return SweepWindow(frozenset(superseded), swept)


def sweep_older(
    commits: Sequence[CommitRecord], superseded: Collection[str], rules: SweepRules
) -> list[Swept]:
    """What remains of ``commits`` from before the window, without the keys that it superseded."""
    swept = []
    for commit in commits:
        found = found_under(commit)
        keys = found.difference(superseded)
        if not keys or keys != found:
            swept.append(left_of(commit, keys, rules))
    return swept


def left_of(commit: CommitRecord, keys: Collection[str], rules: SweepRules) -> Swept:
    """What remains of ``commit`` if only ``keys`` need it."""
    is_reply = commit.idempotency is not None and commit.time_us >= rules.replies_since_us
    if not keys and not is_reply and commit.revision != rules.floor:
        return Swept(commit.revision, None)
    changes = tuple(
        change
        if change.key in keys
        else ChangeRecord(change.key, change.action, change.create_revision)
        for change in commit.changes
    )
    return Swept(commit.revision, replace(commit, changes=changes), frozenset(keys))


def found_under(commit: CommitRecord) -> set[str]:
    """The keys under which a swept commit is still found. No key needs a delete."""
    return {
        change.key
        for change in commit.changes
        if change.action != "delete" and not change.is_reduced
    }


def chain(key: str, commits: Sequence[CommitRecord]) -> list[int]:
    """The revisions that the newest state of ``key`` is rebuilt from, newest first.

    ``commits`` (ascending) are those found under ``key``. [] if the last change is a delete, or the
    change that the state begins with is missing.
    """
    revisions = []
    for commit in reversed(commits):
        change = commit.change_of(key)
        if change.action == "delete":
            break
        revisions.append(commit.revision)
        if change.begins_at(commit.revision):
            return revisions
    return []


_WINDOW_COMMITS = 1_000
_WINDOW_BYTES = 8 * MIB
_KEYS_AT_ONCE = 50
_SWEPT_AT_ONCE = 100


def _nothing(_: str) -> None:
    """Ignore the progress of a sweep."""


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Sweeps the history of catalogs whose floor was raised.

    History is swept ``grace_s`` after its floor was raised, by the database's clock, and also
    ``grace_s`` after this process found it raised, by ``monotonic``, in seconds. So a new primary
    whose clock is ahead can't shorten the wait; if another process takes over, it waits anew.

    ``step`` is called with the name of each step that is done; an exception in it ends the sweep.
    Tests choose smaller windows, and break off at a step.
    """

    store: Store
    monotonic: Callable[[], float]
    step: Callable[[str], None] = _nothing
    window_commits: int = _WINDOW_COMMITS
    keys_at_once: int = _KEYS_AT_ONCE
    swept_at_once: int = _SWEPT_AT_ONCE
    grace_s: float = 0.0
    # By catalog, when each raised floor was found, of those that aren't swept yet.
    _found: dict[str, dict[int, float]] = field(default_factory=dict)

    def finish(self, catalog: str, replies_since_us: int, rest: Callable[[], None]) -> int:
        """Sweep everything that the floor passed at least ``grace_s`` ago; return how many commits
        were changed or deleted.

        Replies made since ``replies_since_us`` are kept. ``rest`` is called after each window.
        Raises StoreUnreachable, and what ``rest`` and ``step`` raise.
        """
        bounds = self.store.retention(catalog)
        if bounds is None:
            return 0
        swept, changed = bounds.swept, 0
        rules = SweepRules(self._sweepable(catalog, bounds), replies_since_us)
        while swept < rules.floor:
            through, count = self._sweep(catalog, swept, rules)
            self.store.end_sweep(catalog, through)
            self.step("end_sweep")
            swept, changed = through, changed + count
            rest()
        return changed

    def _sweepable(self, catalog: str, bounds: Retention) -> int:
        now, before = self.monotonic(), self._found.pop(catalog, {})
        found = {floor: before.get(floor, now) for floor, _ in bounds.raises}
        if found:
            self._found[catalog] = found
        aged = (floor for floor, since in found.items() if now - since >= self.grace_s)
        return min(bounds.sweepable(self.grace_s), max(aged, default=bounds.swept))

    def _sweep(self, catalog: str, swept: int, rules: SweepRules) -> tuple[int, int]:
        """Sweep the next window; return its last revision, and how many commits were changed or
        deleted."""
        commits = self.store.list_commits(
            catalog, swept, rules.floor, self.window_commits, None, _WINDOW_BYTES
        )
        through = commits[-1].revision if commits else rules.floor
        window = sweep_window(commits, rules)
        count = self._sweep_older(catalog, swept, window, rules)
        self.apply(catalog, window.swept, "sweep_window")
        return through, count + len(window.swept)

    def _sweep_older(self, catalog: str, swept: int, window: SweepWindow, rules: SweepRules) -> int:
        count = 0
        # The commit at the last floor was kept for its time, even if no key needs it.
        marker = self.store.list_commits(catalog, swept - 1, swept, 1, None, 1) if swept else ()
        count += self.apply(catalog, sweep_older(marker, window.superseded, rules), "sweep_marker")
        keys = sorted(window.superseded)
        for first in range(0, len(keys), self.keys_at_once):
            group = keys[first : first + self.keys_at_once]
            older = self.store.commits_of_keys(catalog, group, swept)
            count += self.apply(catalog, sweep_older(older, group, rules), "sweep_older")
        return count

    def apply(self, catalog: str, swept: Sequence[Swept], step: str) -> int:
        for first in range(0, len(swept), self.swept_at_once):
            self.store.sweep(catalog, swept[first : first + self.swept_at_once])
            self.step(step)
        return len(swept)

"""What compaction leaves of the commits at or below the floor: pure functions, no I/O.

The rule, for each key, among its changes at or below the floor, newest first: a delete leaves
nothing; otherwise the changes are needed back to the first one that needs no state before it
(``ChangeRecord.begins_at``). Everything older can't be read at any revision from the floor on. A
commit is left under the keys that need it. One that no key needs goes, unless it is the one at the
floor (times are looked up by it) or has an idempotency key young enough to be asked for.

History is swept in windows: the commits above what was swept before, up to some revision that
isn't above the floor. A key's changes in the window settle what becomes of its older ones: where
one of them begins anew or deletes, the key needs nothing from before the window; otherwise it
needs whatever the sweeps before have left. So the older commits are looked at of *superseded*
keys alone, and no more than the window is ever held at once.

Why it may be broken off anywhere. Worked example, floor 6; a was put at 1, patched at 3, put at 5
and patched at 6; b was put at 2 and deleted at 4::

    revision    1      2      3        4         5      6
    change      put a  put b  patch a  delete b  put a  patch a

Left are 5 and 6. They are swept in ascending order: 1, 2, 3, 4. A reader at 6 or later looks for
a newest first: 6, then 5, which says everything; whatever of 1 and 3 is still there is never
reached. For b he finds 4, the delete, as long as any older change of b is there, and nothing when
all of them are gone. The other way round, with 4 gone before 2, he would find b alive.

The same argument lets two compactions work on one window at a time: a change is dropped only
where a newer one at or below the floor was seen that makes it needless, which stays true
whatever else is dropped; and a commit that is gone is never written again.

``Sweeper`` goes over what a raised floor leaves to be swept by these rules, a window at a time.
Memory doesn't grow with the history: a window is at most ``_WINDOW_COMMITS`` commits or
``_WINDOW_BYTES`` of changes, and the older commits are looked up for a few keys at a time.

Every step may be broken off and repeated, by this process or another. What a window superseded is
taken from the older commits first, and only then from the window itself: while any of it is left,
the window still says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.limits import MIB
from gateway.model import ChangeRecord, CommitRecord, Retention
from gateway.store.contract import Store, Swept


@dataclass(frozen=True, slots=True)
class Keeping:
    """What stays although no key needs it: the commit at ``floor``, and replies since then."""

    floor: int
    replies_since_us: int


@dataclass(frozen=True, slots=True)
class SweepWindow:
    """What becomes of a window: its own commits (``swept``), and which keys it ``superseded``."""

    superseded: frozenset[str]
    swept: Sequence[Swept]


def sweep_window(commits: Sequence[CommitRecord], keeping: Keeping) -> SweepWindow:
    """``commits`` are all of a window, ascending; part of them may have been swept already."""
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
        left_of(commit, needed[commit.revision], keeping)
        for commit in commits
        if not commit.changes or len(needed[commit.revision]) < len(commit.changes)
    ]
    return SweepWindow(frozenset(superseded), swept)


def sweep_older(
    commits: Sequence[CommitRecord], superseded: Collection[str], keeping: Keeping
) -> list[Swept]:
    """``commits``, of before the window, without the keys that it superseded."""
    swept = []
    for commit in commits:
        found = found_under(commit)
        keys = found.difference(superseded)
        if not keys or keys != found:
            swept.append(left_of(commit, keys, keeping))
    return swept


def left_of(commit: CommitRecord, keys: Collection[str], keeping: Keeping) -> Swept:
    """What remains of ``commit`` if only ``keys`` need it."""
    is_reply = commit.idempotency is not None and commit.time_us >= keeping.replies_since_us
    if not keys and not is_reply and commit.revision != keeping.floor:
        return Swept(commit.revision, None)
    changes = tuple(
        change
        if change.key in keys
        else ChangeRecord(change.key, change.action, change.create_revision)
        for change in commit.changes
    )
    return Swept(commit.revision, replace(commit, changes=changes), frozenset(keys))


def found_under(commit: CommitRecord) -> set[str]:
    """The keys that a commit which was swept is still found under: no delete is needed by any."""
    return {
        change.key
        for change in commit.changes
        if change.action != "delete" and not change.is_reduced
    }


def chain(key: str, commits: Sequence[CommitRecord]) -> list[int]:
    """The revisions that the newest state of ``key`` is rebuilt from, newest first.

    ``commits`` (ascending) are found under ``key``. [] where it was deleted last, or where the
    changes that its state began with aren't there.
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
    """``step`` is called with the name of what has just been done; what it raises ends the sweep.

    History is swept ``grace_s`` after its floor was raised by the database's clock, and after this
    process has found it raised by its own: ``monotonic``, in seconds. A new primary whose clock is
    ahead can't shorten that; another process that sweeps begins anew.

    Tests choose smaller windows, and break off at a step.
    """

    store: Store
    monotonic: Callable[[], float]
    step: Callable[[str], None] = _nothing
    window_commits: int = _WINDOW_COMMITS
    keys_at_once: int = _KEYS_AT_ONCE
    swept_at_once: int = _SWEPT_AT_ONCE
    grace_s: float = 0.0
    # By catalog, the raised floors that aren't swept yet, and when each was found.
    _found: dict[str, dict[int, float]] = field(default_factory=dict)

    def finish(self, catalog: str, replies_since_us: int, rest: Callable[[], None]) -> int:
        """Sweep all that the floor has passed ``grace_s`` ago or longer; how many commits were
        changed or deleted.

        Replies made since ``replies_since_us`` are kept. ``rest`` is called between two windows.
        Raises StoreUnreachable, and what ``rest`` and ``step`` raise.
        """
        bounds = self.store.retention(catalog)
        if bounds is None:
            return 0
        swept, changed = bounds.swept, 0
        keeping = Keeping(self._sweepable(catalog, bounds), replies_since_us)
        while swept < keeping.floor:
            through, count = self._sweep(catalog, swept, keeping)
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

    def _sweep(self, catalog: str, swept: int, keeping: Keeping) -> tuple[int, int]:
        """Sweep the next window; the revision that it reaches to, and what was changed."""
        commits = self.store.list_commits(
            catalog, swept, keeping.floor, self.window_commits, None, _WINDOW_BYTES
        )
        through = commits[-1].revision if commits else keeping.floor
        window = sweep_window(commits, keeping)
        count = self._sweep_older(catalog, swept, window, keeping)
        self.apply(catalog, window.swept, "sweep_window")
        return through, count + len(window.swept)

    def _sweep_older(self, catalog: str, swept: int, window: SweepWindow, keeping: Keeping) -> int:
        count = 0
        # The commit at the last floor was kept for its time, whatever its keys.
        marker = self.store.list_commits(catalog, swept - 1, swept, 1, None, 1) if swept else ()
        count += self.apply(
            catalog, sweep_older(marker, window.superseded, keeping), "sweep_marker"
        )
        keys = sorted(window.superseded)
        for first in range(0, len(keys), self.keys_at_once):
            group = keys[first : first + self.keys_at_once]
            older = self.store.commits_of_keys(catalog, group, swept)
            count += self.apply(catalog, sweep_older(older, group, keeping), "sweep_older")
        return count

    def apply(self, catalog: str, swept: Sequence[Swept], step: str) -> int:
        for first in range(0, len(swept), self.swept_at_once):
            self.store.sweep(catalog, swept[first : first + self.swept_at_once])
            self.step(step)
        return len(swept)

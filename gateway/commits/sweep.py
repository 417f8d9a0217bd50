"""What compaction leaves of the commits at or below the floor: pure functions, no I/O.

The rule, for each key, among its changes at or below the floor, newest first: a delete leaves
nothing; otherwise the changes are needed back to the first one that needs no state before it
(``Change.begins_at``). Everything older can't be read at any revision from the floor on. A commit
is left under the keys that need it. One that no key needs goes, unless it is the one at the floor
(times are looked up by it) or has an idempotency key young enough to be asked for.

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
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gateway.model import Change, Commit
from gateway.store.contract import Swept
from patching import ABSENT


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept although no key needs it: ``floor``'s own commit, and replies since then."""

    floor: int
    replies_since_us: int


@dataclass(frozen=True, slots=True)
class Window:
    """What becomes of a window: its own commits (``swept``), and which keys it ``superseded``."""

    superseded: frozenset[str]
    swept: Sequence[Swept]


def sweep_window(commits: Sequence[Commit], keeping: Keeping) -> Window:
    """``commits`` are all of a window, ascending; part of them may have been swept already."""
    superseded: set[str] = set()
    needed: dict[int, set[str]] = {commit.revision: set() for commit in commits}
    for commit in reversed(commits):
        for change in commit.changes:
            if change.key in superseded or is_reduced(change):
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
    return Window(frozenset(superseded), swept)


def sweep_older(
    commits: Sequence[Commit], superseded: Collection[str], keeping: Keeping
) -> list[Swept]:
    """``commits``, of before the window, without the keys that it superseded."""
    swept = []
    for commit in commits:
        found = found_under(commit)
        keys = found.difference(superseded)
        if not keys or keys != found:
            swept.append(left_of(commit, keys, keeping))
    return swept


def left_of(commit: Commit, keys: Collection[str], keeping: Keeping) -> Swept:
    """``commit`` as it is left where only ``keys`` need it."""
    is_reply = commit.idempotency is not None and commit.time_us >= keeping.replies_since_us
    if not keys and not is_reply and commit.revision != keeping.floor:
        return Swept(commit.revision, None)
    changes = tuple(
        change if change.key in keys else Change(change.key, change.action, change.create_revision)
        for change in commit.changes
    )
    return Swept(commit.revision, replace(commit, changes=changes), frozenset(keys))


def found_under(commit: Commit) -> set[str]:
    """The keys that a commit which was swept is still found under: no delete is needed by any."""
    return {
        change.key
        for change in commit.changes
        if change.action != "delete" and not is_reduced(change)
    }


def is_reduced(change: Change) -> bool:
    """Whether a sweep has left of the change only what a reply needs.

    That of a delete can't be told, and needn't be: it says all the same that the key was deleted.
    """
    return (
        change.action != "delete"
        and change.patch is None
        and change.value is ABSENT
        and change.attributes is None
    )


def chain(key: str, commits: Sequence[Commit]) -> list[int]:
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

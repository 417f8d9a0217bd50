"""Writing out late: what a worker that slept must not bring back, and how it is kept from that.

Writing a batch out twice changes nothing as long as nothing of it was removed meanwhile. Two
things remove: a sweep drops commits at or below the floor, and purging drops tombstones at or
below it. Neither can happen to a batch before it was written out, since the floor rises to a
revision only when that is. So there is one test: *a batch was written out and may have been
removed from, if the floor is at its first revision or above it.* Where it isn't, whatever was
written was harmless, and still is.

The clocks save the test. Until a batch has been left unfinished for a while, nobody but its own
writer writes it out (``Settler``), so nothing of it can have been removed; a writer that is done
sooner needn't look. Both clocks are asked: the monotonic one may stand still while a machine
sleeps, the wall clock may be set back. That time is given once: who has looked and found the batch
unfinished is one of many who may finish it from then on. A batch of somebody else's never has such
a time. Without it, a writer looks shortly before it sends the commits, and always afterwards.
Where the store is lost before that second look, it is made up for in the background.

Where the floor is found to have passed, what was written is set right:

* Tombstones are purged a day after the deletion at the earliest. Documents that were sent within
  ``GuardedWrites.documents_s`` have therefore met every newer state there was, and are as they
  should be: the documents tell which of the commits, perhaps inserted again, are still needed.
* Documents that were sent later may have come back from the dead. Then it is looked at before
  the commits are sent: the history is as it should be, and tells which documents are current.

Worked example. A moves the head to 7, which puts k, and is stopped. B writes 7 out, and deletes k
at 8; history is compacted to 9: commits 7 and 8 are gone. A wakes up a minute later and inserts
its commit 7 again: at 9, k would seem alive. But A looks at the head, finds the floor at 9, finds
k's tombstone (at 8, which the floor has passed), and so drops commit 7. Had it slept for two days
before it sent the document, the tombstone would have been purged, and k would be there again; A
looks before it sends the commits, finds no change of k at 7, and drops the document at 7.

What nobody sets right: commits that were sent after a sleep between the look and the sending, by a
writer that died before it looked again; and what was sent before a sleep, but carried out by the
database after it. What can't be told: k deleted at or below the floor and made again above it, or
deleted and made again by one commit above it. Where both the document's and the commit's late
arrival could have been in question, the former is assumed, which is by far the more common one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gateway.model import Change, Commit, Document, Head
from gateway.runtime import Runtime
from gateway.state.sweep import Keeping, Sweeper, chain, found_under, left_of
from gateway.store.contract import Store, Unreachable

# Far below the shortest grace that tombstones are given (``tombstone_grace_s``).
_OWED_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks."""

    monotonic: float
    wall_us: int


def moment(runtime: Runtime) -> Moment:
    return Moment(runtime.monotonic(), runtime.now_us())


def elapsed_s(runtime: Runtime, since: Moment) -> float:
    """The longer of the times that the two clocks show."""
    now = moment(runtime)
    return max(now.monotonic - since.monotonic, (now.wall_us - since.wall_us) / 1_000_000)


class Writes(Protocol):
    """The two writes of a write-out, as ``gateway.store.contract.Store`` has them."""

    def write_documents(self, documents: Mapping[str, Sequence[Document]]) -> None: ...

    def write_commits(self, commits: Sequence[Commit]) -> None: ...


class GuardedWrites:
    """The writes of one write-out, and of its repetitions where it was broken off.

    Batches that turn out to have been written out by somebody else are left out of it. Every
    method but ``give_up`` raises Unreachable.
    """

    documents_s: ClassVar[float] = 30.0

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        batches: Mapping[str, Sequence[Commit]],
        since: Moment,
        alone_s: float,
    ) -> None:
        """``since``: when the batches certainly were in their heads, or not yet.

        ``alone_s``: for how long after that nobody else writes them out; 0 for somebody else's.
        """
        self._store = store
        self._runtime = runtime
        self._left = dict(batches)
        self._since = since
        self._alone_s = alone_s
        self._fresh_s = alone_s  # for how long a look is good enough to send commits
        self._documents_late = False
        self._commits_sent = False

    def write_documents(self, documents: Mapping[str, Sequence[Document]]) -> None:
        if self._elapsed_s() > self._patience_s:
            self.look_again()
        if not self._left:
            return
        try:
            self._store.write_documents({c: d for c, d in documents.items() if c in self._left})
        finally:
            self._documents_late = self._documents_late or self._elapsed_s() > self.documents_s
        if self._documents_late:
            self.look_again()

    def write_commits(self, commits: Sequence[Commit]) -> None:
        if self._elapsed_s() >= self._fresh_s:
            self.look_again()
        if not self._left:
            return
        self._commits_sent = True
        self._store.write_commits([each for each in commits if each.catalog in self._left])

    def finish(self) -> None:
        """After both writes: make sure that they did no harm."""
        if self._left and self._elapsed_s() >= self._alone_s:
            self.look_again()

    def give_up(self) -> None:
        """After a call that raised Unreachable, where none follows: what is owed is made up for."""
        if self._left and (self._commits_sent or self._documents_late):
            self._runtime.spawn(self._make_up, "late")

    def _make_up(self) -> None:
        while True:
            self._runtime.sleep(_OWED_AGAIN_S)
            with suppress(Unreachable):
                self.look_again()
                return

    @property
    def _patience_s(self) -> float:
        return self._alone_s or self.documents_s

    def _elapsed_s(self) -> float:
        return elapsed_s(self._runtime, self._since)

    def look_again(self) -> None:
        """Set right and leave out the batches that others have written out."""
        now = moment(self._runtime)
        heads = self._store.heads(self._left)
        for catalog, batch in list(self._left.items()):
            head = heads.get(catalog)
            if head is None:
                continue
            if head.floor >= batch[0].revision:
                self._set_right(catalog, batch, head)
            if head.floor >= batch[0].revision or head.revision > batch[-1].revision:
                del self._left[catalog]
        # Nothing that was sent before had been removed from. What is left, anybody may finish now.
        self._since, self._alone_s = now, 0.0
        self._documents_late = self._commits_sent = False

    def _set_right(self, catalog: str, batch: Sequence[Commit], head: Head) -> None:
        if self._commits_sent:
            sweep_again(self._store, catalog, batch)
        elif self._documents_late:
            drop_revived(self._store, catalog, batch, head.revision)


def sweep_again(store: Store, catalog: str, batch: Sequence[Commit]) -> None:
    """Drop what the floor had passed of commits that may have been inserted again.

    The documents are as they should be. Raises Unreachable.
    """
    # Replies are kept whatever their age here: compaction drops them when they are old.
    Sweeper(store).finish(catalog, 0, rest=lambda: None)
    bounds = store.retention(catalog)
    floor = 0 if bounds is None else bounds.swept
    passed = [commit for commit in batch if commit.revision <= floor]
    if not passed:
        return
    needed = _needed(store, catalog, {c.key for each in passed for c in each.changes}, floor)
    for commit in _stored(store, catalog, passed):
        kept = {key for key in found_under(commit) if (key, commit.revision) in needed}
        if not kept or len(kept) < len(commit.changes):
            store.sweep(catalog, [left_of(commit, kept, Keeping(floor, 0))])


def _stored(store: Store, catalog: str, batch: Sequence[Commit]) -> Sequence[Commit]:
    """What there is of the batch: as it was put into the head, or as a sweep has left it."""
    first, last = batch[0].revision, batch[-1].revision
    return store.list_commits(catalog, first - 1, last, len(batch), None, 2**62)


def _needed(store: Store, catalog: str, keys: Collection[str], floor: int) -> set[tuple[str, int]]:
    """(key, revision) of the changes that the states of ``keys`` at the floor are rebuilt from."""
    documents = store.documents({catalog: keys})
    needed = set()
    for key in sorted(keys):
        if _lives_at(store, catalog, key, documents.get((catalog, key)), floor):
            retained = store.commits_of_keys(catalog, [key], floor)
            needed |= {(key, revision) for revision in chain(key, retained)}
    return needed


def _lives_at(store: Store, catalog: str, key: str, document: Document | None, floor: int) -> bool:
    """Whether ``key`` had a live document at the floor, told without the history up to there."""
    if document is None:
        return False
    if document.revision <= floor:
        return document.exists
    first = _first_change(store, catalog, key, floor, document.revision)
    # A delete is of a document that was there; any other change says since when.
    return first is None or first.action == "delete" or first.create_revision <= floor


def _first_change(store: Store, catalog: str, key: str, after: int, through: int) -> Change | None:
    """The first change of ``key`` above ``after``, also where it is in the head alone."""
    written = store.list_commits(catalog, after, through, 1, key, 1)
    head = None if written else store.head_with_batch(catalog)
    commits = written or (head.batch if head is not None else None) or ()
    for commit in commits:
        for change in commit.changes:
            if change.key == key and commit.revision > after:
                return change
    return None


def drop_revived(store: Store, catalog: str, batch: Sequence[Commit], head_revision: int) -> None:
    """Drop the documents of ``batch`` that came back after their tombstones were purged.

    The history is as it should be. Raises Unreachable.
    """
    last = {change.key: commit.revision for commit in batch for change in commit.changes}
    for key, revision in last.items():
        changes = store.changes_of(catalog, key, head_revision)
        if not changes or changes[0].revision != revision:
            store.drop_document(catalog, key, revision)

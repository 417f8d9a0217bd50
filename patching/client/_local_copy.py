"""A follower's local copy of a catalog, with its recent past, the calls that wait for it, and its
listeners.

A reload replaces the copy's versions. One lock guards all this, so that a listener that joins
misses nothing and gets nothing twice.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol
from weakref import WeakValueDictionary

from patching import ABSENT, Json, Limits, apply_within
from patching.client._forks import PerProcess
from patching.client.errors import FollowerStopped, RevisionTooOld, RevisionUnknown, WaitTimedOut
from patching.client.results import Change, Commit
from patching.values import Absent

# The gateway has checked every commit by its limits; here they could only stop the copy.
_UNLIMITED: Final = Limits(
    operations_max=1 << 62, copy_growth_bytes_max=1 << 62, depth_max=300, result_bytes_max=1 << 62
)


class Diverged(Exception):
    """The copy has to be read again."""


@dataclass(frozen=True, slots=True)
class History:
    """The past that a copy keeps: the last ``commits`` commits, none older than ``seconds`` (None:
    any age). States whose snapshot is still in use are kept as well."""

    commits: int = 1000
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.commits < 0 or (self.seconds is not None and self.seconds < 0):
            raise ValueError("commits and seconds can't be negative")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A catalog as of ``revision``. It stays readable, whatever happens to the follower.

    ``documents`` are the contents by key, in no particular order. They are shared with other
    snapshots: treat them as immutable. ``time`` is that of the last commit up to ``revision`` that
    the copy knows, None if it began empty. ``settings`` are the catalog's, None if nothing was set.
    """

    revision: int
    time: datetime | None
    documents: Mapping[str, Json]
    settings: Json

    def under(self, prefix: str) -> dict[str, Json]:
        """The contents of the documents whose keys begin with ``prefix``."""
        documents = self.documents
        return {key: documents[key] for key in documents if key.startswith(prefix)}


class _Chain:
    """Ascending revisions and the value that each of them left."""

    __slots__ = ("revisions", "values")

    def __init__(self) -> None:
        self.revisions: list[int] = []
        self.values: list[Json | Absent] = []

    def at(self, revision: int) -> Json | Absent:
        index = bisect_right(self.revisions, revision) - 1
        return self.values[index] if index >= 0 else ABSENT

    def set(self, revision: int, value: Json | Absent) -> None:
        self.revisions.append(revision)
        self.values.append(value)

    def forget_before(self, revision: int) -> bool:
        """Drop what no state at ``revision`` or later needs. Returns whether anything is left."""
        oldest = bisect_right(self.revisions, revision) - 1
        if oldest >= 0 and self.values[oldest] is ABSENT:
            oldest += 1
        if oldest > 0:
            del self.revisions[:oldest]
            del self.values[:oldest]
        return bool(self.revisions)


class VersionedCopy(PerProcess):
    """The copy. Thread-safe; one thread changes it.

    ``revision`` is how far it goes, ``last`` the id of the commit there, None if unknown,
    ``earliest`` the oldest state that can be asked for. ``prefix`` limits the copy to documents
    whose keys begin with it.

    Each key has a chain of its values, each with the revision that made it; a state is a revision,
    and reading a key at it is a bisection. For a commit, only what it changes is copied.

    Worked example. Loaded at 5 with a=1; commit 6 sets a=2, commit 8 deletes it (7 changed other
    keys). The chain of a is [5: 1, 6: 2, 8: ABSENT]; a at 7 is 2. The last two commits, 7 and 8,
    are kept, so states from 6 on: "5: 1" is dropped, unless somebody still holds a snapshot at 5.
    Once 8 is the earliest, the chain has only ABSENT and is dropped as a whole.
    """

    def __init__(
        self,
        revision: int,
        time: datetime | None,
        documents: Mapping[str, Json],
        settings: Json = None,
        *,
        prefix: str = "",
        last: str | None = None,
    ) -> None:
        self.last = last
        self._prefix = prefix
        super().__init__()
        self._chains: dict[str | None, _Chain] = {}
        self._log: deque[Commit] = deque()  # the known ones above `earliest`
        self._unpruned: deque[Commit] = deque()  # dropped from the log, but not from the chains
        self._held: WeakValueDictionary[int, _Documents] = WeakValueDictionary()
        self.revision = self.earliest = revision
        self.earliest_time = time
        for key, value in documents.items():
            self._chain(key).set(revision, value)
        if settings is not None:
            self._chain(None).set(revision, settings)

    def _begin(self) -> None:
        self._lock = threading.Lock()

    def commit(self, commit: Commit) -> None:
        """Apply ``commit``, all of it or, if a change doesn't fit, nothing. Raises Diverged if the
        copy lacks earlier changes of a document, because an acl hid them; PatchError."""
        after: dict[str | None, Json | Absent] = {}
        for change in filter(self._is_copied, commit.changes):
            if change.base_revision > self._last_change(change.key):
                raise Diverged(
                    f"the copy of {change.key!r} lacks the change at {change.base_revision}, which"
                    " an acl had hidden"
                )
            if change.patch or change.base_revision:
                before = after.get(change.key, self._latest(change.key))
                after[change.key], _ = apply_within(
                    before, change.patch, limits=_UNLIMITED, document_bytes=0
                )
        with self._lock:
            for key, value in after.items():
                self._chain(key).set(commit.revision, value)
            self._log.append(commit)
            self.revision, self.last = commit.revision, commit.commit_id

    def advance(self, revision: int, last: str | None = None) -> None:
        """Move to ``revision`` without a change of this copy. ``last`` is the commit there, if
        known."""
        with self._lock:
            if revision > self.revision:
                self.revision, self.last = revision, last
            elif revision == self.revision and self.last is None:
                self.last = last

    def prune(self, history: History, now: datetime) -> None:
        """Forget what ``history`` doesn't keep."""
        before = None if history.seconds is None else now - timedelta(seconds=history.seconds)
        with self._lock:
            log = self._log
            while log and (
                len(log) > history.commits or (before is not None and log[0].time < before)
            ):
                dropped = log.popleft()
                self._unpruned.append(dropped)
                self.earliest, self.earliest_time = dropped.revision, dropped.time
            floor = min([self.earliest, *list(self._held.keys())])
            while self._unpruned and self._unpruned[0].revision <= floor:
                for change in self._unpruned.popleft().changes:
                    chain = self._chains.get(change.key)
                    if chain is not None and not chain.forget_before(floor):
                        del self._chains[change.key]

    def current(self) -> Snapshot:
        """The state at ``revision``."""
        with self._lock:
            return self._snapshot(self.revision)

    def at_revision(self, revision: int) -> Snapshot:
        """The state at ``revision``. Raises RevisionTooOld, RevisionUnknown."""
        with self._lock:
            if revision < self.earliest:
                raise RevisionTooOld(revision, self.earliest, self.revision)
            if revision > self.revision:
                raise RevisionUnknown(revision, self.earliest, self.revision)
            return self._snapshot(revision)

    def at_time(self, moment: datetime, known_until: datetime) -> Snapshot:
        """The state after the last commit at or before ``moment``, by commit times.

        Raises RevisionTooOld; RevisionUnknown if ``moment`` is later than both the last commit and
        ``known_until``; ValueError for a naive time.
        """
        if moment.tzinfo is None:
            raise ValueError("the time needs an offset from UTC")
        with self._lock:
            log = self._log
            last = log[-1].time if log else self.earliest_time
            if moment > known_until and (last is None or moment > last):
                raise RevisionUnknown(moment, self.earliest, self.revision)
            index = bisect_right(log, moment, key=lambda commit: commit.time)
            if index:
                return self._snapshot(log[index - 1].revision)
            if self.earliest_time is None or moment < self.earliest_time:
                raise RevisionTooOld(moment, self.earliest, self.revision)
            return self._snapshot(self.earliest)

    def commits_above(self, revision: int, limit: int) -> list[Commit] | None:
        """The first commits above ``revision``, at most ``limit``; None if not all are kept."""
        with self._lock:
            if revision < self.earliest:
                return None
            start = bisect_right(self._log, revision, key=lambda commit: commit.revision)
            return list(islice(self._log, start, start + limit))

    def _is_copied(self, change: Change) -> bool:
        return change.key is None or change.key.startswith(self._prefix)

    def _chain(self, key: str | None) -> _Chain:
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = _Chain()
        return chain

    def _last_change(self, key: str | None) -> int:
        """The revision of the copy's last value of ``key``; 0: none."""
        chain = self._chains.get(key)
        return chain.revisions[-1] if chain is not None else 0

    def _latest(self, key: str | None) -> Json | Absent:
        chain = self._chains.get(key)
        return chain.values[-1] if chain is not None else ABSENT

    def _snapshot(self, revision: int) -> Snapshot:
        documents = self._held.get(revision)
        if documents is None:
            documents = self._held[revision] = _Documents(self, revision)
        settings = self._at(None, revision)
        return Snapshot(
            revision, self._time_of(revision), documents, None if settings is ABSENT else settings
        )

    def _time_of(self, revision: int) -> datetime | None:
        index = bisect_right(self._log, revision, key=lambda commit: commit.revision)
        return self._log[index - 1].time if index else self.earliest_time

    def _at(self, key: str | None, revision: int) -> Json | Absent:
        chain = self._chains.get(key)
        return chain.at(revision) if chain is not None else ABSENT

    def value(self, key: str, revision: int) -> Json | Absent:
        """The content of ``key`` at ``revision``, which must be kept or held."""
        with self._lock:
            return self._at(key, revision)

    def keys(self, revision: int) -> list[str]:
        """The keys of the documents at ``revision``, which must be kept or held."""
        with self._lock:
            return [
                key
                for key, chain in self._chains.items()
                if key is not None and chain.at(revision) is not ABSENT
            ]


class _Documents(Mapping[str, Json]):
    """The documents at one revision. While this lives, pruning leaves the revision alone."""

    def __init__(self, versions: VersionedCopy, revision: int) -> None:
        self._versions = versions
        self._revision = revision
        self._keys: list[str] | None = None

    def __getitem__(self, key: str) -> Json:
        value = self._versions.value(key, self._revision) if isinstance(key, str) else ABSENT
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._known_keys())

    def __len__(self) -> int:
        return len(self._known_keys())

    def __repr__(self) -> str:
        return f"<documents at revision {self._revision}>"

    def _known_keys(self) -> list[str]:
        if self._keys is None:
            self._keys = self._versions.keys(self._revision)
        return self._keys


FORKED: Final = "the follower belongs to the process before the fork: begin a new one in this one"


class Audience(Protocol):
    """A recipient of every commit, while it is joined. No method may block or call back."""

    def joined(self, position: int) -> None:
        """From now on every commit above ``position`` is pushed, in order."""

    def push(self, commit: Commit) -> None: ...

    def bookmark(self, revision: int) -> None:
        """There is nothing more of interest up to ``revision``."""

    def reloaded(self, *, is_another: bool) -> None:
        """The copy was loaded again: nobody is joined any more. ``is_another``: from another
        history, in which earlier commits may never have happened."""

    def end(self, reason: Exception | None) -> None:
        """Nothing more will come."""


class LocalCopy(PerProcess):
    """The copy, those who wait for it, and its listeners. Thread-safe; one thread changes it.
    ``now`` returns an aware datetime. In a forked process, which doesn't have that thread, it has
    ended.
    """

    def __init__(self, history: History, now: Callable[[], datetime]) -> None:
        self._history = history
        self._now = now
        self._versions: VersionedCopy | None = None
        self._joined: list[Audience] = []
        self._all: list[Audience] = []
        self._heard_at: datetime | None = None
        self._ended: FollowerStopped | None = None
        self._last_error: Exception | None = None
        super().__init__()

    def _begin(self) -> None:
        self._changed = threading.Condition()

    def _forked(self) -> None:
        if self._versions is not None:
            self._joined, self._all = [], []
            self._end(FollowerStopped(FORKED))

    # Changing

    def load(self, versions: VersionedCopy, *, is_another: bool = False) -> None:
        """Begin, or begin again, with ``versions``. ``is_another``: they are of another history
        than those before, as they are in any case if they don't go as far."""
        with self._changed:
            before, self._versions = self._versions, versions
            self._joined = []
            is_another |= before is not None and versions.revision < before.revision
            for each in self._all:
                each.reloaded(is_another=is_another)
            self._changed.notify_all()

    def place(self) -> tuple[int, str | None]:
        """The revision, and the id of the commit that made it, if known."""
        with self._changed:
            versions = self._loaded()
            return versions.revision, versions.last

    def follows(self, commit: Commit) -> bool:
        """Whether ``commit`` can be the next one of this copy's history, by its parent, if that is
        known."""
        with self._changed:
            versions = self._loaded()
            is_next = commit.revision == versions.revision + 1
            known = versions.last if is_next else None
            return known is None or commit.parent is None or commit.parent == known

    def commit(self, commit: Commit) -> None:
        """Apply ``commit`` and push it to the listeners. On Diverged or PatchError, nothing has
        happened."""
        with self._changed:
            versions = self._loaded()
            versions.commit(commit)
            versions.prune(self._history, self._now())
            for each in self._joined:
                each.push(commit)
            self._changed.notify_all()

    def advance(self, revision: int, last: str | None = None) -> None:
        """There is nothing more up to ``revision``, which the commit ``last`` made, if known."""
        with self._changed:
            versions = self._loaded()
            versions.prune(self._history, self._now())
            is_further = revision > versions.revision
            versions.advance(revision, last)
            if is_further:
                for each in self._joined:
                    each.bookmark(revision)
                self._changed.notify_all()

    def heard(self, error: Exception | None) -> None:
        """A request of the follower was answered or, with ``error``, failed."""
        with self._changed:
            if error is not None:
                self._cut_off()
            self._last_error = error

    def _cut_off(self) -> None:
        if self._last_error is None and self._ended is None:
            self._heard_at = self._now()  # until now, as far as it knew, it missed nothing

    def end(self, failure: Exception | None = None) -> list[Audience]:
        """End the copy's changes: waiting calls raise. Returns the listeners; reads still work."""
        with self._changed:
            text = "the follower was stopped" if failure is None else "the follower failed"
            stopped = FollowerStopped(text)
            stopped.__cause__ = failure
            self._end(stopped)
            reason = None if failure is None else self._ended
            listening, self._joined, self._all = self._all, [], []
            for each in listening:
                each.end(reason)
            self._changed.notify_all()
            return listening

    def _end(self, stopped: FollowerStopped) -> None:
        self._cut_off()
        if self._ended is None:
            self._ended = stopped

    # Reading

    @property
    def revision(self) -> int:
        with self._changed:
            return self._loaded().revision

    @property
    def last_error(self) -> Exception | None:
        with self._changed:
            return self._last_error

    def current(self) -> Snapshot:
        with self._changed:
            return self._loaded().current()

    def at_revision(self, revision: int) -> Snapshot:
        with self._changed:
            return self._loaded().at_revision(revision)

    def at_time(self, moment: datetime) -> Snapshot:
        with self._changed:
            cut_off = self._last_error is not None or self._ended is not None
            known_until = self._heard_at if cut_off and self._heard_at else self._now()
            return self._loaded().at_time(moment, known_until)

    def wait_for(self, revision: int, timeout_s: float | None) -> None:
        """Wait until the copy is at ``revision`` or later. Raises WaitTimedOut, FollowerStopped."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while (position := self._loaded().revision) < revision:
                if self._ended is not None:
                    raise self._ended
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise WaitTimedOut(revision, position, self._last_error)
                self._changed.wait(left_s)

    # Listening

    def add(self, audience: Audience) -> None:
        """``audience`` will learn of the end. It gets commits once it has joined."""
        with self._changed:
            self._loaded()
            if self._ended is not None:
                raise self._ended
            self._all.append(audience)

    def remove(self, audience: Audience) -> None:
        with self._changed:
            for listed in (self._joined, self._all):
                if audience in listed:
                    listed.remove(audience)

    def join(self, audience: Audience, position: int, limit: int) -> list[Commit] | None:
        """The first commits above ``position``, up to ``limit``; None if not all are kept.

        If these are fewer than ``limit``, the audience has joined, and they were pushed to it
        already.
        """
        with self._changed:
            versions = self._loaded()
            commits = versions.commits_above(position, limit)
            if commits is not None and len(commits) < limit:
                self._join(audience, position)
                for commit in commits:
                    audience.push(commit)
                audience.bookmark(versions.revision)
            return commits

    def join_now(self, audience: Audience) -> Snapshot:
        """The current state, at which the audience has joined."""
        with self._changed:
            snapshot = self._loaded().current()
            self._join(audience, snapshot.revision)
            return snapshot

    def _join(self, audience: Audience, position: int) -> None:
        if audience in self._all and audience not in self._joined:
            self._joined.append(audience)
        audience.joined(position)

    def _loaded(self) -> VersionedCopy:
        if self._versions is None:
            raise FollowerStopped("the follower hasn't been started")
        return self._versions

"""A follower's local copy, the calls that wait for it, and its listeners.

A reload replaces the copy's versions. One lock guards them all, so that a listener that joins
misses nothing and gets nothing twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from patching.client._errors import FollowerStopped, WaitTimedOut
from patching.client._results import Commit
from patching.client._versions import History, Snapshot, Versions


class Audience(Protocol):
    """A recipient of every commit, while it is joined. No method may block or call back."""

    def joined(self, position: int) -> None:
        """From now on every commit above ``position`` is pushed, in order."""

    def push(self, commit: Commit) -> None: ...

    def bookmark(self, revision: int) -> None:
        """Nothing more of interest up to ``revision``."""

    def reloaded(self, revision: int, *, set_back: bool) -> None:
        """The copy began anew at ``revision``: nobody is joined any more. ``set_back``: that is
        less than it was at, so what was told above ``revision`` never happened."""

    def end(self, reason: Exception | None) -> None:
        """Nothing will come any more."""


class LocalCopy:
    """Thread-safe; changed by one thread. ``now`` tells the time as an aware datetime."""

    def __init__(self, history: History, now: Callable[[], datetime]) -> None:
        self._history = history
        self._now = now
        self._changed = threading.Condition()
        self._versions: Versions | None = None
        self._joined: list[Audience] = []
        self._all: list[Audience] = []
        self._heard_at: datetime | None = None
        self._ended: FollowerStopped | None = None
        self._last_error: Exception | None = None

    # Changing

    def load(self, versions: Versions) -> None:
        """Begin, or begin anew, with ``versions``."""
        with self._changed:
            before, self._versions = self._versions, versions
            self._joined = []
            set_back = before is not None and versions.revision < before.revision
            for each in self._all:
                each.reloaded(versions.revision, set_back=set_back)
            self._changed.notify_all()

    def commit(self, commit: Commit) -> None:
        """Apply ``commit`` and tell it. Nothing of it happened where this raises PatchError."""
        with self._changed:
            versions = self._loaded()
            versions.commit(commit)
            versions.prune(self._history, self._now())
            for each in self._joined:
                each.push(commit)
            self._changed.notify_all()

    def advance(self, revision: int) -> None:
        """Everything up to ``revision`` was told."""
        with self._changed:
            versions = self._loaded()
            versions.prune(self._history, self._now())
            if revision > versions.revision:
                versions.advance(revision)
                for each in self._joined:
                    each.bookmark(revision)
                self._changed.notify_all()

    def heard(self, error: Exception | None) -> None:
        """A request of the follower was answered, or (``error``) it was not."""
        with self._changed:
            if error is not None and self._last_error is None:
                self._heard_at = self._now()  # till now it was told everything, as far as it knew
            self._last_error = error

    def end(self, failure: Exception | None = None) -> list[Audience]:
        """End the copy's changes: waiting calls raise. Returns the listeners; reads go on."""
        with self._changed:
            if self._ended is None:
                text = "the follower was stopped" if failure is None else "the follower failed"
                self._ended = FollowerStopped(text)
                self._ended.__cause__ = failure
            reason = None if failure is None else self._ended
            listening, self._joined, self._all = self._all, [], []
            for each in listening:
                each.end(reason)
            self._changed.notify_all()
            return listening

    # Looking

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
        """Until the copy is at ``revision`` or later. WaitTimedOut, FollowerStopped."""
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
        """``audience`` will be told of the end. It gets commits once it has joined."""
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
        """The first commits kept above ``position``, up to ``limit``; None: not all are kept.

        Where that are fewer than ``limit``, the audience has joined, and those returned were
        pushed to it already.
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
        """The current state; the audience has joined at it."""
        with self._changed:
            snapshot = self._loaded().current()
            self._join(audience, snapshot.revision)
            return snapshot

    def _join(self, audience: Audience, position: int) -> None:
        if audience in self._all and audience not in self._joined:
            self._joined.append(audience)
        audience.joined(position)

    def _loaded(self) -> Versions:
        if self._versions is None:
            raise FollowerStopped("the follower was not started")
        return self._versions

"""One listener: a thread that calls it with every commit, in order, each once.

It is either *joined* (the local copy pushes to it, into a bounded queue) or *catching up*: it reads
what the copy keeps, and what is older from the gateway, until so little is left that it can join.
After a reload of the copy it catches up again from where it is; it misses only what the gateway no
longer has, and says so.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from patching.client._forks import PerProcess
from patching.client._local_copy import FORKED, LocalCopy, Snapshot
from patching.client._retry import Retry
from patching.client.errors import (
    CommitsMissed,
    FollowerStopped,
    Gone,
    ListenerStopped,
    ListenerTooSlow,
    RequestError,
)
from patching.client.results import Commit
from patching.client.routes import CatalogRoutes

Listener = Callable[[Commit], object]

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Reload:
    """Commits above ``missed_after`` are missing: begin again from ``snapshot``. The next commit is
    the first above ``snapshot.revision``, which may be lower than ``missed_after`` if the database
    was restored."""

    reason: str
    missed_after: int
    snapshot: Snapshot


OnReload = Callable[[Reload], object]


class Subscription(PerProcess):
    """A listener's subscription, from ``Follower.subscribe``.

    The listener has had every commit up to ``position``; with that as ``after`` it can be resumed,
    here or in another follower. A commit counts once the listener has returned.
    """

    def __init__(
        self,
        copy: LocalCopy,
        routes: CatalogRoutes,
        listener: Listener,
        on_reload: OnReload | None,
        after: int,
        *,
        prefix: str,
        queue_max: int,
        retry: Retry,
    ) -> None:
        self._copy = copy
        self._routes = routes
        self._listener = listener
        self._on_reload = on_reload
        self._prefix = prefix
        self._queue_max = queue_max
        self._retry = retry
        self._pending: deque[Commit | int] = deque()  # commits, and bookmarks between them
        self._is_joined = False
        self._was_set_back = False
        self._waiting = 0  # the commits in `_pending`
        self._pushed = after  # what was pushed last; nothing up to it is taken again
        self._position = after
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="follower-listener", daemon=True)
        super().__init__()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._stopped = threading.Event()

    def _forked(self) -> None:
        """The listener's thread is in the parent process."""
        self.end(self._error or FollowerStopped(FORKED))

    @property
    def position(self) -> int:
        """The listener has had every commit up to this revision."""
        return self._position

    @property
    def stopped(self) -> bool:
        """Whether the listener gets no more commits; it may still be busy with one."""
        return self._stopped.is_set()

    @property
    def error(self) -> Exception | None:
        """Why it stopped: what the listener raised, a ListenerStopped, or FollowerStopped if the
        follower failed. None: it was stopped by ``stop`` (its own or the follower's)."""
        return self._error

    def start(self) -> None:
        self._copy.add(self)
        self._thread.start()

    def stop(self, timeout_s: float | None = 5.0) -> bool:
        """Call the listener no more. Waits up to ``timeout_s`` seconds until it has returned,
        unless it is the caller; False if it hasn't."""
        self._copy.remove(self)
        self.end(None)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the listener has returned and won't be called again; False: not in time."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    # The copy's side: never blocks

    def joined(self, position: int) -> None:
        with self._changed:
            self._is_joined = True
            self._pushed = position

    def push(self, commit: Commit) -> None:
        with self._changed:
            if commit.revision <= self._pushed or self.stopped:
                return
            if self._waiting >= self._queue_max:
                self._end(ListenerTooSlow(self._waiting))
                return
            self._append(commit.revision, commit)
            self._waiting += 1

    def bookmark(self, revision: int) -> None:
        with self._changed:
            if revision <= self._pushed or self.stopped:
                return
            if self._pending and isinstance(self._pending[-1], int):
                self._pending.pop()  # the new one says more
            self._append(revision, revision)

    def _append(self, revision: int, event: Commit | int) -> None:
        self._pushed = revision
        self._pending.append(event)
        self._changed.notify()

    def reloaded(self, *, is_another: bool) -> None:
        with self._changed:
            self._is_joined = False
            if is_another:
                self._was_set_back = True
            self._changed.notify()

    def end(self, reason: Exception | None) -> None:
        with self._changed:
            self._end(reason)

    def _end(self, reason: Exception | None) -> None:
        if not self.stopped:
            self._error = reason
            self._stopped.set()
            self._pending.clear()
            self._waiting = 0
            self._changed.notify()

    # The listener's thread

    def _run(self) -> None:
        try:
            while not self.stopped:
                for event in self._take():
                    self._call_listener(event)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything: this ends it
            self.end(error)
        finally:
            self.end(ListenerStopped("the listener's thread has ended"))  # by SystemExit, say
            self._copy.remove(self)

    def _take(self) -> list[Commit | int]:
        """The next commits for the listener; none if it was stopped meanwhile."""
        with self._changed:
            while not (self._pending or self.stopped or self._must_catch_up()):
                self._changed.wait()
            if self._pending:
                event = self._pending.popleft()
                self._waiting -= isinstance(event, Commit)
                return [event]
        return [] if self.stopped else self._catch_up()

    def _must_catch_up(self) -> bool:
        return self._was_set_back or not self._is_joined

    def _call_listener(self, event: Commit | int) -> None:
        if isinstance(event, int):
            self._position = max(self._position, event)
        elif not self.stopped:
            if not self._prefix or event.touches(self._prefix):  # the copy gets settings, too
                self._listener(event)
            self._position = event.revision

    def _catch_up(self) -> list[Commit | int]:
        """Join, or return some of the commits that come before that."""
        if self._was_set_back:
            return self._begin_anew("the catalog was restored to an earlier state")
        limit = min(_PAGE, self._queue_max)
        commits = self._copy.join(self, self._position, limit)
        if commits is None:
            return self._from_gateway()
        return list(commits) if len(commits) == limit else []

    def _from_gateway(self) -> list[Commit | int]:
        """Commits that the copy doesn't keep, up to the copy's revision."""
        until = self._copy.revision
        failures = 0
        while not (self.stopped or self._was_set_back):
            try:
                page = self._routes.commits(self._position, limit=_PAGE)
            except Gone as error:
                return self._begin_anew(str(error))
            except RequestError as error:
                failures += 1
                pause_s = self._retry.pause_s(failures, error)
                self._retry.announce(failures, pause_s, error)
                self._stopped.wait(pause_s)
                continue
            if self._was_set_back:  # the page may be of the new history
                break
            found = [commit for commit in page.commits if commit.revision <= until]
            is_last = page.next_after is None or len(found) < len(page.commits)
            if not self._prefix and not _are_all(found, self._position, until, is_last):
                return self._begin_anew("the gateway's history has a gap")
            events: list[Commit | int] = [
                commit for commit in found if not self._prefix or commit.touches(self._prefix)
            ]
            return [*events, until if is_last or page.next_after is None else page.next_after]
        return []

    def _begin_anew(self, reason: str) -> list[Commit | int]:
        """Continue from the copy's current state, and say what that misses."""
        with self._changed:
            self._was_set_back = False  # before joining, to notice the next time
        snapshot = self._copy.join_now(self)
        if self._on_reload is None:
            raise CommitsMissed(self._position, snapshot.revision, reason)
        self._on_reload(Reload(reason, self._position, snapshot))
        self._position = snapshot.revision
        return []


def _are_all(commits: list[Commit], after: int, until: int, is_last: bool) -> bool:
    """Whether these are all commits above ``after``, up to ``until`` if they are the last."""
    revisions = [commit.revision for commit in commits]
    complete = not is_last or after + len(commits) == until
    return complete and revisions == list(range(after + 1, after + 1 + len(commits)))

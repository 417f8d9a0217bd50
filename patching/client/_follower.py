"""The follower of a catalog: a local copy that the catalog's feed keeps up to date.

The follower loads the copy from a feed that begins with the state at revision R, gets the commits
above R by long poll, applies them one by one and passes each to its listeners. A copy at revision
v equals the export at v.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

from patching import PatchError
from patching.client._forks import PerProcess
from patching.client._local_copy import Diverged, History, LocalCopy, Snapshot, VersionedCopy
from patching.client._retry import Retry, warn_renamed
from patching.client._subscription import Listener, OnReload, Subscription
from patching.client.errors import BadRequest, Gone, NotFound, RequestError, is_closed
from patching.client.routes import CatalogRoutes, FeedPage
from patching.client.transport import Transport

_log = logging.getLogger(__name__)

# An empty answer sooner than this didn't wait, and asking again at once would be a busy loop.
_AT_ONCE_S: Final = 0.5
_TRIES: Final = 5
# Loads of the copy begin at least this far apart: an acl may admit the reader to many documents,
# one after the other, and each of them has the copy loaded again.
_RELOAD_S: Final = 1.0


class OfAnotherHistory(Diverged):
    """The next commit's parent isn't the copy's last commit."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Follower(PerProcess):
    """Follows ``catalog`` of the gateway at ``url`` from ``start`` to ``stop``. Thread-safe.

    The follower survives restarts of the gateway: it retries with the pauses of ``retry`` until it
    is stopped, and continues from its position; ``last_error`` is the reason meanwhile. It loads
    the copy again, and forgets its past, if the gateway has compacted the next commits, or has
    another commit at the copy's revision. Each request names the copy's last commit, and each
    commit names the one before it, so the follower notices if the database was restored to an
    earlier state, even one that has grown beyond the copy since. It stops if a gateway answers 400,
    for example because it is older than this client. ``backoff``, the former name of ``retry``, is
    deprecated.

    In a forked process it has stopped: the copy stays readable, but doesn't move on.

    ``prefix``: only documents whose keys begin with it are copied, and the settings. The position
    of such a copy moves past other commits within ``poll_s`` seconds (1 to 60). Listeners
    get whole commits. ``history`` bounds the past that the copy keeps. ``token``: see
    ``Transport``. ``now`` is the clock for the age of history and for ``at_time``. ``connect``
    makes the connections, instead of ``url`` and ``token``.
    """

    def __init__(
        self,
        url: str,
        catalog: str,
        *,
        history: History | None = None,
        prefix: str = "",
        poll_s: float = 20.0,
        token: str | Callable[[], str] | None = None,
        retry: Retry | None = None,
        listener_queue_max: int = 1000,
        now: Callable[[], datetime] = _utc_now,
        connect: Callable[[], Transport] | None = None,
        backoff: Retry | None = None,
    ) -> None:
        if backoff is not None:
            warn_renamed("backoff", "retry")
        if not 1 <= poll_s <= 60:
            raise ValueError("poll_s must be from 1 to 60")
        if listener_queue_max < 1:
            raise ValueError("listener_queue_max must be at least 1")
        self.catalog = catalog
        self.prefix = prefix
        self._poll_s = poll_s
        self.retry = retry or backoff or Retry()
        self._listener_queue_max = listener_queue_max
        # `stop` breaks off reads; a write under way is left to end by itself.
        connect = connect or partial(Transport, url, token=token)
        self._reading = connect()
        self._routes = CatalogRoutes(self._reading, catalog)
        self.routes = CatalogRoutes(connect(), catalog)
        self._copy = LocalCopy(history or History(), now)
        super().__init__()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._failures = 0
        self._may_reload_at = 0.0

    def _begin(self) -> None:
        self._stopping = threading.Event()

    # From start to stop

    def start(self) -> Self:
        """Load the copy and follow. The copy of an absent catalog is empty, at revision 0.

        Raises RequestError if the catalog can't be loaded; ``start`` may then be called again.
        """
        self._copy.load(load(self._routes, self.prefix))
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop following, and stop the listeners. The copy stays readable.

        Waits for each thread, for at most ``timeout_s`` seconds.
        """
        self._stopping.set()
        listening = self._copy.end()
        self._reading.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        for each in listening:
            if isinstance(each, Subscription):
                each.wait(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # The copy. All of these raise FollowerStopped before the first start.

    @property
    def position(self) -> int:
        """The copy's revision."""
        return self._copy.revision

    @property
    def last_error(self) -> Exception | None:
        """Why the gateway can't be followed at the moment; None if it can."""
        return self._copy.last_error

    def current(self) -> Snapshot:
        """The copy as it is. The latest commits may still be missing: see ``wait_for``."""
        return self._copy.current()

    def at_revision(self, revision: int) -> Snapshot:
        """The catalog at ``revision``. Raises RevisionTooOld, RevisionUnknown."""
        return self._copy.at_revision(revision)

    def at_time(self, moment: datetime) -> Snapshot:
        """The catalog after the last commit at or before ``moment``, an aware datetime.

        Commit times are the gateway's. Raises RevisionTooOld before the earliest that is kept, and
        RevisionUnknown if ``moment`` is later than the last commit, and later than now or, if the
        gateway is out of reach, than when it was lost. A commit before ``moment`` may not have
        arrived yet: to be sure, ``wait_for`` a later revision.
        """
        return self._copy.at_time(moment)

    def wait_for(self, revision: int, timeout_s: float | None = None) -> None:
        """Return when the copy is at ``revision`` or later.

        Raises WaitTimedOut after ``timeout_s`` seconds; FollowerStopped if the copy won't move.
        """
        self._copy.wait_for(revision, timeout_s)

    def subscribe(
        self, listener: Listener, *, after: int | None = None, on_reload: OnReload | None = None
    ) -> Subscription:
        """Call ``listener`` with every commit above ``after`` (None: the current position), in
        order, each once, in a thread of the listener's own. The copy has the commit by then.

        With a prefix, the listener gets the commits that change such a document. Commits older than
        the copy's history come from the gateway. If some are gone there, too, ``on_reload`` is
        called in the same thread with a `Reload`, and the commits after its snapshot follow;
        without ``on_reload`` the listener is stopped by CommitsMissed. A listener that raises, or
        for which more than ``listener_queue_max`` commits wait, is stopped; the others go on.
        """
        position = self._copy.revision if after is None else after
        subscription = Subscription(
            self._copy,
            self._routes,
            listener,
            on_reload,
            position,
            prefix=self.prefix,
            queue_max=self._listener_queue_max,
            retry=self.retry,
        )
        subscription.start()
        return subscription

    # The follower's thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except Exception as error:  # noqa: BLE001 - a defect ends it, and all waiting calls raise
            _log.exception("the follower of catalog %r failed", self.catalog)
            self._copy.end(error)

    def _step(self) -> None:
        """Poll the feed once; then apply its commits, load the copy again, or pause."""
        try:
            try:
                asked = time.monotonic()
                revision, last = self._copy.place()
                page = self._routes.changes(
                    revision,
                    commit_id=last,
                    timeout_s=self._poll_s,
                    prefix=self.prefix,
                    more=[("include", "settings")] if self.prefix else (),
                )
                is_news = self._apply(page)
            except (Diverged, PatchError, Gone, NotFound) as error:
                if not starts_anew(error):
                    raise
                self._reload(error)
                return
            self._copy.heard(None)
            self._failures = 0
            if not is_news and time.monotonic() - asked < _AT_ONCE_S:
                self._stopping.wait(_AT_ONCE_S)
        except RequestError as error:
            self._pause(error)

    def _apply(self, page: FeedPage) -> bool:
        """Apply the page's commits; returns whether the copy has moved."""
        before = self._copy.revision
        for commit in page.commits:
            if commit.revision <= self._copy.revision:
                continue
            self._require_next(commit.revision)
            if not self._copy.follows(commit):
                raise OfAnotherHistory(
                    f"revision {commit.revision} doesn't follow the copy's last commit"
                )
            self._copy.commit(commit)
        if page.revision > self._copy.revision:
            self._require_next(page.revision + 1)
        self._copy.advance(page.revision, page.commit_id)
        return self._copy.revision > before

    def _require_next(self, revision: int) -> None:
        """Raise Diverged if a feed without a prefix skips a revision."""
        position = self._copy.revision
        if not self.prefix and revision != position + 1:
            raise Diverged(f"the feed skipped from revision {position} to {revision}")

    def _reload(self, reason: Exception) -> None:
        _log.warning("loading catalog %r again: %s", self.catalog, reason)
        self._stopping.wait(max(0.0, self._may_reload_at - time.monotonic()))
        self._may_reload_at = time.monotonic() + _RELOAD_S
        versions = load(self._routes, self.prefix)
        is_another = isinstance(reason, OfAnotherHistory | NotFound)
        if isinstance(reason, PatchError):
            # If the last commit is known, history is the same; an acl hid earlier changes.
            is_another = self._copy.place()[1] is None
        self._copy.load(versions, is_another=is_another)
        if self._failures:  # loading it again didn't help the last time
            self._pause(reason)
        self._failures += 1

    def _pause(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        # A gateway that doesn't understand it, as one older than this client, never will.
        is_final = isinstance(error, BadRequest)
        if is_final:
            self._copy.heard(error)
            _log.error("catalog %r can't be followed: %s", self.catalog, error)
        if is_final or (isinstance(error, RequestError) and is_closed(error)):
            self._stopping.set()
            self._copy.end(error)
            return
        self._failures += 1
        self._copy.heard(error)
        _log.info(
            "catalog %r can't be followed at the moment, trying again: %s", self.catalog, error
        )
        pause_s = self.retry.pause_s(self._failures, error)
        self.retry.announce(self._failures, pause_s, error)
        self._stopping.wait(pause_s)


def load(routes: CatalogRoutes, prefix: str) -> VersionedCopy:
    """The documents whose keys begin with ``prefix``, the settings and the time, all at the head.

    The copy of a catalog that was never written is empty, at revision 0. Raises RequestError.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _loaded(routes, prefix)
        except (Gone, NotFound) as error:
            # compacted, or the database was exchanged, between two pages
            if not left or not starts_anew(error):
                raise
    raise AssertionError("the last try returns or raises")


def _loaded(routes: CatalogRoutes, prefix: str) -> VersionedCopy:
    page = routes.state(None, prefix=prefix)
    settings = page.settings
    documents = {each.key: each.value for each in page.documents}
    while not page.is_last:
        page = routes.state(page.position, prefix=prefix)
        documents.update((each.key, each.value) for each in page.documents)
    return VersionedCopy(
        page.revision, page.time, documents, settings, prefix=prefix, last=page.commit_id
    )


def starts_anew(error: Exception) -> bool:
    """Whether ``error`` means that the copy has to be loaded again.

    An unknown revision means that an older database was restored: the catalog is behind the copy.
    """
    if isinstance(error, NotFound):
        return error.code == "revision_not_found"
    return not isinstance(error, Gone) or error.code == "revision_compacted"

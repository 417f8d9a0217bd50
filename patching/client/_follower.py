"""A local copy of a catalog, kept in step by its feed.

The catalog is loaded from its export at revision R; its changes above R are asked for, by long
poll, and applied one commit after the other; who listens is told each of them. A copy at revision v
holds exactly the export at v.
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
from patching.client._errors import Gone, NotFound, RequestError
from patching.client._local_copy import LocalCopy
from patching.client._retry import Backoff
from patching.client._routes import CatalogRoutes, FeedPage
from patching.client._subscription import Listener, OnReload, Subscription
from patching.client._transport import Transport
from patching.client._versions import History, Snapshot, Versions

_log = logging.getLogger(__name__)

# An empty answer sooner than this is none that waited: asking again at once would be a busy loop.
_AT_ONCE_S: Final = 0.5
_TRIES: Final = 5
_NO_CATALOG: Final = "catalog_not_found"


class Diverged(Exception):
    """What the feed told doesn't follow on what is here."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Follower:
    """Follows ``catalog`` of the gateway at ``url`` from ``start`` to ``stop``. Thread-safe.

    It survives restarts of the gateway: while that is away, it tries again with ``backoff``, and
    goes on from where it is; ``last_error`` says what is wrong. Where the gateway has compacted
    away what comes next, or what it tells doesn't follow on what is here, the copy is loaded anew:
    its past is forgotten then, and so are revisions, should the database have been set back.

    ``prefix``: only documents whose keys begin so are copied. A copy with a prefix learns of
    commits that concern others late, after ``poll_s`` at most. A listener gets whole commits.
    ``history`` says how much of the past can be looked up. ``token``: see ``Transport``.
    ``now`` is the clock that ages history and bounds ``at_time``. ``connect`` makes its
    connections, in place of ``url`` and ``token``.
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
        backoff: Backoff | None = None,
        listener_queue_max: int = 1000,
        now: Callable[[], datetime] = _utc_now,
        connect: Callable[[], Transport] | None = None,
    ) -> None:
        if not 1 <= poll_s <= 60:
            raise ValueError("poll_s is from 1 to 60")
        if listener_queue_max < 1:
            raise ValueError("listener_queue_max is at least 1")
        self.catalog = catalog
        self.prefix = prefix
        self._poll_s = poll_s
        self._backoff = backoff or Backoff()
        self._listener_queue_max = listener_queue_max
        # `stop` breaks off what reads; a write under way is left to end by itself.
        connect = connect or partial(Transport, url, token=token)
        self._reading = connect()
        self._routes = CatalogRoutes(self._reading, catalog)
        self.routes = CatalogRoutes(connect(), catalog)
        self._copy = LocalCopy(history or History(), now)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._failures = 0

    # From start to stop

    def start(self) -> Self:
        """Load the copy and follow. A catalog that doesn't exist yet is empty, at revision 0.

        Raises RequestError where it can't be loaded; it may be called again then.
        """
        self._copy.load(load(self._routes, self.prefix))
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 5.0) -> None:
        """Follow no more. What is under way is broken off, listeners get nothing any more.

        Waits for its threads, ``timeout_s`` for each at most. The copy stays readable.
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

    # Looking. Everything raises FollowerStopped before the first start.

    @property
    def position(self) -> int:
        """The revision that the copy is at."""
        return self._copy.revision

    @property
    def last_error(self) -> Exception | None:
        """Why the gateway can't be followed at the moment; None: it can."""
        return self._copy.last_error

    def current(self) -> Snapshot:
        """The copy as it is. What was committed a moment ago may be missing: see ``wait_for``."""
        return self._copy.current()

    def at_revision(self, revision: int) -> Snapshot:
        """The catalog as ``revision`` had it. RevisionTooOld, RevisionUnknown."""
        return self._copy.at_revision(revision)

    def at_time(self, moment: datetime) -> Snapshot:
        """The catalog after the last commit at or before ``moment``, an aware datetime.

        By the gateway's commit times. RevisionTooOld before the earliest that is kept.
        RevisionUnknown where ``moment`` lies ahead of the last commit and also of now, or of the
        time that the gateway was lost, if it is. A commit before ``moment`` may be under way here
        still: to be sure, ``wait_for`` a revision that is later.
        """
        return self._copy.at_time(moment)

    def wait_for(self, revision: int, timeout_s: float | None = None) -> None:
        """Return when the copy is at ``revision`` or later. WaitTimedOut; FollowerStopped where
        that won't happen any more."""
        self._copy.wait_for(revision, timeout_s)

    def subscribe(
        self, listener: Listener, *, after: int | None = None, on_reload: OnReload | None = None
    ) -> Subscription:
        """Call ``listener`` with every commit above ``after`` (None: the current position), in
        order, each once, when the copy has it. In a thread of its own.

        With a prefix: with those commits that change such a document. Those older than the copy's
        history come from the gateway. Where some are gone there too, ``on_reload`` is called, in
        the same thread, and commits go on from the snapshot that it gets; without ``on_reload``
        the listener is stopped by CommitsMissed. A listener that raises, or for which more than
        ``listener_queue_max`` commits wait, is stopped; nothing else is.
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
            backoff=self._backoff,
        )
        subscription.start()
        return subscription

    # The follower's thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except Exception as error:  # noqa: BLE001 - a defect ends it, and whoever waits hears of it
            _log.exception("the follower of catalog %r failed", self.catalog)
            self._copy.end(error)

    def _step(self) -> None:
        """Ask once what is new, and apply it, load anew, or pause."""
        try:
            try:
                asked = time.monotonic()
                page = self._routes.changes(
                    self._copy.revision, timeout_s=self._poll_s, prefix=self.prefix
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
        """Whether the copy has moved."""
        before = self._copy.revision
        for commit in page.commits:
            if commit.revision <= self._copy.revision:
                continue
            self._require_next(commit.revision)
            self._copy.commit(commit)
        if page.revision > self._copy.revision:
            self._require_next(page.revision + 1)
        self._copy.advance(page.revision)
        return self._copy.revision > before

    def _require_next(self, revision: int) -> None:
        """A feed without a filter tells every revision."""
        position = self._copy.revision
        if not self.prefix and revision != position + 1:
            raise Diverged(f"the feed went from revision {position} to {revision}")

    def _reload(self, reason: Exception) -> None:
        _log.warning("catalog %r is loaded anew: %s", self.catalog, reason)
        versions = load(self._routes, self.prefix)
        self._copy.load(versions)
        if self._failures:  # it didn't help the last time
            self._pause(reason)
        self._failures += 1

    def _pause(self, error: Exception) -> None:
        if self._stopping.is_set():
            return
        self._failures += 1
        self._copy.heard(error)
        _log.info("catalog %r can't be followed at the moment: %s", self.catalog, error)
        self._stopping.wait(self._backoff.pause_s(self._failures, error))


def load(routes: CatalogRoutes, prefix: str) -> Versions:
    """The documents whose keys begin with ``prefix``, the settings and the time, as the head has
    them; an empty copy at revision 0 of a catalog that was never written. RequestError.

    The catalog is read first, for its settings and the time of its head, and then exported at that
    very revision: so nothing in between can be missing or be there twice.
    """
    for left in reversed(range(_TRIES)):
        try:
            try:
                state = routes.read()
            except NotFound as error:
                if error.code != _NO_CATALOG:
                    raise
                absent = _load_absent(routes, prefix)
                if absent is not None:
                    return absent
                continue
            export = routes.export(revision=state.revision, prefix=prefix)
        except (Gone, NotFound):
            # compacted, or the database was exchanged, between the two questions
            if not left:
                raise
            continue
        return Versions(
            export.revision, state.time, export.documents, state.settings, prefix=prefix
        )
    raise AssertionError("the last try returns or raises")


def _load_absent(routes: CatalogRoutes, prefix: str) -> Versions | None:
    """A catalog without documents; None where it has some now.

    A deleted catalog still has its revision, which its export tells: changes go on from there.
    """
    try:
        export = routes.export(prefix=prefix)
    except NotFound as error:
        if error.code != _NO_CATALOG:
            raise
        return Versions(0, None, {}, prefix=prefix)
    if export.documents:
        return None
    return Versions(export.revision, None, {}, prefix=prefix)


def starts_anew(error: Exception) -> bool:
    """Whether a copy that met ``error`` while following has to be loaded anew.

    An unknown revision: the catalog isn't as far as the copy, so its database was set back.
    """
    if isinstance(error, NotFound):
        return error.code == "revision_not_found"
    return not isinstance(error, Gone) or error.code == "revision_compacted"

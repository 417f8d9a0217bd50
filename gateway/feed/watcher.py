"""Following a catalog: every commit above a revision, once and in order, from any process.

A watcher pulls: it has a position, and takes the commits above it, from the ring that all watchers
of the catalog share, or from the log if it has fallen behind that. Its slowness delays nobody else;
if it falls further and further behind, its watch is ended. ``hub`` explains how commits get into
the rings.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from gateway import cpu
from gateway.errors import RevisionCompacted, RevisionNotFound
from gateway.feed.channel import (
    Channel,
    Encode,
    EncodedCommit,
    Selection,
    Taken,
    WatchEnded,
    not_in_history,
)
from gateway.feed.hub import Hub
from gateway.limits import WatchLimits
from gateway.meters import NO_METERS, FeedReadings, Meters
from gateway.model import follows
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.store.contract import ForeignRecord, Store
from gateway.store.unreachable import as_unavailable

_TAKE_COMMITS_MAX = 200
_TAKE_BYTES_MAX = 256 * 1024


class WatchService:
    """The watches of one process. Thread-safe; its background threads run while there are any."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: WatchLimits,
        encode: Encode,
        meters: Meters = NO_METERS,
    ) -> None:
        """``encode`` is called once for each commit that gets into a ring."""
        self._hub = Hub(store, settler, runtime, limits, encode, meters)

    def watch(
        self,
        catalog: str,
        *,
        after: int | None,
        selection: Selection,
        holder: str | None = None,
        last: str = "",
    ) -> Watcher:
        """Follow the commits of ``catalog`` above revision ``after`` (None: its head). ``last`` is
        the id of the commit that made ``after``, if known. A catalog that doesn't exist yet is at
        0.

        Raises TooManyWatchers, StoreUnavailable, RevisionCompacted (``after`` is below the floor)
        and RevisionNotFound (it is above the head, or another commit made it). The watcher must be
        closed. ``holder``: in whose share the watcher counts (``gateway.access.principal``); None:
        in nobody's; OWN: it isn't counted.
        """
        return watch(self._hub, catalog, after=after, selection=selection, holder=holder, last=last)

    def stop(self) -> None:
        """End every watch with WatchEnded, also later ones: the process stops."""
        self._hub.stop()

    def readings(self) -> FeedReadings:
        lags = [watcher.lag for watcher in tuple(self._hub.watching)]
        return FeedReadings(len(lags), max(lags, default=0))


class Watcher:
    """One watch of a catalog, for one thread at a time. A context manager that closes it.

    ``position``: every wanted commit up to there was taken; ``last`` is the id of the commit there,
    "" if it isn't known.
    """

    def __init__(
        self,
        hub: Hub,
        channel: Channel,
        after: int,
        last: str,
        head_revision: int,
        selection: Selection,
        holder: str | None,
    ) -> None:
        self.position = after
        self.last = last
        self.bookmarked = after  # the last position that it returned, or skipped a bookmark for
        self.selection = selection
        self._hub = hub
        self._holder = holder
        self._channel: Channel | None = channel
        # Commits up to the head at the start can be taken at once, even before the hub reads them.
        self._begun_at = head_revision
        self._untimed_up_to = head_revision
        self._least_lag = head_revision - after
        self._event = hub.runtime.event()
        self.has_begun = True
        hub.watching.add(self)

    @property
    def lag(self) -> int:
        """How many commits it is behind the newest one that this process has heard of."""
        channel = self._channel
        if channel is None or not self.has_begun:
            return 0
        return max(0, channel.known_head - self.position)

    def require_open(self) -> None:
        """Raise WatchEnded if the process stops."""
        self._hub.require_open()

    def begin_later(self) -> None:
        """Take nothing before ``begin``; commits made until then don't count as lag."""
        self.has_begun = False

    def begin(self) -> None:
        """Start taking commits; the present lag is allowed, however large it is."""
        self.has_begun = True
        self._least_lag = self.lag
        self._untimed_up_to = self.position + self.lag

    def take(self, timeout_s: float, *, limit: int = _TAKE_COMMITS_MAX, patient: bool) -> Taken:
        """The next wanted commits, as soon as there are any; none after ``timeout_s``.

        Unless ``patient``, it also returns when it has passed over so many commits that a bookmark
        is due. In any case, it returns when half of the request's processor time is used. Raises
        WatchEnded, RevisionCompacted (compaction has passed its position), RevisionNotFound (what
        it has taken isn't in the history any more), ForeignRecord (the next commit is missing, or
        can't be read) and StoreUnavailable.
        """
        deadline = self._hub.runtime.monotonic() + timeout_s
        commits: list[EncodedCommit] = []
        while not commits:
            self._hub.require_open()
            self._require_history()
            if not self._is_behind():
                if not self._wait(deadline):
                    break
                continue
            self._require_speed()
            commits = self._next(limit)
            if self._is_bookmark_due():
                if not patient:
                    break
                self.bookmarked = self.position
            if not commits and self._hub.runtime.monotonic() >= deadline and not self._is_owed():
                break
            if cpu.is_half_used():
                break
        self.bookmarked = self.position
        self._measure(commits)
        return Taken(commits, self.position, self.last)

    def _measure(self, commits: list[EncodedCommit]) -> None:
        """Report the delay of the oldest commit; commits from before the watch began don't
        count."""
        oldest = next((each for each in commits if each.revision > self._untimed_up_to), None)
        if oldest is not None:
            late_us = self._hub.runtime.now_us() - oldest.time_us
            self._hub.meters.delivered(max(0, late_us) / 1_000_000)

    def wake(self) -> None:
        """Wake the watcher; the hub calls this without holding a lock."""
        self._event.set()

    def close(self) -> None:
        """End the watch. Idempotent."""
        channel, self._channel = self._channel, None
        self._hub.watching.discard(self)
        if channel is not None:
            with self._hub.lock:
                channel.waiting.pop(self, None)
            self._hub.dismiss(self._holder, channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _on(self) -> Channel:
        assert self._channel is not None, "the watch is closed"
        return self._channel

    def _require_history(self) -> None:
        """Raise RevisionNotFound if the channel's history isn't the catalog's."""
        if self._on.lost is not None:
            raise not_in_history(self.position, self._on.lost)

    def _require_log(self) -> None:
        """Raise ForeignRecord if the next commit is missing, or can't be read."""
        if self._on.fault:
            raise ForeignRecord(self._on.catalog, None, self._on.fault)

    def _is_behind(self) -> bool:
        return self.position < self._on.position or self._is_owed()

    def _is_owed(self) -> bool:
        """Whether commits are left that existed when the watch began."""
        return self.position < self._begun_at

    def _is_bookmark_due(self) -> bool:
        return self.position - self.bookmarked >= self._hub.limits.bookmark_commits

    def _require_speed(self) -> None:
        """Raise WatchEnded if the lag has grown by too much. The watch may have begun far back."""
        lag = self._on.known_head - self.position
        self._least_lag = min(self._least_lag, lag)
        allowed = self._hub.limits.lag_max
        if lag > self._least_lag + allowed:
            raise WatchEnded(
                "watcher_too_slow",
                f"the watcher is {lag} commits behind the head, and was {self._least_lag} behind;"
                f" it may fall back by at most {allowed}",
            )

    def _next(self, limit: int) -> list[EncodedCommit]:
        """The wanted ones of the next commits; moves the watcher, which is behind, past these."""
        with self._hub.lock:
            channel = self._on
            through = max(channel.position, self._begun_at)
            if self.position < channel.position and channel.covers(self.position):
                found = channel.above(self.position, limit, _TAKE_BYTES_MAX)
                if not follows(self.last, found[0].parent):
                    raise not_in_history(self.position, channel.known_head)
                self.position, self.last = found[-1].revision, found[-1].commit_id
                return [each for each in found if self.selection.wants(each)]
        with as_unavailable():
            wanted, self.position, self.last = self._hub.log.page(
                channel.catalog, self.position, self.last, through, limit, self.selection
            )
        return wanted

    def _wait(self, deadline: float) -> bool:
        """Wait until there may be commits; False if no time was left."""
        left_s = deadline - self._hub.runtime.monotonic()
        if left_s <= 0:
            return False
        with self._hub.lock:
            if self._is_behind():
                return True
            self._require_log()
            self._event.clear()
            self._on.waiting[self] = None
        # ``stop`` wakes all that wait; this ends one that began to wait after that.
        self._hub.require_open()
        self._event.wait(left_s)
        with self._hub.lock:
            self._on.waiting.pop(self, None)
        return True


def watch(
    hub: Hub,
    catalog: str,
    *,
    after: int | None,
    selection: Selection,
    holder: str | None = None,
    last: str = "",
) -> Watcher:
    """See ``WatchService.watch``."""
    hub.admit(holder)
    channel = None
    try:
        with as_unavailable():
            head = hub.settle(catalog)
        if after is None:
            after = head.revision
        if after > head.revision:
            detail = f"revision {after} doesn't exist; the head is {head.revision}"
            raise RevisionNotFound(detail, head.revision)
        if after < head.floor:
            raise RevisionCompacted(after, head.floor)
        if after == head.revision:
            if not follows(last, head.last):
                raise not_in_history(after, head.revision)
            last = head.last
        channel = hub.join(head, catalog, after)
        return Watcher(hub, channel, after, last, head.revision, selection, holder)
    except BaseException:
        hub.dismiss(holder, channel)
        raise

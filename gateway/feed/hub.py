"""The hub of a process reads the log of each watched catalog once for all its watchers.

Worked example. Ten watchers of catalog c are at revision 7, and so is its channel. Commits 8 and 9
are written out, and the signals say "c: 8", then "c: 9". Signals are only hints: the hub reads c's
log above 7, finds 8 and 9, encodes each once, puts them into the channel's ring and wakes the ten.
Each takes the commits above its own position from the ring. If both signals are lost, the hub finds
9 within a second, when it next reads the heads; if the writer died before it wrote 9 out, the hub
does so then. So each watcher gets each commit exactly once, whatever happens to the signals.

If a catalog can't be read, or its log has a hole because somebody edited it by hand, only its own
watchers are delayed or ended: suspects (``gateway.state.sharing``) are read one by one, by a thread
of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Final, TypeVar

from gateway.access.principal import Shares
from gateway.errors import TooManyWatchers
from gateway.feed.channel import (
    Burst,
    Channel,
    Encode,
    NewCommits,
    Waiting,
    WatchEnded,
    Watching,
    WatchLog,
)
from gateway.limits import WatchLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import Head, follows
from gateway.runtime import Runtime
from gateway.state.heads import ObservedHead, Settler
from gateway.state.sharing import Suspects
from gateway.store.contract import CommitSignals, ForeignRecord, Store, StoreUnreachable, Unsent

_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")

# How often the heads are read.
_HEADS_EVERY_S = 1.0
# When a head is read again whose commits aren't written out: its writer is busy, or has died.
_HEADS_AGAIN_S = 0.15
# The pause after a read that failed.
_RETRY_S = 0.5
# How often a read must find nothing, though all is written out, to mean that the log was edited by
# hand.
_HOLE = 5
# A channel that woke watchers isn't read again for this long per watcher, which is several times
# what waking it cost, and at most for _SHARE_MAX_S: this leaves processor time to the writers. A
# channel that has been quiet is read at once.
_SHARE_S = 0.002
_SHARE_MAX_S = 0.25
# How many commits before the head a new channel may begin, so that watchers that reconnect together
# share a read.
_BEGIN_BEHIND_MAX = 1000

# The holder of watchers that serve no client; they aren't limited in number.
OWN: Final = ""


class Hub:
    """See the module. Thread-safe. Two background threads run while there are watchers, and a
    little longer; a third one while there are suspects."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: WatchLimits,
        encode: Encode,
        meters: Meters = NO_METERS,
    ) -> None:
        self.limits = limits
        self.meters = meters
        self.watching: set[Watching] = set()
        self.runtime = runtime
        self.log = WatchLog(store, encode)
        self._store = store
        self._settler = settler
        self.lock = runtime.lock()
        self._channels: dict[str, Channel] = {}
        self._pending: set[str] = set()
        self._watchers = Shares(limits.watchers_max)
        self._runs = 0  # counts the starts, so that threads of an earlier start end
        self._is_running = False
        self._is_stopping = False
        self._heads_due = 0.0
        self._retry_due = 0.0
        self._wake = runtime.event()
        self._suspects = Suspects(runtime, "following")
        self._has_apart = False
        self._wake_apart = runtime.event()

    # For watchers

    def admit(self, holder: str | None) -> None:
        """Count a watcher, in the share of ``holder`` if given. Raises TooManyWatchers."""
        if holder == OWN:
            return
        with self.lock:
            if self._watchers.held >= self._watchers.maximum:
                raise TooManyWatchers(self._watchers.maximum)
            if holder is not None and not self._watchers.has_room_for(holder):
                raise TooManyWatchers(self._watchers.maximum, holder)
            self._watchers.take(holder)

    def dismiss(self, holder: str | None, channel: Channel | None) -> None:
        """Stop counting an admitted watcher; ``channel`` is the one that it had joined, if any."""
        with self.lock:
            if holder != OWN:
                self._watchers.give_back(holder)
            if channel is not None:
                channel.watchers -= 1
                if not channel.watchers:
                    channel.left_at = self.runtime.monotonic()

    def settle(self, catalog: str) -> ObservedHead:
        """The catalog's present revision and floor; all commits up to it are written out."""
        return self._settler.settle(catalog)

    def join(self, head: ObservedHead, catalog: str, after: int) -> Channel:
        """The catalog's channel, with one more watcher; the hub reads its log from now on."""
        with self.lock:
            channel = self._channels.get(catalog)
            if channel is None:
                begin = max(after, head.revision - _BEGIN_BEHIND_MAX, head.floor)
                last = head.last if begin == head.revision else ""
                channel = Channel(catalog, begin, head.revision, last)
                self._channels[catalog] = channel
                # A commit since the head was read may have been signalled already.
                self._pending.add(catalog)
            channel.watchers += 1
            channel.left_at = None
            if head.revision > channel.position:
                channel.known_head = max(channel.known_head, head.revision)
                self._pending.add(catalog)
            self._start()
        self._wake.set()
        return channel

    def require_open(self) -> None:
        if self._is_stopping:
            raise WatchEnded("shutting_down", "the gateway is stopping; connect again")

    def stop(self) -> None:
        """End every watch; waiting ones at once, new ones when they begin."""
        with self.lock:
            self._is_stopping = True
            released = [
                each for channel in self._channels.values() for each in channel.release_all()
            ]
        _wake(released)
        self._wake.set()
        self._wake_apart.set()

    # The background

    def _start(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        self._runs += 1
        run = self._runs
        self._heads_due = self.runtime.monotonic() + _HEADS_EVERY_S
        listener = SignalListener(
            self._store, self.runtime, self.hear, lambda: self._is_current(run)
        )
        self.runtime.spawn(lambda: self._run(run), "watch")
        self.runtime.spawn(listener.run, "watch-signals")

    def _is_current(self, run: int) -> bool:
        return self._is_running and self._runs == run and not self._is_stopping

    def hear(self, revisions: Mapping[str, int]) -> None:
        """Note new commits: the newest revision by catalog; {}: any catalog may have some."""
        with self.lock:
            if not revisions:
                self._heads_due = self.runtime.monotonic()
            for catalog, revision in revisions.items():
                channel = self._channels.get(catalog)
                if channel is not None and revision > channel.position:
                    channel.known_head = max(channel.known_head, revision)
                    self._pending.add(catalog)
            awaited = not revisions or not self._pending.isdisjoint(revisions)
        if awaited:
            self._wake.set()

    def _run(self, run: int) -> None:
        while self._is_current(run):
            self._wake.wait(self._idle_s())
            self._wake.clear()
            self.step()

    def _idle_s(self) -> float:
        with self.lock:
            pending = self._pending - self._suspects_followed()
            dues = [self._channels[catalog].due for catalog in pending]
        due = max(min([self._heads_due, *dues]), self._retry_due)
        return max(0.0, due - self.runtime.monotonic())

    def step(self) -> None:
        """Read the heads and logs of the channels that are due; retry a failure a little later."""
        now = self.runtime.monotonic()
        if self._suspects:  # a channel of a suspect may have been joined since
            self._start_apart()
        if now < self._retry_due:
            return
        try:
            if now >= self._heads_due:
                self.read_heads(now)
            self._read(now)
        except StoreUnreachable as error:
            _log.info("watched catalogs can't be read: %s", error)
            self._retry_due = now + _RETRY_S
            self._heads_due = now
        except Exception:  # noqa: BLE001 - a defect must not silence all watchers for good
            _log.exception("watched catalogs can't be read")
            self._retry_due = now + _HEADS_EVERY_S

    def read_heads(self, now: float) -> None:
        """Find the channels that are behind their heads, and drop those without watchers."""
        with self.lock:
            self._give_up(now)
            if not self._channels:
                self._is_running = False
                return
            channels = {
                catalog: (channel, channel.position, channel.last)
                for catalog, channel in self._channels.items()
                if catalog not in self._suspects
            }
        heads = self._read_together(channels, self._store.heads, now)
        released: list[Waiting] = []
        with self.lock:
            self._heads_due = now + _HEADS_EVERY_S
            for catalog, (channel, position, last) in channels.items():
                if heads is None or self._channels.get(catalog) is not channel:
                    continue
                head = heads.get(catalog) or Head(catalog)  # never written, or put back to that
                if _went_back(position, last, head):
                    released += self._lose(channel, head.revision)
                elif head.revision > channel.position:
                    channel.known_head = max(channel.known_head, head.revision)
                    self._pending.add(catalog)
        _wake(released)

    def _give_up(self, now: float) -> None:
        for catalog, channel in tuple(self._channels.items()):
            if channel.left_at is not None and now - channel.left_at > self.limits.linger_s:
                del self._channels[catalog]
                self._pending.discard(catalog)
        spare = sum(channel.bytes for channel in self._channels.values())
        for channel in self._channels.values():
            if spare <= self.limits.rings_bytes_max:
                break
            spare -= channel.bytes
            channel.clear()

    def _read(self, now: float) -> None:
        """Read the logs of the pending channels that are due, with one read for all."""
        with self.lock:
            pending = self._pending - self._suspects_followed()
            due = [catalog for catalog in pending if self._channels[catalog].due <= now]
            positions = {catalog: self._channels[catalog].position for catalog in due}
        read = self._read_together(positions, lambda _: self.log.new_commits(positions), now)
        found = read or {}
        stuck = [c for c, new in found.items() if not self._advance(c, positions[c], new, now)]
        for catalog in stuck:
            try:
                head = found[catalog].head
                if len(found) > 1:
                    # The read of several logs may have had no room for this one.
                    new = self.log.new_commits({catalog: positions[catalog]})[catalog]
                    if self._advance(catalog, positions[catalog], new, now):
                        continue
                    head = new.head
                self._finish(catalog, head, now)
            except Exception as error:  # noqa: BLE001
                self._failed([catalog], error, now)

    def _read_together(
        self,
        names: Collection[str],
        read: Callable[[Collection[str]], Mapping[str, _Read]],
        now: float,
    ) -> Mapping[str, _Read] | None:
        """The result of one call for several catalogs. None: it failed, and each catalog will be
        read alone. Raises Unsent."""
        if not names:
            return {}
        began = self.runtime.monotonic()
        try:
            found = read(names)
        except Unsent:  # no single catalog is at fault
            raise
        except Exception as error:  # noqa: BLE001
            self._failed(names, error, now)
            return None
        self._suspects.note_success(names, began)
        return found

    def _failed(self, names: Collection[str], error: Exception, now: float) -> None:
        self._suspects.note_failure(names)
        if len(names) == 1:
            self._put_off(next(iter(names)), error, now)
        self._start_apart()

    def _start_apart(self) -> None:
        self._wake_apart.set()
        with self.lock:
            starts = bool(self._suspects_followed()) and not self._has_apart
            self._has_apart = self._has_apart or starts
        if starts:
            self.runtime.spawn(self._run_apart, "watch-apart")

    def _run_apart(self) -> None:
        while True:
            with self.lock:
                dues = [self._channels[catalog].due for catalog in self._suspects_followed()]
                if not dues or self._is_stopping:
                    self._has_apart = False
                    return
            pause_s = min(dues) - self.runtime.monotonic()
            if pause_s > 0:
                self._wake_apart.wait(min(pause_s, _HEADS_EVERY_S))
                self._wake_apart.clear()
            self.step_apart()

    def step_apart(self) -> None:
        """Read the logs of the suspects that are due, one by one."""
        now = self.runtime.monotonic()
        with self.lock:
            due = [c for c in self._suspects_followed() if self._channels[c].due <= now]
        for catalog in due:
            self._read_alone(catalog)

    def _suspects_followed(self) -> set[str]:
        return {c for c in self._channels if c in self._suspects} if self._suspects else set()

    def _read_alone(self, catalog: str) -> None:
        now = self.runtime.monotonic()
        with self.lock:
            channel = self._channels.get(catalog)
        if channel is None:
            return
        position = channel.position
        try:
            new = self.log.new_commits({catalog: position})[catalog]
            self._suspects.note_success([catalog], now)
            if not self._advance(catalog, position, new, now):
                self._finish(catalog, new.head, now)
        except Exception as error:  # noqa: BLE001
            self._failed([catalog], error, now)
        else:
            with self.lock:
                if catalog in self._suspects:
                    channel.due = max(channel.due, now + _HEADS_EVERY_S)
                elif catalog in self._channels:
                    self._pending.add(catalog)  # from now on, it is read with the others
        self._wake.set()

    def _put_off(self, catalog: str, error: Exception, now: float) -> None:
        """Read the catalog again later; or end its channel, if the next commit can't be read."""
        about = {"catalog": catalog}
        released: Collection[Waiting] = ()
        with self.lock:
            channel = self._channels.get(catalog)
            if channel is not None and isinstance(error, ForeignRecord):
                channel.fault = error.detail
                released = self._end(channel)
            elif channel is not None:
                channel.due = now + _HEADS_EVERY_S
        _wake(released)
        if isinstance(error, StoreUnreachable):
            _log.info("the feed of %r waits: %s", catalog, error, extra=about)
        elif isinstance(error, ForeignRecord):
            text = "the feed of %r can't go on: %s; its watchers get an error"
            _log.error(text, catalog, error.detail, extra=about)
        else:
            _log.error("the feed of %r waits", catalog, exc_info=error, extra=about)

    def _advance(self, catalog: str, after: int, new: NewCommits, now: float) -> bool:
        """Move the channel on by the commits found above ``after``; return whether it moved.

        If the channel isn't at ``after`` any more, another run has moved it by the same commits.
        """
        burst = Burst(new.commits) if new.commits else None
        with self.lock:
            channel = self._channels.get(catalog)
            if channel is None or channel.position != after:
                return True
            channel.known_head = max(channel.known_head, new.head.revision)
            released: Collection[Waiting] = ()
            has_gone = burst is not None and not follows(channel.last, new.commits[0].parent)
            if has_gone or _went_back(after, channel.last, new.head):
                released = self._lose(channel, new.head.revision)
            elif burst is not None:
                channel.append(new.commits, self.limits)
                released = channel.release(burst, self.limits.bookmark_commits)
            elif new.head.floor > channel.position:
                channel.skip_to(new.head.floor)
                released = channel.release_all()
            channel.due = now + min(_SHARE_S * len(released), _SHARE_MAX_S)
            if channel.position >= channel.known_head:
                self._pending.discard(catalog)
            has_moved = channel.position != after
        _wake(released)
        return has_moved

    def _lose(self, channel: Channel, head_revision: int) -> list[Waiting]:
        """End a channel whose history isn't the catalog's. Returns the watchers to be woken."""
        _log.error(
            "the feed of %r was at revision %d, which is no longer in the catalog's history: was"
            " the database restored? Its watchers get an error",
            channel.catalog,
            channel.position,
            extra={"catalog": channel.catalog},
        )
        channel.lost = head_revision
        return self._end(channel)

    def _end(self, channel: Channel) -> list[Waiting]:
        """End the channel, so that nobody joins it any more. Returns the watchers to be woken."""
        channel.clear()
        del self._channels[channel.catalog]
        self._pending.discard(channel.catalog)
        return channel.release_all()

    def _finish(self, catalog: str, head: Head, now: float) -> None:
        """After a read that found nothing: write out the tail that a dead writer may have left."""
        with self.lock:
            channel = self._channels.get(catalog)
            is_behind = channel is not None and head.revision > channel.position
        if channel is not None and is_behind and self._settler.finish(catalog, head.revision):
            again = channel.finished_at == channel.position
            channel.finished = channel.finished + 1 if again else 1
            channel.finished_at = channel.position
            if channel.finished > 1:
                self._pause_before(channel, now)
            return  # the channel is still pending, and the log can be read now
        with self.lock:
            self._pending.discard(catalog)
            if channel is not None and channel.known_head > channel.position:
                self._heads_due = min(self._heads_due, now + _HEADS_AGAIN_S)

    def _pause_before(self, channel: Channel, now: float) -> None:
        """Put the next read off: everything is written out, and again the log has no next commit.
        If that has happened _HOLE times, end the channel."""
        released: Collection[Waiting] = ()
        with self.lock:
            channel.due = now + _HEADS_AGAIN_S
            is_there = self._channels.get(channel.catalog) is channel
            if channel.finished >= _HOLE and channel.finished_at == channel.position and is_there:
                _log.error(
                    "the log of %r has a gap above revision %d; its watchers get an error",
                    channel.catalog,
                    channel.position,
                    extra={"catalog": channel.catalog},
                )
                channel.fault = f"the log has no commit {channel.position + 1}"
                released = self._end(channel)
        _wake(released)


def _went_back(position: int, last: str, head: Head) -> bool:
    """Whether a head that was read after the channel reached ``position`` is below it, or has
    another commit there than ``last``."""
    return head.revision < position or (head.revision == position and not follows(last, head.last))


def _wake(released: Collection[Waiting]) -> None:
    for watcher in released:
        watcher.wake()


# How long one call waits for signals; after that, the listener checks whether it is still wanted.
_LISTEN_S = 1.0
_PAUSE_MIN_S = 0.1
_PAUSE_MAX_S = 5.0


class SignalListener:
    """Calls ``hear`` with each catalog's newest revision; and with {}, because signals may be
    missing, each time after it has opened the signals. A lost signal costs only time.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        hear: Callable[[Mapping[str, int]], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._hear = hear
        self._is_wanted = is_wanted

    def run(self) -> None:
        """Listen until ``is_wanted`` is false."""
        pause_s = _PAUSE_MIN_S
        while self._is_wanted():
            try:
                signals = self._store.commit_signals()
                pause_s = _PAUSE_MIN_S
                with closing(signals):
                    self._listen(signals)
            except StoreUnreachable as error:
                _log.info("there are no commit signals for now: %s", error)
            except Exception:  # noqa: BLE001 - the thread must outlive any defect
                _log.exception("commit signals can't be read")
            if self._is_wanted():
                self._runtime.sleep(pause_s * (1 + self._runtime.jitter()))
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _listen(self, signals: CommitSignals) -> None:
        self._hear({})
        while self._is_wanted():
            revisions = signals.next(_LISTEN_S)
            if revisions:
                self._hear(revisions)

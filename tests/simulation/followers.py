"""Simulated watchers: each follows a catalog through one worker after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.errors import CommitError, RevisionCompacted
from gateway.feed.channel import Selection, WatchEnded

from .asks import Name
from .recorder import Following, Heard, Recording
from .scheduler import Scheduler
from .sim_runtime import SimEvent
from .worker import Worker

_PATIENCE_S = (0.3, 3.0, 30.0, 10_000.0)


@dataclass
class Connection:
    """``closed``: the watcher has gone, and hears nothing any more."""

    closed: bool = False


class Follower:
    """Goes on from where it stands, as often as it is cut off; ``following`` is what it heard."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        recording: Recording,
        catalog: Name,
        selection: Selection,
        pick: Callable[[], Worker],
    ) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._recording = recording
        self._pick = pick
        self._pause_s = rng.choice((0.0, 0.0, 0.5))
        self._limit = rng.choice((1, 2, 200))
        self.following = Following(catalog, selection.keys, selection.prefix)
        self._selection = selection
        recording.followings.append(self.following)

    def run(self) -> None:
        """Never ends."""
        while True:
            done = SimEvent(self._scheduler)
            connection = Connection()
            worker = self._pick()
            worker.process.on_death.append(done.set)
            serve = partial(self._serve, worker, connection, done)
            self._scheduler.spawn(worker.process, serve, f"{worker.process.name}/feed")
            done.wait(self._rng.choice(_PATIENCE_S))
            connection.closed = True
            self._scheduler.sleep(0.1 * self._rng.random())

    def _serve(self, worker: Worker, connection: Connection, done: SimEvent) -> None:
        """What the worker does for this watcher."""
        try:
            self._tell(worker, connection)
        except RevisionCompacted as error:
            if not connection.closed:
                self._hear(Heard(self._recording.tick(), "compacted", error.floor))
        except (CommitError, WatchEnded):
            pass
        finally:
            done.set()

    def _tell(self, worker: Worker, connection: Connection) -> None:
        patient = self._rng.random() < 0.5
        after = self.following.position
        with worker.feed.watch(
            self.following.catalog, after=after, selection=self._selection
        ) as watcher:
            while not connection.closed:
                taken = watcher.take(3.0, limit=self._limit, patient=patient)
                if connection.closed:
                    return
                for told in taken.told:
                    tick = self._recording.tick()
                    self._hear(Heard(tick, "commit", told.revision, told.encoded))
                self._hear(Heard(self._recording.tick(), "bookmark", taken.revision))
                self._scheduler.sleep(self._pause_s)

    def _hear(self, heard: Heard) -> None:
        self.following.heard.append(heard)
        self.following.position = heard.revision


def selections(keys: list[Name], rng: random.Random) -> Selection:
    """All commits, or those on some keys."""
    chosen = frozenset(rng.sample(keys, rng.randrange(1, len(keys) + 1)))
    return rng.choice((Selection(), Selection(), Selection(keys=chosen), Selection(prefix=keys[0])))

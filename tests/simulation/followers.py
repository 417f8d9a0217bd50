"""Simulated watchers: each follows a catalog through one worker after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

from gateway.errors import CommitError, RevisionCompacted
from gateway.feed.channel import Selection, WatchEnded
from gateway.feed.watcher import Watcher
from gateway.model import DocumentRecord

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
    """Goes on from where it stands, as often as it is cut off; ``following`` is what it heard.

    Where it begins ``from_state`` it has the documents told first, and goes on within their list.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        recording: Recording,
        catalog: Name,
        selection: Selection,
        pick: Callable[[], Worker],
        *,
        from_state: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._recording = recording
        self._pick = pick
        self._pause_s = rng.choice((0.0, 0.0, 0.5))
        self._limit = rng.choice((1, 2, 200))
        self.following = Following(catalog, selection.keys, selection.prefix)
        self._selection = selection
        self._from_state = from_state
        self._position: tuple[int, str] | None = None  # within the list
        self._documents: dict[str, DocumentRecord] = {}
        self._asked = 0
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
            if self._from_state and not connection.closed:
                self._position, self._documents = None, {}  # begun anew
            elif not connection.closed:
                self._hear(Heard(self._recording.tick(), "compacted", error.floor))
        except (CommitError, WatchEnded):
            pass
        finally:
            done.set()

    def _tell(self, worker: Worker, connection: Connection) -> None:
        if self._from_state:
            self._tell_from_state(worker, connection)
            return
        after = self.following.position
        with worker.feed.watch(
            self.following.catalog, after=after, selection=self._selection
        ) as watcher:
            self._tell_commits(watcher, connection, lambda: None)

    def _tell_from_state(self, worker: Worker, connection: Connection) -> None:
        if self._position is None:
            self._asked = self._recording.tick()
        begun = worker.begin_from_state(
            self.following.catalog, self.following.prefix, self._position
        )
        with begun.watcher:
            for document in chain.from_iterable(begun.export.pages if begun.export else ()):
                self._scheduler.sleep(self._pause_s)
                if connection.closed:
                    return
                self._documents[document.key] = document
                self._position = begun.revision, document.key
            if connection.closed:
                return
            tick, revision = self._recording.tick(), begun.revision
            self._from_state, documents = False, self._documents
            self._hear(Heard(tick, "synced", revision, b"", documents, self._asked))
            begun.watcher.begin()
            let_go = begun.export.close if begun.export else lambda: None
            self._tell_commits(begun.watcher, connection, let_go)

    def _tell_commits(
        self, watcher: Watcher, connection: Connection, let_go: Callable[[], None]
    ) -> None:
        """``let_go``: of the state, once it has caught up."""
        patient = self._rng.random() < 0.5
        while not connection.closed:
            taken = watcher.take(3.0, limit=self._limit, patient=patient)
            if connection.closed:
                return
            if not watcher.lag:
                let_go()
                let_go = _nothing
            for told in taken.commits:
                tick = self._recording.tick()
                self._hear(Heard(tick, "commit", told.revision, told.encoded))
            self._hear(Heard(self._recording.tick(), "bookmark", taken.revision))
            self._scheduler.sleep(self._pause_s)

    def _hear(self, heard: Heard) -> None:
        self.following.heard.append(heard)
        self.following.position = heard.revision


def _nothing() -> None:
    """Of the state nothing is held any more."""


def selections(keys: list[Name], rng: random.Random) -> Selection:
    """All commits, or those on some keys."""
    chosen = frozenset(rng.sample(keys, rng.randrange(1, len(keys) + 1)))
    return rng.choice((Selection(), Selection(), Selection(keys=chosen), Selection(prefix=keys[0])))

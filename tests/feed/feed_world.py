"""A hub of watchers over a store that a test breaks; the clock is moved by waiting alone.

One thread: whoever waits lets the hub's background run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.feed.channel import Selection
from gateway.feed.hub import Hub
from gateway.feed.watcher import Watcher, watch
from gateway.limits import ServiceLimits, WatchLimits
from gateway.model import ChangeRecord, CommitRecord, Head, HeadMove
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader, Settler
from gateway.store.contract import StoreUnreachable
from tests.memory_store import MemoryStore

EVERYTHING = Selection()
STEP_S = 0.01


class Flag:
    def __init__(self, runtime: SteppedRuntime) -> None:
        self._runtime = runtime
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        deadline = self._runtime.now + timeout
        while not self._is_set and self._runtime.now < deadline:
            self._runtime.background()
            if not self._is_set:
                self._runtime.now = min(deadline, self._runtime.now + STEP_S)
        return self._is_set


class SteppedRuntime:
    """``background`` is what runs while somebody waits. Threads are counted, not run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.background: Callable[[], None] = lambda: None
        self.spawned: list[str] = []
        self._ids = iter(range(1, 1_000_000))

    def monotonic(self) -> float:
        return self.now

    def now_us(self) -> int:
        return int(self.now * 1e6)

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def jitter(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def event(self) -> Flag:
        return Flag(self)

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()  # taken twice by the one thread there is, it would hang

    def spawn(self, run: Callable[[], None], name: str) -> None:  # noqa: ARG002
        self.spawned.append(name)


class Store(MemoryStore):
    """``fails``: while it is true, nothing can be reached. ``reading`` is called between reads."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.read = 0
        self.reading: Callable[[], None] = lambda: None

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        self._reach()
        return super().heads(catalogs)

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        self._reach()
        found = super().commits(spans)
        self.reading()
        return found

    def list_commits(self, *asked: Any, **named: Any) -> Sequence[CommitRecord]:
        self._reach()
        found = super().list_commits(*asked, **named)
        self.reading()
        return found

    def _reach(self) -> None:
        self.read += 1
        if self.fails:
            raise StoreUnreachable("as told")


class World:
    def __init__(self, bounds: WatchLimits, store: Store | None = None) -> None:
        self.store = store or Store()
        self.runtime = SteppedRuntime()
        self.encoded: list[int] = []
        limits = ServiceLimits(cache_bytes_max=1 << 20)
        cache = Cache(self.runtime, limits)
        head_reader = HeadReader(self.store, cache, limits)
        self.settler = Settler(self.store, cache, head_reader, self.runtime, limits)
        self.hub = Hub(self.store, self.settler, self.runtime, bounds, self._encode)
        self.runtime.background = self.background
        self._watching = ExitStack()

    def background(self) -> None:
        self.hub.step()
        self.hub.step_apart()

    def _encode(self, commit: CommitRecord) -> bytes:
        self.encoded.append(commit.revision)
        return b"%d;" % commit.revision

    def watch(
        self, after: int = 0, selection: Selection = EVERYTHING, of: str = "c", last: str = ""
    ) -> Watcher:
        watcher = watch(self.hub, of, after=after, selection=selection, last=last)
        return self._watching.enter_context(watcher)

    def move(self, *keys: str, of: str = "c", parent: str | None = None) -> CommitRecord:
        """A commit on ``keys`` that is in the head alone: its writer has died."""
        base = self.store.heads([of]).get(of) or Head(of)
        revision = base.revision + 1
        changes = tuple(ChangeRecord(key, "put", revision, value=revision) for key in keys)
        commit = CommitRecord(
            of, revision, revision, self.runtime.new_id(), "a", None, None, 1, changes
        )
        commit = replace(commit, parent=base.last if parent is None else parent)
        self.store.move_heads(
            [HeadMove(of, base.revision, [commit], base.revision, last=base.last)]
        )
        return commit

    def commit(
        self, *keys: str, of: str = "c", signal: bool = True, parent: str | None = None
    ) -> int:
        commit = self.move(*keys, of=of, parent=parent)
        self.store.write_commits([commit])
        if signal:
            self.hub.hear({of: commit.revision})
        return commit.revision

    def commits(self, count: int, *keys: str) -> None:
        for _ in range(count):
            self.commit(*(keys or ("k",)))

    def told(self, watcher: Watcher, timeout_s: float = 5.0) -> tuple[list[int], float]:
        """The revisions it gets, and how long that took by the clock that waiting moves."""
        begun = self.runtime.now
        return revisions(watcher, timeout_s), self.runtime.now - begun

    def take(self, watcher: Watcher, timeout_s: float, *, patient: bool = False) -> Any:
        """The position after a take that returns no commit, and the time it took."""
        begun = self.runtime.now
        taken = watcher.take(timeout_s, patient=patient)
        assert taken.commits == []
        return taken.revision, self.runtime.now - begun

    def close(self) -> None:
        self._watching.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World(
        WatchLimits(watchers_max=100, lag_max=50, ring_commits_max=10, bookmark_commits=20)
    )
    yield made
    made.close()


def revisions(watcher: Watcher, timeout_s: float = 5.0) -> list[int]:
    return [told.revision for told in watcher.take(timeout_s, patient=True).commits]


def remaining_revisions(watcher: Watcher) -> list[int]:
    found: list[int] = []
    while more := revisions(watcher, 0.5):
        found += more
    return found

"""The catalogs that one kind of threads looks at: now, in order, or when their time comes.

One thread of those that are idle watches the time of the next; one that gets something to do leaves
the watch to another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from heapq import heappop, heappush
from typing import TypeVar

from gateway.runtime import Event, Runtime

_Taken = TypeVar("_Taken")


class Agenda:
    """All but ``take`` is called under ``lock``, and doesn't wait."""

    def __init__(
        self,
        runtime: Runtime,
        lock: AbstractContextManager[object],
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """``begun`` is called when it gets its first catalog."""
        self.now: dict[str, None] = {}
        self.idle: list[Event] = []  # of the threads that wait for something to look at
        self._later: list[tuple[float, str]] = []  # a heap
        self._runtime = runtime
        self._lock = lock
        self._begun: Callable[[], None] | None = begun

    def add(self, catalog: str, at: float | None = None) -> None:
        """Have the catalog looked at, now or ``at`` that monotonic time."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            begun()
        if at is None:
            self.now[catalog] = None
            self._wake()
        else:
            heappush(self._later, (at, catalog))
            if self._later[0] == (at, catalog):
                self._wake()

    def pop(self) -> str:
        """The first of those that are looked at now."""
        catalog = next(iter(self.now))
        del self.now[catalog]
        return catalog

    def pop_due(self, now: float) -> tuple[float, str] | None:
        """The earliest of those whose time has come, with that time."""
        later = self._later
        return heappop(later) if later and later[0][0] <= now else None

    def take(self, look: Callable[[float], _Taken], mine: Event) -> _Taken:
        """What ``look`` finds at the time that it is given; waits until that is something.

        ``mine`` is the thread's own event. ``look`` is called under the lock.
        """
        while True:
            with self._lock:
                now = self._runtime.monotonic()
                taken = look(now)
                if taken:
                    if self._later or self.now:
                        self._wake()
                    return taken
                wait_s = self._later[0][0] - now if self._later else None
                mine.clear()
                self.idle.append(mine)
            mine.wait(wait_s)
            with self._lock:
                if mine in self.idle:
                    self.idle.remove(mine)

    def _wake(self) -> None:
        if self.idle:
            self.idle.pop().set()

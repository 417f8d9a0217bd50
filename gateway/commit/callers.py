"""Who comes next to bring many requests: the principals in turn, the calls of each in their order.

So a principal with a thousand calls delays another's next one by one call of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.runtime import Event, Runtime


class Callers:
    """At most one call has its turn at a time. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._has_turn = False
        self._waiting: dict[str, deque[Event]] = {}

    @contextmanager
    def turn(self, principal: str) -> Iterator[None]:
        """Wait for one's turn, which ends with the block."""
        mine: Event | None = None
        with self._lock:
            if self._has_turn:
                mine = self._runtime.event()
                self._waiting.setdefault(principal, deque()).append(mine)
            self._has_turn = True
        try:
            if mine is not None:
                mine.wait()
            yield
        finally:
            if not self._left(principal, mine):
                self._pass_on()

    def _left(self, principal: str, mine: Event | None) -> bool:
        """Whether the call was broken off while it waited; then it waits no more."""
        with self._lock:
            calls = self._waiting.get(principal, deque())
            if mine is None or mine not in calls:
                return False
            calls.remove(mine)
            if not calls:
                del self._waiting[principal]
            return True

    def _pass_on(self) -> None:
        with self._lock:
            self._has_turn = bool(self._waiting)
            if not self._waiting:
                return
            principal = next(iter(self._waiting))
            calls = self._waiting.pop(principal)
            following = calls.popleft()
            if calls:
                self._waiting[principal] = calls  # behind all others
        following.set()

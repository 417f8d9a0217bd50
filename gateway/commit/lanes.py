"""What the queue is made of: the lanes of catalogs, and the lines in which leaders look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappush

from gateway.commit.pending import Pending
from gateway.runtime import Event


@dataclass(slots=True)
class Lane:
    waiting: deque[Pending] = field(default_factory=deque)
    busy: bool = False
    has_turn: bool = False
    turn_began: float = 0.0
    waits_since: float | None = None  # when it began to wait for another worker's turn to end
    not_before: float = 0.0
    look_at: float | None = None  # when it is looked at next, where that isn't now
    unreachable: bool = False  # its last batch came back because the database was out of reach
    most: int | None = None  # requests of its next batch, where a larger one was refused
    doubt: Callable[[], None] | None = None  # goes on with its move


class Line:
    """The lanes that one kind of leaders looks at, now, in order, or later."""

    def __init__(self, started: Callable[[], None] = lambda: None) -> None:
        """``started`` is called when it gets its first lane."""
        self.now: dict[str, None] = {}
        self.later: list[tuple[float, str]] = []  # a heap
        self.idle: list[Event] = []
        self._started: Callable[[], None] | None = started

    def add(self, catalog: str, at: float | None = None) -> None:
        if self._started is not None:
            started, self._started = self._started, None
            started()
        if at is None:
            self.now[catalog] = None
            self.wake()
        else:
            heappush(self.later, (at, catalog))
            if self.later[0] == (at, catalog):
                self.wake()

    def pop(self) -> str:
        catalog = next(iter(self.now))
        del self.now[catalog]
        return catalog

    def wake(self) -> None:
        if self.idle:
            self.idle.pop().set()

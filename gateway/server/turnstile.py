"""Requests that wait unread, so that many at once cost little; only for the gevent worker.

A thousand requests that arrive together would all be parsed and worked on before the process looks
at its sockets again, and hears the database, or somebody who asks whether it lives. So only some of
them pass at a time, in the order in which they came: the turnstile.

Parsing is most of what a refusal costs. A process that has as much to do as it takes on would have
its hands full with refusing, where clients send again at once. So there are only so many refusals
in a second, and who comes beyond those waits, unread: until there is room, or, after some seconds,
to be refused. That is the waiting room. Whoever came last is let in first: of those who have waited
for long, the clients may have given up, and all would be answered late.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent
from gevent.event import Event
from gevent.hub import Waiter

# Between two looks at the sockets; so many take about 15 ms. Where the process has as much to do as
# it takes on, what arrives is to be refused, and each look takes a batch under way a step further.
_AT_A_TIME: Final = 32
_AT_A_TIME_IF_FULL: Final = 8
# Of those that ask whether the process lives: they overtake the others, and nobody has the others
# wait for ever by asking again and again.
_URGENT_AT_A_TIME: Final = 8
# A refusal takes about half a millisecond of a worker's time, nearly all of it for HTTP: these take
# a fourteenth of it. With 2,000 connections that send again at once, each waits for 14 s; with
# more there are more refusals.
_REFUSALS_PER_S: Final = 150
_WAIT_LONGEST_S: Final = 15.0
_URGENT: Final = (b"GET /livez ", b"HEAD /livez ")


class Turnstile:
    """Of one process: for greenlets alone, not for threads."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self._urgent = _Lane(lambda: _URGENT_AT_A_TIME)
        self._others = _Lane(lambda: _AT_A_TIME_IF_FULL if is_full() else _AT_A_TIME)
        self._timer: Any = None

    def go_through(self, *, urgent: bool = False) -> None:
        """Returns at once, or when those that came before have passed; only what is urgent has."""
        lane = self._urgent if urgent else self._others
        waiter = lane.enter()
        self._look_again()
        if waiter is not None:
            waiter.get()

    def _look_again(self) -> None:
        if self._timer is None:
            # A timer of no time ends after the next look at the sockets.
            self._timer = gevent.get_hub().loop.timer(0)
            self._timer.start(self._let_pass)

    def _let_pass(self) -> None:
        self._timer.close()
        self._timer = None
        for lane in (self._urgent, self._others):
            if lane.let_pass():
                self._look_again()


class _Lane:
    """Those that pass in the order in which they came, so many between two looks."""

    def __init__(self, at_a_time: Callable[[], int]) -> None:
        self._at_a_time = at_a_time
        self._passed = 0
        self._waiting: deque[Waiter[None]] = deque()

    def enter(self) -> Waiter[None] | None:
        """What to wait for; None for nothing."""
        if self._passed < self._at_a_time() and not self._waiting:
            self._passed += 1
            return None
        waiter: Waiter[None] = Waiter()
        self._waiting.append(waiter)
        return waiter

    def let_pass(self) -> bool:
        """After a look; whether anybody did."""
        self._passed = 0
        while self._waiting and self._passed < self._at_a_time():
            self._passed += 1
            self._waiting.popleft().switch(None)
        return self._passed > 0


class WaitingRoom:
    """Of one process: for greenlets alone, not for threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[Event, None] = {}
        self._next_refusal_at = 0.0

    def wait(self) -> None:
        """Until there may be room, or it is time to be refused."""
        wait_s = self.until_refusal_s()
        if wait_s <= 0:
            return
        let_in = Event()
        self._waiting[let_in] = None
        try:
            let_in.wait(wait_s)
        finally:
            self._waiting.pop(let_in, None)

    def let_one_in(self) -> None:
        if self._waiting:
            let_in, _ = self._waiting.popitem()
            let_in.set()

    def until_refusal_s(self) -> float:
        """How long the next one waits at most, 0 or less for not at all; it is reckoned with."""
        now = self._monotonic()
        # Those of a second needn't wait.
        next_at = max(self._next_refusal_at, now - 1.0) + 1 / _REFUSALS_PER_S
        if next_at > now + _WAIT_LONGEST_S:
            return _WAIT_LONGEST_S * random.uniform(0.8, 1.0)
        self._next_refusal_at = next_at
        return next_at - now


def is_urgent(start: bytes) -> bool:
    """Whether a request that starts so asks if the process lives."""
    return start.startswith(_URGENT)

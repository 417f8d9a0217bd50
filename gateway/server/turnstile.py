"""Requests that wait unread, so that many at once cost little.

A thousand requests that arrive together would all be parsed and worked on before the process looks
at its sockets again, and hears the database or a request for ``/livez``. So only some pass at a
time, in the order of their arrival: the turnstile.

Parsing is most of the cost of a refusal. A full process whose clients send again at once would do
nothing but refuse. So the refusals per second are bounded, and requests beyond them wait unread,
until there is room or, after some seconds, for their refusal: the waiting room. The latest arrival
is let in first: the clients of the others may have given up, and in order of arrival every answer
would be late.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent
from gevent.event import Event
from gevent.hub import Waiter

from gateway import cpu

# Requests between two looks at the sockets; they take about 15 ms. In a full process arrivals are
# refused, and each look takes a batch under way a step further.
_AT_A_TIME: Final = 32
_AT_A_TIME_IF_FULL: Final = 8
# Requests for /livez that overtake the others; bounded, so that they can't hold the others up.
_URGENT_AT_A_TIME: Final = 8
# Processor time for those that are let pass after a look, which don't all take as little.
_TIME_S: Final = 0.025
# Refusals per second. One takes about half a millisecond, nearly all of it for HTTP, so these take
# a fourteenth of a worker's time. With 2,000 connections that send again at once, each waits for
# 14 s; with more there are more refusals.
_REFUSALS_PER_S: Final = 150
_WAIT_LONGEST_S: Final = 15.0
_URGENT: Final = (b"GET /livez ", b"HEAD /livez ")


class Turnstile:
    """The turnstile of one process, for greenlets."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self._urgent = _Lane(lambda: _URGENT_AT_A_TIME, is_bounded_by_time=False)
        self._others = _Lane(lambda: _AT_A_TIME_IF_FULL if is_full() else _AT_A_TIME)
        self._timer: Any = None

    def go_through(self, *, urgent: bool = False) -> None:
        """Return when the earlier requests have passed; urgent ones wait only for urgent ones."""
        lane = self._urgent if urgent else self._others
        waiter = lane.enter()
        self._look_again()
        if waiter is not None:
            waiter.get()

    def _look_again(self) -> None:
        if self._timer is None:
            # A timer of 0 s fires after the next look at the sockets.
            self._timer = gevent.get_hub().loop.timer(0)
            self._timer.start(self._let_pass)

    def _let_pass(self) -> None:
        self._timer.close()
        self._timer = None
        for lane in (self._urgent, self._others):
            if lane.let_pass():
                self._look_again()


class _Lane:
    """Requests that pass in the order of their arrival, a number of them between two looks."""

    def __init__(self, at_a_time: Callable[[], int], *, is_bounded_by_time: bool = True) -> None:
        self._at_a_time = at_a_time
        self._is_bounded_by_time = is_bounded_by_time
        self._passed = 0
        self._waiting: deque[Waiter[None]] = deque()

    def enter(self) -> Waiter[None] | None:
        """The event to wait for; None where the request passes at once."""
        is_late = self._is_bounded_by_time and cpu.slices.is_over
        passes = self._passed < _AT_A_TIME_IF_FULL or self._passed < self._at_a_time()
        if passes and not self._waiting and not is_late:
            self._passed += 1
            return None
        waiter: Waiter[None] = Waiter()
        self._waiting.append(waiter)
        return waiter

    def let_pass(self) -> bool:
        """Let the next ones pass, after a look; whether there was any."""
        self._passed = 0
        until_s = time.thread_time() + _TIME_S
        while self._waiting and self._passed < self._at_a_time():
            if self._passed and self._is_bounded_by_time and time.thread_time() > until_s:
                break
            self._passed += 1
            self._waiting.popleft().switch(None)
        return self._passed > 0 or bool(self._waiting)


class WaitingRoom:
    """The waiting room of one process, for greenlets."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[Event, None] = {}
        self._next_refusal_at = 0.0

    def wait(self) -> None:
        """Wait until there may be room, or until the refusal is due."""
        wait_s = self.until_refusal_s()
        if wait_s <= 0:
            return
        let_in = Event()
        self._waiting[let_in] = None
        try:
            let_in.wait(wait_s)
        finally:
            self._waiting.pop(let_in, None)

    def let_one_in_unless(self, is_full: Callable[[], bool]) -> None:
        if self._waiting and not is_full():
            let_in, _ = self._waiting.popitem()
            let_in.set()

    def until_refusal_s(self) -> float:
        """The longest wait of the next request, 0 or less for none; counts the request."""
        now = self._monotonic()
        # The refusals of one second need no wait.
        next_at = max(self._next_refusal_at, now - 1.0) + 1 / _REFUSALS_PER_S
        if next_at > now + _WAIT_LONGEST_S:
            return _WAIT_LONGEST_S * random.uniform(0.8, 1.0)
        self._next_refusal_at = next_at
        return next_at - now


def is_urgent(start: bytes) -> bool:
    """Whether a request with these first bytes is one for ``/livez``."""
    return start.startswith(_URGENT)

"""A fair share of a worker's processor time for each request: one that computes for long yields to
others. Only for the gevent worker.

The kernel sends a signal after every few milliseconds of processor time that the process has used;
an idle process gets none. Python handles it between two instructions of whatever is being computed,
on the stack of that greenlet. There ``TimeSlices.tick`` charges the request's account, which may
break off its section. If nothing else has run for a time slice, the greenlet waits.

Waiting greenlets go on in the order of their arrival, one between two looks at the sockets. So
however many heavy requests there are, a light one waits for one slice of one of them at a time.

Forty requests that each compute for less than a slice would add up to a second if all of them were
ready at once. So a request that begins a section when the slice is over waits as well, in a line of
its own: as many of these go on between two looks as a slice has time for. If both lines are long,
they alternate.

A call of C code is one instruction, however long it takes. Inputs are bounded so that none takes
longer than about 50 ms; one that takes longer than ``LONG_S`` is logged, section or not.

*Let in.* A thousand requests that arrive together would all be parsed and worked on before the
process looks at its sockets again, and notices an answer of the database or a request for
``/livez``. So only some pass at a time, in the order of their arrival: the turnstile. Parsing is
most of the cost of a refusal. A full process whose clients send again at once would do nothing but
refuse. So the refusals per second are bounded, and requests beyond them wait unread, until there is
room or, after some seconds, they are refused: the waiting room. The latest arrival is let in first:
the clients of the others may have given up, and in order of arrival every answer would be late.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

import gevent
from gevent.event import Event
from gevent.hub import Waiter
from gevent.monkey import get_original

from gateway import cpu

# The id of the thread of the operating system, not of the greenlet.
get_ident: Final = get_original("_thread", "get_ident")

_log = logging.getLogger(__name__)

# Processor time between two signals; the kernel rounds it up to a tick of its own clock.
_TICK_S: Final = 0.01
# Longer than a batch takes as a rule, so that a batch seldom has to yield.
SLICE_S: Final = 0.025
# The slice of code that isn't a section; see ``_serves``.
_UNMARKED_SLICE_S: Final = 0.1
# A slice of this length is logged: nothing may make others wait for longer.
LONG_S: Final = 0.25
_FRAMES_SHOWN: Final = 6


class TimeSlices:
    """The slices of one process, whose main thread runs the hub."""

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._waiting: deque[Waiter[None]] = deque()
        self._beginning: deque[Waiter[None]] = deque()
        self._is_for_beginners = False
        self._thread = get_ident()
        self._next_poll = _NextPoll(self._let_go_on)
        self._poll = 0  # the number of the last look at the sockets that was noticed
        self._used_s = 0.0  # the main thread's processor time at the last tick
        self._slice_from_s = 0.0  # its processor time when this slice began
        self._is_logged = False  # whether this slice was logged as too long
        self._is_in_line = False

    def start(self) -> None:
        """Begin. Called in the main thread, after the fork."""
        self._used_s = time.thread_time()
        cpu.slices.yield_now = self.yield_now
        signal.signal(signal.SIGPROF, self.tick)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _TICK_S, _TICK_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def tick(self, _signal: int, frame: FrameType | None) -> None:
        """The signal's handler. Raises ``cpu.BrokenOff`` if the interrupted section has used up its
        account.

        If there was a look since the last tick, all of the time since that tick counts as one
        slice: more than a tick of it can only be one call of C code, which holds signals back.
        """
        if self._is_in_line:  # the signal interrupts ``_yield_in_line``
            return
        used_s = time.thread_time()
        self._note_poll(self._used_s)
        spent_s, self._used_s = used_s - self._used_s, used_s
        slice_s = used_s - self._slice_from_s
        cpu.slices.is_over = slice_s >= SLICE_S
        cpu.slices.longest_s = max(cpu.slices.longest_s, slice_s)
        if slice_s > LONG_S and not self._is_logged:
            self._is_logged = True
            cpu.slices.long += 1
            gevent.spawn(_log_long, slice_s, _places(frame))
        code = None if frame is None else frame.f_code
        if cpu.draw(spent_s, code):
            if cpu.slices.is_over:
                self._yield_in_line(self._waiting)
        elif slice_s >= _UNMARKED_SLICE_S and not cpu.is_uninterrupted() and _serves(frame):
            self._yield_in_line(self._waiting)

    def yield_now(self) -> None:
        """If the slice is still over, wait until others have run."""
        if get_ident() != self._thread or gevent.getcurrent() is self._hub:
            return
        self._note_poll(time.thread_time())
        if cpu.slices.is_over:
            self._yield_in_line(self._beginning)

    def _note_poll(self, used_s: float) -> None:
        """Begin a slice at ``used_s`` if there was a look since the last call."""
        poll = self._hub.loop.iteration
        if poll != self._poll:
            self._poll, self._slice_from_s, self._is_logged = poll, used_s, False
            cpu.slices.is_over = False

    def _yield_in_line(self, line: deque[Waiter[None]]) -> None:
        """Wait in ``line``, on the stack of whatever is computed, until it may go on."""
        cpu.slices.yields += 1
        waiter: Waiter[None] = Waiter()
        self._is_in_line = True
        line.append(waiter)
        self._next_poll.call_back()
        self._is_in_line = False
        waiter.get()
        # What others computed meanwhile isn't charged to this request.
        self._used_s = time.thread_time()

    def _let_go_on(self) -> None:
        self._note_poll(time.thread_time())
        both = self._waiting and self._beginning
        self._is_for_beginners = not self._is_for_beginners if both else not self._waiting
        line = self._beginning if self._is_for_beginners else self._waiting
        line.popleft().switch(None)
        while line and time.thread_time() - self._slice_from_s < SLICE_S:
            line.popleft().switch(None)
        if self._waiting or self._beginning:
            self._next_poll.call_back()


class _NextPoll:
    """Calls ``then`` once after the hub's next look at the sockets, however often that is asked for
    before."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._timer: Any = None

    def call_back(self) -> None:
        if self._timer is None:
            # A timer of 0 s fires after the next look.
            self._timer = gevent.get_hub().loop.timer(0)
            self._timer.start(self._polled)

    def _polled(self) -> None:
        self._timer.close()
        self._timer = None
        self._then()


# Code that expects to be interrupted only when it waits, or that others would have to wait for.
_UNINTERRUPTED: Final = tuple(
    f"{os.sep}{each}{os.sep}"
    for each in ("gevent", "pymongo", "bson", "logging", "structlog", "prometheus_client")
) + tuple(
    f"{os.sep}gateway{os.sep}{each}"
    for each in ("commit", "feed", "metrics", "state", "store", "cpu.py")
)
# Code in which a greenlet that serves a request begins.
_SERVING: Final = tuple(
    f"{os.sep}gateway{os.sep}{each}"
    for each in (f"server{os.sep}greenlets.py", f"http{os.sep}routes{os.sep}bulk.py")
)


@lru_cache(maxsize=8192)
def _kind(code: CodeType) -> str:
    if code.co_filename.endswith(_SERVING):
        return "serving"
    in_library = code.co_filename.endswith(f"{os.sep}threading.py")
    is_kept = in_library or any(part in code.co_filename for part in _UNINTERRUPTED)
    return "uninterrupted" if is_kept else "other"


def _serves(frame: FrameType | None) -> bool:
    """Whether ``frame`` serves a request, in code that may be interrupted anywhere.

    It is for unforeseen code outside of sections, which yield earlier, and can be broken off.
    """
    while frame is not None:
        kind = _kind(frame.f_code)
        if kind != "other":
            return kind == "serving"
        frame = frame.f_back
    return False


def _places(frame: FrameType | None) -> list[str]:
    places: list[str] = []
    while frame is not None and len(places) < _FRAMES_SHOWN:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return places


def _log_long(seconds: float, places: list[str]) -> None:
    _log.warning(
        "the other requests of this worker waited while it computed",
        extra={"seconds": round(seconds, 3), "places": places},
    )


# How many requests pass between two looks at the sockets; they take about 15 ms. In a full process
# fewer pass: they are refused, and each look takes a batch under way a step further.
_AT_A_TIME: Final = 32
_AT_A_TIME_IF_FULL: Final = 8
# How many requests for /livez overtake the others; bounded, so that they can't hold these up.
_URGENT_AT_A_TIME: Final = 8
# Processor time after which no more pass until the next look: some requests take long.
_TIME_S: Final = 0.025
# Refusals per second. One takes about half a millisecond, nearly all of it for HTTP, so all take a
# fourteenth of a worker's time. With 2,000 connections that send again at once, each waits for
# 14 s; with more connections there are more refusals.
_REFUSALS_PER_S: Final = 150
_WAIT_LONGEST_S: Final = 15.0
_URGENT: Final = (b"GET /livez ", b"HEAD /livez ")


class Turnstile:
    """The turnstile of one process, for greenlets."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self._urgent = _Gate(lambda: _URGENT_AT_A_TIME, is_bounded_by_time=False)
        self._others = _Gate(lambda: _AT_A_TIME_IF_FULL if is_full() else _AT_A_TIME)
        self._next_poll = _NextPoll(self._let_pass)

    def go_through(self, *, urgent: bool = False) -> None:
        """Wait until the earlier requests have passed; urgent ones wait only for urgent ones."""
        gate = self._urgent if urgent else self._others
        waiter = gate.enter()
        self._next_poll.call_back()
        if waiter is not None:
            waiter.get()

    def _let_pass(self) -> None:
        for gate in (self._urgent, self._others):
            if gate.let_pass():
                self._next_poll.call_back()


class _Gate:
    """Lets requests pass in the order of their arrival, ``at_a_time`` between two looks."""

    def __init__(self, at_a_time: Callable[[], int], *, is_bounded_by_time: bool = True) -> None:
        self._at_a_time = at_a_time
        self._is_bounded_by_time = is_bounded_by_time
        self._passed = 0
        self._waiting: deque[Waiter[None]] = deque()

    def enter(self) -> Waiter[None] | None:
        """What the request has to wait for; None if it passes at once."""
        is_late = self._is_bounded_by_time and cpu.slices.is_over
        passes = self._passed < _AT_A_TIME_IF_FULL or self._passed < self._at_a_time()
        if passes and not self._waiting and not is_late:
            self._passed += 1
            return None
        waiter: Waiter[None] = Waiter()
        self._waiting.append(waiter)
        return waiter

    def let_pass(self) -> bool:
        """Let the next ones pass, after a look. Whether it has to be called after the next look."""
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
        # After a quiet second, as many refusals as fit into one need no wait.
        next_at = max(self._next_refusal_at, now - 1.0) + 1 / _REFUSALS_PER_S
        if next_at > now + _WAIT_LONGEST_S:
            return _WAIT_LONGEST_S * random.uniform(0.8, 1.0)
        self._next_refusal_at = next_at
        return next_at - now


def is_urgent(start: bytes) -> bool:
    """Whether a request with these first bytes is one for ``/livez``."""
    return start.startswith(_URGENT)

"""Turns for others while a request is computed; only for the gevent worker.

The kernel sends a signal after every few milliseconds of processor time that the process has used;
an idle one gets none. Python handles it between two instructions of what is being computed, on the
stack of its greenlet. There ``Slices.tick`` charges the request's account, which may break off the
section that it is in, and where nothing else had a turn for a slice, the greenlet waits its own.

Who waits is let go on in the order of their arrival, one between two looks at the sockets. However
many heavy requests there are, a light one waits for one slice of one of them at a time.

Forty requests that compute for less than a slice would add up to a second if all of them were ready
at once. So who begins a section when the slice is over waits as well, in a line of those who begin:
as many of them go on between two looks as a slice has time for. Where both lines are long, they
take turns. The turnstile bounds in the same way what is let in.

An instruction that is a call of C code takes as long as it takes. Inputs are bounded so that none
takes longer than about 50 ms; one that takes longer than ``LONG_S`` is logged, section or not.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

import gevent
from gevent.hub import Waiter
from gevent.monkey import get_original

from gateway import cpu

# That of the operating system's threads.
get_ident: Final = get_original("_thread", "get_ident")

_log = logging.getLogger(__name__)

# Processor time between two signals; the kernel rounds it up to its own clock's.
_TICK_S: Final = 0.01
# Longer than a batch takes as a rule, which gives no turns and loses nothing by them.
SLICE_S: Final = 0.025
# Of code that is no section; see ``_serves``.
_UNMARKED_SLICE_S: Final = 0.1
# What nobody may make others wait for.
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
        self._timer: Any = None
        self._look = 0  # the number of the last look at the sockets that was seen
        self._used_s = 0.0  # of the main thread's processor time, up to the last tick
        self._slice_from_s = 0.0  # that processor time at that look, or when it was seen
        self._told = False
        self._is_in_line = False

    def start(self) -> None:
        """Called in the main thread, after the fork."""
        self._used_s = time.thread_time()
        cpu.slices.give_turn = self.give_turn
        signal.signal(signal.SIGPROF, self.tick)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _TICK_S, _TICK_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def tick(self, _signal: int, frame: FrameType | None) -> None:
        """Raises ``cpu.BrokenOff`` where the section that was interrupted has used up its account.

        Where there was a look since the last tick, all of the time since then counts as one slice:
        more than a tick of it can only be one call of C code, which holds signals back.
        """
        if self._is_in_line:  # this signal is of its own way there
            return
        used_s = time.thread_time()
        self._see_look(self._used_s)
        spent_s, self._used_s = used_s - self._used_s, used_s
        slice_s = used_s - self._slice_from_s
        cpu.slices.is_over = slice_s >= SLICE_S
        cpu.slices.longest_s = max(cpu.slices.longest_s, slice_s)
        if slice_s > LONG_S and not self._told:
            self._told = True
            cpu.slices.long += 1
            gevent.spawn(_tell, slice_s, _places(frame))
        code = None if frame is None else frame.f_code
        if cpu.draw(spent_s, code):
            if cpu.slices.is_over:
                self._give_turn(self._waiting)
        elif slice_s >= _UNMARKED_SLICE_S and not cpu.is_whole() and _serves(frame):
            self._give_turn(self._waiting)

    def give_turn(self) -> None:
        """Wait, where the slice is still over, until others had their turn."""
        if get_ident() != self._thread or gevent.getcurrent() is self._hub:
            return
        self._see_look(time.thread_time())
        if cpu.slices.is_over:
            self._give_turn(self._beginning)

    def _see_look(self, used_s: float) -> None:
        """Begin a slice at ``used_s`` where there was a look since the last call."""
        look = self._hub.loop.iteration
        if look != self._look:
            self._look, self._slice_from_s, self._told = look, used_s, False
            cpu.slices.is_over = False

    def _give_turn(self, line: deque[Waiter[None]]) -> None:
        """Wait, on the stack of whatever is computed, until it is its turn again."""
        cpu.slices.turns += 1
        waiter: Waiter[None] = Waiter()
        self._is_in_line = True
        line.append(waiter)
        self._look_again()
        self._is_in_line = False
        waiter.get()
        # Others have computed meanwhile.
        self._used_s = time.thread_time()

    def _look_again(self) -> None:
        if self._timer is None:
            # A timer of 0 s fires after the next look at the sockets.
            self._timer = self._hub.loop.timer(0)
            self._timer.start(self._let_go_on)

    def _let_go_on(self) -> None:
        self._timer.close()
        self._timer = None
        self._see_look(time.thread_time())
        both = self._waiting and self._beginning
        self._is_for_beginners = not self._is_for_beginners if both else not self._waiting
        line = self._beginning if self._is_for_beginners else self._waiting
        line.popleft().switch(None)
        while line and time.thread_time() - self._slice_from_s < SLICE_S:
            line.popleft().switch(None)
        if self._waiting or self._beginning:
            self._look_again()


# Code that expects to be interrupted only where it waits, or that others would have to wait for.
_UNINTERRUPTED: Final = tuple(
    f"{os.sep}{each}{os.sep}"
    for each in ("gevent", "pymongo", "bson", "logging", "structlog", "prometheus_client")
) + tuple(
    f"{os.sep}gateway{os.sep}{each}"
    for each in ("commit", "feed", "metrics", "state", "store", "cpu.py")
)
# Where a greenlet begins that serves a request.
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
    """Whether a request is served here by code that any thread may be interrupted in.

    This is for what was not foreseen: a section says so itself, is met earlier, and has an end.
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


def _tell(seconds: float, places: list[str]) -> None:
    _log.warning(
        "the other requests of this worker waited while it computed",
        extra={"seconds": round(seconds, 3), "places": places},
    )

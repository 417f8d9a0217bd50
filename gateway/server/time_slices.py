"""Turns for others while a request is computed; only for the gevent worker.

The kernel sends a signal after every few milliseconds of processor time that the process has used;
an idle one gets none. Python handles it between two instructions of what is being computed, on the
stack of its greenlet. There ``Slices.tick`` charges the request's account, which may break off the
section that it is in, and where nothing else had a turn for a slice, the greenlet waits its own.

Who waits is let go on in the order of their arrival, one between two looks at the sockets. However
many heavy requests there are, a light one waits for one slice of one of them at a time.

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

from gateway import cpu

_log = logging.getLogger(__name__)

# Processor time between two signals; the kernel rounds it up to its own clock's.
_TICK_S: Final = 0.01
# Longer than a batch takes as a rule, which gives no turns and loses nothing by them.
_SLICE_S: Final = 0.025
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
        self._timer: Any = None
        self._look = 0  # the number of the last look at the sockets that was seen
        self._used_s = 0.0  # of the main thread's processor time, up to the last tick
        self._slice_s = 0.0  # since that look, as far as it was seen
        self._told = False

    def start(self) -> None:
        """Called in the main thread, after the fork."""
        self._used_s = time.thread_time()
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
        used_s = time.thread_time()
        spent_s, self._used_s = used_s - self._used_s, used_s
        look = self._hub.loop.iteration
        if look != self._look:
            self._look, self._slice_s, self._told = look, 0.0, False
        self._slice_s += spent_s
        cpu.slices.longest_s = max(cpu.slices.longest_s, self._slice_s)
        if self._slice_s > LONG_S and not self._told:
            self._told = True
            cpu.slices.long += 1
            gevent.spawn(_tell, self._slice_s, _places(frame))
        code = None if frame is None else frame.f_code
        if cpu.draw(spent_s, code):
            if self._slice_s >= _SLICE_S:
                self._give_turn()
        elif self._slice_s >= _UNMARKED_SLICE_S and not cpu.is_whole() and _serves(frame):
            self._give_turn()

    def _give_turn(self) -> None:
        """Wait, on the stack of whatever is computed, until it is its turn again."""
        cpu.slices.turns += 1
        waiter: Waiter[None] = Waiter()
        self._waiting.append(waiter)
        self._look_again()
        waiter.get()
        # Others have computed meanwhile.
        self._used_s = time.thread_time()
        self._look, self._slice_s, self._told = self._hub.loop.iteration, 0.0, False

    def _look_again(self) -> None:
        if self._timer is None:
            # A timer of 0 s fires after the next look at the sockets.
            self._timer = self._hub.loop.timer(0)
            self._timer.start(self._let_one_go_on)

    def _let_one_go_on(self) -> None:
        self._timer.close()
        self._timer = None
        waiter = self._waiting.popleft()
        if self._waiting:
            self._look_again()
        waiter.switch(None)


# Code that expects to be interrupted only where it waits, or that others would have to wait for.
_UNINTERRUPTED: Final = tuple(
    f"{os.sep}{each}{os.sep}"
    for each in ("gevent", "pymongo", "bson", "logging", "structlog", "prometheus_client")
) + tuple(
    f"{os.sep}gateway{os.sep}{each}" for each in ("commit", "feed", "state", "store", "cpu.py")
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

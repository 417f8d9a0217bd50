"""Time, randomness, ids and waiting, passed in so that a simulation can control them all.

No other module below ``gateway.service`` reads a clock, sleeps, draws a random number or starts a
thread. Under the gevent worker the same code runs on greenlets: ``threading`` is patched there.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

_log = logging.getLogger(__name__)

# The pause before a background thread that failed starts again.
_AGAIN_S: Final = 0.1


class Event(Protocol):
    """Set once or many times; ``wait`` returns whether it was set within the time."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Runtime(Protocol):
    """What the commit loop needs from outside, besides the store."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def now_us(self) -> int:
        """Wall clock, microseconds since the epoch."""

    def new_id(self) -> str:
        """A new id: 32 lower-case hex digits."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""

    def sleep(self, seconds: float) -> None: ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[object]: ...

    def spawn(self, run: Callable[[], None], name: str) -> None:
        """Run it in the background until it returns or the process ends. If it raises, it starts
        again."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks: the monotonic one may stand still while a machine sleeps, and the
    wall clock may be set back."""

    monotonic: float
    wall_us: int


def moment(runtime: Runtime) -> Moment:
    return Moment(runtime.monotonic(), runtime.now_us())


def elapsed_s(since: Moment, now: Moment) -> float:
    """The time from ``since`` to ``now``, by the clock that shows more."""
    return max(now.monotonic - since.monotonic, (now.wall_us - since.wall_us) / 1_000_000)


class ThreadRuntime:
    """The real runtime: threads, or greenlets if gevent has patched ``threading``."""

    # Called thirty times for a write, so there is no method around it.
    monotonic = staticmethod(time.monotonic)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def new_id(self) -> str:
        return os.urandom(16).hex()

    def jitter(self) -> float:
        return random.random()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Event:
        return threading.Event()

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def spawn(self, run: Callable[[], None], name: str) -> None:
        threading.Thread(target=_lasting, args=(run, name), name=name, daemon=True).start()


def _lasting(run: Callable[[], None], name: str) -> None:
    """Run until it returns. If it raises, log that and start it again, so that nothing that others
    wait for ends silently."""
    while True:
        try:
            run()
            return
        except Exception as error:  # noqa: BLE001 - whatever it is
            with suppress(MemoryError):  # ``error`` may be one, too
                _log.error("%s failed, and starts again", name, exc_info=error)
        time.sleep(_AGAIN_S)

"""Time, randomness, ids and waiting, passed in so that a simulation can own them all.

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

# After a failure of what runs in the background.
_AGAIN_S: Final = 0.1


class Event(Protocol):
    """Set once or many times; ``wait`` returns whether it was set within the time."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Runtime(Protocol):
    """The commit loop's needs from the world, besides the store."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def now_us(self) -> int:
        """Wall clock, microseconds since the epoch."""

    def new_id(self) -> str:
        """32 lower-case hex digits, never seen before."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""

    def sleep(self, seconds: float) -> None: ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[object]: ...

    def spawn(self, run: Callable[[], None], name: str) -> None:
        """Run in the background until it returns, or the process ends: what raises begins anew."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks: the monotonic one may stand still while a machine sleeps, the wall
    clock may be set back."""

    monotonic: float
    wall_us: int


def moment(runtime: Runtime) -> Moment:
    return Moment(runtime.monotonic(), runtime.now_us())


def elapsed_s(since: Moment, now: Moment) -> float:
    """The longer of the times that the two clocks show."""
    return max(now.monotonic - since.monotonic, (now.wall_us - since.wall_us) / 1_000_000)


class ThreadRuntime:
    """The real one: threads, or greenlets where gevent has patched ``threading``."""

    # Asked thirty times for a write: no frame around it.
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
    """Nothing that others wait for ends unnoticed."""
    while True:
        try:
            run()
            return
        except Exception as error:  # noqa: BLE001 - whatever it is
            with suppress(MemoryError):  # as it may have been
                _log.error("%s failed, and begins anew", name, exc_info=error)
        time.sleep(_AGAIN_S)

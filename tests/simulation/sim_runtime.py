"""``gateway.runtime.Runtime`` in virtual time, for one simulated process."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType

from .scheduler import Process, Scheduler, Task

EPOCH_US = 1_700_000_000_000_000


class SimEvent:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        task = self._scheduler.current()
        self._waiting.append(task)
        woken = self._scheduler.wait(timeout)
        if not woken and task in self._waiting:
            self._waiting.remove(task)
        return woken


class SimLock:
    """A lock, and a place where another thread of the process may get ahead."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, preempt: float) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._preempt = preempt
        self._held = False

    def __enter__(self) -> SimLock:
        if self._preempt and self._rng.random() < self._preempt:
            self._fall_behind()
        # Nothing may wait while it holds a lock of the commit loop; this asserts it.
        assert self._scheduler.closed or not self._held, "waited with a lock held"
        self._held = True
        return self

    def _fall_behind(self) -> None:
        if self._rng.random() < 0.1:
            self._scheduler.sleep(0.02 * self._rng.random())
        else:
            self._scheduler.give_way()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held = False


class SimRuntime:
    """``skew_us`` puts the wall clock off; ``preempt`` is how often a lock lets others go first."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        rng: random.Random,
        *,
        skew_us: int = 0,
        clock_steps: bool = False,
        preempt: float = 0.0,
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._rng = rng
        self._skew_us = skew_us
        self._clock_steps = clock_steps
        self._preempt = preempt

    def monotonic(self) -> float:
        return self._scheduler.now

    def now_us(self) -> int:
        if self._clock_steps and self._rng.random() < 0.1:
            self._skew_us += self._rng.randrange(-50_000, 50_000)
        return EPOCH_US + self._skew_us + int(self._scheduler.now * 1e6)

    def new_id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._rng.random()

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def event(self) -> SimEvent:
        return SimEvent(self._scheduler)

    def lock(self) -> SimLock:
        return SimLock(self._scheduler, self._rng, self._preempt)

    def spawn(self, run: Callable[[], None], name: str) -> None:
        self._scheduler.spawn(self._process, run, f"{self._process.name}/{name}")

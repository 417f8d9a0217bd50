"""Coroutines in virtual time: one runs at once, and a seeded generator says which one is next.

Tasks are greenlets, each owned by a *process*. A process can be killed, after which none of its
tasks ever goes on, or suspended: then all of them stand still while the time of the others
passes. Nothing here knows of gateways or stores.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from greenlet import GreenletExit, getcurrent, greenlet

_STEPS_MAX = 400_000


class Stuck(Exception):
    """Nobody can go on, or everybody goes on for ever without the time passing."""


class Process:
    """What is killed or suspended as one; ``on_death`` is called once, by the scheduler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.resumes_at = 0.0
        self.suspended_s = 0.0
        self.on_death: list[Callable[[], None]] = []


class Task:
    """``epoch`` counts its waits, so that a late timer can't end a later wait. What it has ``sent``
    arrives even while its process is suspended.
    """

    def __init__(self, process: Process, name: str, run: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.greenlet = greenlet(run)
        self.epoch = 0
        self.parked = False
        self.woken = False
        self.sent = False


class Scheduler:
    """``run`` goes on until its condition holds; ``close`` ends what is left without letting it
    do anything."""

    def __init__(self, rng: random.Random) -> None:
        self.now = 0.0
        self.closed = False
        self.failures: list[tuple[str, BaseException]] = []
        self.before_time_passes: Callable[[], None] = lambda: None
        self._rng = rng
        self._hub = getcurrent()
        self._ready: list[Task] = []
        # What is called back, or the task whose wait of that epoch is over.
        self._timers: list[tuple[float, int, Callable[[], None] | Task, int]] = []
        self._sequence = 0
        self._tasks: dict[Task, None] = {}  # those that have not ended, in their order
        self._running: Task | None = None
        self._steps = 0

    def spawn(self, process: Process, run: Callable[[], None], name: str) -> None:
        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001 - reported by the checker
                self.failures.append((name, error))
            finally:
                self._tasks.pop(task, None)

        task = Task(process, name, guarded)
        task.greenlet.parent = self._hub
        self._tasks[task] = None
        self._ready.append(task)

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call back from the scheduler itself; ``call`` must not wait."""
        self._sequence += 1
        heapq.heappush(self._timers, (time, self._sequence, call, 0))

    def sleep(self, seconds: float) -> None:
        self.wait(seconds if seconds > 0 else 0.0)

    def give_way(self) -> None:
        """Let any others go first, in no virtual time. Outside of tasks: nothing."""
        self._end_if_closed()
        if self._running is not None:
            self._ready.append(self._running)
            self._hub.switch()
            self._end_if_closed()

    def current(self) -> Task:
        assert self._running is not None
        return self._running

    def wait(self, timeout: float | None = None) -> bool:
        """Stand still until ``wake`` (True) or until the time is over (False)."""
        if self.closed:
            raise GreenletExit
        task = self.current()
        task.epoch += 1
        task.parked, task.woken = True, False
        if timeout is not None:
            self._sequence += 1
            timer = (self.now + timeout, self._sequence, task, task.epoch)
            heapq.heappush(self._timers, timer)
        self._hub.switch()
        if self.closed:
            raise GreenletExit
        return task.woken

    def wake(self, task: Task) -> None:
        self._go_on(task, task.epoch, woken=True)

    def kill(self, process: Process) -> None:
        """The process ends here and now: nothing of it runs again, no clean-up either."""
        if not process.alive:
            return
        process.alive = False
        for call in process.on_death:
            call()
        if self._running is not None and self._running.process is process:
            self._hub.switch()
            self._end_if_closed()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """What the task does in here goes on while its process is suspended."""
        task = self.current()
        task.sent = True
        try:
            yield
        finally:
            task.sent = False
            if task.process.resumes_at > self.now:
                self.give_way()

    def suspend(self, process: Process, seconds: float) -> None:
        """All tasks of the process stand still for that long, the calling one too."""
        process.resumes_at = self.now + seconds
        process.suspended_s += seconds
        self.give_way()

    def run(self, until: Callable[[], bool]) -> None:
        """Raises Stuck."""
        while not until():
            while self._timers and self._timers[0][0] <= self.now:
                _, _, due, epoch = heapq.heappop(self._timers)
                if isinstance(due, Task):
                    self._go_on(due, epoch, woken=False)
                else:
                    due()
            if self._ready:
                self._step()
            elif self._timers:
                self.before_time_passes()
                self.now = max(self.now, self._timers[0][0])
            else:
                raise Stuck("everybody waits for somebody else")

    def close(self) -> None:
        """End every task that is left; what it still tries to do is refused."""
        self.closed = True
        for task in list(self._tasks):
            if task.greenlet:
                self._running = task
                task.greenlet.throw(GreenletExit)
        self._running = None
        self._tasks.clear()

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise Stuck(f"{_STEPS_MAX} steps, and no end")
        index = int(self._rng.random() * len(self._ready))
        task, self._ready[index] = self._ready[index], self._ready[-1]
        self._ready.pop()
        process = task.process
        if not process.alive:
            return
        if process.resumes_at > self.now and not task.sent:
            self.at(process.resumes_at, lambda: self._ready.append(task))
            return
        self._running = task
        task.greenlet.switch()
        self._running = None

    def _go_on(self, task: Task, epoch: int, *, woken: bool) -> None:
        if task.parked and task.epoch == epoch:
            task.parked, task.woken = False, woken
            self._ready.append(task)

    def _end_if_closed(self) -> None:
        if self.closed:
            raise GreenletExit

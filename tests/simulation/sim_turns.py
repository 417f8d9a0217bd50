"""The workers of one simulated machine: ``gateway.commit.queue.Turns`` between them, and the
``Neighbours`` of ``gateway.commit.handover``."""

from __future__ import annotations

from gateway.commit.messages import PeerAnswer, answer_bytes, answer_of, request_bytes, request_of
from gateway.decide.request import Request
from gateway.service import GatewayService

from .scheduler import Process, Scheduler
from .sim_runtime import SimEvent


class Machine:
    """Whose turn it is, and who waits, by catalog. The dead hold nothing.

    ``workers`` have their numbers from 1 on.
    """

    def __init__(self) -> None:
        self.turns: dict[str, Process] = {}
        self.waiting: dict[str, Process] = {}
        self.workers: dict[Process, int] = {}
        self.gateways: dict[int, GatewayService] = {}


class SimTurns:
    """What one worker sees of the machine."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process

    def take(self, catalog: str) -> bool:
        if not self._held(self._machine.turns, catalog):
            return False
        self.give_up(catalog)
        return True

    def give_up(self, catalog: str) -> None:
        if self._machine.waiting.get(catalog) is self._process:
            del self._machine.waiting[catalog]

    def end(self, catalog: str) -> bool:
        if self._machine.turns.get(catalog) is self._process:
            del self._machine.turns[catalog]
        waits = self._machine.waiting.get(catalog)
        return waits is not None and waits.alive and waits is not self._process

    def _held(self, held: dict[str, Process], catalog: str) -> bool:
        """Whether this process holds it now; if not, it waits."""
        holder = held.get(catalog)
        if holder is None or not holder.alive or holder is self._process:
            held[catalog] = self._process
            return True
        waits = self._machine.waiting.get(catalog)
        if waits is None or not waits.alive:
            self._machine.waiting[catalog] = self._process
        return False


class SimNeighbours:
    """What one worker hands over runs in the other, and dies or stands still with it."""

    def __init__(self, machine: Machine, process: Process, scheduler: Scheduler) -> None:
        self._machine = machine
        self._process = process
        self._scheduler = scheduler

    @property
    def own(self) -> int:
        return self._machine.workers[self._process]

    def others(self) -> list[int]:
        workers = self._machine.workers.items()
        return [n for process, n in workers if process.alive and process is not self._process]

    def ask(self, worker: int, request: Request, until: float) -> PeerAnswer | None:
        """What would be sent is looked at, and what was to be sent is passed on: its names are
        ``Name``s."""
        sent = request_bytes(request)
        assert request_bytes(request_of(sent)) == sent
        other = next(each for each, number in self._machine.workers.items() if number == worker)
        if not other.alive:
            return None
        own, gateway = self.own, self._machine.gateways[worker]
        done = SimEvent(self._scheduler)
        handed: list[PeerAnswer] = []

        def commit() -> None:
            handed.append(gateway.commit_for(request, own))
            done.set()

        other.on_death.append(done.set)
        self._scheduler.spawn(other, commit, f"{other.name}/handed")
        done.wait(until - self._scheduler.now)
        if not handed:
            raise TimeoutError if other.alive else ConnectionResetError
        told = answer_bytes(handed[0])
        assert answer_bytes(answer_of(told)) == told
        return handed[0]

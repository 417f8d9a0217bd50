"""``gateway.commit.queue.Turns`` between simulated workers of one machine."""

from __future__ import annotations

from .scheduler import Process


class Machine:
    """Whose turn it is, and who waits, by catalog. The dead hold nothing."""

    def __init__(self) -> None:
        self.turns: dict[str, Process] = {}
        self.waiting: dict[str, Process] = {}


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

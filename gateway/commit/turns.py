"""How workers that write one catalog make room for each other: hints that save lost races.

Nothing relies on them: the conditional write decides in any case. Workers of one machine take
turns, for they can tell each other cheaply who is writing (``Turns``); a worker that waits too long
goes ahead without one. Workers of different machines pace themselves like senders on a shared line
(``Pacing``): a lost race lengthens the pause before the catalog's next batch by a little, a won one
shortens it, within a few milliseconds. While a worker pauses, more requests join its batch, so
pausing costs little and losing less. A catalog that only this process writes never pauses.
"""

from __future__ import annotations

from typing import Protocol

from gateway.store.contract import Moved


class Turns(Protocol):
    """All methods return at once."""

    def take(self, catalog: str) -> bool:
        """Whether it is this worker's turn now; where it isn't, it is remembered as waiting."""

    def give_up(self, catalog: str) -> None:
        """No longer wait for the turn."""

    def end(self, catalog: str) -> bool:
        """End a turn that was taken; whether another worker is waiting for it."""


class NoTurns:
    """For workers that can't see each other: it is always everybody's turn."""

    def take(self, catalog: str) -> bool:  # noqa: ARG002
        return True

    def give_up(self, catalog: str) -> None:  # noqa: ARG002
        return

    def end(self, catalog: str) -> bool:  # noqa: ARG002
        return False


_STEP_S = 0.001
_LONGEST_S = 0.008
_SHRINK = 0.7
_SHORTEST_S = 0.0003
_CATALOGS_MAX = 10_000
# For how long after another worker was seen on a catalog it is taken to be still there.
_CONTENDED_S = 0.5


class Pacing:
    """Pauses in seconds by catalog; guarded by the lock of the queue that owns it."""

    def __init__(self) -> None:
        self._pauses: dict[str, float] = {}
        self._contended_until: dict[str, float] = {}

    def met(self, catalog: str, now: float) -> None:
        """Another worker was seen to write the catalog, or to wait for its turn to."""
        if len(self._contended_until) >= _CATALOGS_MAX:
            self._contended_until.clear()
        self._contended_until[catalog] = now + _CONTENDED_S

    def ended(self, catalog: str, race: Moved, now: float) -> None:
        """A batch of the catalog has won or lost the race for the head."""
        if race is Moved.LOST:
            self.met(catalog, now)
        pause_s = self._pauses.pop(catalog, 0.0)
        if race is Moved.LOST:
            pause_s = min(pause_s + _STEP_S, _LONGEST_S)
        else:
            pause_s *= _SHRINK
        if pause_s >= _SHORTEST_S:
            if len(self._pauses) >= _CATALOGS_MAX:
                self._pauses.clear()  # only hints
            self._pauses[catalog] = pause_s

    def pause_s(self, catalog: str) -> float:
        return self._pauses.get(catalog, 0.0)

    def is_contended(self, catalog: str, now: float) -> bool:
        return self._contended_until.get(catalog, 0.0) > now

"""How long a worker waits for another's turn, and makes room after its own.

A turn is a worker's right to write a catalog: see ``gateway.commit.queue``.
"""

from __future__ import annotations

from typing import Protocol

# The queue looks again for another's turn when it
# has probably ended, and then often. After its own turn it yields, longer after a long one.
_TURN_FIRST_LOOK = 0.6
_TURN_NEXT_LOOK = 0.15
_TURN_LOOK_S = 0.0006
_TURN_LOOK_LONGEST_S = 0.01
_TURN_YIELD = 0.3
_TURN_YIELD_S = 0.0015
_TURN_YIELD_LONGEST_S = 0.02
_TURN_MEMORY = 0.8
# After its patience a lane goes ahead without a turn. Patience is several times the recent waits,
# for a batch of large documents takes long on a busy machine, and going ahead early costs both
# workers their work. Each loss doubles it. Until the catalog's turn has been free once more, nobody
# waits for it: a worker that is stopped during its turn delays the others only once.
_TURN_PATIENCE = 4
_TURN_PATIENCE_SHORTEST_S = 0.3
_TURN_PATIENCE_LONGEST_S = 2.0


class Turns(Protocol):
    """A catalog's turn goes round the workers that see each other. No method waits."""

    def take(self, catalog: str) -> bool:
        """Whether it is this worker's turn now; where it isn't, it is remembered as waiting."""

    def give_up(self, catalog: str) -> None:
        """No longer wait for the turn."""

    def end(self, catalog: str) -> bool:
        """End a turn that was taken; whether another worker is waiting for it."""


def yield_s(turn_s: float) -> float:
    """The pause after a turn of ``turn_s``, for another worker that waits for its own."""
    return min(max(_TURN_YIELD_S, _TURN_YIELD * turn_s), _TURN_YIELD_LONGEST_S)


class TurnWaits:
    """The recent waits for turns of others, by a moving average. Not thread-safe."""

    def __init__(self) -> None:
        self._average_s = 0.0

    def add(self, waited_s: float) -> None:
        """A suspended worker counts its sleep as wait."""
        waited_s = min(waited_s, _TURN_PATIENCE_LONGEST_S)
        self._average_s += (1 - _TURN_MEMORY) * (waited_s - self._average_s)

    def add_loss(self) -> None:
        """Somebody has waited for all of ``patience_s`` in vain."""
        self._average_s = 2 * self.patience_s / _TURN_PATIENCE

    @property
    def patience_s(self) -> float:
        """For how long a turn is waited for."""
        patience_s = _TURN_PATIENCE * self._average_s
        return min(max(patience_s, _TURN_PATIENCE_SHORTEST_S), _TURN_PATIENCE_LONGEST_S)

    @property
    def first_look_s(self) -> float:
        """Until the first look at whether a turn has ended."""
        return self._look_s(_TURN_FIRST_LOOK)

    @property
    def next_look_s(self) -> float:
        return self._look_s(_TURN_NEXT_LOOK)

    def _look_s(self, share: float) -> float:
        return min(max(_TURN_LOOK_S, share * self._average_s), _TURN_LOOK_LONGEST_S)

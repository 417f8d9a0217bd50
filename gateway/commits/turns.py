"""Taking turns on a catalog: a hint that saves lost races, never a lock that anything relies on.

Workers of one machine can tell each other cheaply who is writing a catalog. Whoever has to wait
too long goes ahead without a turn; the conditional write decides in any case.
"""

from __future__ import annotations

from typing import Protocol


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

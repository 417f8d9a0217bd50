"""Keeping what is read from being compacted while it is read."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .catalog_reads import CatalogReads

# A pin is renewed when a third of it has passed, so that two renewals may fail.
_RENEWALS = 3


@dataclass(frozen=True, slots=True)
class Hold:
    """The pin of a read, shared by its tasks; ``seconds`` after the last renewal it expires.

    Spark tells a batch reader neither that its tasks are done nor that the query is over, so
    nobody takes the pin back. ``seconds`` 0: nothing is held.
    """

    revision: int
    seconds: int
    pin: str | None

    @classmethod
    def take(cls, reads: CatalogReads, revision: int, seconds: int) -> Hold:
        """Compacted where it is too late; ReadFailed where the catalog takes no more pins."""
        pin = reads.pin(revision, seconds, _note(seconds)) if seconds else None
        return cls(revision, seconds, pin)

    def keeper(self, reads: CatalogReads) -> Keeper:
        return Keeper(self, reads)


class Keeper:
    """Renews a hold for one task; to be called between two requests."""

    def __init__(self, hold: Hold, reads: CatalogReads) -> None:
        self._hold = hold
        self._reads = reads
        self._pin = hold.pin
        self._due_at = time.monotonic()  # at once: the task may have waited for long

    def keep(self) -> None:
        """Where the pin has expired, another is taken: Compacted if it is too late for that."""
        hold = self._hold
        if self._pin is None or time.monotonic() < self._due_at:
            return
        if not self._reads.renew(self._pin, hold.seconds):
            self._pin = self._reads.pin(hold.revision, hold.seconds, _note(hold.seconds))
        self._due_at = time.monotonic() + hold.seconds / _RENEWALS


def _note(seconds: int) -> str:
    """Reads at one revision share a pin if they hold for as long: a renewal never shortens it."""
    return f"spark, {seconds} s at a time"

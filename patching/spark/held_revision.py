"""A revision that is kept from being compacted for as long as it is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from patching.client import Pin
from patching.spark.catalog_reads import CatalogReads, catalog_reads
from patching.spark.options import Options

# Short, for it is renewed: what a driver that died leaves behind is soon over.
_SECONDS_MAX: Final = 600


@contextmanager
def held_revision(options: Options, note: str) -> Iterator[int]:
    """The head of the catalog, pinned under ``note`` until the block is left.

    0 where the catalog was never written: there is nothing to hold. With the option pinSeconds=0
    nothing is held either. Raises ReadFailed, RequestError. If the pin is lost, reads may raise
    Compacted.
    """
    seconds = min(options.pin_seconds, _SECONDS_MAX)
    with catalog_reads(options) as reads:
        head = reads.head_if_any()
        if not (head and seconds):
            yield head
            return
        pin = reads.pin(None, seconds, note)
        with reads.told("its head"):
            pin.take()
        with pin:
            yield pin.revision


@dataclass(frozen=True, slots=True)
class Hold:
    """The pin of a read, shared by its tasks; ``seconds`` after the last renewal it expires.

    Spark tells a batch reader neither that its tasks are done nor that the query is over, so
    nobody takes the pin back. ``seconds`` 0: nothing is held.
    """

    revision: int
    seconds: int
    pin_id: str | None = None

    @classmethod
    def take(cls, reads: CatalogReads, revision: int, seconds: int) -> Hold:
        """Compacted where it is too late; ReadFailed where the catalog takes no more pins."""
        if not seconds:
            return cls(revision, 0)
        pin = cls(revision, seconds)._pin(reads)
        with reads.told(f"revision {revision}"):
            pin.take()
        return cls(revision, seconds, pin.id)

    def keeper(self, reads: CatalogReads) -> Callable[[], None]:
        """For a task to call between two requests, the first time at once: it may have waited for
        long. Compacted where the pin has expired and it is too late for another."""
        if self.pin_id is None:
            return lambda: None
        pin = self._pin(reads)

        def keep() -> None:
            with reads.told(f"revision {self.revision}"):
                pin.keep()

        return keep

    def _pin(self, reads: CatalogReads) -> Pin:
        # Reads at one revision share a pin if they hold for as long: a renewal never shortens it.
        note = f"spark, {self.seconds} s at a time"
        return reads.pin(self.revision, self.seconds, note, shared=True, held=self.pin_id)

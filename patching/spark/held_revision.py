"""A revision that is kept from being compacted for as long as it is worked on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from patching.client import Pin
from patching.client.results import PinState
from patching.spark.catalog_reads import CatalogReads, catalog_reads
from patching.spark.options import Options

# Short, for it is renewed: what a driver that died leaves behind is soon over.
_SECONDS_MAX: Final = 600
_PERIODS: Final = 20


@contextmanager
def held_revision(options: Options, note: str, revision: int | None = None) -> Iterator[int]:
    """The revision, by default the head of the catalog, pinned under ``note`` until the block is
    left.

    0 where the catalog was never written: there is nothing to hold. With the option pinSeconds=0
    nothing is held either. Raises ReadFailed, RequestError, and Compacted where it is too late. If
    the pin is lost, reads may raise Compacted.
    """
    with catalog_reads(options) as reads:
        head = reads.head_if_any() if revision is None else revision
        if not (head and options.pin_seconds):
            yield head
            return
        with _pinned(reads, revision, options.pin_seconds, note) as pin:
            yield pin.revision


@contextmanager
def held_history(options: Options, note: str, after: int) -> Iterator[None]:
    """What is retained of the commits above ``after``, pinned under ``note`` until the block is
    left; raises what ``held_revision`` raises."""
    with catalog_reads(options) as reads:
        oldest = min(max(after, reads.floor()), reads.head())
        if not options.pin_seconds:
            yield
            return
        with _pinned(reads, oldest, options.pin_seconds, note):
            yield


@contextmanager
def _pinned(reads: CatalogReads, revision: int | None, seconds: int, note: str) -> Iterator[Pin]:
    pin = reads.pin(revision, min(seconds, _SECONDS_MAX), note)
    with reads.told("its head" if revision is None else f"revision {revision}"):
        pin.take()
    with pin:
        yield pin


@dataclass(frozen=True, slots=True)
class Hold:
    """The pin of a read, shared by its tasks; ``seconds`` after the last renewal it expires.

    Spark tells a batch reader neither that its tasks are done nor that the query is over, so
    nobody takes the pin back. ``seconds`` 0: nothing is held.

    The reads of a ``period``, a twentieth of ``seconds``, share a pin: that of the first of them,
    unless another reads an earlier revision. So however many reads there are of ever newer
    revisions, some twenty pins are there at a time, and history is held for little longer than if
    each had its own.
    """

    revision: int
    seconds: int
    pin_id: str | None = None
    period: int = 0

    @classmethod
    def take(cls, reads: CatalogReads, revision: int, seconds: int) -> Hold:
        """Compacted where it is too late; ReadFailed where the catalog takes no more pins."""
        if not seconds:
            return cls(revision, 0)
        period = int(time.time() * _PERIODS) // seconds
        pin = cls(revision, seconds, period=period)._pin(reads)
        with reads.told(f"revision {revision}"):
            pin.take()
        return cls(revision, seconds, pin.id, period)

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
        # Who shares a pin holds it for as long: a renewal never shortens it.
        kind = f"spark, {self.seconds} s at a time, "
        note = f"{kind}period {self.period}"

        def shared(held: PinState) -> bool:
            if held.revision == self.revision:
                return held.note.startswith(kind)
            return held.revision < self.revision and held.note == note

        given = {"shared": shared, "held": self.pin_id}
        return reads.pin(self.revision, self.seconds, note, **given)

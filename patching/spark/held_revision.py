"""A revision that is kept from being compacted for as long as somebody works on it.

Keeping what is read from being compacted while it is read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from patching.client import NotFound, RequestError
from patching.client.transport import segment
from patching.spark.catalog_reads import CatalogReads, Compacted, ReadFailed, patiently
from patching.spark.options import Options

_log = logging.getLogger(__name__)

# Of a pin's time, how much may pass before it is renewed.
_SHARE: Final = 3
_TRIES: Final = 5
_SECONDS_MAX: Final = 600
# Above every revision that there is: such a page of commits is empty and tells the head.
_BEYOND: Final = 2**63 - 1


@contextmanager
def held_revision(options: Options, note: str) -> Iterator[int]:
    """The head of the catalog, pinned under ``note`` and renewed by a thread until this is left;
    then it is released, whatever happened.

    0 where the catalog was never written: there is nothing to hold. With the option pinSeconds=0
    nothing is held either. ReadFailed, RequestError.
    A renewal that fails is tried again; if the pin expires, whoever reads is told by Compacted.
    """
    with options.open_transport() as transport:
        reads = CatalogReads(transport, options)
        # Short, for it is renewed: what a driver that died leaves behind is soon over.
        seconds = min(options.pin_seconds, _SECONDS_MAX)
        pinned = _pin_head(reads, seconds, note) if seconds else None
        if pinned is None:
            yield _head(reads)
            return
        revision, pin = pinned
        stop = threading.Event()
        renewing = threading.Thread(
            target=_renew,
            args=(reads, pin, seconds, stop),
            name="renew-pin",
            daemon=True,
        )
        renewing.start()
        try:
            yield revision
        finally:
            stop.set()
            renewing.join()
            path = f"/v1/catalogs/{segment(reads.catalog)}/pins/{segment(pin)}"
            # What can't be released expires.
            with suppress(NotFound, RequestError, ReadFailed):
                patiently(lambda: transport.request("DELETE", path), options)


def _head(reads: CatalogReads) -> int:
    _, head = reads.commits(_BEYOND, 1)
    return head


def _pin_head(reads: CatalogReads, seconds: int, note: str) -> tuple[int, str] | None:
    """The revision and the pin's id; None where the catalog was never written."""
    for left in reversed(range(_TRIES)):
        head = _head(reads)
        if head == 0:
            return None
        try:
            return head, reads.pin(head, seconds, note)
        except Compacted:  # others wrote on, and the history was cut, since it was asked
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _renew(reads: CatalogReads, pin: str, seconds: int, stop: threading.Event) -> None:
    while not stop.wait(seconds / _SHARE):
        try:
            if not reads.renew(pin, seconds):
                _log.warning("pin %s of catalog %r has expired", pin, reads.catalog)
                return
        except (RequestError, ReadFailed) as error:
            _log.warning("pin %s of catalog %r isn't renewed yet: %s", pin, reads.catalog, error)


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

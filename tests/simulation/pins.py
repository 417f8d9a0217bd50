"""Whether pins hold what they say, and compactions do what they were told to have done."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.errors import (
    AboveLimit,
    CatalogNotFound,
    CommitError,
    PinHolds,
    PinNotFound,
    RevisionCompacted,
    RevisionNotFound,
    SnapshotExists,
)
from gateway.model import PinRecord

from .ledger import Ledger, Violation
from .recorder import Call


def check_pins(ledger: Ledger) -> Iterator[Violation]:
    """No floor is raised above a pin that hasn't expired, by a clock that may be wrong."""
    pins: dict[str, PinRecord] = {}
    floor = 0
    for kept in ledger.kept:
        if kept.what == "pin":
            pins[kept.about.id] = kept.about
            if kept.about.revision < floor:
                yield Violation("pin", f"{kept.about} is below the floor {floor}")
        elif kept.what == "unpin":
            pins.pop(kept.about, None)
        elif kept.what == "floor":
            floor = kept.about
            for pin in pins.values():
                if pin.revision < floor and pin.expires_us > kept.at_us + ledger.skew_us:
                    yield Violation("pin", f"the floor was raised to {floor}, in spite of {pin}")


def check_pin(ledger: Ledger, call: Call, error: CommitError | None) -> Iterator[Violation]:
    """Who is told of a pin has it: it was set within the call."""
    asked = call.ask.revision
    if isinstance(error, RevisionCompacted):
        floors = ledger.floors(call.called, call.answered)
        if asked is None or error.floor not in floors or asked >= error.floor:
            yield Violation("pin", f"{error} against {floors}")
    elif isinstance(error, RevisionNotFound):
        if asked is None or asked <= ledger.current(call.called, call.answered)[0]:
            yield Violation("pin", f"{asked} was there")
    elif isinstance(error, CatalogNotFound):
        if 0 not in ledger.current(call.called, call.answered):
            yield Violation("pin", "the catalog was there")
    elif isinstance(error, PinNotFound | AboveLimit):
        pass  # by whose clock is of no interest
    elif call.pin is not None and call.pin not in _set(ledger, call):
        yield Violation("pin", f"{call.pin} was never set")


def _set(ledger: Ledger, call: Call) -> list[PinRecord]:
    assert call.answered is not None
    return [
        kept.about
        for kept in ledger.kept
        if kept.what == "pin" and call.called < kept.tick < call.answered
    ]


def check_compaction(ledger: Ledger, call: Call, error: CommitError | None) -> Iterator[Violation]:
    floors = ledger.floors(call.called, call.answered)
    current = ledger.current(call.called, call.answered)
    asked = call.ask.revision or 0
    if isinstance(error, SnapshotExists):
        if error.floor not in floors or asked > error.floor:
            yield Violation("pin", f"{error} against {floors}")
    elif isinstance(error, PinHolds):
        if asked <= error.pinned or not _was_pinned(ledger, call, error.pinned):
            yield Violation("pin", f"{error}, but there was no such pin")
    elif isinstance(error, CatalogNotFound):
        if 0 not in current:
            yield Violation("pin", "the catalog was there")
    elif isinstance(error, RevisionNotFound):
        if asked <= current[0]:
            yield Violation("pin", f"{asked} was there")
    elif call.compacted is None or asked not in floors[1:]:
        yield Violation("pin", f"compacted to {asked}, the floors were {floors}: {error!r}")


def _was_pinned(ledger: Ledger, call: Call, revision: int) -> bool:
    """At some time before the answer; whether it had expired by then depends on clocks."""
    assert call.answered is not None
    return any(
        kept.what == "pin" and kept.about.revision == revision and kept.tick < call.answered
        for kept in ledger.kept
    )

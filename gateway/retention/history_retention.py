"""Pins, which keep history, and compaction on demand, which ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.errors import (
    AboveLimit,
    CatalogNotFound,
    OfAnother,
    PinNotFound,
    RevisionCompacted,
    RevisionNotFound,
    StoreUnavailable,
)
from gateway.limits import RetentionLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import PinRecord, Retention
from gateway.retention.compaction import CatalogCompaction, CompactionResult, Compactor, SettingsOf
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.history_sweep import Sweeper
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable, as_unknown

_TRIES = 20
# How long expired pins are kept: a renewal may be under way, by a clock that is a bit behind.
_EXPIRED_KEPT_US = 60_000_000


class HistoryRetention:
    """Pins and compacts history. Every method raises StoreUnavailable, and CatalogNotFound if the
    catalog never had a commit.

    The history of a deleted catalog can be pinned and compacted like any other.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: RetentionLimits,
        settings_of: SettingsOf,
        meters: Meters = NO_METERS,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._limits = limits
        self._pause_s = limits.pause_ms / 1000
        self._compaction = CatalogCompaction(
            store,
            settler,
            runtime,
            limits,
            Sweeper(store, runtime.monotonic, grace_s=limits.sweep_grace_s),
            meters,
        )
        self.compactor = Compactor(
            store,
            runtime,
            self._compaction,
            limits,
            settings_of,
            meters,
        )

    def pin(
        self, catalog: str, revision: int | None, seconds: int, owner: str, note: str = ""
    ) -> PinRecord:
        """Hold ``revision`` (None: the present head) for ``seconds``, by a pin of the principal
        ``owner``.

        Raises RevisionNotFound above the head, RevisionCompacted below the floor, and AboveLimit.
        """
        self._refuse_long(seconds)
        with as_unavailable():
            bounds = self._bounds(catalog)
            self._refuse_more(catalog, owner, bounds)
            pin_id = self._runtime.new_id()
            for _ in range(_TRIES):
                at = bounds.revision if revision is None else revision
                pin = PinRecord(pin_id, at, self._expires_us(seconds), owner, note)
                with as_unknown():
                    is_set = self._store.set_pin(catalog, pin)
                if is_set:
                    with as_unknown(is_done=True):
                        self._refuse_made(catalog, owner, pin_id)
                    return pin
                bounds = self._bounds(catalog)
                if revision is not None:
                    _refuse_revision(revision, bounds)
        raise StoreUnavailable("the catalog's history is compacted too fast to be pinned")

    def renew(self, catalog: str, pin_id: str, seconds: int, by: str) -> PinRecord:
        """Let the pin end ``seconds`` from now. Raises PinNotFound, AboveLimit, and OfAnother
        unless it belongs to the principal ``by``."""
        self._refuse_long(seconds)
        with as_unavailable():
            for _ in range(_TRIES):
                held = self._live(catalog, pin_id)
                if held.owner != by:
                    raise _of_another(held, by)
                pin = replace(held, expires_us=self._expires_us(seconds))
                with as_unknown():
                    is_set = self._store.set_pin(catalog, pin, held)
                if is_set:
                    return pin
        raise StoreUnavailable("others are renewing the pin")

    def unpin(self, catalog: str, pin_id: str, by: str, *, anyones: bool = False) -> None:
        """Remove a pin. Raises PinNotFound, and OfAnother unless it belongs to the principal
        ``by``; with ``anyones``, it may belong to anybody."""
        with as_unavailable():
            held = self._live(catalog, pin_id)
            if held.owner != by and not anyones:
                raise _of_another(held, by)
            with as_unknown():
                is_dropped = self._store.drop_pin(catalog, pin_id)
            if not is_dropped:
                raise PinNotFound(pin_id)

    def pins(self, catalog: str) -> Sequence[PinRecord]:
        """The pins that haven't expired, by revision, including those of running exports."""
        with as_unavailable():
            bounds = self._bounds(catalog)
        now_us = self._runtime.now_us()
        live = [pin for pin in bounds.pins if pin.expires_us > now_us]
        return sorted(live, key=lambda pin: (pin.revision, pin.id))

    def read_pin(self, catalog: str, pin_id: str) -> PinRecord:
        """The pin, unless it has expired. Raises PinNotFound."""
        with as_unavailable():
            return self._live(catalog, pin_id)

    def compact(self, catalog: str, revision: int) -> CompactionResult:
        """Make ``revision`` the oldest one that can be read. Raises what
        ``CatalogCompaction.compact`` raises."""
        with as_unavailable():
            return self._compaction.compact(
                catalog, revision, lambda: self._runtime.sleep(self._pause_s)
            )

    def refuse_more_pins(
        self, catalog: str, owner: str, pin_id: str, make: Callable[[], None]
    ) -> None:
        """Have ``make`` set the pin. Raises AboveLimit if it is new, and ``owner`` may not have
        another pin in the catalog."""
        with as_unavailable():
            bounds = self._bounds(catalog)
            is_new = all(pin.id != pin_id for pin in bounds.pins)
            if is_new:
                self._refuse_more(catalog, owner, bounds)
            make()
            if is_new:
                self._refuse_made(catalog, owner, pin_id)

    def _refuse_made(self, catalog: str, owner: str, pin_id: str) -> None:
        """Drop the pin and raise AboveLimit if, with pins that others made at the same time, there
        are too many."""
        bounds = self._bounds(catalog)
        others = tuple(each for each in bounds.pins if each.id != pin_id)
        try:
            self._refuse_more(catalog, owner, replace(bounds, pins=others))
        except AboveLimit:
            self._store.drop_pin(catalog, pin_id)
            raise

    def _bounds(self, catalog: str) -> Retention:
        bounds = self._store.retention(catalog)
        if bounds is None:
            raise CatalogNotFound(catalog, 0)
        return bounds

    def _live(self, catalog: str, pin_id: str) -> PinRecord:
        now_us = self._runtime.now_us()
        for pin in self._bounds(catalog).pins:
            if pin.id == pin_id and pin.expires_us > now_us:
                return pin
        raise PinNotFound(pin_id)

    def _expires_us(self, seconds: int) -> int:
        return self._runtime.now_us() + seconds * 1_000_000

    def _refuse_long(self, seconds: int) -> None:
        if seconds > self._limits.pin_seconds_max:
            raise AboveLimit(
                f"a pin can last at most {self._limits.pin_seconds_max} seconds, not {seconds}",
                limit="pin_seconds_max",
                maximum=self._limits.pin_seconds_max,
                actual=seconds,
            )

    def _refuse_more(self, catalog: str, owner: str, bounds: Retention) -> None:
        """Raise AboveLimit if there may be no further pin. Drops pins that ended long ago."""
        over_us = self._runtime.now_us() - _EXPIRED_KEPT_US
        kept = [pin for pin in bounds.pins if pin.expires_us > over_us]
        cleared_us = min(over_us, self._compaction.pinned_us())
        for pin in bounds.pins:
            if pin.expires_us <= cleared_us:
                self._store.drop_pin(catalog, pin.id)
        owned = sum(pin.owner == owner for pin in kept)
        limits = self._limits
        for whose, count, limit, maximum in (
            (repr(owner), owned, "pins_per_principal_max", limits.pins_per_principal_max),
            ("the catalog", len(kept), "pins_max", limits.pins_max),
        ):
            if count >= maximum:
                raise AboveLimit(
                    f"{whose} has {count} pins in {catalog!r}; the limit is {maximum}",
                    limit=limit,
                    maximum=maximum,
                    actual=count + 1,
                )


def _refuse_revision(revision: int, bounds: Retention) -> None:
    if revision > bounds.revision:
        raise RevisionNotFound(
            f"revision {revision} doesn't exist; the head is {bounds.revision}", bounds.revision
        )
    if revision < bounds.floor:
        raise RevisionCompacted(revision, bounds.floor)


def _of_another(pin: PinRecord, by: str) -> OfAnother:
    return OfAnother(f"pin {pin.id!r} belongs to {pin.owner or 'the service'!r}, not to {by!r}")

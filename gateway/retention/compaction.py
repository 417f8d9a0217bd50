"""Compaction: the oldest readable revision moves up, and what nobody can read any more goes.

1. The floor is raised, by one conditional update that is decided against the pins: from then on
   readers below it are told so, and a pin below it is refused. All or nothing: a floor that a pin
   holds isn't raised at all. Only a revision that is written out becomes a floor.
2. The history up to it is swept, window by window (``Sweeper``). No further floor is set before.
3. Tombstones at or below the floor are purged once they are old, since a worker that slept may
   still write an older state of a deleted document out (``late``). Replies that are old go too.

Each step can be broken off and repeated. The next compaction, in any worker, first finishes the
one before it.

A reader that compaction overtakes may find things gone: so readers look at the floor last, and
answer only if it hasn't passed what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.errors import (
    CatalogNotFound,
    PinHolds,
    RevisionNotFound,
    SnapshotExists,
    StoreUnavailable,
)
from gateway.limits import RetentionLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import Pin
from gateway.runtime import Runtime
from gateway.state.heads import Settler, Standing
from gateway.state.sweep import Sweeper
from gateway.store.contract import Store

_TRIES = 20
_TOMBSTONES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction; ``swept`` counts the commits changed or deleted."""

    floor: int
    head_revision: int
    swept: int
    tombstones: int


class Compaction:
    """Every method raises Unreachable, and what the ``rest`` raises that it is given.

    ``rest`` is called between two pieces of work, so that writers get their turn.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: RetentionLimits,
        sweeper: Sweeper,
        meters: Meters = NO_METERS,
    ) -> None:
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._limits = limits
        self._sweeper = sweeper
        self._meters = meters

    def compact(self, catalog: str, revision: int, rest: Callable[[], None]) -> Compacted:
        """Make ``revision`` the oldest one that can be read.

        Raises CatalogNotFound, RevisionNotFound above the head, SnapshotExists where the floor is
        there already, and PinHolds.
        """
        standing = self._settler.settle(catalog)
        if standing.revision == 0:
            raise CatalogNotFound(catalog, 0)
        if revision > standing.revision:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {standing.revision}",
                standing.revision,
            )
        self._raise_floor(catalog, revision)
        swept = self.finish(catalog, rest)
        return Compacted(revision, standing.revision, swept, self.tidy(catalog, rest))

    def compact_as_wanted(
        self, catalog: str, wanted: Callable[[Standing], int], rest: Callable[[], None]
    ) -> Compacted | None:
        """Compact to what ``wanted`` says of the catalog at the standing that it is given.

        ``wanted`` reads what it needs of the catalog, its settings among it, at that revision or
        later; the floor rises only while the head still is there. So nothing that was acknowledged
        before is passed over. None where the floor is as high already. Raises StoreUnavailable
        where the catalog moves on all the time.
        """
        swept = self.finish(catalog, rest)
        for _ in range(_TRIES):
            standing = self._settler.settle(catalog)
            revision = wanted(standing)
            if revision <= standing.floor:
                return None
            now_us = self._runtime.now_us()
            if self._store.raise_floor(catalog, revision, now_us, standing.revision):
                self._sweeper.step("raise_floor")
                swept += self.finish(catalog, rest)
                return Compacted(revision, standing.revision, swept, self.tidy(catalog, rest))
        raise StoreUnavailable("the catalog moves on all the time, or others compact it")

    def finish(self, catalog: str, rest: Callable[[], None]) -> int:
        """Sweep what a raised floor has left to be swept; how many commits that were."""
        swept = self._sweeper.finish(catalog, self._replies_since_us(), rest)
        if swept:
            self._meters.commits_swept(swept)
        return swept

    def tidy(self, catalog: str, rest: Callable[[], None]) -> int:
        """Drop tombstones and replies that are old; how many tombstones that were."""
        bounds = self._store.retention(catalog)
        if bounds is None or bounds.swept == 0:
            return 0
        # Up to what was swept: until then the history may need what they stand for.
        before_us = self._runtime.now_us() - self._limits.tombstone_grace_s * 1_000_000
        purged = 0
        while True:
            count = self._store.purge_tombstones(
                catalog, bounds.swept, before_us, _TOMBSTONES_AT_ONCE
            )
            purged += count
            self._sweeper.step("purge_tombstones")
            if count < _TOMBSTONES_AT_ONCE:
                break
            rest()
        self._store.drop_replies(catalog, bounds.swept, self._replies_since_us())
        self._sweeper.step("drop_replies")
        return purged

    def _raise_floor(self, catalog: str, revision: int) -> None:
        """Raise the floor, or find out why not."""
        for _ in range(_TRIES):
            now_us = self._runtime.now_us()
            bounds = self._store.retention(catalog)
            if bounds is None:
                raise CatalogNotFound(catalog, 0)
            if revision <= bounds.floor:
                raise SnapshotExists(revision, bounds.floor)
            held = lowest_pin(bounds.pins, now_us)
            if held is not None and held < revision:
                raise PinHolds(revision, held)
            if self._store.raise_floor(catalog, revision, now_us):
                self._sweeper.step("raise_floor")
                return
        raise StoreUnavailable("others compact the catalog at the same time")

    def _replies_since_us(self) -> int:
        return self._runtime.now_us() - self._limits.idempotency_s * 1_000_000


def lowest_pin(pins: Sequence[Pin], now_us: int) -> int | None:
    """The lowest revision that a pin holds; one that expired holds nothing."""
    return min((pin.revision for pin in pins if pin.expires_us > now_us), default=None)

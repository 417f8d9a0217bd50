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

Head and floor can also *advance* together, over revisions that nobody may use: a database that was
put back to an earlier state would give the revisions of lost commits to new ones. Below the floor,
whatever clients remember of the lost ones is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gateway.decide.settings import CatalogSettings
from gateway.errors import (
    CatalogNotFound,
    CommitError,
    PinHolds,
    RevisionNotFound,
    SettingsInvalid,
    SnapshotExists,
    StoreUnavailable,
)
from gateway.limits import RetentionLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import (
    SETTINGS_KEY,
    Claim,
    CommitRecord,
    DocumentRecord,
    Head,
    PinRecord,
)
from gateway.runtime import Runtime
from gateway.state.heads import Settler, Standing
from gateway.state.history_sweep import Sweeper
from gateway.state.replay import stored_documents
from gateway.store.contract import ForeignRecord, Store, StoreUnreachable
from gateway.store.unreachable import as_unknown

_TRIES = 20
# Beyond so many lost races, writers have to wait: else a catalog that always moves on would keep
# its history for ever.
_TRIES_UNCLAIMED = 3
_TOMBSTONES_AT_ONCE = 1_000
# How long others wait for an advance, or a compaction, that has lost races.
_HOLD_MS = 1_000
# What JavaScript still counts exactly.
_REVISION_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction; ``swept`` counts the commits changed or deleted."""

    floor: int
    head_revision: int
    swept: int
    tombstones: int


class CatalogCompaction:
    """Every method raises StoreUnreachable, ``compact`` UnknownOutcome once it may have changed
    something, and all what the ``rest`` raises that they are given.

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

    def compact(self, catalog: str, revision: int, rest: Callable[[], None]) -> CompactionResult:
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
        with as_unknown(is_done=True):
            swept = self.finish(catalog, rest)
            return CompactionResult(revision, standing.revision, swept, self.tidy(catalog, rest))

    def compact_as_wanted(
        self, catalog: str, wanted: Callable[[Standing], int], rest: Callable[[], None]
    ) -> CompactionResult | None:
        """Compact to what ``wanted`` says of the catalog at the standing that it is given.

        ``wanted`` reads what it needs of the catalog, its settings among it, at that revision or
        later; the floor rises only while the head still is there. So nothing that was acknowledged
        before is passed over. Writers that move it on all the time are told to wait for a moment.
        None where the floor is as high already. Raises StoreUnavailable where others raise it at
        the same time.
        """
        swept = self.finish(catalog, rest)
        by_claim = self._runtime.new_id()
        try:
            raised = self._raise_as_wanted(catalog, wanted, by_claim)
        finally:
            self._store.drop_claims([catalog], by_claim)
        if raised is None:
            return None
        self._sweeper.step("raise_floor")
        swept += self.finish(catalog, rest)
        floor, head_revision = raised
        return CompactionResult(floor, head_revision, swept, self.tidy(catalog, rest))

    def _raise_as_wanted(
        self, catalog: str, wanted: Callable[[Standing], int], by_claim: str
    ) -> tuple[int, int] | None:
        """The new floor, and the revision of the head."""
        for tried in range(_TRIES):
            if tried >= _TRIES_UNCLAIMED:
                self._store.claim([catalog], Claim(by_claim, _HOLD_MS))
            standing = self._settler.settle(catalog)
            revision = wanted(standing)
            if revision <= standing.floor:
                return None
            if self._store.raise_floor(catalog, revision, self.pinned_us(), standing.revision):
                return revision, standing.revision
        raise StoreUnavailable("the catalog changes all the time, or others compact it")

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
            with as_unknown():
                is_raised = self._store.raise_floor(catalog, revision, now_us)
            if is_raised:
                self._sweeper.step("raise_floor")
                return
        raise StoreUnavailable("others compact the catalog at the same time")

    def pinned_us(self) -> int:
        """A pin that ended by then holds nothing in the background. Not until now: the clock of the
        gateway that made it may be behind this one."""
        return self._runtime.now_us() - int(self._limits.sweep_grace_s * 1_000_000)

    def _replies_since_us(self) -> int:
        return self._runtime.now_us() - self._limits.idempotency_s * 1_000_000


def lowest_pin(pins: Sequence[PinRecord], now_us: int) -> int | None:
    """The lowest revision that a pin holds; one that expired holds nothing."""
    return min((pin.revision for pin in pins if pin.expires_us > now_us), default=None)


def advance(
    store: Store, settler: Settler, runtime: Runtime, catalog: str, by: int
) -> tuple[int, int] | None:
    """Move head and floor together, by ``by`` revisions. Returns the revision before and after.

    At the new head is an empty commit, and all pins end. None if the catalog never had a commit.
    Raises RevisionNotFound if there are no revisions so high, ForeignRecord if the log has commits
    above the head (they would become history), StoreUnreachable, and StoreUnavailable if others
    moved the head in between at every try. After the first lost try, a claim has the others wait.
    """
    by_claim = runtime.new_id()
    try:
        for tried in range(_TRIES):
            if tried:
                store.claim([catalog], Claim(by_claim, _HOLD_MS))
            head = store.heads([catalog]).get(catalog)
            if head is None or head.revision == 0:
                return None
            revision = _advanced(store, settler, runtime, head, by)
            if revision is not None:
                return head.revision, revision
    finally:
        store.drop_claims([catalog], by_claim)
    raise StoreUnavailable("the catalog changes all the time")


def _advanced(store: Store, settler: Settler, runtime: Runtime, head: Head, by: int) -> int | None:
    """The new revision; None if others moved the head."""
    catalog, revision = head.catalog, head.revision + by
    if revision > _REVISION_MAX:
        raise RevisionNotFound(f"a revision is at most {_REVISION_MAX}", head.revision)
    settler.settle(catalog)
    above = store.list_commits(catalog, head.revision, _REVISION_MAX, 1, None, 1)
    if above and store.heads([catalog])[catalog].place == head.place:
        detail = f"the log has commit {above[0].revision}, but the head is at {head.revision}"
        raise ForeignRecord(catalog, None, detail)
    commit = CommitRecord(
        catalog=catalog,
        revision=revision,
        time_us=max(runtime.now_us(), head.time_us + 1),
        id=runtime.new_id(),
        author="gateway advance",
        message="passes over the revisions of a lost history",
        idempotency=None,
        attempts=1,
        changes=(),
        deletes_catalog=head.deleted,
        parent=head.last,
    )
    return revision if store.advance_head(head.place, commit) else None


_log = logging.getLogger(__name__)

_LEASE = "compactor"
_LEASE_S_MIN = 60.0
_HEADS_AT_ONCE = 200
# The first round comes soon, so that a process that is restarted often compacts at all.
_FIRST_ROUND_S_MAX = 10.0


SettingsOf = Callable[[DocumentRecord | None], CatalogSettings]
_Settings = Mapping[tuple[str, str], DocumentRecord]


class LeaseLost(Exception):
    """Another process compacts now."""


class Compactor:
    """Compaction in the background: each catalog's history is cut to what is to be kept of it.

    One process of all compacts at a time, elected by a lease that it renews while it works; the
    others look now and then whether the lease is free. Two at once, after a lease ran out under a
    process that slept, do no harm: see ``sweep``.

    A commit is kept while it is younger than the age or among the last ones, where both are set;
    else by the one that is set; else for ever. What a catalog says of its own overrules the
    gateway's settings, each for itself. Pins are never passed: the floor stays at the lowest.

    ``start`` is called once, in the process that is to do the work: after a fork."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        compaction: CatalogCompaction,
        limits: RetentionLimits,
        settings_of: SettingsOf,
        meters: Meters = NO_METERS,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._compaction = compaction
        self._limits = limits
        self._settings_of = settings_of
        self._meters = meters
        self._holder = ""  # chosen with the first round
        self._lease_s = max(_LEASE_S_MIN, 2 * limits.interval_s)
        self._renewed = 0.0

    def start(self) -> None:
        if self._limits.interval_s > 0:
            self._runtime.spawn(self._run, "compactor")

    def _run(self) -> None:
        wait_s = min(self._limits.interval_s, _FIRST_ROUND_S_MAX)
        self._runtime.sleep(wait_s * self._runtime.jitter())
        while True:
            try:
                if self.run_round():
                    self._meters.compaction_round("finished")
            except StoreUnreachable as error:
                self._meters.compaction_round("failed")
                _log.warning("the compactor can't reach the database: %s", error)
            except Exception:  # noqa: BLE001 - the thread must outlive any defect
                self._meters.compaction_round("failed")
                _log.exception("a round of the compactor failed")
            self._runtime.sleep(self._limits.interval_s)

    def run_round(self) -> bool:
        """Go over all catalogs once, if the lease can be had; whether the round was finished.

        The lease is kept until the next round, so that one process of all does them. Raises
        StoreUnreachable.
        """
        self._holder = self._holder or self._runtime.new_id()
        try:
            self._renew()
            after = ""
            while heads := self._store.list_heads(after, "", _HEADS_AT_ONCE):
                names = [head.catalog for head in heads]
                settings: _Settings | None = None
                with suppress(ForeignRecord):  # one that can't be read is its catalog's trouble
                    settings = self._settings(*names)
                for head in heads:
                    self._compact_one(head, settings)
                after = names[-1]
        except LeaseLost:
            return False
        return True

    def _settings(self, *catalogs: str) -> _Settings:
        return stored_documents(self._store, dict.fromkeys(catalogs, (SETTINGS_KEY,)))

    def _compact_one(self, head: Head, settings: _Settings | None) -> None:
        """Compact one catalog; its errors are no other's.

        ``settings`` tell whether it is worth a closer look: they may have changed since. None: they
        are to be read.
        """
        catalog = head.catalog
        try:
            found = self._settings(catalog) if settings is None else settings
            own = self._settings_of(found.get((catalog, SETTINGS_KEY)))
            if self._wanted_floor(catalog, head.revision, head.floor, own) > head.floor:
                self._compact(head)
            elif head.floor > 0:
                self._compaction.finish(catalog, self._rest)
                self._compaction.tidy(catalog, self._rest)
                self._rest()
        except LeaseLost:
            raise
        except StoreUnreachable as error:
            self._store.ping()  # where it answers, the trouble is this catalog's
            self._meters.compaction_failed()
            _log.warning(
                "catalog %r could not be compacted: %s", catalog, error, extra={"catalog": catalog}
            )
        except SettingsInvalid as error:
            self._meters.compaction_failed()
            _log.warning(
                "the settings of catalog %r are no settings: %s",
                head.catalog,
                error,
                extra={"catalog": head.catalog},
            )
        except CommitError as error:
            # Somebody else compacted or pinned meanwhile; the next round sees to it.
            _log.info("catalog %r was not compacted: %s", head.catalog, error)
        except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
            self._meters.compaction_failed()
            _log.exception(
                "catalog %r could not be compacted", head.catalog, extra={"catalog": head.catalog}
            )

    def _compact(self, head: Head) -> None:
        begun = self._runtime.monotonic()
        catalog = head.catalog

        def wanted(standing: Standing) -> int:
            own = self._settings_of(self._settings(catalog).get((catalog, SETTINGS_KEY)))
            return self._wanted_floor(catalog, standing.revision, standing.floor, own)

        done = self._compaction.compact_as_wanted(catalog, wanted, self._rest)
        if done is not None:
            _log.info(
                "compacted catalog %r from %d to %d of %d: %d commits swept, %d tombstones purged"
                " in %.1f s",
                catalog,
                head.floor,
                done.floor,
                done.head_revision,
                done.swept,
                done.tombstones,
                self._runtime.monotonic() - begun,
                extra={"catalog": catalog},
            )
        self._rest()

    def _wanted_floor(self, catalog: str, revision: int, floor: int, own: CatalogSettings) -> int:
        """``floor`` where the settings and the pins let it rise no higher: those of the catalog's
        ``own`` go before those of the process."""
        commits, age_s = own.retention_commits, own.retention_age_s
        commits = self._limits.commits if commits is None else commits
        age_s = self._limits.age_s if age_s is None else age_s
        floors = []
        if commits is not None:
            floors.append(revision - commits)
        if age_s is not None:
            before_us = self._runtime.now_us() - age_s * 1_000_000
            last = self._store.commit_at(catalog, before_us)
            floors.append(0 if last is None else last.revision)
        wanted = min(floors, default=0)
        if wanted <= floor:
            return floor
        bounds = self._store.retention(catalog)
        held = None if bounds is None else lowest_pin(bounds.pins, self._compaction.pinned_us())
        return wanted if held is None else min(wanted, held)

    def _rest(self) -> None:
        self._runtime.sleep(self._limits.pause_ms / 1000)
        if self._runtime.monotonic() - self._renewed > self._lease_s / 4:
            self._renew()

    def _renew(self) -> None:
        now = self._runtime.monotonic()
        if not self._store.take_lease(_LEASE, self._holder, self._lease_s):
            raise LeaseLost
        self._renewed = now

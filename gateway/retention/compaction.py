"""Compaction: raises the floor, and sweeps the history that nobody can read any more.

1. The floor is raised by one conditional update that also checks the pins. From then on, reads
   below the floor get an error, and a pin below it is refused. A floor that a pin holds isn't
   raised at all. Only a revision up to which everything is written out becomes a floor.
2. The history up to the floor is swept, in pieces (``Sweeper``), before the floor is raised again.
3. Old tombstones at or below the floor are purged. They are kept for a while, because a worker that
   slept may still write out an older state of a deleted document. Old replies are deleted, too.

Each step can be broken off and repeated. The next compaction, in any worker, first finishes the
one before it.

A reader may find things gone if compaction passes it. So readers read the floor last, and answer
only if it hasn't passed what they read.

Head and floor can also *advance* together, over revisions that nobody may use: otherwise, after a
database was put back to an earlier state, new commits would get the revisions of lost ones. The
lost revisions are then below the floor, so whatever clients remember of them is refused.
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
from gateway.state.heads import ObservedHead, Settler
from gateway.state.history_sweep import Sweeper
from gateway.state.replay import stored_documents
from gateway.store.contract import ForeignRecord, Store, StoreUnreachable
from gateway.store.unreachable import as_unknown

# How often a change of the head is tried.
_TRIES = 20
# After this many lost races, a claim makes writers wait: otherwise a catalog that changes all the
# time would keep its history for ever.
_TRIES_UNCLAIMED = 3
_TOMBSTONES_AT_ONCE = 1_000
# How long other writers wait for such a claim.
_HOLD_MS = 1_000
# The highest integer that is exact in JavaScript.
_REVISION_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction; ``swept`` counts the commits changed or deleted."""

    floor: int
    head_revision: int
    swept: int
    tombstones: int


class CatalogCompaction:
    """Compacts catalogs. Every method raises StoreUnreachable, and what its ``rest`` raises;
    ``compact`` raises UnknownOutcome once it may have changed something.

    ``rest`` is called between two pieces of work, so that writers can go on in between.
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

        Raises CatalogNotFound, RevisionNotFound above the head, SnapshotExists if the floor is at
        ``revision`` or higher, and PinHolds.
        """
        head = self._settler.settle(catalog)
        if head.revision == 0:
            raise CatalogNotFound(catalog, 0)
        if revision > head.revision:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {head.revision}",
                head.revision,
            )
        self._raise_floor(catalog, revision)
        with as_unknown(is_done=True):
            swept = self.finish(catalog, rest)
            return CompactionResult(revision, head.revision, swept, self.tidy(catalog, rest))

    def compact_as_wanted(
        self, catalog: str, wanted: Callable[[ObservedHead], int], rest: Callable[[], None]
    ) -> CompactionResult | None:
        """Compact to the floor that ``wanted`` returns for the catalog's present head.

        ``wanted`` reads what it needs, such as the catalog's settings, at that revision or later;
        the floor rises only while the head is still there. So no acknowledged change of the
        settings is missed. If the head moves on all the time, a claim makes the writers wait for a
        moment. Returns None if the floor is that high already. Raises StoreUnavailable if every try
        is lost.
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
        self, catalog: str, wanted: Callable[[ObservedHead], int], by_claim: str
    ) -> tuple[int, int] | None:
        """Raise the floor; return it, and the revision of the head. None: see
        ``compact_as_wanted``."""
        for tried in range(_TRIES):
            if tried >= _TRIES_UNCLAIMED:
                self._store.claim([catalog], Claim(by_claim, _HOLD_MS))
            head = self._settler.settle(catalog)
            revision = wanted(head)
            if revision <= head.floor:
                return None
            if self._store.raise_floor(catalog, revision, self.pinned_us(), head.revision):
                return revision, head.revision
        raise StoreUnavailable("the catalog keeps changing, or others are compacting it")

    def finish(self, catalog: str, rest: Callable[[], None]) -> int:
        """Sweep what is left to be swept up to the floor; return the number of commits."""
        swept = self._sweeper.finish(catalog, self._replies_since_us(), rest)
        if swept:
            self._meters.commits_swept(swept)
        return swept

    def tidy(self, catalog: str, rest: Callable[[], None]) -> int:
        """Delete old tombstones and replies; return the number of tombstones."""
        bounds = self._store.retention(catalog)
        if bounds is None or bounds.swept == 0:
            return 0
        # Only up to the revision that is swept: history above that may need its tombstones.
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
        """Raise the floor, or raise the reason why it can't rise."""
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
        raise StoreUnavailable("others are compacting the catalog")

    def pinned_us(self) -> int:
        """The time by which a pin must have expired to hold nothing in the background. It is before
        now, because the clock of the gateway that made the pin may be behind this one."""
        return self._runtime.now_us() - int(self._limits.sweep_grace_s * 1_000_000)

    def _replies_since_us(self) -> int:
        return self._runtime.now_us() - self._limits.idempotency_s * 1_000_000


def lowest_pin(pins: Sequence[PinRecord], now_us: int) -> int | None:
    """The lowest revision that a pin holds; a pin that expired holds nothing."""
    return min((pin.revision for pin in pins if pin.expires_us > now_us), default=None)


def advance(
    store: Store, settler: Settler, runtime: Runtime, catalog: str, by: int
) -> tuple[int, int] | None:
    """Move head and floor together, by ``by`` revisions. Returns the revision before and after;
    None if the catalog never had a commit.

    The new head has an empty commit, and all pins end. Raises RevisionNotFound if the revision
    would be too high, ForeignRecord if the log has commits above the head (they would become
    history), StoreUnreachable, and StoreUnavailable if others moved the head at every try. After
    the first lost try, a claim makes the others wait.
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
    raise StoreUnavailable("the catalog keeps changing")


def _advanced(store: Store, settler: Settler, runtime: Runtime, head: Head, by: int) -> int | None:
    """The new revision; None if others moved the head meanwhile."""
    catalog, revision = head.catalog, head.revision + by
    if revision > _REVISION_MAX:
        raise RevisionNotFound(f"a revision can be at most {_REVISION_MAX}", head.revision)
    settler.settle(catalog)
    above = store.list_commits(catalog, head.revision, _REVISION_MAX, 1, None, 1)
    if above and store.heads([catalog])[catalog].position == head.position:
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
    return revision if store.advance_head(head.position, commit) else None


_log = logging.getLogger(__name__)

_LEASE = "compactor"
_LEASE_S_MIN = 60.0
_HEADS_AT_ONCE = 200
# The longest wait before the first round. It is short, so that a process that is restarted often
# compacts at all.
_FIRST_ROUND_S_MAX = 10.0


SettingsOf = Callable[[DocumentRecord | None], CatalogSettings]
_Settings = Mapping[tuple[str, str], DocumentRecord]


class LeaseLost(Exception):
    """Another process compacts now."""


class Compactor:
    """Compacts in the background: raises each catalog's floor as its retention allows.

    Only one process of all gateways compacts at a time, elected by a lease that it renews while it
    works; the others try now and then to take the lease. Two at once, after a lease ran out under a
    process that slept, do no harm: see ``state.history_sweep``.

    If both an age and a number of commits are set, a commit is kept while it is younger than the
    age or among the last ones; if one is set, by that one; otherwise for ever. Each of the two
    settings of a catalog overrides the gateway's. The floor never passes a pin.

    Call ``start`` once, in the process that is to do the work, after the fork."""

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
        """Go over all catalogs once, if this process gets the lease; whether it finished the round.

        It keeps the lease until the next round, so the same process does that, too. Raises
        StoreUnreachable.
        """
        self._holder = self._holder or self._runtime.new_id()
        try:
            self._renew()
            after = ""
            while heads := self._store.list_heads(after, "", _HEADS_AT_ONCE):
                names = [head.catalog for head in heads]
                settings: _Settings | None = None
                with suppress(ForeignRecord):  # then each catalog's settings are read alone
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
        """Compact one catalog; errors of this catalog are logged, and don't stop the round.

        ``settings`` only show whether to go on, because they may have changed since. None: they are
        read here.
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
            self._store.ping()  # raises if the trouble isn't this catalog's alone
            self._meters.compaction_failed()
            _log.warning(
                "catalog %r could not be compacted: %s", catalog, error, extra={"catalog": catalog}
            )
        except SettingsInvalid as error:
            self._meters.compaction_failed()
            _log.warning(
                "the settings of catalog %r are invalid: %s",
                head.catalog,
                error,
                extra={"catalog": head.catalog},
            )
        except CommitError as error:
            # Somebody else compacted or pinned meanwhile; the next round tries again.
            _log.info("catalog %r was not compacted: %s", head.catalog, error)
        except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
            self._meters.compaction_failed()
            _log.exception(
                "catalog %r could not be compacted", head.catalog, extra={"catalog": head.catalog}
            )

    def _compact(self, head: Head) -> None:
        begun = self._runtime.monotonic()
        catalog = head.catalog

        def wanted(observed: ObservedHead) -> int:
            own = self._settings_of(self._settings(catalog).get((catalog, SETTINGS_KEY)))
            return self._wanted_floor(catalog, observed.revision, head.floor, own)

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
        """The highest floor that the settings and the pins allow, at least ``floor``. The catalog's
        ``own`` settings override those of the process."""
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

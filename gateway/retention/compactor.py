"""Compaction in the background: each catalog's history is cut to what is to be kept of it.

One process of all compacts at a time, elected by a lease that it renews while it works; the
others look now and then whether the lease is free. Two at once, after a lease ran out under a
process that slept, do no harm: see ``sweep``.

A commit is kept while it is younger than the age or among the last ones, where both are set;
else by the one that is set; else for ever. What a catalog says of its own overrules the gateway's
settings, each for itself. Pins are never passed: the floor stays at the lowest of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from gateway.decide.settings import CatalogSettings
from gateway.errors import CommitError, SettingsInvalid
from gateway.limits import RetentionLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import SETTINGS_KEY, Document, Head
from gateway.retention.compaction import Compaction, lowest_pin
from gateway.runtime import Runtime
from gateway.state.heads import Standing
from gateway.store.contract import Store, Unreachable

_log = logging.getLogger(__name__)

_LEASE = "compactor"
_LEASE_S_MIN = 60.0
_HEADS_AT_ONCE = 200
# The first round comes soon, so that a process that is restarted often compacts at all.
_FIRST_ROUND_S_MAX = 10.0


SettingsOf = Callable[[Document | None], CatalogSettings]


class LeaseLost(Exception):
    """Another process compacts now."""


class Compactor:
    """``start`` is called once, in the process that is to do the work: after a fork."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        compaction: Compaction,
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
            except Unreachable as error:
                self._meters.compaction_round("failed")
                _log.warning("the compactor can't reach the database: %s", error)
            except Exception:  # noqa: BLE001 - the thread must outlive any defect
                self._meters.compaction_round("failed")
                _log.exception("a round of the compactor failed")
            self._runtime.sleep(self._limits.interval_s)

    def run_round(self) -> bool:
        """Go over all catalogs once, if the lease can be had; whether the round was finished.

        The lease is kept until the next round, so that one process of all does them. Raises
        Unreachable.
        """
        self._holder = self._holder or self._runtime.new_id()
        try:
            self._renew()
            after = ""
            while heads := self._store.list_heads(after, "", _HEADS_AT_ONCE):
                names = [head.catalog for head in heads]
                settings = self._store.documents(dict.fromkeys(names, (SETTINGS_KEY,)))
                for head in heads:
                    self._compact_one(head, settings)
                after = names[-1]
        except LeaseLost:
            return False
        return True

    def _compact_one(self, head: Head, settings: Mapping[tuple[str, str], Document]) -> None:
        """Compact one catalog; its errors are no other's.

        ``settings`` tell whether it is worth a closer look: they may have changed since.
        """
        catalog = head.catalog
        try:
            own = self._settings_of(settings.get((catalog, SETTINGS_KEY)))
            if self._wanted_floor(catalog, head.revision, head.floor, own) > head.floor:
                self._compact(head)
            elif head.floor > 0:
                self._compaction.finish(catalog, self._rest)
                self._compaction.tidy(catalog, self._rest)
                self._rest()
        except LeaseLost:
            raise
        except Unreachable as error:
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
            found = self._store.documents({catalog: (SETTINGS_KEY,)})
            own = self._settings_of(found.get((catalog, SETTINGS_KEY)))
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
        held = None if bounds is None else lowest_pin(bounds.pins, self._runtime.now_us())
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

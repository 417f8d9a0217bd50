"""Retention in the in-memory twin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gateway.model import Commit, Pin, Retention
from gateway.store.contract import Swept
from gateway.store.memory_records import MemoryRecords


class MemoryRetention(MemoryRecords):
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def retention(self, catalog: str) -> Retention | None:
        with self._lock:
            return self._retention(catalog)

    def _retention(self, catalog: str) -> Retention | None:
        head = self._heads.get(catalog)
        if head is None:
            return None
        pins = tuple(self._pins.get(catalog, {}).values())
        return Retention(head.revision, head.floor, self._swept.get(catalog, 0), pins)

    def set_pin(self, catalog: str, pin: Pin, held: Pin | None = None) -> bool:
        with self._lock:
            bounds = self._retention(catalog)
            if bounds is None or not bounds.floor <= pin.revision <= bounds.revision:
                return False
            if held is not None and held not in bounds.pins:
                return False
            pins = self._pins.setdefault(catalog, {})
            pins.pop(pin.id, None)
            pins[pin.id] = pin
            return True

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        with self._lock:
            return self._pins.get(catalog, {}).pop(pin_id, None) is not None

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        with self._lock:
            bounds = self._retention(catalog)
            if bounds is None or not bounds.floor == bounds.swept < floor <= bounds.revision:
                return False
            if at is not None and bounds.revision != at:
                return False
            live = {pin.id: pin for pin in bounds.pins if pin.expires_us > now_us}
            if any(pin.revision < floor for pin in live.values()):
                return False
            self._heads[catalog] = replace(self._heads[catalog], floor=floor)
            self._pins[catalog] = live
            return True

    def end_sweep(self, catalog: str, floor: int) -> None:
        with self._lock:
            if catalog in self._heads:
                self._swept[catalog] = max(floor, self._swept.get(catalog, 0))

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[Commit]:
        wanted = set(keys)
        return [
            commit
            for commit in self._ascending(catalog)
            if commit.revision <= through and not wanted.isdisjoint(self._keys_of(commit))
        ]

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        for each in swept:
            with self._lock:
                self._sweep(catalog, each)

    def _sweep(self, catalog: str, swept: Swept) -> None:
        stored = self._commits.get(catalog, {}).get(swept.revision)
        if stored is None:
            return
        if swept.commit is None:
            del self._commits[catalog][swept.revision]
            self._kept_keys.pop((catalog, swept.revision), None)
        elif swept.keys <= self._keys_of(stored):
            self._commits[catalog][swept.revision] = swept.commit
            self._kept_keys[catalog, swept.revision] = swept.keys

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        with self._lock:
            commits = self._commits.get(catalog, {})
            dropped = [
                commit.revision
                for commit in commits.values()
                if commit.revision < through
                and commit.time_us < before_us
                and commit.idempotency is not None
                and not self._keys_of(commit)
            ]
            for revision in dropped:
                del commits[revision]
                self._kept_keys.pop((catalog, revision), None)
        return len(dropped)

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        with self._lock:
            purged = [
                name
                for name, document in self._documents.items()
                if name[0] == catalog
                and not document.exists
                and document.revision <= through
                and document.time_us < before_us
            ][:limit]
            for name in purged:
                del self._documents[name]
        return len(purged)

    def drop_document(self, catalog: str, key: str, revision: int) -> bool:
        with self._lock:
            document = self._documents.get((catalog, key))
            if document is None or document.revision != revision:
                return False
            del self._documents[catalog, key]
            return True

"""The records of the in-memory twin, with its leases, retention and signals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic as _monotonic

from msgspec.structs import replace

from gateway.model import Commit, Document, Head, Pin, Retention
from gateway.store.contract import Swept


class MemoryRecords:
    """The records that all parts share. ``monotonic`` (seconds) measures leases."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._commits: dict[str, dict[int, Commit]] = {}
        # Swept commits: by (catalog, revision), the keys that still find it.
        self._kept_keys: dict[tuple[str, int], frozenset[str]] = {}
        self._swept: dict[str, int] = {}
        self._raises: dict[str, list[tuple[int, float]]] = {}
        self._pins: dict[str, dict[str, Pin]] = {}

    def _ascending(self, catalog: str) -> list[Commit]:
        with self._lock:
            return [commit for _, commit in sorted(self._commits.get(catalog, {}).items())]

    def _keys_of(self, commit: Commit) -> frozenset[str]:
        """The keys that find a stored commit."""
        kept = self._kept_keys.get((commit.catalog, commit.revision))
        return frozenset(change.key for change in commit.changes) if kept is None else kept


class MemoryLeases(MemoryRecords):
    """See ``gateway.store.contract.Store``."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        super().__init__(monotonic)
        self._leases: dict[str, tuple[str, float]] = {}

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        with self._lock:
            now = self._monotonic()
            held_by, until = self._leases.get(name, (holder, now))
            if held_by != holder and until > now:
                return False
            self._leases[name] = (holder, now + duration_s)
            return True

    def end_lease(self, name: str, holder: str) -> None:
        with self._lock:
            if self._leases.get(name, ("", 0.0))[0] == holder:
                del self._leases[name]


class MemoryRetention(MemoryRecords):
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def retention(self, catalog: str) -> Retention | None:
        with self._lock:
            return self._retention(catalog)

    def _retention(self, catalog: str) -> Retention | None:
        head = self._heads.get(catalog)
        if head is None or not head.revision:
            return None
        pins = tuple(self._pins.get(catalog, {}).values())
        now = self._monotonic()
        raises = tuple((floor, now - at) for floor, at in self._raises.get(catalog, ()))
        return Retention(head.revision, head.floor, self._swept.get(catalog, 0), pins, raises)

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
            if bounds is None or not bounds.floor < floor <= bounds.revision:
                return False
            if at is not None and bounds.revision != at:
                return False
            live = {pin.id: pin for pin in bounds.pins if pin.expires_us > now_us}
            if any(pin.revision < floor for pin in live.values()):
                return False
            head = self._heads[catalog]
            written = max(head.written, floor)
            tail = tuple(commit for commit in head.tail or () if commit.revision > written)
            self._heads[catalog] = replace(head, floor=floor, written=written, tail=tail)
            self._raises.setdefault(catalog, []).append((floor, self._monotonic()))
            self._pins[catalog] = live
            return True

    def end_sweep(self, catalog: str, floor: int) -> None:
        with self._lock:
            if catalog in self._heads:
                self._swept[catalog] = max(floor, self._swept.get(catalog, 0))
                later = [each for each in self._raises.get(catalog, ()) if each[0] > floor]
                self._raises[catalog] = later

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


class MemorySignals:
    """See ``gateway.store.contract.CommitSignals``. ``next(0)`` never waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._told: dict[str, int] = {}
        self.closed = False

    def tell(self, catalog: str, revision: int) -> None:
        with self._changed:
            self._told[catalog] = max(revision, self._told.get(catalog, 0))
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Mapping[str, int]:
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._told or self.closed, timeout_s)
            told, self._told = self._told, {}
        return told

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

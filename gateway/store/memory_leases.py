"""Leases in the in-memory twin."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic as _monotonic

from gateway.store.memory_records import MemoryRecords


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

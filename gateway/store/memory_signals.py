"""Signals in the in-memory twin."""

from __future__ import annotations

import threading
from collections.abc import Mapping


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

"""A store whose calls are timed, and counted where the database can't be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from gateway.store.contract import Unreachable

Wrapped = TypeVar("Wrapped")
# What does no I/O, and what ends only when there is something to tell.
_UNTIMED = frozenset(("stored_bytes", "await_reachable", "uploads", "tokens", "close"))


class StoreMeters(Protocol):
    def store_called(self, operation: str, seconds: float) -> None: ...

    def store_unreachable(self, operation: str) -> None: ...


def measured(store: Wrapped, meters: StoreMeters) -> Wrapped:
    """``store``, a ``Store`` or an ``UploadStore``, as what it is."""
    return cast(Wrapped, _Measured(store, meters))


class _Measured:
    """Each method is wrapped when it is first called, and found as an attribute from then on."""

    def __init__(self, store: Any, meters: StoreMeters) -> None:
        self._store = store
        self._meters = meters

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith("_") or name in _UNTIMED:
            return method
        timed = _timed(name, method, self._meters)
        setattr(self, name, timed)
        return timed


def _timed(name: str, method: Callable[..., Any], meters: StoreMeters) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return method(*arguments, **named)
        except Unreachable:
            meters.store_unreachable(name)
            raise
        finally:
            meters.store_called(name, time.perf_counter() - begun)

    return call

"""Repeats reads of the database, so that long work goes on after another primary is elected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast

from gateway.errors import CatalogRestored, StoreUnavailable
from gateway.runtime import Runtime
from gateway.store.contract import BeingRestored, StoreUnreachable

_T = TypeVar("_T")
# How long calls are repeated while none works; an election takes some seconds.
_AWAY_S: Final = 60.0
# The pause between two tries.
_PAUSE_S: Final = 0.5


class RetryingCalls:
    """Repeats calls that raise StoreUnreachable or StoreUnavailable, until none has worked for
    _AWAY_S. The first call isn't repeated: MongoDB may not be there at all.

    Every call must be one that may be made twice."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._worked_at: float | None = None

    def wrap(self, part: _T) -> _T:
        return cast(_T, _Retried(part, self))

    def call(self, method: Callable[..., Any], *args: Any, **terms: Any) -> Any:
        while True:
            try:
                result = method(*args, **terms)
            except (BeingRestored, CatalogRestored):  # a restore may take any time
                raise
            except (StoreUnreachable, StoreUnavailable):
                now = self._runtime.monotonic()
                if self._worked_at is None or now - self._worked_at > _AWAY_S:
                    raise
                self._runtime.sleep(_PAUSE_S)
            else:
                self._worked_at = self._runtime.monotonic()
                return result


class _Retried:
    """Stands for a store or a settler, and has ``retrying`` call its methods."""

    def __init__(self, part: object, retrying: RetryingCalls) -> None:
        self._part = part
        self._retrying = retrying

    def __getattr__(self, name: str) -> Any:
        return partial(self._retrying.call, getattr(self._part, name))

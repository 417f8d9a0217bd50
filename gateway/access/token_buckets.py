"""Rate limits per principal: token buckets.

A bucket holds at most its quota and fills up at an even rate. A request that costs more than the
quota is let in when the bucket is full, and leaves a debt; the next request is let in once that is
paid off. So no request is refused for ever.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Filling up adds fractions; a bucket that lacks less than this counts as full enough.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: ``per_s`` units a second on average, and those of ``window_s`` seconds at
    once."""

    name: str
    per_s: float
    window_s: int

    @property
    def quota(self) -> int:
        return max(1, int(self.per_s * self.window_s))


# How many refusals of one principal are answered as such and logged.
REFUSALS: Final = Rate("refusals", 20, 30)


class Level(NamedTuple):
    """What is left of a principal's quota: ``available`` whole units, and as many more after
    ``within_s``. If ``available`` is 0, the first unit is there after ``within_s``.
    """

    rate: Rate
    available: int
    within_s: int


@dataclass(frozen=True, slots=True)
class Excess:
    """The ``names`` of the rates that are exceeded; after ``wait_s``, none of them is."""

    names: tuple[str, ...]
    wait_s: float


@dataclass(slots=True)
class _Bucket:
    held: float
    filled_at: float


class PrincipalLimits:
    """The buckets of one process. Thread-safe.

    They are of at most ``principals_max`` principals. Beyond that, the one that was away longest is
    forgotten, and starts again with full buckets.
    """

    def __init__(
        self, rates: Sequence[Rate], monotonic: Callable[[], float], principals_max: int = 10_000
    ) -> None:
        """``rates`` have different names."""
        self.rates = {rate.name: rate for rate in rates}
        self._monotonic = monotonic
        self._principals_max = principals_max
        self._buckets: OrderedDict[str, dict[str, _Bucket]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, principal: str, amounts: Mapping[str, int]) -> Excess | None:
        """Spend ``amounts``, by name of the rate; spends nothing if one of them is too much.

        Names that no rate has are ignored: they aren't limited.
        """
        with self._lock:
            buckets = self._filled(principal)
            waits_s = {
                name: self._lacking(name, buckets[name], amount) / self.rates[name].per_s
                for name, amount in amounts.items()
                if name in buckets
            }
            exceeded = tuple(name for name, wait_s in waits_s.items() if wait_s > 0)
            if exceeded:
                return Excess(exceeded, max(waits_s.values()))
            for name in waits_s:
                buckets[name].held -= amounts[name]
            return None

    def spend(self, principal: str, name: str, amount: int) -> None:
        """Spend the amount in any case; if the bucket holds less, that leaves a debt."""
        with self._lock:
            bucket = self._filled(principal).get(name)
            if bucket is not None:
                bucket.held -= amount

    def debt_s(self, principal: str, name: str) -> float:
        """Seconds until the bucket holds something; 0.0 if it does, or if no rate has the name."""
        with self._lock:
            bucket = self._filled(principal).get(name)
            if bucket is None or bucket.held > 0:
                return 0.0
            return (_ROUNDING - bucket.held) / self.rates[name].per_s

    def levels(self, principal: str) -> list[Level]:
        """The level of each rate, in the order in which they were given."""
        with self._lock:
            buckets = self._filled(principal)
            return [_level(rate, buckets[name].held) for name, rate in self.rates.items()]

    def _lacking(self, name: str, bucket: _Bucket, amount: int) -> float:
        lacking = min(amount, self.rates[name].quota) - bucket.held
        return lacking if amount > 0 and lacking > _ROUNDING else 0.0

    def _filled(self, principal: str) -> dict[str, _Bucket]:
        """The principal's buckets, filled up to now; a new principal's are full."""
        now = self._monotonic()
        buckets = self._buckets.get(principal)
        if buckets is None:
            buckets = {name: _Bucket(rate.quota, now) for name, rate in self.rates.items()}
            self._buckets[principal] = buckets
            if len(self._buckets) > self._principals_max:
                self._buckets.popitem(last=False)
            return buckets
        self._buckets.move_to_end(principal)
        for name, bucket in buckets.items():
            rate = self.rates[name]
            bucket.held = min(rate.quota, bucket.held + (now - bucket.filled_at) * rate.per_s)
            bucket.filled_at = now
        return buckets


def _level(rate: Rate, held: float) -> Level:
    available = max(0, int(held + _ROUNDING))
    units = available if available else 1 - held
    return Level(rate, available, max(1, math.ceil(units / rate.per_s - _ROUNDING)))

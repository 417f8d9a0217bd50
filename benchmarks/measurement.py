"""What one measured window of a closed loop yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class UpdateLost(Exception):
    """What is stored isn't what a client was told was applied; the run proves a bug."""


@dataclass(frozen=True)
class Measurement:
    """One window. Latencies are of whole operations (all retries of one update together).

    An operation belongs to the window in which it ends. `statuses` counts every answer of
    the run, warm-up included, so that no refusal can hide there. `cpu_s` is the processor time of
    the servers for all of them; NaN where it wasn't taken.
    """

    operations: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    attempts: int = 0
    statuses: Mapping[int, int] = field(default_factory=dict)
    cpu_s: float = float("nan")

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds

    @property
    def attempts_per_operation(self) -> float:
        return self.attempts / self.operations if self.operations else float("nan")

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time that the servers took for an answer."""
        return self.cpu_s / max(sum(self.statuses.values()), 1) * 1e6

    def answers(self, *statuses: int) -> int:
        """How many answers had one of these statuses."""
        return sum(self.statuses.get(status, 0) for status in statuses)


def measured(
    latencies_s: Sequence[float],
    seconds: float,
    attempts: int = 0,
    statuses: Mapping[int, int] | None = None,
) -> Measurement:
    """Sum up the operations of a window that lasted `seconds`."""
    ordered = sorted(latencies_s)
    return Measurement(
        operations=len(ordered),
        seconds=seconds,
        p50_ms=_percentile_ms(ordered, 0.50),
        p99_ms=_percentile_ms(ordered, 0.99),
        max_ms=_percentile_ms(ordered, 1.0),
        attempts=attempts,
        statuses=dict(statuses or {}),
    )


def _percentile_ms(ordered_s: Sequence[float], share: float) -> float:
    if not ordered_s:
        return float("nan")
    return ordered_s[min(len(ordered_s) - 1, int(len(ordered_s) * share))] * 1000

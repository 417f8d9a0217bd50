"""What a scenario hands back: tables of what was measured, and figures with their targets."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.clients import REFUSED
from benchmarks.measurement import Measurement
from benchmarks.rounds import Spread, spread

Relation = Literal[">=", ">", "<=", "<"]

_HOLDS: Mapping[Relation, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Figure:
    """A number with a target. `measured` is None where the gateway wasn't measured, `bound` where
    there is no target.
    """

    name: str
    relation: Relation
    bound: float | None
    measured: Spread | None
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target."""
        if self.measured is None or self.bound is None:
            return None
        return _HOLDS[self.relation](self.measured.median, self.bound)


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass
class Result:
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


LOAD_COLUMNS = (
    "n",
    "variant",
    "per s",
    "low",
    "high",
    "p50 ms",
    "p99 ms",
    "max ms",
    "tries",
    "refused",
    "cpu µs",
)


def load_rows(clients: int, results: Mapping[str, Sequence[Measurement]]) -> list[list[str]]:
    """One row per variant, in LOAD_COLUMNS: medians over the rounds, the largest maximum,
    tries per operation where they are known, refusals of all rounds together."""
    return [[str(clients), name, *_load_cells(rounds)] for name, rounds in results.items()]


def _load_cells(rounds: Sequence[Measurement]) -> list[str]:
    per_second = spread([one.per_second for one in rounds])
    tries = spread([one.attempts_per_operation for one in rounds]).median
    cpu_us = spread([one.cpu_us for one in rounds]).median
    return [
        f"{per_second.median:,.0f}",
        f"{per_second.low:,.0f}",
        f"{per_second.high:,.0f}",
        f"{spread([one.p50_ms for one in rounds]).median:.1f}",
        f"{spread([one.p99_ms for one in rounds]).median:.1f}",
        f"{max(one.max_ms for one in rounds):.0f}",
        f"{tries:.2f}" if tries else "",
        str(sum(one.answers(*REFUSED) for one in rounds)),
        "" if math.isnan(cpu_us) else f"{cpu_us:.0f}",
    ]

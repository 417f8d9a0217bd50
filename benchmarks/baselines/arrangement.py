"""Finds what is best for the read-modify-write loop: how many processes, which pauses.

The gateway is compared with the loop at its best, so the best is looked for in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.baselines.backoff import IMMEDIATE, Backoff
from benchmarks.measurement import Measurement
from benchmarks.rounds import Progress, tried


@dataclass(frozen=True)
class Arrangement:
    """All clients are threads, spread over the processes."""

    processes: int
    backoff: Backoff

    def __str__(self) -> str:
        return f"{self.backoff} in {self.processes} process{'es' if self.processes > 1 else ''}"


@dataclass(frozen=True)
class Choice:
    """The best of each kind, and what was measured for choosing."""

    immediate: Arrangement
    backoff: Arrangement
    notes: Sequence[str]


def choose(
    measure: Callable[[Arrangement], Measurement], candidates: Sequence[Backoff], progress: Progress
) -> Choice:
    """Try immediate retries in 1 and 2 processes, then all pauses in 2, the best also in 1."""

    def best(arrangements: Sequence[Arrangement]) -> tuple[Arrangement, str]:
        by_name = {str(one): one for one in arrangements}
        variants = {name: lambda one=one: measure(one) for name, one in by_name.items()}
        rates = tried(variants, progress)
        note = ", ".join(f"{name} {rate:.0f}/s" for name, rate in rates.items())
        return by_name[next(iter(rates))], note

    immediate, immediate_note = best([Arrangement(count, IMMEDIATE) for count in (1, 2)])
    paused, paused_note = best([Arrangement(2, backoff) for backoff in candidates])
    backoff, backoff_note = best([Arrangement(count, paused.backoff) for count in (1, 2)])
    return Choice(immediate, backoff, (immediate_note, paused_note, backoff_note))

"""Interleaved rounds: what is compared is measured in turns, so that noise hits all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measurement import Measurement

Measure = Callable[[], Measurement]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Spread:
    """The median of the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def interleave(
    variants: Mapping[str, Measure], rounds: int, progress: Progress, label: str = ""
) -> dict[str, list[Measurement]]:
    """Measure A B C, A B C, ...: per variant one measurement for each round.

    `label` precedes what is said of the progress.
    """
    results: dict[str, list[Measurement]] = {name: [] for name in variants}
    for number in range(1, rounds + 1):
        for name, measure in variants.items():
            progress(f"{label}{name}, round {number}/{rounds}")
            results[name].append(measure())
    return results


def ratio(numerators: Sequence[Measurement], denominators: Sequence[Measurement]) -> Spread:
    """The spread of the per-round ratios of operations per second."""
    pairs = zip(numerators, denominators, strict=True)
    return spread([above.per_second / below.per_second for above, below in pairs])


def cpu_ratio(numerators: Sequence[Measurement], denominators: Sequence[Measurement]) -> Spread:
    """The spread of the per-round ratios of the servers' processor time for an answer."""
    pairs = zip(numerators, denominators, strict=True)
    return spread([above.cpu_us / below.cpu_us for above, below in pairs])


def tried(variants: Mapping[str, Measure], progress: Progress) -> dict[str, float]:
    """Operations per second of each variant, measured once each; the best one comes first."""
    rates: dict[str, float] = {}
    for name, measure in variants.items():
        progress(f"trying {name}")
        rates[name] = measure().per_second
    return dict(sorted(rates.items(), key=lambda item: -item[1]))

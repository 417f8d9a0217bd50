"""Patches while history is compacted all the time, against the same without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 32
# A second's worth of commits or less, so that every second there is something to do.
_KEPT = 500

WITHOUT = "history kept"
COMPACTING = f"compacted every second to {_KEPT} commits"


def run(rig: Rig) -> Result:
    name = f"patches, n={CLIENTS}: compaction running / not"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">=", 0.8, None)])
    options = {
        WITHOUT: ("--database", "benchmark_kept"),
        COMPACTING: (
            *("--database", "benchmark_compacted"),
            *("--retention-commits", str(_KEPT), "--compaction-interval-s", "1"),
        ),
    }
    ports = {variant: rig.gateway(*flags) for variant, flags in options.items()}
    targets = {
        variant: stored.put_many_documents(port, f"compacted-{rig.serial()}")
        for variant, port in ports.items()
    }
    variants = {
        variant: partial(_measure, rig, port, targets[variant]) for variant, port in ports.items()
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [
            Table(
                "Patches of 1,000 documents in one catalog",
                LOAD_COLUMNS,
                load_rows(CLIENTS, results),
            )
        ],
        [Figure(name, ">=", 0.8, rounds.ratio(results[COMPACTING], results[WITHOUT]))],
    )


def _measure(rig: Rig, port: int, targets: Sequence[Target]) -> Measurement:
    floor = rig.serial() * 1_000_000
    clients = [PatchClient(number, targets, floor=floor) for number in range(CLIENTS)]
    measurement = rig.run(port, clients)
    stored.verify(port, clients)
    return measurement

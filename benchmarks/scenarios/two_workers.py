"""Two clients of one document, each with a worker of its own, against one client."""

from __future__ import annotations

from functools import partial

from benchmarks import rounds
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.scenarios.two_hosts import patched

ONE = "one client"
TWO = "two clients, two workers"


def run(rig: Rig) -> Result:
    """Two gateways of one worker each: they share their turns as two workers of one gateway do."""
    name = "two clients through two workers / one client"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">=", 1.7, None)])
    with rig.on(rig.uri) as own:
        ports = [own.gateway("--workers", "1", number=number) for number in (1, 2)]
        variants = {
            ONE: partial(patched, own, ports[:1], 1),
            TWO: partial(patched, own, ports, 2),
        }
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [Table("One document through two workers", LOAD_COLUMNS, _rows(results))],
        [Figure(name, ">=", 1.7, rounds.ratio(results[TWO], results[ONE]))],
    )


def _rows(results: dict[str, list[Measurement]]) -> list[list[str]]:
    return load_rows(1, {ONE: results[ONE]}) + load_rows(2, {TWO: results[TWO]})

"""Writes without contention: how much of the web server's ceiling is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, Target, target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.rounds import Measure

CLIENTS = 64

TRIVIAL = "trivial endpoint"
ONE_CATALOG = "gateway, one catalog of 1,000 documents"
MANY_CATALOGS = "gateway, 1,000 catalogs of one document"


def run(rig: Rig) -> Result:
    variants: dict[str, Measure] = {TRIVIAL: partial(_trivial, rig)}
    if rig.with_gateway:
        port, serial = rig.gateway(), rig.serial()
        one = stored.put_many_documents(port, f"spread-{serial}")
        many = stored.put_many_catalogs(port, f"single-{serial}")
        variants[ONE_CATALOG] = partial(_gateway, rig, one)
        variants[MANY_CATALOGS] = partial(_gateway, rig, many)
    results = rounds.interleave(variants, rig.rounds, rig.progress)

    def figure(name: str, variant: str, bound: float) -> Figure:
        measured = rounds.ratio(results[variant], results[TRIVIAL]) if rig.with_gateway else None
        return Figure(name, ">=", bound, measured)

    return Result(
        [Table("Many documents: patches", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [
            figure("1,000 documents in one catalog / trivial endpoint", ONE_CATALOG, 0.45),
            figure("1,000 catalogs of one document / trivial endpoint", MANY_CATALOGS, 0.30),
        ],
    )


def _trivial(rig: Rig) -> Measurement:
    targets = [target("catalog", f"dataset/{number}") for number in range(stored.MANY)]
    clients = [PatchClient(number, targets) for number in range(CLIENTS)]
    return rig.run(rig.baseline("trivial"), clients)


def _gateway(rig: Rig, targets: Sequence[Target]) -> Measurement:
    port, floor = rig.gateway(), rig.serial() * 1_000_000
    clients = [PatchClient(number, targets, floor=floor) for number in range(CLIENTS)]
    measurement = rig.run(port, clients)
    stored.verify(port, clients)
    return measurement

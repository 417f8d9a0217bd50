"""How the workers of one machine share catalogs: 1, 2 and 4 of them, on 1, 8 and 100 catalogs.

One gateway after the other, each with its own number of workers; on a machine with two cores four
of them show what more workers cost, not what they bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import load, rounds, stored, wire
from benchmarks.clients import PatchClient, Target, target
from benchmarks.documents import dataset
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 64
WORKERS = (1, 2, 4)
CATALOGS = (1, 8, 100)


def run(rig: Rig) -> Result:
    if not rig.with_gateway:
        return Result()
    variants: dict[str, rounds.Measure] = {}
    with rig.on(rig.uri) as own:
        for catalogs in CATALOGS:
            for workers in WORKERS:
                port = own.gateway(workers=workers, host=f"workers-{workers}")
                patched = partial(_patched, own, port, _put(own, port, catalogs))
                variants[_named(workers, catalogs)] = patched
        results = rounds.interleave(variants, own.rounds, own.progress)
    figures: list[Figure] = []
    for catalogs in CATALOGS:
        alone = results[_named(1, catalogs)]
        for workers in WORKERS[1:]:
            name = f"{_named(workers, catalogs)} / 1 worker"
            several = results[_named(workers, catalogs)]
            rate, cpu = rounds.ratio(several, alone), rounds.cpu_ratio(several, alone)
            figures.append(Figure(f"{name}: patches a second", ">=", None, rate))
            figures.append(Figure(f"{name}: CPU of a patch", "<=", None, cpu))
    table = Table("Workers on catalogs: patches", LOAD_COLUMNS, load_rows(CLIENTS, results))
    return Result([table], figures)


def _named(workers: int, catalogs: int) -> str:
    return f"{workers} workers, {catalogs} catalogs"


def _put(rig: Rig, port: int, catalogs: int) -> list[Target]:
    """Fresh catalogs of one document."""
    serial = rig.serial()
    targets = [target(f"workers-{serial}-{number}", "dataset") for number in range(catalogs)]
    load.send_all(port, [wire.put(each.path, dataset()) for each in targets])
    return targets


def _patched(rig: Rig, port: int, targets: Sequence[Target]) -> Measurement:
    floor = rig.serial() * 1_000_000
    clients = [PatchClient(number, targets, floor=floor) for number in range(CLIENTS)]
    measurement = rig.run(port, clients)
    stored.verify(port, clients)
    return measurement

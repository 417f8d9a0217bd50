"""Which worker class of the web server serves best: gevent or gthread."""

from __future__ import annotations

from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.rounds import Measure

CLIENTS = (1, 64)
WORKER_CLASSES = ("gevent", "gthread")


def run(rig: Rig) -> Result:
    rows = []
    for clients in CLIENTS:
        variants: dict[str, Measure] = {}
        for worker_class in WORKER_CLASSES:
            variants[f"trivial endpoint, {worker_class}"] = partial(
                _trivial, rig, clients, worker_class
            )
            if rig.with_gateway:
                variants[f"gateway, hot document, {worker_class}"] = partial(
                    _gateway, rig, clients, worker_class
                )
        results = rounds.interleave(variants, rig.rounds, rig.progress, f"n={clients}: ")
        rows += load_rows(clients, results)
    return Result([Table("Worker classes", LOAD_COLUMNS, rows)])


def _trivial(rig: Rig, clients: int, worker_class: str) -> Measurement:
    targets = [target("catalog", f"dataset/{number}") for number in range(stored.MANY)]
    patchers = [PatchClient(number, targets) for number in range(clients)]
    return rig.run(rig.baseline("trivial", worker_class), patchers)


def _gateway(rig: Rig, clients: int, worker_class: str) -> Measurement:
    port, serial = rig.gateway("--worker-class", worker_class, "--threads", "80"), rig.serial()
    targets = stored.put_one(port, f"hot-{serial}")
    patchers = [PatchClient(number, targets, floor=serial * 1_000_000) for number in range(clients)]
    measurement = rig.run(port, patchers)
    stored.verify(port, patchers)
    return measurement

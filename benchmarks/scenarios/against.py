"""This gateway against the one of an earlier commit, side by side: what a change costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from benchmarks import bytecodes, load, rounds, stored, wire
from benchmarks.clients import PatchClient, ReadClient
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import CHECKOUT, Rig
from benchmarks.scenarios.bulk import in_bulk

NOW, EARLIER = "now", "earlier"
ALLOWED = 0.97
MORE_CPU = 1.03
MORE_BYTECODES = 1.02

# Of what is measured in turns: how many clients, and the measurement of a gateway at a port.
Work = tuple[int, Callable[[Rig, int], Callable[[], Measurement]]]


def run(rig: Rig) -> Result:
    """Each gateway has a database of its own on the one mongod."""
    ports = {
        NOW: rig.gateway("--database", "now"),
        EARLIER: rig.gateway("--database", "earlier", earlier=True),
    }
    rows: list[list[str]] = []
    figures: list[Figure] = []
    for what, (clients, prepare) in WORK.items():
        prepared = {name: prepare(rig, port) for name, port in ports.items()}
        results = rounds.interleave(prepared, rig.rounds, rig.progress, f"{what}: ")
        rows += load_rows(clients, {f"{what}, {name}": found for name, found in results.items()})
        ratio = rounds.ratio(results[NOW], results[EARLIER])
        figures.append(Figure(f"{what}: now / earlier", ">=", ALLOWED, ratio))
        cpu = rounds.cpu_ratio(results[NOW], results[EARLIER])
        if not math.isnan(cpu.median):
            figures.append(Figure(f"{what}: CPU, now / earlier", "<=", MORE_CPU, cpu))
    figures.append(_bytecodes(rig))
    return Result([Table("Now against earlier", LOAD_COLUMNS, rows)], figures)


def _bytecodes(rig: Rig) -> Figure:
    rig.progress("counting bytecodes")
    now, earlier = (bytecodes.of(each) if each else None for each in (CHECKOUT, rig.earlier))
    ratio = rounds.spread([now / earlier]) if now and earlier else None
    return Figure("bytecodes of a PATCH: now / earlier", "<=", MORE_BYTECODES, ratio)


def _hot(clients: int, rig: Rig, port: int) -> Callable[[], Measurement]:
    def measure() -> Measurement:
        serial = rig.serial()
        targets = stored.put_one(port, f"hot-{serial}")
        return _patched(rig, port, clients, targets)

    return measure


def _spread(
    put: Callable[[int, str], list[stored.Target]], clients: int, rig: Rig, port: int
) -> Callable[[], Measurement]:
    return partial(_patched, rig, port, clients, put(port, f"spread-{rig.serial()}"))


def _in_bulk(
    put: Callable[[int, str], list[stored.Target]], rig: Rig, port: int
) -> Callable[[], Measurement]:
    return partial(in_bulk, rig, port, put(port, f"bulk-{rig.serial()}"))


def _patched(rig: Rig, port: int, clients: int, targets: list[stored.Target]) -> Measurement:
    floor = rig.serial() * 1_000_000
    patchers = [PatchClient(number, targets, floor=floor) for number in range(clients)]
    measurement = rig.run(port, patchers)
    stored.verify(port, patchers)
    return measurement


def _read(clients: int, not_modified: bool, rig: Rig, port: int) -> Callable[[], Measurement]:
    path = stored.put_one(port, f"read-{rig.serial()}")[0].path
    etag = wire.header(load.ask(port, wire.get(path)).head, "ETag") if not_modified else None
    return lambda: rig.run(port, [ReadClient(path, etag) for _ in range(clients)])


WORK: dict[str, Work] = {
    "hot document, n=1": (1, partial(_hot, 1)),
    "hot document, n=8": (8, partial(_hot, 8)),
    "hot document, n=64": (64, partial(_hot, 64)),
    "1,000 documents, n=64": (64, partial(_spread, stored.put_many_documents, 64)),
    "1,000 catalogs, n=64": (64, partial(_spread, stored.put_many_catalogs, 64)),
    "bulk of 1,000, one catalog": (1, partial(_in_bulk, stored.put_many_documents)),
    "bulk of 1,000, 1,000 catalogs": (1, partial(_in_bulk, stored.put_many_catalogs)),
    "reads, n=32": (32, partial(_read, 32, False)),
    "304, n=32": (32, partial(_read, 32, True)),
}

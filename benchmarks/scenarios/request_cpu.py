"""What a request costs in processor time, beside bare WSGI and bare Flask on the same server.

All processes but mongod, one worker, 64 clients, documents of 2 KB. A busy machine makes every row
dearer, and their ratios hardly change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.clients import PatchClient, ReadClient, target
from benchmarks.documents import dataset
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 64
DOCUMENTS = 64

WSGI = "bare WSGI"
FLASK = "bare Flask"
GET = "GET of a document"
HOT = "PATCH, one hot document"
MANY = f"PATCH, {DOCUMENTS} documents"
BOUNDS = {GET: 0.75, HOT: 1.15, MANY: 1.5}


def run(rig: Rig) -> Result:
    variants: dict[str, rounds.Measure] = {
        WSGI: partial(_answered, rig, rig.baseline("bare", 1)),
        FLASK: partial(_answered, rig, rig.baseline("trivial", 1)),
    }
    if rig.with_gateway:
        port = rig.gateway(workers=1)
        path = stored.put_one(port, f"read-{rig.serial()}")[0].path
        variants[GET] = partial(_read, rig, port, path)
        variants[HOT] = partial(_patched, rig, port, 1)
        variants[MANY] = partial(_patched, rig, port, DOCUMENTS)
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    figures = [
        Figure(f"CPU of {name}: gateway / bare Flask", "<=", bound, _ratio(results, name))
        for name, bound in BOUNDS.items()
    ]
    rows = load_rows(CLIENTS, results)
    return Result([Table("Processor time of a request", LOAD_COLUMNS, rows)], figures)


def _ratio(results: Mapping[str, Sequence[Measurement]], name: str) -> rounds.Spread | None:
    return rounds.cpu_ratio(results[name], results[FLASK]) if name in results else None


def _answered(rig: Rig, port: int) -> Measurement:
    """Patches that nobody applies."""
    targets = [target("catalog", f"dataset/{number}") for number in range(DOCUMENTS)]
    return rig.run(port, [PatchClient(number, targets) for number in range(CLIENTS)])


def _read(rig: Rig, port: int, path: str) -> Measurement:
    return rig.run(port, [ReadClient(path) for _ in range(CLIENTS)])


def _patched(rig: Rig, port: int, documents: int) -> Measurement:
    serial = rig.serial()
    contents = [dataset(number) for number in range(documents)]
    targets = stored.put(port, f"patched-{serial}", contents)
    clients = [PatchClient(n, targets, floor=serial * 1_000_000) for n in range(CLIENTS)]
    measurement = rig.run(port, clients)
    stored.verify(port, clients)
    return measurement

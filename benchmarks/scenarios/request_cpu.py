"""What a request costs in processor time, beside bare WSGI and bare Flask on the same server.

All processes but mongod, one worker, 64 clients, documents of 2 KB. A busy machine makes every row
dearer, and their ratios hardly change. The rows are absolute figures, too: bare Flask's is the
machine's own speed, and what other systems publish stands below.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarks import published, rounds, stored
from benchmarks.bulk import bulk_lines, send_bulk
from benchmarks.clients import PatchClient, ReadClient, target
from benchmarks.documents import dataset
from benchmarks.measurement import Measurement, measured
from benchmarks.processes import cpu_s
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

CLIENTS = 64
DOCUMENTS = 64

WSGI = "bare WSGI"
FLASK = "bare Flask"
GET = "GET of a document"
HOT = "PATCH, one hot document"
MANY = f"PATCH, {DOCUMENTS} documents"
LINES = "line of bulk, a patch"
_LINES_A_REQUEST = 1_000
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
        variants[LINES] = partial(_in_bulk, rig, port)
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    figures = [
        Figure(f"CPU of {name}: gateway / bare Flask", "<=", bound, _ratio(results, name))
        for name, bound in BOUNDS.items()
    ]
    in_bulk = {LINES: results.pop(LINES)} if LINES in results else {}
    rows = load_rows(CLIENTS, results) + load_rows(1, in_bulk)
    table = Table(
        "Requests, or lines of one client's bulk, and their processor time", LOAD_COLUMNS, rows
    )
    return Result([table, published.limits()], figures)


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


def _in_bulk(rig: Rig, port: int) -> Measurement:
    """Bulk requests one after the other, by one client."""
    targets = stored.put(port, f"bulk-{rig.serial()}", [dataset(n) for n in range(DOCUMENTS)])
    count, latencies = 0, []
    before_s = cpu_s(port)
    begun = time.perf_counter()
    while (elapsed_s := time.perf_counter() - begun) < rig.seconds:
        lines = bulk_lines(targets, _LINES_A_REQUEST, floor=rig.serial() * 1_000_000)
        sent = time.perf_counter()
        send_bulk(port, lines)
        latencies.append(time.perf_counter() - sent)
        count += len(lines)
    window = measured(latencies, elapsed_s)
    used_s = cpu_s(port) - before_s
    return replace(window, operations=count, statuses={200: count}, cpu_s=used_s)

"""The Python client's threads, whose concurrent writes are lines of one bulk request or a request
each: on one document that all of them write, and on many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarks import rounds
from benchmarks.documents import dataset
from benchmarks.measurement import Measurement, UpdateLost
from benchmarks.processes import cpu_s
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.scenarios.appends import closed_loop
from patching.client import Catalog, Gateway

THREADS = 64
DOCUMENTS = 64
BATCH_S = 0.002


def run(rig: Rig) -> Result:
    figures: list[Figure] = []
    tables: list[Table] = []
    for place, documents in (("one document", 1), (f"{DOCUMENTS} documents", DOCUMENTS)):
        name = f"{THREADS} threads of one client on {place}: batched / a request each"
        if not rig.with_gateway:
            figures.append(Figure(name, ">=", None, None))
            continue
        variants = {
            "a request each": partial(_measure, rig, None, documents),
            "batched": partial(_measure, rig, BATCH_S, documents),
        }
        results = rounds.interleave(variants, rig.rounds, rig.progress, f"{place}: ")
        title = f"Threads of one client on {place} (CPU: the gateway's and the client's)"
        tables.append(Table(title, LOAD_COLUMNS, load_rows(THREADS, results)))
        figures += _figures(name, results)
    return Result(tables, figures)


def _figures(name: str, results: Mapping[str, Sequence[Measurement]]) -> list[Figure]:
    alone, batched = results["a request each"], results["batched"]
    return [
        Figure(f"{name}, patches/s", ">=", None, rounds.ratio(batched, alone)),
        Figure(f"{name}, CPU", "<=", None, rounds.cpu_ratio(batched, alone)),
    ]


def _measure(rig: Rig, batch_s: float | None, documents: int) -> Measurement:
    port = rig.gateway()
    with Gateway(
        f"http://127.0.0.1:{port}", batch_s=batch_s, pool_size=THREADS, timeout_s=60
    ) as gateway:
        catalog = gateway.catalog(f"batching-{rig.serial()}")
        for number in range(documents):
            catalog.put(f"dataset/{number}", dataset(number))
        counts = [0] * THREADS
        steps = [partial(_patch, catalog, counts, n, documents) for n in range(THREADS)]
        before_s = time.process_time() + cpu_s(port)
        measurement = closed_loop(steps)
        used_s = time.process_time() + cpu_s(port) - before_s
        _verify(catalog, counts, documents)
    return replace(measurement, cpu_s=used_s, statuses={200: sum(counts)})


def _patch(catalog: Catalog, counts: list[int], number: int, documents: int) -> int:
    """Count a thread's own number up in its document."""
    value = counts[number] + 1
    change = [{"op": "replace", "path": f"/counters/c{number}", "value": value}]
    attempts = catalog.patch(f"dataset/{number % documents}", change).attempts
    counts[number] = value
    return attempts


def _verify(catalog: Catalog, counts: Sequence[int], documents: int) -> None:
    """Raises UpdateLost."""
    for number, count in enumerate(counts):
        value = catalog.get(f"dataset/{number % documents}").value["counters"][f"c{number}"]
        if value != count:
            raise UpdateLost(f"thread {number} was told {count}, its document has {value}")

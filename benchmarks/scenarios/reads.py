"""Reads of one document by many clients, against a plain `find_one` behind Flask."""

from __future__ import annotations

from functools import partial
from typing import Any

from pymongo import MongoClient

from benchmarks import documents, load, rounds, stored, wire
from benchmarks.clients import ReadClient, SteadyPatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Relation, Result, Table, load_rows
from benchmarks.rig import DATABASE, Rig
from benchmarks.rounds import Measure

CLIENTS = 32
WRITERS = 4
WRITES_PER_S = 100

FIND = "Flask with find_one"
GATEWAY = "gateway, 200"
NOT_MODIFIED = "gateway, 304"
WRITTEN = f"gateway, 200, {WRITES_PER_S} writes/s"


def run(rig: Rig) -> Result:
    with MongoClient[dict[str, Any]](rig.uri) as client:
        new = {"content": documents.dataset()}
        client[DATABASE].documents.replace_one({"_id": "read"}, new, upsert=True)
    find = rig.baseline("find")
    variants: dict[str, Measure] = {FIND: partial(_read, rig, find, "/documents/read")}
    if rig.with_gateway:
        port = rig.gateway()
        path = stored.put_one(port, f"read-{rig.serial()}")[0].path
        written = stored.put_one(port, f"read-{rig.serial()}")
        etag = wire.header(load.ask(port, wire.get(path)).head, "ETag")
        variants[GATEWAY] = partial(_read, rig, port, path)
        variants[NOT_MODIFIED] = partial(_read, rig, port, path, etag)
        variants[WRITTEN] = partial(_read_written, rig, port, written)
    results = rounds.interleave(variants, rig.rounds, rig.progress)

    def figure(name: str, relation: Relation, above: str, below: str, bound: float) -> Figure:
        measured = rounds.ratio(results[above], results[below]) if rig.with_gateway else None
        return Figure(name, relation, bound, measured)

    return Result(
        [Table("Reads of one document", LOAD_COLUMNS, load_rows(CLIENTS, results))],
        [
            figure("reads, n=32: gateway / Flask with find_one", ">=", GATEWAY, FIND, 0.8),
            figure("reads of what is written, n=32: gateway / Flask", ">=", WRITTEN, FIND, 0.8),
            figure("reads, n=32: 304 answers / 200 answers", ">", NOT_MODIFIED, GATEWAY, 1.0),
        ],
    )


def _read(rig: Rig, port: int, path: str, etag: str | None = None) -> Measurement:
    return rig.run(port, [ReadClient(path, etag) for _ in range(CLIENTS)])


def _read_written(rig: Rig, port: int, targets: list[Target]) -> Measurement:
    """Reads of one document while others write it, at a rate that doesn't depend on the reads."""
    floor, each = rig.serial() * 1_000_000, WRITES_PER_S / WRITERS
    writers = [
        SteadyPatchClient(number, targets, floor=floor, per_second=each)
        for number in range(WRITERS)
    ]
    readers = [ReadClient(targets[0].path) for _ in range(CLIENTS)]
    measurement = rig.run(port, [*writers, *readers])
    stored.verify(port, writers)
    return measurement

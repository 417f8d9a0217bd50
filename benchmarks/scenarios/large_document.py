"""What a one-field patch costs in a large document, compared with a small one."""

from __future__ import annotations

from functools import partial

from benchmarks import documents, rounds, stored
from benchmarks.clients import PatchClient, Target
from benchmarks.measurement import Measurement
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

SMALL = "gateway, 2 KB"
LARGE = "gateway, 1 MB"

_SIZES_BYTES = {SMALL: 2048, LARGE: 1_000_000}


def run(rig: Rig) -> Result:
    name = "time of a one-field patch: 1 MB document / 2 KB"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, "<=", 3, None)])
    variants = {}
    for variant, size_bytes in _SIZES_BYTES.items():
        document = documents.dataset(size_bytes=size_bytes)
        targets = stored.put(rig.gateway(), f"size-{size_bytes}-{rig.serial()}", [document])
        pointer = documents.middle_field(document)
        variants[variant] = partial(_patch, rig, targets, pointer)
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    # n=1: the time of a patch is the inverse of the rate
    return Result(
        [Table("One-field patches by document size", LOAD_COLUMNS, load_rows(1, results))],
        [Figure(name, "<=", 3, rounds.ratio(results[SMALL], results[LARGE]))],
    )


def _patch(rig: Rig, targets: list[Target], pointer: str) -> Measurement:
    port = rig.gateway()
    client = PatchClient(0, targets, floor=rig.serial() * 1_000_000, pointer=pointer)
    measurement = rig.run(port, [client])
    stored.verify(port, [client])
    return measurement

"""Patches sent a thousand at a time, against one at a time, by one client."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from functools import partial

from benchmarks import rounds, stored
from benchmarks.bulk import bulk_lines, post
from benchmarks.clients import PatchClient, Target
from benchmarks.measurement import Measurement, measured
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

LINES = 1_000

BULK = "bulk, one catalog"
BULK_MANY = "bulk, 1,000 catalogs"
SINGLE = "one PATCH each"


def run(rig: Rig) -> Result:
    name = f"bulk of {LINES:,} patches / one PATCH each, n=1"
    if not rig.with_gateway:
        names = {name: 30, f"{name}, 1,000 catalogs": 20}
        return Result(figures=[Figure(each, ">=", least, None) for each, least in names.items()])
    port, serial = rig.gateway(), rig.serial()
    one = stored.put_many_documents(port, f"bulk-{serial}")
    many = stored.put_many_catalogs(port, f"bulk-{serial}")
    variants = {
        BULK: partial(in_bulk, rig, port, one),
        BULK_MANY: partial(in_bulk, rig, port, many),
        SINGLE: partial(_single, rig, one),
    }
    results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [
            Table(
                "Patches by one client (latency: of a whole request)",
                LOAD_COLUMNS,
                load_rows(1, results),
            )
        ],
        [
            Figure(name, ">=", 30, rounds.ratio(results[BULK], results[SINGLE])),
            Figure(
                f"{name}, 1,000 catalogs",
                ">=",
                20,
                rounds.ratio(results[BULK_MANY], results[SINGLE]),
            ),
        ],
    )


def in_bulk(rig: Rig, port: int, targets: Sequence[Target]) -> Measurement:
    """Every request at once after the other, for the rig's window."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    latencies: list[float] = []
    begun = time.perf_counter()
    counted_from = begun
    try:
        while time.perf_counter() < counted_from + rig.seconds:
            lines = bulk_lines(targets, LINES, floor=rig.serial() * 1_000_000)
            start = time.perf_counter()
            post(connection, lines)
            if start < begun + rig.warmup_s:
                counted_from = time.perf_counter()
            else:
                latencies.append(time.perf_counter() - start)
    finally:
        connection.close()
    # Making the lines isn't the gateway's time.
    window = measured(latencies, sum(latencies))
    return Measurement(
        operations=LINES * window.operations,
        seconds=window.seconds,
        p50_ms=window.p50_ms,
        p99_ms=window.p99_ms,
        max_ms=window.max_ms,
    )


def _single(rig: Rig, targets: Sequence[Target]) -> Measurement:
    client = PatchClient(1, targets, floor=rig.serial() * 1_000_000)
    measurement = rig.run(rig.gateway(), [client])
    stored.verify(rig.gateway(), [client])
    return measurement

"""A catalog of which a hundredth changed: kept in step, against writing all of it again.

Rewritten are all documents of a catalog of the same size, each with another name in it, so that
each is a write; and, for comparison, those of this catalog by what a sync would be given, where the
gateway finds 99% of them as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import rounds
from benchmarks.measurement import Measurement, UpdateLost
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.spark_session import THREADS, datasets, session, write

DOCUMENTS = 60_000
DOCUMENTS_QUICK = 10_000
CHANGED_EVERY = 100

SYNC = "sync"
REWRITE = "all rewritten, by the sink"
OVERWRITE = "all put by the sink, 1% changed"


def run(rig: Rig) -> Result:
    name = f"sync of {DOCUMENTS:,} documents, 1% changed / all rewritten"
    if not rig.with_gateway:
        return Result(figures=[Figure(name, ">=", 5, None)])
    count = DOCUMENTS_QUICK if rig.quick else DOCUMENTS
    port, catalog = rig.gateway(), f"spark-sync-{rig.serial()}"
    with session() as spark:
        from patching.spark.sync import sync

        states = [datasets(spark, count), datasets(spark, count, CHANGED_EVERY)]
        rig.progress("loading")
        write(states[0], port, catalog)
        rewritten = f"spark-rewrite-{rig.serial()}"
        turn = 0

        def timed(act: Callable[[int], None], turns: bool = True) -> Measurement:
            nonlocal turn
            turn += turns
            begun = time.perf_counter()
            act(turn % 2)
            seconds = time.perf_counter() - begun
            return Measurement(count, seconds, seconds * 1e3, seconds * 1e3, seconds * 1e3)

        def step(state: int) -> None:
            report = sync(states[state], catalog, url=f"http://127.0.0.1:{port}")
            if report.patched != -(-count // CHANGED_EVERY) or not report.in_step:
                raise UpdateLost(f"{report}")

        def rewrite(_state: int) -> None:
            named = f"replace(document, 'orders_', 'orders_{rig.serial()}_') as document"
            write(states[0].selectExpr("key", named), port, rewritten)

        def overwrite(state: int) -> None:
            write(states[state], port, catalog)

        variants = {
            SYNC: lambda: timed(step),
            OVERWRITE: lambda: timed(overwrite),
            REWRITE: lambda: timed(rewrite, turns=False),
        }
        for measure in variants.values():  # the workers' Python has to start, too
            measure()
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [
            Table(
                f"{count:,} documents of 1.5 KB, of which 1% changed (latency: of all)",
                LOAD_COLUMNS,
                load_rows(THREADS, results),
            )
        ],
        [Figure(name, ">=", 5, rounds.ratio(results[SYNC], results[REWRITE]))],
    )

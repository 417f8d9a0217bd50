"""A catalog of which a hundredth changed: kept in step, against writing all of it again.

Rewritten are all documents of a catalog of the same size, each with another name in it, so that
each is a write; and, for comparison, those of this catalog by what a sync would be given, where the
gateway finds 99% of them as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks import rounds
from benchmarks.measurement import Measurement, UpdateLost
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.spark_session import THREADS, datasets, session, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DOCUMENTS = 60_000
DOCUMENTS_QUICK = 10_000
CHANGED_EVERY = 100

SYNC = "sync, 1% changed"
SPELLED = "sync, 1% changed, spelled differently"
STRUCTS = "sync, 1% changed, structs"
NOTHING = "sync, nothing to do"
REWRITE = "all rewritten, by the sink"
OVERWRITE = "all put by the sink, 1% changed"

_TARGETS = {SYNC: 12, SPELLED: 10, STRUCTS: 10}


def run(rig: Rig) -> Result:
    names = {each: f"{each}, {DOCUMENTS:,} documents / all rewritten" for each in _TARGETS}
    idle = f"{NOTHING}, {DOCUMENTS:,} documents"
    if not rig.with_gateway:
        figures = [Figure(names[each], ">=", bound, None) for each, bound in _TARGETS.items()]
        return Result(figures=[*figures, Figure(idle, ">=", None, None, "documents/s")])
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

        def step(frames: Sequence[DataFrame]) -> Callable[[int], None]:
            def act(state: int) -> None:
                report = sync(frames[state], catalog, url=f"http://127.0.0.1:{port}")
                if report.patched != -(-count // CHANGED_EVERY) or not report.in_step:
                    raise UpdateLost(f"{report}")

            return act

        def nothing(state: int) -> None:
            report = sync(states[state], catalog, url=f"http://127.0.0.1:{port}")
            if report.unchanged != count:
                raise UpdateLost(f"{report}")

        def rewrite(_state: int) -> None:
            named = f"replace(document, 'orders_', 'orders_{rig.serial()}_') as document"
            write(states[0].selectExpr("key", named), port, rewritten)

        def overwrite(state: int) -> None:
            write(states[state], port, catalog)

        spelled = [each.selectExpr("key", "concat(' ', document) as document") for each in states]
        # Read from memory: what is measured isn't taking the texts apart.
        structs = [_as_structs(each).persist() for each in states]
        for each in structs:
            each.count()
        variants = {
            SYNC: lambda: timed(step(states)),
            SPELLED: lambda: timed(step(spelled)),
            STRUCTS: lambda: timed(step(structs)),
            NOTHING: lambda: timed(nothing, turns=False),
            OVERWRITE: lambda: timed(overwrite),
            REWRITE: lambda: timed(rewrite, turns=False),
        }
        for measure in variants.values():  # the workers' Python has to start, too
            measure()
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    ratios = {each: rounds.ratio(results[each], results[REWRITE]) for each in _TARGETS}
    return Result(
        [
            Table(
                f"{count:,} documents of 1.5 KB, of which 1% changed (latency: of all)",
                LOAD_COLUMNS,
                load_rows(THREADS, results),
            )
        ],
        [
            *(Figure(names[each], ">=", bound, ratios[each]) for each, bound in _TARGETS.items()),
            Figure(
                idle,
                ">=",
                None,
                rounds.spread([each.per_second for each in results[NOTHING]]),
                "documents/s",
            ),
        ],
    )


def _as_structs(texts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    sample = texts.selectExpr("document").first()
    assert sample is not None
    kind = F.schema_of_json(F.lit(sample[0]))
    return texts.select("key", F.from_json("document", kind).alias("document"))

"""Memory of the driver, Spark's Python and the gateway while more and more rows are written, and
while the catalog that was made of them is kept in step.

Documents have 1.5 KB. With ``--documents`` there are as many at last, of 100 bytes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.measurement import UpdateLost
from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig
from benchmarks.rounds import Spread
from benchmarks.scenarios.spark_parts import DRIVER, GATEWAY, JVM, TASKS, heap_bytes, peaks
from benchmarks.spark_session import datasets, session, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALLOWED = 1.2
ROWS = (10_000, 50_000, 200_000)
ROWS_QUICK = (1_000, 4_000)
WRITING = "rows are written"
SYNCING = "a catalog is kept in step, with a state"
# What is collected already, of the JVM.
HEAP = "JVM's heap, collected"
_PARTS = (GATEWAY, DRIVER, JVM, TASKS)
_MIB = 1024 * 1024


def run(rig: Rig) -> Result:
    counts = ROWS_QUICK if rig.quick else ROWS
    if rig.documents:
        counts = (counts[0], max(counts[0], rig.documents // 5), rig.documents)
    columns = (*_PARTS, HEAP)
    names = {
        (what, part): f"memory while {what}, {counts[-1]:,} rows / {counts[0]:,}: {part}"
        for what in (WRITING, SYNCING)
        for part in columns
    }
    if not rig.with_gateway:
        return Result(figures=[Figure(name, "<=", ALLOWED, None) for name in names.values()])
    told: dict[str, list[dict[str, int]]] = {WRITING: [], SYNCING: []}
    with session() as spark, TemporaryDirectory(prefix="benchmark-state-") as folder:
        _both(rig, spark, _rows(rig, spark, counts[0]), Path(folder, "warm-up"))
        for number, count in enumerate(counts):
            rig.progress(f"{count:,} rows")
            found = _both(rig, spark, _rows(rig, spark, count), Path(folder, str(number)))
            for what, sizes in found.items():
                told[what].append(sizes)
    tables = [
        Table(
            f"Resident memory at most, and heap afterwards, in MiB while {what}",
            ("rows", *columns),
            [
                [f"{count:,}", *(f"{sizes[part] / _MIB:,.0f}" for part in columns)]
                for count, sizes in zip(counts, told[what], strict=True)
            ],
        )
        for what in told
    ]
    figures = []
    for (what, part), name in names.items():
        ratio = told[what][-1][part] / max(told[what][0][part], 1)
        figures.append(Figure(name, "<=", ALLOWED, Spread(ratio, ratio, ratio)))
    return Result(tables, figures)


def _rows(rig: Rig, spark: SparkSession, count: int) -> DataFrame:
    if not rig.documents:
        return datasets(spark, count)
    text = (
        'concat(\'{"name": "orders_\', id, \'", "tags": ["a", "b"], "text": "\', hex(id), \'"}\')'
    )
    ids = spark.range(count, numPartitions=2)
    return ids.selectExpr(
        "concat('small/', lpad(id, 8, '0')) AS key", f"rpad({text}, 100) AS document"
    )


def _both(rig: Rig, spark: SparkSession, rows: DataFrame, state: Path) -> dict[str, dict[str, int]]:
    """Of writing the rows into a new catalog, and of keeping it in step with them twice."""
    port, catalog = rig.gateway(), f"spark-memory-{rig.serial()}"
    written = peaks(partial(write, rows, port, catalog), port)
    written[HEAP] = heap_bytes(spark)
    _step(rows, port, catalog, state)
    synced = peaks(partial(_step, rows, port, catalog, state), port)
    synced[HEAP] = heap_bytes(spark)
    return {WRITING: written, SYNCING: synced}


def _step(rows: DataFrame, port: int, catalog: str, state: Path) -> None:
    from patching.spark.sync import sync

    report = sync(rows, catalog, url=f"http://127.0.0.1:{port}", state=str(state))
    if report.sent or not report.in_step:
        raise UpdateLost(f"{report}")

"""A Spark session on two threads of this machine, and frames to measure with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.documents import dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THREADS = 2


@contextmanager
def session() -> Iterator[SparkSession]:
    """With the data source registered; stopped in the end."""
    from pyspark.sql import SparkSession

    from patching.spark import register

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{THREADS}]")
        .appName("benchmarks")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")  # where large results of tasks are fetched
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(THREADS))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def datasets(spark: SparkSession, count: int, changed_every: int | None = None) -> DataFrame:
    """(key, document): ``count`` datasets of 1.5 KB, every so many-th with another owner."""
    text = msgspec.json.encode(dataset(0, 1500)).decode()
    before, _, after = text.partition("orders_000000")
    rows = spark.range(count, numPartitions=THREADS)
    owner = f"if(id % {changed_every} = 0, 'b', 'a')" if changed_every else "'a'"
    return rows.selectExpr(
        "concat('dataset/', lpad(id, 8, '0')) as key",
        f"concat({_literal(before)}, 'orders_', id, '_', {owner}, {_literal(after)}) as document",
    )


def write(rows: Any, port: int, catalog: str, **options: Any) -> None:
    """Through the sink."""
    writer = rows.write.format("metadata").mode("append")
    writer.options(url=f"http://127.0.0.1:{port}", catalog=catalog, **options).save()


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

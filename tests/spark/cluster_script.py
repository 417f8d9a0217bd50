"""Run by `test_sink_cluster`: two executors, one of which is killed.

    python -m tests.spark.cluster_script URL CATALOG FOLDER

Each of three partitions appends its numbers to a document's log. What ran is left in FOLDER, a file
``partition-attempt`` each.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from patching.client import CatalogRoutes, RequestError, Transport
from patching.spark import register
from tests.spark.sessions import spark_settings

ROWS = 400
_BATCH = 10
_EXECUTOR = "CoarseGrainedExecutorBackend"


def main(url: str, catalog: str, folder: str) -> None:
    spark = session(Path(folder))
    ids = spark.range(0, 3 * ROWS, 1, 3)
    patch = """concat('[{"op": "add", "path": "/log/-", "value": ', id, '}]')"""
    rows = ids.selectExpr(f"concat('k', id div {ROWS}) AS key", f"{patch} AS patch")
    kind = "key string, patch string"
    rows = rows.mapInArrow(noted(folder), kind)
    writer = rows.write.format("metadata").mode("append").option("url", url)
    threading.Thread(target=kill_an_executor, args=(url, catalog), daemon=True).start()
    writer.option("catalog", catalog).option("batchSize", 5).save()
    spark.stop()


def session(folder: Path) -> Any:
    builder = SparkSession.builder.master("local-cluster[2,2,512]")
    settings = {
        "spark.executor.memory": "512m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
    }
    for name, value in (spark_settings(folder / "spark") | settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def noted(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Passes the rows on, and leaves a file behind that says who did."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches

    return run


def kill_an_executor(url: str, catalog: str) -> None:
    with Transport(url) as transport:
        routes = CatalogRoutes(transport, catalog)
        reached = False
        while not reached:
            with suppress(RequestError):
                reached = routes.read().revision > ROWS // 2
    executors = [each for each in psutil.Process().children(recursive=True) if is_executor(each)]
    executors[0].kill()


def is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        command = process.cmdline()
        return "java" in command[0] and any(_EXECUTOR in word for word in command)
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])

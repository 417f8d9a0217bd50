"""Attempts at a task that are lost, or run at once, on executors whose Python has no tests.

What is sent there is functions within functions, which come as code and not as names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil

from patching.client import CatalogRoutes, RequestError, Transport
from tests.spark.written import Written

Batches = Iterator[Any]
_EXECUTOR = "CoarseGrainedExecutorBackend"


def append_in_three_tasks(
    spark: Any,
    written: Written,
    passed_on: Callable[[Batches], Batches],
    *,
    rows: int,
    together: int,
) -> None:
    """Each of three partitions appends so many numbers to the log of its document, so many of which
    come together. Fails where a document's log isn't then its numbers in order, each once."""
    for number in range(3):
        written.put(f"k{number}", {"log": []})
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(together))
    ids = spark.range(0, 3 * rows, 1, 3)
    patch = """concat('[{"op": "add", "path": "/log/-", "value": ', id, '}]')"""
    frame = ids.selectExpr(f"concat('k', id div {rows}) AS key", f"{patch} AS patch")
    frame = frame.mapInArrow(passed_on, "key string, patch string")
    writer = frame.write.format("metadata").mode("append").option("url", written.url)
    writer.option("catalog", written.catalog).option("batchSize", 5).save()
    documents = written.routes.export().documents
    for number in range(3):
        expected = list(range(number * rows, (number + 1) * rows))
        assert documents[f"k{number}"] == {"log": expected}


def noted(folder: str, stops_at: int | None = None) -> Callable[[Batches], Batches]:
    """Passes the rows on, and leaves a file ``partition-attempt`` behind. Before the row of this
    number the first attempt at partition 0 stops until there is another one."""

    def run(batches: Batches) -> Batches:
        from pathlib import Path
        from time import sleep

        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        who = (context.partitionId(), context.attemptNumber())
        Path(folder, f"{who[0]}-{who[1]}").touch()
        if stops_at is None:
            yield from batches
            return
        for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
            if who == (0, 0) and number == stops_at:
                while not Path(folder, "0-1").exists():
                    sleep(0.01)
            # So large that Spark's buffers pass it on at once.
            yield pa.RecordBatch.from_pylist([{**row, "patch": row["patch"] + " " * 70_000}])

    return run


def kill_an_executor(url: str, catalog: str, revision: int) -> None:
    """When the catalog is at this revision."""
    with Transport(url) as transport:
        routes, reached = CatalogRoutes(transport, catalog), False
        while not reached:
            with suppress(RequestError):  # there is no such catalog yet
                reached = routes.commits(2**62).head_revision >= revision
            time.sleep(0.01)
    executors = [each for each in psutil.Process().children(recursive=True) if _is_executor(each)]
    executors[0].kill()


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        command = process.cmdline()
        return "java" in command[0] and any(_EXECUTOR in word for word in command)
    return False

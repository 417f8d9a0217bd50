"""Run by `test_sink_speculation`: a cluster of two machines, which are two addresses of this one.

    python -m tests.spark.speculation_script URL CATALOG FOLDER

Each of three partitions appends its numbers to a document's log. The first attempt of partition 0
stops half-way until there is another one, which Spark starts on the other machine for its slowness.
What ran is left in FOLDER, a file ``partition-attempt`` each.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession

from patching.spark import register
from tests.spark.sessions import spark_settings

ROWS = 120
_BATCH = 1


def main(url: str, catalog: str, folder: str) -> None:
    launched: list[subprocess.Popen[bytes]] = []
    try:
        write(session(start_cluster(launched), Path(folder)), url, catalog, folder)
    finally:
        for each in launched:
            each.kill()


def write(spark: Any, url: str, catalog: str, folder: str) -> None:
    ids = spark.range(0, 3 * ROWS, 1, 3)
    patch = """concat('[{"op": "add", "path": "/log/-", "value": ', id, '}]')"""
    rows = ids.selectExpr(f"concat('k', id div {ROWS}) AS key", f"{patch} AS patch")
    rows = rows.mapInArrow(slow_at_first(folder), "key string, patch string")
    writer = rows.write.format("metadata").mode("append").option("url", url)
    writer.option("catalog", catalog).option("batchSize", 5).save()
    spark.stop()


def start_cluster(launched: list[subprocess.Popen[bytes]]) -> str:
    """Of a master and two workers, which are added to ``launched``; the master's URL."""

    def launch(kind: str, *arguments: str) -> None:
        start = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = (start, f"org.apache.spark.deploy.{kind}", *arguments)
        launched.append(subprocess.Popen(command))

    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    launch("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    for host in ("127.0.0.2", "127.0.0.3"):
        launch(
            *("worker.Worker", "--host", host, "--webui-port", "0"),
            *("--cores", "2", "--memory", "1g", master),
        )
    return master


def session(master: str, folder: Path) -> Any:
    builder = SparkSession.builder.master(master)
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
    }
    for name, value in (spark_settings(folder / "spark") | settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def slow_at_first(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows are so large that Spark's buffers pass them on at once."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        Path(folder, f"{partition}-{attempt}").touch()
        rows = [row for batch in batches for row in batch.to_pylist()]
        for number, row in enumerate(rows):
            if partition == attempt == 0 and number == ROWS // 2:
                while not Path(folder, "0-1").exists():
                    time.sleep(0.01)
            yield pa.RecordBatch.from_pylist([{**row, "patch": row["patch"] + " " * 70_000}])

    return run


if __name__ == "__main__":
    main(*sys.argv[1:])

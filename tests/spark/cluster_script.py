"""Run by `test_sink_cluster`: a cluster of two machines, which are two addresses of this one.

    python -m tests.spark.cluster_script URL CATALOG FOLDER

Each of three partitions appends its numbers to a document's log. In CATALOG-lost, one of the two
executors is killed meanwhile. In CATALOG-slow, the first attempt of partition 0 stops half-way
until there is another one, which Spark starts on the other machine for its slowness. What ran is
left in FOLDER/lost and FOLDER/slow, a file ``partition-attempt`` each.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.sql import SparkSession

from patching.client import CatalogRoutes, RequestError, Transport
from patching.spark import register
from tests.spark.sessions import spark_settings
from tests.spark.test_sink_cluster import ROWS

_EXECUTOR = "CoarseGrainedExecutorBackend"

Batches = Iterator[Any]


def main(url: str, catalog: str, folder: str) -> None:
    settings = spark_settings(Path(folder) / "spark") | SETTINGS
    spark = session(start_cluster(settings, Path(folder)), settings)
    # In this order: nothing is as it was once an executor is lost.
    be_slow(spark, url, f"{catalog}-slow", str(Path(folder, "slow")))
    lose_an_executor(spark, url, f"{catalog}-lost", str(Path(folder, "lost")))
    spark.stop()


def lose_an_executor(spark: Any, url: str, catalog: str, folder: str) -> None:
    killing = threading.Thread(target=kill_an_executor, args=(url, catalog), daemon=True)
    killing.start()
    write(spark, url, catalog, noted(folder), rows=ROWS["lost"], together=10)
    killing.join()


def be_slow(spark: Any, url: str, catalog: str, folder: str) -> None:
    write(spark, url, catalog, slow_at_first(folder), rows=ROWS["slow"], together=1)


def write(
    spark: Any,
    url: str,
    catalog: str,
    passed_on: Callable[[Batches], Batches],
    *,
    rows: int,
    together: int,
) -> None:
    """Three partitions of so many rows, so many of which come together."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(together))
    ids = spark.range(0, 3 * rows, 1, 3)
    patch = """concat('[{"op": "add", "path": "/log/-", "value": ', id, '}]')"""
    frame = ids.selectExpr(f"concat('k', id div {rows}) AS key", f"{patch} AS patch")
    frame = frame.mapInArrow(passed_on, "key string, patch string")
    writer = frame.write.format("metadata").mode("append").option("url", url)
    writer.option("catalog", catalog).option("batchSize", 5).save()


def start_cluster(settings: dict[str, str], folder: Path) -> str:
    """Of a master and two workers, in the JVM of the driver to be; the master's URL. Executors have
    JVMs of their own, and go to two machines as far as Spark can tell."""
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    jvm: Any = SparkContext._jvm
    conf, deploy = jvm.org.apache.spark.SparkConf(), jvm.org.apache.spark.deploy
    started = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    master = f"spark://127.0.0.1:{started._1().address().port()}"
    masters = SparkContext._gateway.new_array(jvm.String, 1)
    masters[0] = master
    for number, host in enumerate(("127.0.0.2", "127.0.0.3")):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            *(host, 0, 0, 2, 1024, masters, str(folder / "work")),
            *(jvm.scala.Option.apply(number), conf, jvm.scala.Option.empty()),
        )
    return master


SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.cores.max": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def session(master: str, settings: dict[str, str]) -> Any:
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def noted(folder: str) -> Callable[[Batches], Batches]:
    """Passes the rows on, and leaves a file behind that says who did."""

    def run(batches: Batches) -> Batches:
        note(folder)
        yield from batches

    return run


def note(folder: str) -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, f"{partition}-{attempt}").touch()
    return partition, attempt


def slow_at_first(folder: str) -> Callable[[Batches], Batches]:
    """Rows are so large that Spark's buffers pass them on at once."""

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        who = note(folder)
        rows = [row for batch in batches for row in batch.to_pylist()]
        for number, row in enumerate(rows):
            if who == (0, 0) and number == ROWS["slow"] // 2:
                while not Path(folder, "0-1").exists():
                    time.sleep(0.01)
            yield pa.RecordBatch.from_pylist([{**row, "patch": row["patch"] + " " * 70_000}])

    return run


def kill_an_executor(url: str, catalog: str) -> None:
    """When it is in the middle."""
    with Transport(url) as transport:
        routes = CatalogRoutes(transport, catalog)
        reached = False
        while not reached:
            with suppress(RequestError):
                reached = routes.read().revision > ROWS["lost"] // 2
    executors = [each for each in psutil.Process().children(recursive=True) if is_executor(each)]
    executors[0].kill()


def is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        command = process.cmdline()
        return "java" in command[0] and any(_EXECUTOR in word for word in command)
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])

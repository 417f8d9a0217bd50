"""The streaming sink: a query that is ended at random moments and started again from its
checkpoint applies every row once, and in order."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from patching.client import CatalogRoutes, RequestError, Transport
from tests.patience import RUN_S, WAIT_S
from tests.service import RunningGateway
from tests.spark.processes import kill, python_workers
from tests.spark.sessions import ROOT

Query = Callable[..., Any]
_SCHEMA = "key string, patch string"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the stream finds its rows."""
    (tmp_path / "rows").mkdir()
    return tmp_path


def fill(folder: Path, files: int, rows: int) -> list[int]:
    """Each file is a micro-batch of one partition; the numbers that its patches append."""
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        lines = [
            json.dumps({"key": "k", "patch": json.dumps([operation(number)])}) for number in numbers
        ]
        path = folder / "rows" / f"{file:04}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (file, file))  # the source takes the oldest first
    return list(range(files * rows))


def operation(number: int) -> dict[str, Any]:
    return {"op": "add", "path": "/log/-", "value": number}


@pytest.fixture
def log(gateway: RunningGateway, catalog: str) -> Iterator[Callable[[], list[int]]]:
    """`log()`: what the document's log holds now; it begins empty."""
    path = f"/v1/catalogs/{catalog}/documents/k"
    with Transport(gateway.url) as transport:
        transport.request("PUT", path, json={"log": []})
        yield lambda: transport.request("GET", path).json()["log"]


@pytest.fixture
def start(spark: Any, gateway: RunningGateway, catalog: str, folder: Path) -> Query:
    """`start(**options)`: the query, from its checkpoint."""

    def begin(*, mode: str = "append", frame: Any = None, **options: Any) -> Any:
        if frame is None:
            source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
            frame = source.json(str(folder / "rows"))
        writer = frame.writeStream.format("metadata").outputMode(mode)
        for name, value in {"url": gateway.url, "catalog": catalog, **options}.items():
            writer = writer.option(name, value)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    return begin


def is_within_a_batch(folder: Path) -> bool:
    """Whether the newest micro-batch was begun and isn't committed."""

    def newest(name: str) -> int:
        found = (folder / "checkpoint" / name).glob("[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    return newest("offsets") > newest("commits")


def test_a_query_ended_at_random_moments_applies_each_row_once(
    spark: Any, start: Query, folder: Path, routes: CatalogRoutes, log: Any
) -> None:
    numbers = fill(folder, 8, 250)
    luck = random.Random(11)
    within = 0
    for end in range(20):
        query = start(batchSize=5)
        target = routes.read().revision + luck.randint(1, 70)
        while query.isActive and routes.read().revision < target:
            time.sleep(0.001)  # the moment is what the revision says
        if end % 2:
            kill(python_workers(spark))
        query.stop()
        within += is_within_a_batch(folder)
    query = start(batchSize=50)
    query.awaitTermination()
    assert query.exception() is None
    assert log() == numbers
    assert within >= 15, "they were to be ended in the middle"


def test_without_keys_a_restart_shows(start: Query, folder: Path, log: Any) -> None:
    """The same without idempotency keys: what the test before looks for can be seen."""
    numbers = fill(folder, 1, 400)
    query = start(batchSize=5, idempotency="none")
    while query.isActive and not 5 < len(log()) < 300:
        time.sleep(0.001)
    query.stop()
    assert is_within_a_batch(folder)
    start(batchSize=100, idempotency="none").awaitTermination()
    assert len(log()) > len(numbers)


def test_complete_output_is_refused(spark: Any, start: Query, folder: Path) -> None:
    fill(folder, 1, 1)
    source = spark.readStream.schema(_SCHEMA).json(str(folder / "rows"))
    frame = source.groupBy("key").agg({"patch": "max"}).withColumnRenamed("max(patch)", "patch")
    with pytest.raises(Exception, match="output mode complete would replace"):
        start(mode="complete", frame=frame).awaitTermination()


_SCRIPT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from patching.spark import register
from tests.spark.sessions import spark_settings

url, catalog, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in spark_settings(Path(folder)).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
register(spark)
rows = spark.readStream.schema("key string, patch string").option("maxFilesPerTrigger", 1)
query = (
    rows.json(folder + "/rows").writeStream.format("metadata").outputMode("append")
    .option("url", url).option("catalog", catalog).option("batchSize", 5)
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""


def begin(gateway: RunningGateway, catalog: str, folder: Path) -> subprocess.Popen[str]:
    """A driver of its own, and all that it starts, in a group of their own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment = {k: v for k, v in environment.items() if k != "PYSPARK_GATEWAY_PORT"}
    return subprocess.Popen(
        (sys.executable, "-c", _SCRIPT, gateway.url, catalog, str(folder)),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """Of driver, JVM and Python workers, by SIGKILL."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        kill(children)
        psutil.wait_procs(children, WAIT_S)
    process.wait()


def test_a_killed_driver_starts_again_where_it_was(
    java: None,  # noqa: ARG001
    gateway: RunningGateway,
    catalog: str,
    folder: Path,
    routes: CatalogRoutes,
    log: Any,
) -> None:
    numbers = fill(folder, 2, 300)
    first = begin(gateway, catalog, folder)
    try:
        while first.poll() is None and routes.read().revision < 100:
            time.sleep(0.005)
    finally:
        end(first)
    assert is_within_a_batch(folder)
    with suppress(RequestError):
        assert 0 < len(log()) < 300
    second = begin(gateway, catalog, folder)
    try:
        _, said = second.communicate(timeout=RUN_S)
    finally:
        end(second)
    assert second.returncode == 0, said
    assert log() == numbers
    assert "metadata: micro-batch 0 is done: 300 applied (" in said
    assert "metadata: micro-batch 1 is done: 300 applied (0 of them when sent before)" in said

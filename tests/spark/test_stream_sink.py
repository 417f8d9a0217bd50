"""The streaming sink: a query that is ended anywhere and started again from its checkpoint applies
every row once, and in order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from patching.client import CatalogRoutes, Transport
from patching.spark.options import WRITE, Options
from patching.spark.outcomes import Counts, TaskWritten
from patching.spark.sink import MetadataStreamWriter
from tests.service import RunningGateway
from tests.spark.processes import kill, python_workers
from tests.spark.sessions import Sessions

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
def start(sessions: Sessions, gateway: RunningGateway, catalog: str, folder: Path) -> Query:
    """`start(**options)`: the query, from its checkpoint."""

    def begin(*, mode: str = "append", frame: Any = None, **options: Any) -> Any:
        if frame is None:
            source = sessions.living().readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
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


# What each run is ended after: so many commits, of the 250 of a micro-batch, or of two of them.
_ENDED_AFTER = (1, 4, 37, 120, 101, 290)


def test_a_query_ended_anywhere_applies_each_row_once(
    spark: Any, start: Query, folder: Path, routes: CatalogRoutes, log: Any
) -> None:
    """At its first rows, twice in a micro-batch and beyond its end; by a stop or by death."""
    numbers = fill(folder, 3, 250)
    within = 0
    for turn, commits in enumerate(_ENDED_AFTER):
        query = start(batchSize=5)
        target = routes.read().revision + commits
        while query.isActive and routes.read().revision < target:
            time.sleep(0.001)  # the moment is what the revision says
        if turn % 2:
            kill(python_workers(spark))
        query.stop()
        within += is_within_a_batch(folder)
    query = start(batchSize=50)
    query.awaitTermination()
    assert query.exception() is None
    assert log() == numbers
    assert within >= 4, "they were to be ended in the middle"


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


def test_a_killed_driver_starts_again_where_it_was(
    sessions: Sessions, start: Query, folder: Path, routes: CatalogRoutes, log: Any
) -> None:
    """It, and all that it started, by SIGKILL: what is left is the checkpoint."""
    numbers = fill(folder, 2, 300)
    query = start(batchSize=5)
    while query.isActive and routes.read().revision < 100:
        time.sleep(0.001)
    sessions.throw_away()
    assert is_within_a_batch(folder)
    assert 0 < len(log()) < 300
    query = start(batchSize=50)
    query.awaitTermination()
    assert query.exception() is None
    assert log() == numbers


def test_what_a_micro_batch_did_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    schema = StructType([StructField(name, StringType()) for name in ("key", "patch")])
    options = Options.parse({"url": "http://127.0.0.1:1", "catalog": "c"}, WRITE)
    writer = MetadataStreamWriter(schema, options, overwrite=False)
    tasks = [TaskWritten(0, Counts(applied=200, replayed=30)), None, TaskWritten(1, Counts(100))]
    writer.commit(tasks, 7)
    assert "metadata: micro-batch 7 is done: 300 applied (30 of them when sent before)" in (
        capsys.readouterr().err
    )
    writer.abort(tasks, 7)
    assert "metadata: micro-batch 7 FAILED, and nothing is undone" in capsys.readouterr().err

"""The streaming sink: a query that is ended anywhere and started again from its checkpoint applies
every row once, and in order."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from patching.client.transport import Transport
from patching.spark import batch_writer
from patching.spark.options import WRITE, OptionRefused, Options
from patching.spark.outcomes import OutcomeCounts, Reports, TaskWritten
from patching.spark.sink import MetadataStreamWriter
from tests.patience import WAIT_S
from tests.service import RunningGateway
from tests.spark.passing import Passing
from tests.spark.processes import kill, local_pythons, tear
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
            source = sessions.running().readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
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


class Held:
    """The query's bulk requests from one on, counted from 1, get nowhere: that one before it is
    passed on, or ``applied`` and not answered. Entered when it is reached."""

    def __init__(self, passing: Passing, number: int, *, applied: bool) -> None:
        self._reached, self._released = threading.Event(), threading.Event()
        self._count, self._number, self._applied = 0, number, applied
        passing.before, passing.after = self._before, self._after

    def __enter__(self) -> None:
        assert self._reached.wait(WAIT_S)

    def __exit__(self, *_: object) -> None:
        """Passes on the answers that were held."""
        self._released.set()

    def _before(self, _method: str, path: str, _port: int) -> None:
        if path == "/v1/bulk":
            self._count += 1
            self._hold(self._count >= self._number + self._applied)

    def _after(self, _method: str, path: str, _port: int) -> None:
        self._hold(path == "/v1/bulk" and self._applied and self._count >= self._number)

    def _hold(self, here: bool) -> None:
        if here:
            self._reached.set()
            self._released.wait(WAIT_S)


def test_a_killed_driver_starts_again_where_it_was(
    sessions: Sessions, start: Query, passing: Passing, folder: Path, log: Any
) -> None:
    """It, and all that it started, by SIGKILL: what is left is the checkpoint.

    Before, it is torn apart between a call of the JVM and its answer, as tests may be that hang.
    The first test: the session that is lost has done least.
    """
    numbers = fill(folder, 2, 20)
    held = Held(passing, 3, applied=True)
    start(batchSize=5, url=passing.url)
    with held:
        tear(sessions.running())
        sessions.discard()
        assert is_within_a_batch(folder)
        assert log() == numbers[:15]
    query = start(batchSize=5)
    query.awaitTermination()
    assert query.exception() is None
    assert log() == numbers


# Of each run, the bulk request that it ends in, of four for a micro-batch, and whether that was
# applied: nothing sent, an inner one unanswered, all of them; then in the middle of the next
# micro-batch, over the end of the one before.
_ENDS = [(1, False), (2, True), (4, True), (6, True)]


def test_a_query_ended_anywhere_applies_each_row_once(
    start: Query, passing: Passing, folder: Path, log: Any
) -> None:
    """By a stop, or by the death of its workers too, after which a task is tried again."""
    numbers = fill(folder, 2, 20)
    for turn, (number, applied) in enumerate(_ENDS):
        held = Held(passing, number, applied=applied)
        query = start(batchSize=5, url=passing.url)
        with held:
            if turn % 2:
                assert kill(local_pythons().workers()) > 0
            query.stop()
        assert is_within_a_batch(folder), (number, applied)
    query = start(batchSize=50, reportPath=str(folder / "reports"))
    query.awaitTermination()
    assert query.exception() is None
    assert log() == numbers
    reports = [json.loads(path.read_text()) for path in (folder / "reports").iterdir()]
    assert reports
    assert all(each["done"] and each["applied"] == 20 for each in reports)
    assert sum(each["replayed"] for each in reports) > 0  # the request that was held last


def test_a_source_not_partitioned_by_key_survives_restarts(
    spark: Any, start: Query, passing: Passing, folder: Path, log: Any
) -> None:
    """As a topic is whose keys are others: when the query is started again, rows come in fewer or
    more partitions and another order. Nothing is lost, and nothing applied twice."""
    numbers = fill(folder, 2, 40)

    def shuffled(partitions: int) -> Any:
        source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        return source.json(str(folder / "rows")).repartition(partitions)

    for partitions, size in ((5, 5), (2, 6)):
        held = Held(passing, 4, applied=True)
        query = start(frame=shuffled(partitions), batchSize=size, url=passing.url)
        with held:
            query.stop()
        assert is_within_a_batch(folder)
    query = start(frame=shuffled(4), batchSize=7)
    query.awaitTermination()
    assert query.exception() is None
    assert sorted(log()) == numbers


def test_a_restarted_micro_batch_tries_refused_rows_again(
    start: Query, folder: Path, gateway: RunningGateway, catalog: str, log: Any
) -> None:
    fill(folder, 1, 3)
    path = folder / "rows" / "0000.json"
    other = json.dumps({"key": "new", "patch": json.dumps([operation(9)])})
    path.write_text(f"{path.read_text()}\n{other}")
    query = start()
    with pytest.raises(Exception, match="refused"):
        query.awaitTermination()
    assert is_within_a_batch(folder)
    with Transport(gateway.url) as transport:
        new = f"/v1/catalogs/{catalog}/documents/new"
        transport.request("PUT", new, json={"log": []})
        query = start()
        query.awaitTermination()
        assert query.exception() is None
        assert transport.request("GET", new).json() == {"log": [9]}
    assert log() == [0, 1, 2]


def test_without_keys_a_restart_applies_rows_twice(
    start: Query, passing: Passing, folder: Path, log: Any
) -> None:
    """The same without idempotency keys: what the test before looks for can be seen."""
    numbers = fill(folder, 1, 50)
    held = Held(passing, 3, applied=True)
    query = start(batchSize=5, idempotency="none", url=passing.url)
    with held:
        query.stop()
    assert is_within_a_batch(folder)
    start(batchSize=100, idempotency="none").awaitTermination()
    assert len(log()) >= len(numbers) + 15


def test_complete_output_is_refused(spark: Any, start: Query, folder: Path) -> None:
    fill(folder, 1, 1)
    source = spark.readStream.schema(_SCHEMA).json(str(folder / "rows"))
    frame = source.groupBy("key").agg({"patch": "max"}).withColumnRenamed("max(patch)", "patch")
    with pytest.raises(Exception, match="output mode complete, which would replace"):
        start(mode="complete", frame=frame).awaitTermination()


def test_update_mode_works_through_foreach_batch(
    spark: Any, start: Query, folder: Path, gateway: RunningGateway, catalog: str, log: Any
) -> None:
    """Spark allows a Python sink no update mode; a batch that is named is applied once."""
    fill(folder, 2, 3)
    source = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    counts = source.json(str(folder / "rows")).groupBy("key").count()
    with pytest.raises(Exception, match="does not support Update mode"):
        start(mode="update", frame=counts).awaitTermination()

    once = batch_writer("counts", url=gateway.url, catalog=catalog, batchSize=7)

    def write(batch: Any, number: int) -> None:
        log_it = batch.selectExpr(
            "key",
            "to_json(array(named_struct('op', 'add', 'path', '/log/-', 'value', count))) patch",
        )
        for _ in range(2):
            once(log_it, number)

    for checkpoint, written in (("other", [3, 6]), ("new", [3, 6, 3, 6])):
        query = counts.writeStream.outputMode("update").foreachBatch(write)
        query = query.option("checkpointLocation", str(folder / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        assert log() == written, "a new checkpoint is another query"


def test_options_without_effect_on_a_query_are_refused() -> None:
    schema = StructType([StructField(name, StringType()) for name in ("key", "patch")])
    for more, said in (
        (
            {"txnAppId": "a", "txnVersion": "1"},
            "'txnAppId': not for a query, which names its micro-batches",
        ),
        (
            {"txnPrincipals": "a", "idempotency": "none"},
            "'txnPrincipals': it can't be given together with idempotency=none",
        ),
    ):
        options = Options.parse({"url": "http://127.0.0.1:1", "catalog": "c", **more}, WRITE)
        with pytest.raises(OptionRefused, match=said):
            MetadataStreamWriter(schema, options, overwrite=False)


def test_a_micro_batch_reports_what_it_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    schema = StructType([StructField(name, StringType()) for name in ("key", "patch")])
    options = Options.parse({"url": "http://127.0.0.1:1", "catalog": "c"}, WRITE)
    writer = MetadataStreamWriter(schema, options, overwrite=False)
    tasks = [
        TaskWritten(0, OutcomeCounts(applied=200, replayed=30)),
        None,
        TaskWritten(1, OutcomeCounts(100)),
    ]
    writer.commit(tasks, 7)
    assert "metadata: micro-batch 7 is done: 300 applied (30 of them by an earlier try)" in (
        capsys.readouterr().err
    )
    writer.abort(tasks, 7)
    assert (
        "metadata: micro-batch 7 FAILED, and what was applied stays applied"
        in capsys.readouterr().err
    )


def test_the_reports_of_a_thousand_micro_batches_are_kept(tmp_path: Path) -> None:
    reports = Reports(str(tmp_path))
    for number in (0, 1, 7, 999, 1_000, 1_001, 1_006):
        reports.write_batch(number, OutcomeCounts(applied=number), done=True)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {f"micro-batch-{number}.json" for number in (7, 999, 1_000, 1_001, 1_006)}

"""Spark Connect, on a standalone cluster that is given the library as docs/spark.md says.

The executors' Python has PySpark and nothing else, so what they import they were sent. What rows
come to is tested elsewhere: here, that a remote session and such executors do it all; and that a
lost executor, or a task that sleeps, applies no row twice.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.docs.pages import Page
from tests.installation import PROJECT, ROOT, installation
from tests.patience import RUN_S
from tests.service import RunningGateway
from tests.spark.written import Written

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")
pytest.importorskip("grpc", reason="the extra `dev` isn't installed: Spark Connect speaks gRPC")

import patching.spark.export
from patching.client.routes import CatalogRoutes
from patching.spark import register
from patching.spark.export import export_catalog, export_history
from patching.spark.session import parallelism
from patching.spark.sync import replay, sync, write_plan
from tests.spark.attempts import (
    Asleep,
    append_in_three_tasks,
    kill_an_executor,
    noted,
    require_each_once,
)
from tests.spark.cluster import connect_server
from tests.spark.passing import Passing
from tests.spark.processes import Pythons

_FILES = (
    *("gateway", "patching", "pyspark_metadata_gateway.py", "openapi.yaml"),
    *("pyproject.toml", "README.md", "LICENSE"),
)

# The catalog that the application is for.
SUBMITTED = "submitted"


class Shipped(NamedTuple):
    """A folder where docs/spark.md was followed, and what it gives to spark-submit."""

    folder: Path
    options: list[str]
    environment: dict[str, str]


@pytest.fixture(scope="module")
def shipped(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("shipped")
    for name in _FILES:
        place = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        if place.is_dir():
            shutil.copytree(place, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(place, folder)
    text = Page(ROOT / "docs" / "spark.md").text.partition("## On a cluster")[2]
    *build, run = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in build:
        done = subprocess.run(
            ("bash", "-c", line), cwd=folder,
            # Of most of what is shipped, nothing runs.
            env={**os.environ, "PATH": path, "PIP_NO_COMPILE": "1"},
            capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    words = shlex.split(run.replace("$PWD", str(folder)))
    at = words.index("spark-submit")
    python = installation(
        folder / "bare", *PROJECT["optional-dependencies"]["spark"], project=False
    )
    variables = dict(word.split("=", 1) for word in words[:at])
    with closing(Pythons(str(python))) as pythons:
        yield Shipped(folder, words[at + 1 : -1], variables | pythons.variables)


@pytest.fixture(scope="module")
def remote(shipped: Shipped, shared_gateway: RunningGateway) -> Iterator[str]:
    """The address of the server, whose application has brought a catalog in step before."""
    (shipped.folder / "wanted.jsonl").write_text('{"key": "a", "document": {"x": 1}}\n')
    command = ("sync", "wanted.jsonl", SUBMITTED, "--url", shared_gateway.url)
    application = ("metadata/patching/spark/__main__.py", *command)
    with connect_server(shipped.folder, shipped.options, shipped.environment, application) as found:
        yield found


@pytest.fixture(scope="module")
def session(remote: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    made = SparkSession.builder.remote(remote).create()
    register(made)
    yield made
    made.stop()


@pytest.fixture
def spark(session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What PySpark's own builder of remote sessions sets, for the functions of `pyspark.sql`."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return session


def documents(spark: Any, keys: range, content: str = "{}") -> Any:
    return spark.createDataFrame(
        [(f"k{key:03}", content.replace("{}", f'{{"a": {key}}}')) for key in keys],
        "key string, document string",
    )


def write(frame: Any, written: Written) -> None:
    writer = frame.write.format("metadata").mode("append").option("url", written.url)
    writer.option("catalog", written.catalog).save()


def read(spark: Any, written: Written, **options: Any) -> Any:
    reader = spark.read.format("metadata").option("url", written.url)
    return reader.option("catalog", written.catalog).options(**options).load()


def test_the_library_is_imported_from_the_shipped_archive_on_both_workers(spark: Any) -> None:
    def where(batches: Any) -> Any:
        import time

        import pyarrow as pa

        import patching.client
        import patching.spark.sink

        for _ in batches:
            time.sleep(1)  # so that both executors get a task
            yield pa.RecordBatch.from_pylist([{"file": patching.spark.sink.__file__}])

    assert parallelism(spark) == 2
    rows = spark.range(0, 4, 1, 4).mapInArrow(where, "file string").distinct().collect()
    executors = [Path(row["file"]).parents[3] for row in rows]
    assert {each.name for each in executors} == {"0", "1"}
    assert all(row["file"].endswith("/metadata/patching/spark/sink.py") for row in rows)


def test_rows_are_written_and_read(spark: Any, written: Written) -> None:
    write(documents(spark, range(20)).repartition(3), written)

    assert written.routes.export().documents == {f"k{n:03}": {"a": n} for n in range(20)}
    assert read(spark, written, partitions=3).count() == 20
    assert [row["value"] for row in read(spark, written, key="k007").collect()] == ['{"a":7}']
    assert read(spark, written, type="changes").count() == 20


def test_a_refused_row_is_reported(spark: Any, written: Written) -> None:
    with pytest.raises(Exception, match=r"row 0 \(key 'k'\): column 'document': it isn't JSON"):
        write(spark.createDataFrame([("k", "{")], "key string, document string"), written)


def test_a_frame_stays_at_its_revision(spark: Any, written: Written) -> None:
    written.put("a", 1)
    frame = read(spark, written, revision=1)
    written.put("b", 1)
    assert frame.count() == 1
    assert frame.alias("x").join(frame.alias("y"), "key").count() == 1


def test_a_stream_copies_one_catalog_to_another(
    spark: Any, written: Written, tmp_path: Path
) -> None:
    written.put_each((f"k{n}", n) for n in range(5))

    feed = spark.readStream.format("metadata").option("url", written.url)
    feed = feed.option("catalog", written.catalog).option("type", "changes")
    rows = feed.option("startingRevision", "earliest").load()
    copies = rows.selectExpr(
        f"'{written.catalog}-copy' AS catalog", "key", "string(revision) AS document"
    )
    query = (
        copies.writeStream.format("metadata")
        .outputMode("append")
        .option("url", written.url)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = Written(written.url, f"{written.catalog}-copy", written.transport)
    assert copied.routes.export().documents == {f"k{n}": n + 1 for n in range(5)}


def test_sync_makes_the_catalog_equal(spark: Any, written: Written, tmp_path: Path) -> None:
    written.put_all({"k000": {"a": 0}, "k001": {"a": 2}, "gone": 1})
    wanted = documents(spark, range(4))

    plan = write_plan(wanted, written.catalog, str(tmp_path / "plan"), url=written.url, delete=True)
    assert (plan.unchanged, plan.create, plan.patch, plan.delete) == (1, 2, 1, 1)
    assert replay(spark, str(tmp_path / "plan"), url=written.url).in_step
    in_step = {f"k{n:03}": {"a": n} for n in range(4)}
    assert written.routes.export().documents == in_step

    written.put_all({"k000": 1, "other": 1})
    wanted.createOrReplaceTempView("wanted")
    report = sync("wanted", written.catalog, url=written.url, delete=True)
    assert (report.unchanged, report.patched, report.deleted) == (3, 1, 1)
    assert written.routes.export().documents == in_step


def test_a_catalog_is_exported(spark: Any, written: Written, tmp_path: Path) -> None:
    written.put("a", 1)
    written.put("a", 2)
    lines, history = str(tmp_path / "lines"), str(tmp_path / "history")

    exported = export_catalog(spark, written.catalog, lines, url=written.url)

    assert (exported.rows, exported.revision) == (1, 2)
    assert [json.loads(row["value"]) for row in spark.read.text(lines).collect()] == [
        {"key": "a", "document": 2}
    ]
    assert export_history(spark, written.catalog, history, url=written.url).rows == 2


def test_an_export_stays_at_its_revision(
    spark: Any, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server has forgotten what it found when it looked first."""
    written.put("a", 1)
    count = patching.spark.export._written
    monkeypatch.setattr(
        patching.spark.export, "_written", lambda *given: (written.put("b", 1), count(*given))[1]
    )
    spark.conf.set("spark.connect.session.planCache.enabled", "false")
    try:
        exported = export_catalog(spark, written.catalog, str(tmp_path / "x"), url=written.url)
    finally:
        spark.conf.unset("spark.connect.session.planCache.enabled")
    assert (exported.rows, exported.revision) == (1, 1)


def test_the_command_takes_the_address_of_the_server(
    remote: str, written: Written, tmp_path: Path
) -> None:
    """Where no Java is needed."""
    source = tmp_path / "wanted.jsonl"
    source.write_text('{"key": "a", "document": {"x": 1}}\n')
    command = (sys.executable, "-m", "patching.spark", "sync", str(source), written.catalog)
    done = subprocess.run(
        (*command, "--url", written.url, "--remote", remote),
        env={"PATH": "", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=RUN_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert written.routes.export().documents == {"a": {"x": 1}}


def test_an_application_is_submitted_as_documented(
    remote: str,  # noqa: ARG001
    written: Written,
) -> None:
    """Its driver has PySpark alone, and the library as it was shipped, too."""
    routes = CatalogRoutes(written.transport, SUBMITTED)
    assert routes.export().documents == {"a": {"x": 1}}


def test_a_task_suspended_until_the_job_is_over_applies_nothing(
    spark: Any, passing: Passing, written: Written, tmp_path: Path
) -> None:
    """It is stopped with its request on the way; Spark has it run again on the other machine, for
    its slowness; the job is done, and then the request arrives."""
    asleep = Asleep(passing, written, 8)
    named = {"url": passing.url, "txnAppId": "nightly", "txnVersion": "1"}
    append_in_three_tasks(spark, written, noted(str(tmp_path)), rows=120, together=10, **named)
    assert len(list(tmp_path.iterdir())) == 4
    late = [each["problem"] for each in asleep.late_answers()]
    assert [each["code"] for each in late] == ["application_conflict"] * 5
    assert "version 1 of application 'nightly' is finished" in late[0]["detail"]
    require_each_once(written, 120)


def test_a_lost_executor_applies_nothing_twice(
    spark: Any, written: Written, tmp_path: Path
) -> None:
    """The last test of these: afterwards nothing is as it was."""
    rows = 400
    given = (written.url, written.catalog, rows // 2)
    killing = threading.Thread(target=kill_an_executor, args=given, daemon=True)
    killing.start()
    append_in_three_tasks(spark, written, noted(str(tmp_path)), rows=rows, together=10)
    killing.join()
    assert len(list(tmp_path.iterdir())) > 3, "something was to run twice"

"""Spark sessions: a command's own and its progress, the kind and parallelism of a session, and
whether this machine has a Java that Spark runs on."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from patching.command_line import StatusLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_POLL_S: Final = 0.5
_worker_error = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|\w+)): (.+)$", re.MULTILINE)
_SQL_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    **_SQL_DEFAULTS,
}
INSTALL: Final = "apt-get install openjdk-17-jre-headless (Debian 13: openjdk-21-jre-headless)"
# The Java that Spark names in its documentation, and from which release of Spark on.
_SUPPORTED: Final = {17: (4, 0), 21: (4, 0), 25: (4, 2)}
# From this one on, the Hadoop of Spark 4.1 fails: "getSubject is not supported".
_NOT_WITH_41: Final = 23
# Earlier ones of 25 damage compressed data now and then (JDK-8377811, SPARK-55852).
_UNDAMAGED: Final = (25, 0, 3)
_ASK_S: Final = 300
_version = re.compile(r'version "(?:1\.)?(\d+)(?:\.(\d+))?(?:\.(\d+))?')


@contextmanager
def command_session(
    master: str | None, driver_memory: str | None, remote: str | None = None
) -> Iterator[SparkSession]:
    """A session, stopped at the end. ``remote``: the address of a server of Spark Connect."""
    # PySpark warns of any pandas newer than itself; nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    session = _connected(remote) if remote else _started(master, driver_memory)
    try:
        yield session
    finally:
        session.stop()


def _connected(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in _SQL_DEFAULTS.items():
        session.conf.set(name, value)
    return session


def _started(master: str | None, driver_memory: str | None) -> SparkSession:
    """Settings given to ``spark-submit`` win over the defaults here."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java, which has them
        SparkContext._ensure_initialized()
    submitted = SparkConf()
    builder = SparkSession.builder.appName("patching-spark")
    if master or not submitted.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    if driver_memory:
        builder = builder.config("spark.driver.memory", driver_memory)
    for name, value in _DEFAULTS.items():
        if not submitted.contains(name):
            builder = builder.config(name, value)
    return builder.getOrCreate()


# At least as many rows as any cluster has cores.
_ROWS: Final = 100_000


def is_remote(spark: Any) -> bool:
    """Whether the session is one of Spark Connect, which has another class: its JVM is elsewhere,
    so it has no `sparkContext`."""
    from pyspark.sql import SparkSession

    return not isinstance(spark, SparkSession)


def parallelism(spark: SparkSession) -> int:
    """How many tasks can run at a time. For a remote session, this takes a job of as many tasks."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    # A generated frame has as many partitions.
    places = spark.range(_ROWS).select(F.spark_partition_id().alias("place"))
    last = places.agg(F.max("place")).first()
    assert last is not None
    return int(last[0]) + 1


class Shown:
    """A line with what is being done, and how many of its tasks are done; in a log, plain lines.

    A remote session doesn't report tasks.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = None if is_remote(spark) else spark.sparkContext.statusTracker()
        self._terminal = sys.stderr.isatty()
        self._line = StatusLine(shown=self._terminal)
        self._text = ""
        self._stop = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="progress", daemon=True)

    def __call__(self, text: str) -> None:
        self._text = text
        if not self._terminal:
            click.echo(f"{text} …", err=True)

    def __enter__(self) -> Shown:
        if self._terminal:
            self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._terminal:
            self._poller.join(_POLL_S)
        self._line.clear()

    def _poll(self) -> None:
        while not self._stop.wait(_POLL_S):
            with suppress(Exception):  # the session may be ending
                done, tasks = self._tasks()
                of = f" ({done} of {tasks} tasks)" if tasks else ""
                self._line.show(f"{self._text} …{of}")

    def _tasks(self) -> tuple[int, int]:
        done = tasks = 0
        if self._tracker is None:
            return done, tasks
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                tasks += info.numTasks
        return done, tasks


def one_line(error: BaseException) -> str:
    """The error in one line; for an error in a task, Python's message there."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        python = text.split("\n\tat ", 1)[0]
        last = [match.group(0) for match in _worker_error.finditer(python)]
        if last:
            return last[-1].rpartition("patching.")[2] if "patching." in last[-1] else last[-1]
    return text.strip().split("\n", 1)[0] or type(error).__name__


class JavaMissing(Exception):
    """There is no Java on which Spark runs; the text says what to install."""


def require_java(spark_version: str) -> None:
    """Raises JavaMissing, also for a Java with which this Spark fails or may write damaged data;
    warns of one that it isn't made for. Looks where Spark does: in JAVA_HOME, or else on the PATH.
    """
    spark = tuple(map(int, spark_version.split(".")[:2]))
    *others, last = [str(java) for java, since in _SUPPORTED.items() if spark >= since]
    needed = f"Spark {spark_version} needs Java {', '.join(others)} or {last}"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    path = shutil.which(java)
    if path is None:
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        raise JavaMissing(f"{needed}, but there is none {where}: {INSTALL}")
    asked = subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
    )
    match = _version.search(asked.stderr + asked.stdout)
    if match is None:
        raise JavaMissing(f"{path} doesn't say which version it is; {needed}: {INSTALL}")
    found = tuple(int(part or 0) for part in match.groups())
    too_new = spark < _SUPPORTED[25] and found[0] >= _NOT_WITH_41
    if found[0] < min(_SUPPORTED) or too_new:
        raise JavaMissing(f"{path} is Java {found[0]}; {needed}: {INSTALL}")
    if found[0] == _UNDAMAGED[0] and found < _UNDAMAGED:
        given, least = (".".join(map(str, each)) for each in (found, _UNDAMAGED))
        why = f"may damage what Spark compresses: update it to {least} or later, or {INSTALL}"
        raise JavaMissing(f"{path} is Java {given}, which {why}")
    if spark < _SUPPORTED.get(found[0], (math.inf,)):
        click.echo(f"warning: {path} is Java {found[0]}; {needed}", err=True)

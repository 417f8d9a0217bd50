"""Attempts at a task that are lost, or sleep, on executors whose Python has no tests.

What is sent there is functions within functions, which come as code and not as names.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil

from patching.client import RequestError
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.patience import WAIT_S
from tests.spark.passing import Passing, process_at
from tests.spark.written import Written
from tests.without_http import wait_until

Batches = Iterator[Any]
_EXECUTOR = "CoarseGrainedExecutorBackend"


def append_in_three_tasks(
    spark: Any,
    written: Written,
    passed_on: Callable[[Batches], Batches],
    *,
    rows: int,
    together: int,
    **options: str,
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
    asked = {"url": written.url, "catalog": written.catalog, "batchSize": "5", **options}
    frame.write.format("metadata").mode("append").options(**asked).save()
    require_each_once(written, rows)


def require_each_once(written: Written, rows: int) -> None:
    documents = written.routes.export().documents
    for number in range(3):
        expected = list(range(number * rows, (number + 1) * rows))
        assert documents[f"k{number}"] == {"log": expected}


def noted(folder: str) -> Callable[[Batches], Batches]:
    """Passes the rows on, and leaves a file ``partition-attempt`` behind."""

    def run(batches: Batches) -> Batches:
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches

    return run


class Asleep:
    """A writing process, which is stopped (SIGSTOP) in the middle of the bulk request of this
    number. The request gets no further, and the process wakes up, when the catalog's application
    whose name begins with ``of`` has finished a version, or ended a run of one."""

    def __init__(self, passing: Passing, written: Written, number: int, of: str = "") -> None:
        self._written = written
        self._number = number
        self._of = of
        self._asleep = threading.Event()
        self._count = 0
        self._port = -1
        self._answers: list[dict[str, Any]] = []
        self._lock, self._answered = threading.Lock(), threading.Event()
        passing.before, passing.told = self._before, self._told

    def await_sleep(self) -> None:
        assert self._asleep.wait(WAIT_S)

    def late_answers(self) -> list[dict[str, Any]]:
        """Those to the lines of that request."""
        assert self._answered.wait(WAIT_S)
        return self._answers

    def _before(self, _method: str, path: str, port: int) -> None:
        with self._lock:
            self._count += path == "/v1/bulk"
            if path != "/v1/bulk" or self._count != self._number:
                return
            self._port = port
        process = process_at(port)
        process.suspend()
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED)  # all of its threads
        self._asleep.set()
        while not self._is_over():
            time.sleep(0.05)
        with suppress(psutil.NoSuchProcess):  # Spark may have ended it, but not its request
            process.resume()

    def _is_over(self) -> bool:
        path = f"{self._written.path}/applications"
        listed = self._written.transport.request("GET", path).json()["applications"]
        of_it = [each for each in listed if each["application"].startswith(self._of)]
        # Its begin may be in the request that sleeps.
        assert len(of_it) <= 1
        return any(each["finished"] is not None or each["ended"] for each in of_it)

    def _told(self, port: int, content: bytes) -> None:
        if port == self._port and not self._answered.is_set():
            self._answers = [json.loads(line) for line in content.splitlines()]
            self._answered.set()


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

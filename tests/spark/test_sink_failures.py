"""What is sent twice is applied once: workers, tasks and gateways end in the middle of a write.

Each row appends its number to the log of its document, so a row that was applied twice, left out,
or applied before its predecessor shows in the log.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from patching.client import RequestError
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.service import RunningGateway
from tests.spark.processes import kill, local_pythons

Start = Callable[..., None]
_DOCUMENTS = 3
_PATCH = """concat('[{"op": "add", "path": "/log/-", "value": ', id, '}]')"""


@pytest.fixture
def logs(gateway: RunningGateway, catalog: str) -> Iterator[Callable[[], dict[str, list[Any]]]]:
    """`logs()`: what the logs hold now; they begin empty."""
    with Transport(gateway.url) as transport:
        for number in range(_DOCUMENTS):
            path = f"/v1/catalogs/{catalog}/documents/k{number}"
            transport.request("PUT", path, json={"log": []})
        routes = CatalogRoutes(transport, catalog)
        yield lambda: {key: value["log"] for key, value in routes.export().documents.items()}


def patches(spark: Any, rows: int) -> Any:
    """A partition for each document, with ``rows`` rows each."""
    ids = spark.range(0, _DOCUMENTS * rows, 1, _DOCUMENTS)
    return ids.selectExpr(f"concat('k', id div {rows}) AS key", f"{_PATCH} AS patch")


def expected(rows: int, times: int = 1) -> dict[str, list[int]]:
    return {f"k{n}": list(range(n * rows, (n + 1) * rows)) * times for n in range(_DOCUMENTS)}


def write(frame: Any, gateway: RunningGateway, catalog: str, **options: Any) -> None:
    writer = frame.write.format("metadata").mode("append").option("url", gateway.url)
    for name, value in ({"catalog": catalog, "batchSize": 5} | options).items():
        writer = writer.option(name, value)
    writer.save()


def disturbed(
    routes: CatalogRoutes,
    points: list[int],
    disturb: Callable[[], object],
    work: Callable[[], None],
) -> int:
    """Do ``work`` until every one of the ``points`` was met; how often it was done.

    ``disturb`` is called as soon as the work is seen to have made so many commits. On a slow
    machine it may be over before that: then it is done again, for the points that are left.
    """
    met = times = 0
    while met < len(points):
        begun = 0 if not times else routes.read().revision
        times += 1
        met += disturbed_once(routes, [begun + point for point in points[met:]], disturb, work)
    return times


def disturbed_once(
    routes: CatalogRoutes,
    points: list[int],
    disturb: Callable[[], object],
    work: Callable[[], None],
) -> int:
    """How many of the ``points`` were met."""
    done = threading.Event()
    times = 0

    def watch() -> None:
        nonlocal times
        for point in points:
            while not done.is_set():
                with suppress(RequestError):
                    if routes.read().revision >= point:
                        break
            if done.is_set():
                return
            disturb()
            times += 1

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        work()
    finally:
        done.set()
        watching.join()
    return times


def test_killed_python_workers_apply_nothing_twice(
    spark: Any, gateway: RunningGateway, catalog: str, routes: CatalogRoutes, logs: Any
) -> None:
    killed = []
    # One attempt more than there are kills for each task.
    points = sorted(random.Random(7).sample(range(20, 400), 3))
    times = disturbed(
        routes,
        points,
        lambda: killed.append(kill(local_pythons().workers())),
        lambda: write(patches(spark, 200), gateway, catalog),
    )
    assert sum(killed) >= 3
    assert logs() == expected(200, times)


def test_killed_gateway_workers_apply_nothing_twice(
    spark: Any, gateway: RunningGateway, catalog: str, routes: CatalogRoutes, logs: Any
) -> None:
    def disturb() -> None:
        for pid in gateway.worker_pids()[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    points = sorted(random.Random(8).sample(range(20, 400), 3))
    work = lambda: write(patches(spark, 200), gateway, catalog)  # noqa: E731
    times = disturbed(routes, points, disturb, work)
    assert logs() == expected(200, times)


def failing(url: str, catalog: str, sent: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For `mapInArrow`: every first attempt fails, when ``sent`` of its rows were applied."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = [row for batch in batches for row in batch.to_pylist()]
        for row in rows:
            # So large that Spark's buffers pass it on at once.
            yield pa.RecordBatch.from_pylist([{**row, "patch": row["patch"] + " " * 70_000}])
        if context.attemptNumber() == 0:
            with Transport(url) as transport:
                path = f"/v1/catalogs/{catalog}/documents/{rows[0]['key']}"
                while len(transport.request("GET", path).json()["log"]) < sent:
                    pass
            raise RuntimeError("on purpose")

    return run


@pytest.mark.usefixtures("small_batches")
def test_without_keys_a_failed_attempt_applies_rows_twice(
    spark: Any, gateway: RunningGateway, catalog: str, logs: Any
) -> None:
    """The same without idempotency keys: what these tests look for can be seen."""
    frame = patches(spark, 10).mapInArrow(
        failing(gateway.url, catalog, 5), "key string, patch string"
    )
    write(frame, gateway, catalog, idempotency="none")
    assert all(len(log) >= 15 for log in logs().values())

"""Attempts at a task that run at once apply each row once; those of a cluster: `test_connect`."""

from __future__ import annotations

import threading

from patching.client import CatalogRoutes, Transport
from tests.service import RunningGateway

_ROWS = 400


def test_attempts_at_the_same_time_apply_nothing_twice(
    java: None,  # noqa: ARG001
    gateway: RunningGateway,
    catalog: str,
    routes: CatalogRoutes,
) -> None:
    """As speculative execution has them, from the first row to the last."""
    import pyarrow as pa
    from pyspark.sql.types import StringType, StructField, StructType

    from patching.spark.columns import Columns
    from patching.spark.options import WRITE, Options
    from patching.spark.outcomes import TaskWritten
    from patching.spark.task_write import Attempt, write_rows

    given = {"url": gateway.url, "catalog": catalog, "batchSize": "20"}
    options = Options.parse(given, WRITE)
    columns = Columns(StructType([StructField(n, StringType()) for n in ("key", "patch")]), options)
    with Transport(gateway.url) as transport:
        transport.request("PUT", f"/v1/catalogs/{catalog}/documents/k", json={"log": []})
    patches = [f'[{{"op": "add", "path": "/log/-", "value": {n}}}]' for n in range(_ROWS)]
    batches = pa.table({"key": ["k"] * _ROWS, "patch": patches}).to_batches(64)
    written: list[TaskWritten] = []
    start = threading.Barrier(2)

    def attempt(number: int) -> None:
        start.wait()
        written.append(write_rows(batches, columns, options, Attempt("job", 0, number, number)))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert routes.export().documents["k"]["log"] == list(range(_ROWS))
    assert [each.counts.applied for each in written] == [_ROWS] * 2
    assert sum(each.counts.replayed for each in written) == _ROWS

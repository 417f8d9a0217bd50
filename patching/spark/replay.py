"""Sending a plan that was written earlier. Its guards say what it was made from, and still hold."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching.spark.options import WRITE, Options
from patching.spark.reports import SyncReport, counted, with_lost

from . import delivery
from .delivery import Delivery
from .sync import Progress, options_for


def replay(
    spark: SparkSession,
    path: str,
    *,
    url: str,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SyncReport:
    """Send the lines in the files below ``path``, as ``write_plan`` left them.

    Nothing is looked at again: a document that somebody changed after the plan was made stays as
    they left it and is counted as ``lost``. What was sent before, by a replay that broke off, say,
    is answered as it was then. ``unchanged`` counts lines alone that changed nothing, and
    ``revision`` is 0: a plan doesn't say.
    """
    begun = time.monotonic()
    writing = Options.parse(options_for({"url": url, **(options or {})}, WRITE), WRITE)
    lines = spark.read.text(path).select(F.col("value").alias("line")).where(F.col("line") != "")
    catalogs = [
        row["catalog"]
        for row in lines.select(F.get_json_object("line", "$.catalog").alias("catalog"))
        .distinct()
        .limit(2)
        .collect()
    ]
    if progress is not None:
        progress(f"sending {lines.count():,} changes")
    # As many tasks as there is room for, whatever number of files it was written to.
    spread = lines.repartition(spark.sparkContext.defaultParallelism)
    with ExitStack() as kept:
        outcomes = spread.mapInArrow(Delivery(writing).batches, delivery.SCHEMA)
        outcomes.persist(StorageLevel.DISK_ONLY)
        kept.callback(outcomes.unpersist)
        catalog = str(catalogs[0]) if len(catalogs) == 1 else ""
        report = with_lost(counted(SyncReport(catalog, 0, rounds=0), outcomes), outcomes)
        return replace(report, seconds=time.monotonic() - begun)

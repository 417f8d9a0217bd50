"""Sessions of Spark Connect: the JVM is elsewhere, and has no `sparkContext` to be asked."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

# No fewer rows than any cluster has cores.
_ROWS: Final = 100_000


def is_remote(spark: Any) -> bool:
    """Whether the session is one of Spark Connect, whose class is another."""
    return not isinstance(spark, SparkSession)


def parallelism(spark: SparkSession) -> int:
    """How many tasks can run at a time. Asking a remote session takes a job of such tasks."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    # A frame that comes from nowhere has as many partitions.
    places = spark.range(_ROWS).select(F.spark_partition_id().alias("place"))
    last = places.agg(F.max("place")).first()
    assert last is not None
    return int(last[0]) + 1

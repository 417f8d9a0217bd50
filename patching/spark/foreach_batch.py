"""Micro-batches that a function writes: for outputMode("update"), which Spark allows no Python
sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch_writer(application: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """For ``foreachBatch``: writes each micro-batch once, as the version of ``application`` that
    has its number. ``options`` are those of the data source.

    An application is one query's: with a new checkpoint numbers begin again, so choose another.
    """
    given = {name: str(value) for name, value in options.items()}

    def write(batch: DataFrame, number: int) -> None:
        named = {**given, "txnAppId": application, "txnVersion": str(number)}
        batch.write.format("metadata").mode("append").options(**named).save()

    return write

"""Rows as Arrow batches of bounded size.

Spark itself would collect 10,000 rows. With documents of a megabyte, no worker has room for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

_BYTES: Final = 4 * 1024 * 1024
_ROWS: Final = 10_000
_NAMED: Final = {"string": StringType(), "long": LongType()}
_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def schema_of_text(text: str) -> StructType:
    """The schema of a text such as ``key string, documents long``, which ``mapInArrow`` takes."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        schema.add(name, _NAMED[kind])
    return schema


def in_batches(
    rows: Iterable[Sequence[Any]], schema: StructType, *, bytes_max: int = _BYTES
) -> Iterator[pa.RecordBatch]:
    """Batches of ``rows``. Each ends with the row with which its texts have ``bytes_max``
    characters, or with the 10,000th. ``schema`` has only the types above."""
    arrow = pa.schema(
        [pa.field(each.name, _ARROW[type(each.dataType)], each.nullable) for each in schema.fields]
    )
    waiting: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if size >= bytes_max or len(waiting) >= _ROWS:
            yield _batch(waiting, arrow)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, arrow)


def _batch(rows: Sequence[Sequence[Any]], arrow: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(each, type=f.type) for each, f in zip(columns, arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)

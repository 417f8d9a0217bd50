"""Documents as typed columns: parsed by the JVM (``typed``), or by the tasks that read them, if a
frame is loaded with a schema of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, StructType

from patching.spark.json_values import NoJson, encode

SAMPLE: Final = 1_000
# The column of parsed documents, instead of ``value``.
DOCUMENT: Final = "document"
_Read = Callable[[Any], Any]
# From here on, a number is too large for a float of four bytes.
_FLOAT_END: Final = 2.0**128 - 2.0**103
# The bits of whole numbers.
_WHOLE: Final[dict[type[types.DataType], int]] = {
    types.ByteType: 8,
    types.ShortType: 16,
    types.IntegerType: 32,
    types.LongType: 64,
}


def typed(
    frame: DataFrame, schema: StructType | str | None = None, *, sample: int = SAMPLE
) -> DataFrame:
    """A frame that was read, with a column ``document`` of this schema instead of ``value``.

    Members that a document lacks, or has with another type, are null, as in ``from_json``. Without
    a ``schema``, it is that of the first ``sample`` documents: ``schema_by_sample``.
    """
    kind = schema_by_sample(frame, sample) if schema is None else schema
    document = F.from_json("value", kind).alias("document")
    return frame.select(*(document if name == "value" else name for name in frame.columns))


def schema_by_sample(frame: DataFrame, sample: int = SAMPLE) -> StructType:
    """The common schema of the first ``sample`` documents: all members, nested ones too, with types
    that hold all values. ValueError if there are no documents, or if one isn't an object."""
    texts = [row["value"] for row in frame.select("value").limit(sample).collect()]
    if not texts:
        raise ValueError("there are no documents: give a schema")
    schema = F.schema_of_json(F.lit(f"[{','.join(texts)}]"))
    found = frame.sparkSession.range(1).select(schema).first()
    assert found is not None
    kind = DataType.fromDDL(found[0])
    element = cast(ArrayType, kind).elementType
    if not isinstance(element, StructType):
        raise ValueError(f"not all of the first {len(texts)} documents are objects: give a schema")
    return element


class TypedDocuments:
    """Converts texts of documents to values of a column's type.

    Members that the type lacks are dropped. What a document lacks, or has with another type or
    size, is null; a string takes the JSON of any other value. ``from_json`` does the same, except
    that numbers overflow, and that such a value makes its whole map or array null.
    """

    def __init__(self, column: types.StructField) -> None:
        """Raises NoJson for a type that documents aren't read as."""
        self._read = _reading(column.dataType, column.name, column.nullable)
        self._column = column

    def batches(self, batches: Iterator[pa.RecordBatch], place: int) -> Iterator[pa.RecordBatch]:
        """The same rows, with values instead of texts."""
        arrow = to_arrow_type(self._column.dataType)
        column = pa.field(self._column.name, arrow)
        decode = msgspec.json.Decoder().decode
        for batch in batches:
            values = [self._read(decode(text)) for text in batch.column(place).to_pylist()]
            yield batch.set_column(place, column, pa.array(values, arrow))


def _reading(kind: DataType, place: str, nullable: bool) -> _Read:
    if not nullable:
        raise NoJson(f"{place} can't be NOT NULL: it is null where a document doesn't fit")
    if isinstance(kind, StructType):
        if len({*kind.fieldNames()}) < len(kind.fields):
            raise NoJson(f"{place} has two fields of the same name")
        members = [
            (each.name, _reading(each.dataType, f"{place}.{each.name}", each.nullable))
            for each in kind.fields
        ]
        return lambda value: (
            {name: read(value[name]) if name in value else None for name, read in members}
            if isinstance(value, dict)
            else None
        )
    if isinstance(kind, ArrayType):
        item = _reading(kind.elementType, f"{place}[]", kind.containsNull)
        return lambda value: [item(each) for each in value] if isinstance(value, list) else None
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        member = _reading(kind.valueType, f"{place}{{}}", kind.valueContainsNull)
        return lambda value: (
            [(name, member(each)) for name, each in value.items()]
            if isinstance(value, dict)
            else None
        )
    if isinstance(kind, types.VariantType):
        return _variant
    if isinstance(kind, types.StringType):
        return lambda value: value if isinstance(value, str | None) else encode(value).decode()
    if isinstance(kind, types.BooleanType):
        return lambda value: value if isinstance(value, bool) else None
    if isinstance(kind, types.FloatType | types.DoubleType):
        end = _FLOAT_END if isinstance(kind, types.FloatType) else math.inf
        return lambda value: float(value) if _is_number(value) and abs(value) < end else None
    if type(kind) in _WHOLE:
        most = 2 ** (_WHOLE[type(kind)] - 1)
        return lambda value: value if type(value) is int and -most <= value < most else None
    raise NoJson(
        f"{place} can't be read as {kind.simpleString()}: read it as a string, or leave .schema(…)"
        " out and have `typed` read it"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _variant(value: Any) -> dict[str, bytes]:
    """The value as Arrow has it. JSON's null isn't Spark's null."""
    made = types.VariantVal.parseJson(encode(value).decode())
    return {"value": made.value, "metadata": made.metadata}

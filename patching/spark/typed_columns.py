"""Documents as typed columns. The JVM parses them: no Python process sees a value."""

from __future__ import annotations

from typing import Final, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, StructType

SAMPLE: Final = 1_000


def typed(
    frame: DataFrame, schema: StructType | str | None = None, *, sample: int = SAMPLE
) -> DataFrame:
    """A frame that was read, with a column ``document`` of this schema in the place of ``value``.

    Members that a document hasn't, or that are of another type, are null, as in ``from_json``.
    Without a ``schema``, that of the first ``sample`` documents: ``schema_by_sample``.
    """
    kind = schema_by_sample(frame, sample) if schema is None else schema
    document = F.from_json("value", kind).alias("document")
    return frame.select(*(document if name == "value" else name for name in frame.columns))


def schema_by_sample(frame: DataFrame, sample: int = SAMPLE) -> StructType:
    """What the first so many documents have together: their members, nested ones too, of types that
    hold all their values. ValueError where there are no documents, or any that isn't an object."""
    texts = [row["value"] for row in frame.select("value").limit(sample).collect()]
    told = F.schema_of_json(F.lit(f"[{','.join(texts)}]"))
    found = frame.sparkSession.range(1).select(told).first()
    assert found is not None
    kind = DataType.fromDDL(found[0])
    element = cast(ArrayType, kind).elementType
    if not isinstance(element, StructType):
        raise ValueError(f"not all of the first {len(texts)} documents are objects: name a schema")
    return element

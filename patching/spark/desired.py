"""The desired state of a catalog: a frame of keys and documents, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching import join_pointer
from patching.spark.batches import in_batches, schema_of_text
from patching.spark.json_values import NoJson, converter, python_value
from patching.values import repeated_member

FORMATS: Final = ("jsonl", "parquet", "csv", "table")
_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
}
_COMPRESSED: Final = (".gz", ".bz2", ".zst")
# A line with more or fewer values, or a file with other columns, is an error. By default, Spark
# drops values, or makes them null, and takes each file's columns for those of the first.
_CSV: Final = {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"}
_LINE_SCHEMA: Final = "key string, document string"
_LINE: Final = schema_of_text(_LINE_SCHEMA)
_PROBLEMS_SHOWN: Final = 5
_SHOWN_MAX: Final = 120
# The character for what isn't UTF-8, and bytes that aren't.
_REPLACEMENT: Final = "\ufffd"
_NO_UTF8: Final = b"\xff"


class DesiredInvalid(ValueError):
    """A desired state that no catalog can have; nothing was sent.

    ``problems`` are (key, what is wrong with it), the first few of ``count``.
    """

    def __init__(self, problems: Sequence[tuple[str | None, str]], count: int) -> None:
        shown = "; ".join(
            detail if key is None else f"key {key!r}: {detail}" for key, detail in problems
        )
        more = f"; and {count - len(problems)} more like these" if count > len(problems) else ""
        super().__init__(f"the desired state is invalid: {shown}{more}")
        self.problems = tuple(problems)
        self.count = count


def read_desired(
    spark: SparkSession, place: str, format: str | None = None, **options: str
) -> DataFrame:
    """A frame from a path or a table's name. Without a ``format``, the path's suffix decides.

    ``jsonl`` has an object ``{"key": …, "document": …}`` on each line, and documents are taken as
    they are written; the others give their columns. ``options`` are those of Spark's reader. Raises
    ValueError if the format isn't known.
    """
    chosen = format or _format_of(place)
    if chosen == "table":
        return spark.table(place)
    if chosen == "jsonl":
        lines = spark.read.options(**options).text(place).where(F.trim("value") != "")
        return lines.mapInArrow(_parsed_lines, _LINE_SCHEMA)
    if chosen == "parquet":
        return spark.read.options(**options).parquet(place)
    if chosen == "csv":
        _require_utf8(spark, place, options)
        return spark.read.options(**{**_CSV, **options}).csv(place)
    raise ValueError(f"unknown format {chosen!r}; known formats: {', '.join(FORMATS)}")


def wanted_rows(
    desired: DataFrame, key: str, document: str | None, partitions: int
) -> tuple[DataFrame, types.DataType]:
    """A frame (key string, copies long, value), with one row for each key, in ``partitions`` by
    key; and the type that the values were given as.

    ``document`` None: the column ``document`` if there is one, else all columns but the key, as one
    object. As in Spark, names of columns have no case. Raises ValueError for columns that don't
    fit.
    """
    names = desired.columns
    key = _column(names, key)
    if document is not None:
        document = _column(names, document)
    elif _spelled(names, "document"):
        document = _column(names, "document")
    if document is None and len(names) == 1:  # each document would become {}
        raise ValueError(f"the desired state has only the column {key!r}, so it has no documents")
    kind = desired.schema[key].dataType
    if not isinstance(kind, types.StringType | types.IntegralType):
        raise ValueError(
            f"column {key!r}: keys must be strings, not {kind.simpleString()}; cast it"
        )
    if document is not None:
        value = F.col(_quoted(document))
    else:
        value = F.struct(*[F.col(_quoted(name)) for name in names if name != key])
    rows = desired.select(F.col(_quoted(key)).cast("string").alias("key"), value.alias("value"))
    kind = rows.schema["value"].dataType
    _require_json(kind, document)
    if not isinstance(kind, types.StringType) and _is_made_of(kind, _PLAIN):
        # As a text, it reaches Python in a tenth of the time.
        rows = rows.select("key", _as_text("value").alias("value"))
    # Not as many partitions as Spark makes by default, and keeps when a frame is persisted: a task
    # costs more than comparing a hundred documents.
    return (
        rows.repartition(partitions, "key")
        .groupBy("key")
        .agg(F.count(F.lit(1)).alias("copies"), F.first("value").alias("value"))
    ), kind


def _spelled(names: Sequence[str], name: str) -> list[str]:
    """The columns that ``name`` may mean: itself, or all that differ by case."""
    return [name] if name in names else [each for each in names if each.lower() == name.lower()]


def _column(names: Sequence[str], name: str) -> str:
    found = _spelled(names, name)
    if len(found) != 1:
        what = "several columns" if found else "no column"
        raise ValueError(f"the desired state has {what} {name!r}; it has {', '.join(names)}")
    return found[0]


def has_text(kind: types.DataType) -> bool:
    """Whether Spark writes any two values of this type as different texts, so that a text's hash
    stands for its value. Not so for times: Spark leaves out their last digits."""
    return _is_made_of(kind, (*_PLAIN, types.FloatType, types.DoubleType, types.DecimalType))


def with_hash(wanted: DataFrame) -> DataFrame:
    """``wanted`` with a column ``hash``: the SHA-256 of each value's text."""
    is_text = isinstance(wanted.schema["value"].dataType, types.StringType)
    text = F.col("value") if is_text else _as_text("value")
    return wanted.withColumn("hash", F.unhex(F.sha2(text, 256)))


def invalid(planned: DataFrame, count: int) -> DesiredInvalid:
    """The error for the invalid rows in ``planned``, of which there are ``count``."""
    rows = planned.select("key", "detail").limit(_PROBLEMS_SHOWN).collect()
    return DesiredInvalid([(row["key"], row["detail"]) for row in rows], count)


def _format_of(place: str) -> str:
    path = PurePath(place.rstrip("/"))
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    known = ", ".join(FORMATS)
    raise ValueError(f"give the format of {place!r}, which its name doesn't show: one of {known}")


def _as_text(name: str) -> Column:
    """JSON; of a value with a text that isn't UTF-8, the same, as a text that isn't UTF-8 either.

    By itself, Spark writes a replacement character for what isn't UTF-8, as if it had been there.
    """
    text = F.to_json(name, {"ignoreNullFields": "false"})
    # The cast takes the bytes of the texts within as they are.
    is_replaced = F.contains(text, F.lit(_REPLACEMENT)) & ~F.is_valid_utf8(
        F.col(name).cast("string")
    )
    return F.when(is_replaced, F.concat(text, F.lit(_NO_UTF8).cast("string"))).otherwise(text)


def _require_utf8(spark: SparkSession, place: str, options: Mapping[str, str]) -> None:
    """Raises DesiredInvalid: Spark's reader of CSV takes what isn't UTF-8 as replacement
    characters."""
    if {"encoding", "charset"} & {name.lower() for name in options}:
        return
    lines = spark.read.options(**options).text(place)
    found = lines.where(~F.is_valid_utf8("value")).first()
    if found is not None:
        raise DesiredInvalid([(None, f"the line {_cut(found['value'])!r}: it isn't UTF-8")], 1)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Spark writes every value of these types as `converter` does, or refuses it.
_PLAIN: Final = (types.StringType, types.BooleanType, types.IntegralType)


def _is_made_of(kind: types.DataType, scalars: tuple[type[types.DataType], ...]) -> bool:
    """Whether values of this type contain values of ``scalars``, and no others."""
    if isinstance(kind, types.StructType):
        inside = [each.dataType for each in kind.fields]
        return bool(inside) and all(_is_made_of(each, scalars) for each in inside)
    if isinstance(kind, types.ArrayType):
        return _is_made_of(kind.elementType, scalars)
    if isinstance(kind, types.MapType):
        is_object = isinstance(kind.keyType, types.StringType)
        return is_object and _is_made_of(kind.valueType, scalars)
    return isinstance(kind, scalars)


def _require_json(kind: types.DataType, column: str | None) -> None:
    if isinstance(kind, types.StringType):
        return
    if isinstance(kind, types.StructType | types.MapType | types.ArrayType):
        try:
            converter(kind, column or "document")
        except NoJson as error:
            raise ValueError(str(error)) from error
        return
    raise ValueError(
        f"column {column!r}: a document must be a JSON string, a struct, a map or an array,"
        f" not {kind.simpleString()}"
    )


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    document: msgspec.Raw


_decode_line: Final = msgspec.json.Decoder(_Line).decode


def _parsed_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return in_batches(map(_parsed, _texts(batches)), _LINE)


def _texts(batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        try:
            yield from batch.column(0).to_pylist()
        except UnicodeDecodeError:
            for text, why in map(python_value, batch.column(0)):
                if why is not None:
                    raise _no_line(text, why) from None


def _parsed(text: str) -> tuple[str, str]:
    """The key and document of a line. Raises DesiredInvalid if it is malformed."""
    raw = text.encode()
    try:
        line = _decode_line(raw)
        twice = repeated_member(raw, msgspec.json.encode(line))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _no_line(text, str(error)) from error
    if twice is not None:
        raise _no_line(text, f"it has the member '{join_pointer(twice)}' twice")
    return line.key, bytes(line.document).decode()


def _no_line(text: str, why: str) -> DesiredInvalid:
    wanted = '{"key": …, "document": …}'
    return DesiredInvalid([(None, f"the line {_cut(text)!r} isn't {wanted}: {why}")], 1)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]} …"

"""Reading a catalog as a table: every task at the one revision that the driver chose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
)

from patching.client import ClientError
from patching.spark.batches import in_batches
from patching.spark.catalog_reads import (
    CatalogReads,
    Compacted,
    Hold,
    PlanShape,
    catalog_reads,
)
from patching.spark.columns import ColumnRefused
from patching.spark.dead_letters import LETTERS_SCHEMA, LettersReader
from patching.spark.history_source import (
    DOCUMENTS,
    CommitsReader,
    commits_schema,
    json_or_none,
    require_fitting,
    starting_revision,
)
from patching.spark.json_values import NoJson
from patching.spark.options import OptionRefused, Options, brief
from patching.spark.typed_columns import DOCUMENT, TypedDocuments

# Most catalogs are small; an option asks for more tasks.
_PARTITIONS: Final = 1
# Ranges of which some are read to estimate the size of documents.
_SAMPLED_OF: Final = 200

# The column with a document's text.
_VALUE: Final = "value"
# Nullable but for the key, as an INSERT may leave them out.
DOCUMENTS_SCHEMA: Final = StructType(
    [
        StructField("key", StringType(), nullable=False),
        StructField(_VALUE, StringType(), nullable=True),
        StructField("etag", StringType(), nullable=True),
        StructField("revision", LongType(), nullable=True),
        StructField("create_revision", LongType(), nullable=True),
        StructField("attributes", StringType(), nullable=True),
        StructField("catalog", StringType(), nullable=True),
    ]
)


def schema_of(options: Options) -> StructType:
    """The columns of the option ``type``, or those of them that the option ``columns`` names."""
    all_of_them = _all_columns(options)
    if options.columns is None:
        return all_of_them
    names = all_of_them.fieldNames()
    chosen = [name.lower() for name in options.columns]
    for name in chosen:
        if name not in names:
            raise OptionRefused(
                "columns", f"unknown column {name!r}; known columns: {', '.join(names)}"
            )
        if chosen.count(name) > 1:
            raise OptionRefused("columns", f"column {name!r} is named twice")
    return StructType([all_of_them[name] for name in chosen])


def _all_columns(options: Options) -> StructType:
    if options.dead_letters is not None:
        return LETTERS_SCHEMA
    return DOCUMENTS_SCHEMA if options.type == DOCUMENTS else commits_schema(options)


class ReadColumns:
    """The columns that a frame is read with: those of `schema_of`, or those of a schema that the
    user gives. It may lack some, spell them in any case, make any of them nullable or not, and have
    a column ``document`` of any type instead of ``value``."""

    def __init__(self, given: StructType, options: Options) -> None:
        """Raises ColumnRefused, and OptionRefused for the options alone."""
        own, rows = schema_of(options), _all_columns(options).fieldNames()
        self._typed: TypedDocuments | None = None
        self._given = given.fieldNames()
        self._texts = StructType()
        for column in given.fields:
            read = StructField(column.name.lower(), column.dataType)
            if read.name == DOCUMENT and _VALUE in own.fieldNames() and options.type == DOCUMENTS:
                self._typed = _typed(column)
                read = own[_VALUE]
            if why := _misfit(read, own):
                hint = "; `document` may have another type in the place of `value`"
                hint = hint * (_VALUE in own.fieldNames())
                raise ColumnRefused(
                    column.name, f"{why}; .schema(…) may have {own.simpleString()}{hint}"
                )
            if read.name in self._texts.fieldNames():
                raise ColumnRefused(column.name, "it appears twice, or together with `value`")
            self._texts.add(read.name, own[read.name].dataType, column.nullable)
        self._places = [rows.index(name) for name in self._texts.fieldNames()]

    def batches(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
        """Batches with these columns, from rows with all columns of the option ``type``."""
        chosen = (tuple([row[place] for place in self._places]) for row in rows)
        batches = in_batches(chosen, self._texts)
        if self._typed is not None:
            batches = self._typed.batches(batches, self._texts.fieldNames().index(_VALUE))
        try:
            for batch in batches:
                yield batch.rename_columns(self._given)
        except ClientError as error:  # as `brief` does it for what isn't a generator
            raise error.with_traceback(None) from None


def _typed(column: StructField) -> TypedDocuments:
    try:
        return TypedDocuments(column)
    except NoJson as error:
        raise ColumnRefused(column.name, str(error)) from error


def _misfit(column: StructField, own: StructType) -> str | None:
    """Why ``column`` is none of ``own``."""
    if column.name not in own.fieldNames():
        return "unknown column"
    kind = own[column.name].dataType
    if kind == column.dataType:
        return None
    return f"it is {kind.simpleString()}, not {column.dataType.simpleString()}"


def at_one_revision(options: Options) -> Options:
    """The options with the revision that a DataFrame reads from now on.

    So all actions on it, and both sides of a join with itself, see the same. Raises ReadFailed if
    the catalog, revision or time is missing.
    """
    if options.dead_letters is not None:
        LettersReader(options)
        return options
    require_fitting(options)
    starting_revision(options)
    with catalog_reads(options) as reads:
        if options.type != DOCUMENTS:
            head, end = reads.head(), options.ending_revision
            return replace(options, ending_revision=head if end is None else end)
        plan = reads.plan(revision=options.revision, timestamp=options.timestamp)
        return replace(options, revision=plan.revision, timestamp=None)


class MetadataReader(DataSourceReader):
    """Delegates to the reader of the option ``type``.

    It has no ``pushFilters``: if Spark asks for it (spark.sql.python.filterPushdown.enabled), a
    frame keeps the reader of its first query, with that query's filters, for all that follow
    (``tests/spark/test_pushed_filters.py``).
    """

    def __init__(self, schema: StructType, options: Options) -> None:
        self._columns = ReadColumns(schema, options)
        self._reader = _reader(options)

    @brief(ClientError)
    def partitions(self) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._columns.batches(self._reader.rows(partition))


def _reader(options: Options) -> DocumentsReader | CommitsReader | LettersReader:
    if options.dead_letters is not None:
        return LettersReader(options)
    return DocumentsReader(options) if options.type == DOCUMENTS else CommitsReader(options)


@dataclass
class KeyRange(InputPartition):
    """The documents above ``after`` up to ``until`` (None: to the end), all at one revision."""

    after: str
    until: str | None
    hold: Hold


class DocumentsReader:
    """Reads documents by key. A repeated task reads the same range at the same revision."""

    def __init__(self, options: Options) -> None:
        require_fitting(options)
        self._options = options
        # The only keys to read, ascending; None: all that begin with the prefix.
        self._names: list[str] | None = None
        if options.key is not None:
            self._names = [options.key]
        elif options.keys is not None:
            self._names = sorted(options.keys)

    def partitions(self) -> list[InputPartition]:
        """Plan the ranges, and pin the revision. Called once for each action, on the driver."""
        options = self._options
        with catalog_reads(options) as reads:
            try:
                plan = self._plan(reads)
                hold = Hold.take(reads, plan.revision, options.pin_seconds)
            except Compacted as error:
                what = f"{error.what}, at which it was loaded (load it again for a newer one),"
                raise Compacted(reads.catalog, what, error.oldest) from error
        return [KeyRange(after, until, hold) for after, until in plan.ranges]

    def _plan(self, reads: CatalogReads) -> PlanShape:
        options = self._options
        pieces = 1 if self._names is not None else options.partitions or _PARTITIONS
        when: dict[str, Any] = {"revision": options.revision, "timestamp": options.timestamp}
        if options.partition_bytes is None or self._names is not None:
            return reads.plan(pieces, **when)
        sample = reads.plan(_SAMPLED_OF, **when)
        return reads.plan(reads.pieces(options.partition_bytes, sample), revision=sample.revision)

    def rows(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, KeyRange)
        hold, names = partition.hold, self._names
        with catalog_reads(self._options) as reads:
            keep, after = hold.keeper(reads), partition.after
            for document in reads.through(hold.revision, keep, names, after, partition.until):
                yield (
                    document.key,
                    bytes(document.value).decode(),
                    document.etag,
                    document.revision,
                    document.create_revision,
                    json_or_none(document.attributes),
                    reads.catalog,
                )

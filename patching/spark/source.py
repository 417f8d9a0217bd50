"""Reading a catalog as a table: every task at the one revision that the driver chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

from patching.spark.batches import in_batches
from patching.spark.catalog_reads import CatalogReads, Compacted, DocumentShape, catalog_reads
from patching.spark.held_revision import Hold
from patching.spark.history_source import (
    COMMITS_SCHEMA,
    DOCUMENTS,
    CommitsReader,
    json_or_none,
    require_fitting,
    starting_revision,
)
from patching.spark.key_ranges import cuts, quantiles
from patching.spark.options import OptionRefused, Options

# A catalog is small as a rule; a large one is read with more tasks on request.
_PARTITIONS: Final = 1
_SAMPLES_PER_PARTITION: Final = 16

DOCUMENTS_SCHEMA: Final = StructType(
    [
        StructField("key", StringType(), nullable=False),
        StructField("value", StringType(), nullable=False),
        StructField("etag", StringType(), nullable=False),
        StructField("revision", LongType(), nullable=False),
        StructField("create_revision", LongType(), nullable=False),
        StructField("attributes", StringType(), nullable=True),
        StructField("catalog", StringType(), nullable=False),
    ]
)


def schema_of(options: Options) -> StructType:
    """The columns of the option ``type``."""
    return DOCUMENTS_SCHEMA if options.type == DOCUMENTS else COMMITS_SCHEMA


def require_schema(given: StructType, options: Options) -> None:
    """Refuse a schema of the user's own, unless it has the same columns, whatever may be null."""
    own = schema_of(options)
    if _columns(given) != _columns(own):
        raise OptionRefused(
            "type",
            f"its columns are fixed, leave .schema(…) out: {own.simpleString()}"
            f" instead of {given.simpleString()}",
        )


def settled(options: Options) -> Options:
    """The options with the revision that a DataFrame is about from now on, whenever it is read.

    So all actions on it, and both sides of a join with itself, see the same. Missing catalogs,
    revisions and times are told here: ReadFailed.
    """
    require_fitting(options)
    starting_revision(options)
    with catalog_reads(options) as reads:
        if options.type != DOCUMENTS:
            head, end = reads.head(), options.ending_revision
            return replace(options, ending_revision=head if end is None else end)
        page = reads.documents(limit=1, revision=options.revision, timestamp=options.timestamp)
        return replace(options, revision=page.revision, timestamp=None)


class MetadataReader(DataSourceReader):
    """Hands to the reader of the option ``type``."""

    def __init__(self, schema: StructType, options: Options) -> None:
        require_schema(schema, options)
        reader = DocumentsReader if options.type == DOCUMENTS else CommitsReader
        self._reader: DocumentsReader | CommitsReader = reader(options)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return in_batches(self._reader.rows(partition), self._schema)


@dataclass
class KeyRange(InputPartition):
    """The documents above ``after`` up to ``until`` (None: to the end), all at one revision."""

    after: str
    until: str | None
    hold: Hold


class DocumentsReader:
    """Documents by key. A task that is run again reads the same range at the same revision."""

    def __init__(self, options: Options) -> None:
        require_fitting(options)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Holds the revision. Called once for each action, on the driver."""
        options = self._options
        with catalog_reads(options) as reads:
            revision = options.revision
            if revision is None:
                revision = reads.documents(limit=1, timestamp=options.timestamp).revision
            hold = _held(reads, revision, options.pin_seconds)
            pieces = 1 if options.key is not None else options.partitions or _PARTITIONS
            bounds = _bounds(reads, revision, options, pieces) if pieces > 1 else []
        return [
            KeyRange(after, until, hold)
            for after, until in zip(["", *bounds], [*bounds, None], strict=True)
        ]

    def rows(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, KeyRange)
        with catalog_reads(self._options) as reads:
            for document in self._documents(reads, partition):
                yield (
                    document.key,
                    bytes(document.value).decode(),
                    document.etag,
                    document.revision,
                    document.create_revision,
                    json_or_none(document.attributes),
                    reads.catalog,
                )

    def _documents(self, reads: CatalogReads, piece: KeyRange) -> Iterator[DocumentShape]:
        keep, revision = piece.hold.keeper(reads), piece.hold.revision
        keep()
        if self._options.key is not None:
            yield from reads.named([self._options.key], revision)
            return
        after = piece.after
        while True:
            page = reads.documents(after=after, revision=revision)
            for document in page.documents:
                if piece.until is not None and document.key > piece.until:
                    return
                yield document
            if page.next is None:
                return
            after = page.next.after
            keep()


def _held(reads: CatalogReads, revision: int, seconds: int) -> Hold:
    """Compacted, with what to do about it."""
    try:
        return Hold.take(reads, revision, seconds)
    except Compacted as error:
        what = f"revision {revision}, where it was loaded (for a newer one load it again),"
        raise Compacted(reads.catalog, what, error.oldest) from error


def _bounds(reads: CatalogReads, revision: int, options: Options, pieces: int) -> list[str]:
    """Where to cut the keys: as the history says, if all of it is there, or else as probes do."""
    prefix = options.prefix or ""
    sample = _created(reads, revision, pieces * _SAMPLES_PER_PARTITION)
    found = quantiles((key for key in sample if key.startswith(prefix)), pieces)
    return found or cuts(_probe(reads, revision), pieces)


def _created(reads: CatalogReads, revision: int, samples: int) -> list[str]:
    """Keys of documents that were created at revisions spread evenly over the whole history.

    Those that were deleted again are among them. [] where history doesn't go back to the
    beginning: what it still tells of might all be in one corner.
    """
    if reads.floor() > 0:
        return []
    keys: list[str] = []
    for index in range(samples):
        page, _ = reads.commits(revision * index // samples, 1)
        keys += [
            change.key
            for commit in page.commits
            for change in commit.changes
            if change.key is not None
            and change.create_revision == commit.revision
            and change.action != "delete"
        ]
    return keys


def _probe(reads: CatalogReads, revision: int) -> Callable[[str, int], Sequence[str]]:
    def probe(after: str, limit: int) -> list[str]:
        page = reads.documents(after=after, limit=limit, revision=revision)
        return [document.key for document in page.documents]

    return probe


def _columns(schema: StructType) -> list[tuple[str, Any]]:
    return [(each.name, each.dataType) for each in schema.fields]

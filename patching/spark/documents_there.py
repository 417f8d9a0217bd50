"""What a catalog contains, for a plan: all digests as a frame, and the few documents that differ.

Tasks read the digests page by page as Arrow batches, in the key ranges in which
``format("metadata")`` reads. The driver plans without starting Python. If a digest differs from the
wanted document's, the task that finds this reads the document by its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching.client._reading import key_chunks
from patching.spark.catalog_reads import CatalogReads, DigestShape, catalog_reads
from patching.spark.json_values import NoJson, in_utc, python_value
from patching.spark.options import Options
from patching.spark.plan import (
    INVALID,
    UNCHANGED,
    Planned,
    Planner,
    StoredText,
    Wanted,
    to_batches,
    wanted_of,
)
from patching.spark.source import DocumentsReader, KeyRange

_RANGES = "after string, until string"
_NAMES = ("there", "etag", "digest")
_SCHEMA = ", ".join(f"{name} string" for name in _NAMES)
# The columns of a row to plan.
COMPARED = ("key", "copies", "value", *_NAMES)
# The most differing documents that a task holds, and about the most bytes of their JSON.
_DIFFERING = 1_000
_DIFFERING_BYTES = 4 * 1024 * 1024
# Pages that are read over one connection. A connection stays with the worker that accepted it,
# which is one that has time just then. So tasks that share a worker by chance soon have two.
_PAGES_OF_A_CONNECTION = 3


def digests_there(
    spark: SparkSession, options: Options, revision: int, manager: str | None = None
) -> DataFrame:
    """A frame (there, etag, digest): key, version token and digest of the documents at
    ``revision``, which the caller holds; 0: no documents. Both this call and the tasks raise errors
    of reading.

    With ``manager``: the documents in which it owns anything, and the digests of that.
    """
    if revision == 0:
        return spark.createDataFrame([], _SCHEMA)
    held = replace(options, revision=revision, pin_seconds=0)
    pieces = [each for each in DocumentsReader(held).partitions() if isinstance(each, KeyRange)]
    ranges = spark.createDataFrame([(piece.after, piece.until) for piece in pieces], _RANGES)
    return ranges.mapInArrow(_Pages(held, revision, manager).batches, _SCHEMA)


@dataclass(frozen=True)
class _Pages:
    options: Options
    revision: int
    manager: str | None

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._range(row["after"], row["until"])

    def _range(self, after: str, until: str | None) -> Iterator[pa.RecordBatch]:
        while True:
            with catalog_reads(self.options) as reads:
                for _ in range(_PAGES_OF_A_CONNECTION):
                    page = reads.digests(after, self.revision, self.manager)
                    some = [each for each in page.documents if until is None or each.key <= until]
                    yield _batch(some)
                    if page.next is None or len(some) < len(page.documents):
                        return
                    after = page.next.after


@dataclass(frozen=True, slots=True)
class _NoValue:
    shown: str
    why: str


def _values(column: pa.Array) -> list[Any]:
    """The column's values in Python; a _NoValue for each that Python can't represent."""
    column = in_utc(column)
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (OverflowError, ValueError):
        both = (python_value(each) for each in column)
        return [value if why is None else _NoValue(value, why) for value, why in both]


def _batch(documents: Sequence[DigestShape]) -> pa.RecordBatch:
    documents = [each for each in documents if each.digest is not None]
    columns = [
        pa.array([each.key for each in documents], pa.string()),
        pa.array([each.etag for each in documents], pa.string()),
        pa.array([each.digest for each in documents], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(_NAMES))


def compared(wanted: DataFrame, there: DataFrame, how: str) -> DataFrame:
    """The rows that a ``DigestPlanner`` reads. ``wanted``: (key, copies, value)."""
    # Wanted rows are sorted already. By itself, Spark would collect the digests of a small catalog
    # on the driver, and send all of them to every task.
    rows = wanted.join(there.hint("merge"), F.col("key") == F.col("there"), how)
    return rows.select(*COMPARED)


def compared_by_hash(wanted: DataFrame, there: DataFrame, how: str, *, by_feed: bool) -> DataFrame:
    """Rows like those of ``compared``, with the ``hash`` of the text, and ``same``: the document
    needs no change for this text. If so, ``value`` is null; ``by_feed``, all columns but ``same``
    are.

    ``wanted``: (key, copies, value, hash); ``there``: (there, etag, digest, had). ``by_feed``:
    nothing is known of documents without a row in ``there``.
    """
    rows = wanted.join(there.hint("merge"), F.col("key") == F.col("there"), how)
    same = (F.col("copies") == 1) & (F.col("hash") == F.col("had")) & F.col("etag").isNotNull()
    rows = rows.withColumn("same", F.coalesce(same, F.lit(False)))
    if by_feed:
        rows = rows.withColumn("there", F.coalesce("there", "key"))
    # Most rows are the same: to keep these columns takes time, and ``there`` has them.
    left_out = (*COMPARED, "hash") if by_feed else ("value",)
    differs = ~F.col("same")
    kept = [
        F.when(differs, F.col(name)).alias(name) if name in left_out else F.col(name)
        for name in (*COMPARED, "hash")
    ]
    return rows.select(*kept, "same")


@dataclass(frozen=True)
class _ReadingPlanner:
    """Plans rows, and reads documents for that, at ``revision``. ``keeps``: with what a
    ``sync_state`` needs."""

    planner: Planner
    options: Options
    revision: int
    keeps: bool = False

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        with catalog_reads(self.options) as reads:
            yield from to_batches(self.rows(reads, batches))

    def rows(self, reads: CatalogReads, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        """The plan for the rows of ``batches``; the subclass says which columns they have."""
        raise NotImplementedError


class DigestPlanner(_ReadingPlanner):
    """Plans rows of ``compared``. It reads the documents that differ, if the planner compares them,
    and those of which nothing is known: they have a key in ``there``, and no etag.

    All unchanged documents have one row together, except for those that were read.
    """

    def rows(self, reads: CatalogReads, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        unchanged = size = 0
        asked: dict[str, _WantedText] = {}
        for batch in batches:
            columns = [_values(batch.column(name)) for name in COMPARED]
            for key, copies, value, there, etag, had in zip(*columns, strict=True):
                if len(asked) >= _DIFFERING or size >= _DIFFERING_BYTES:
                    yield from self._changes(reads, asked)
                    asked, size = {}, 0
                if copies is None and etag is not None:
                    yield self.planner.deletion(there, etag)
                    continue
                if copies is None:
                    asked[there] = _WantedText(None, None)
                    continue
                if isinstance(key, _NoValue):
                    yield Planned(INVALID, key.shown, detail=f"its key: {key.why}")
                    continue
                if isinstance(value, _NoValue):
                    yield Planned(INVALID, key, detail=f"its document: {value.why}")
                    continue
                try:
                    document = self.planner.value(Wanted(key, value, copies))
                except NoJson as error:
                    yield Planned(INVALID, key, detail=str(error))
                    continue
                if there is None and not self.keeps:
                    yield self.planner.creation(key, document)
                    continue
                text = self.planner.digested(key, document)
                found = sha256(text).hexdigest()
                if found == had:
                    unchanged += 1
                    continue
                digest = found if self.keeps else None
                if there is None:
                    yield self.planner.creation(key, document)._replace(digest=digest)
                    continue
                if not self.planner.compares:
                    now = StoredText(str(etag), b"")
                    yield self.planner.change(key, document, now)._replace(digest=digest)
                    continue
                asked[key] = _WantedText((document,), digest)
                size += len(text)
        yield from self._changes(reads, asked)
        if unchanged:
            yield Planned(UNCHANGED, None, documents=unchanged)

    def _changes(self, reads: CatalogReads, asked: Mapping[str, _WantedText]) -> Iterator[Planned]:
        for keys in key_chunks(asked):
            found = {each.key: each for each in reads.named(keys, self.revision)}
            for key in keys:
                wanted, digest = asked[key]
                there = found.get(key)
                if wanted is None:
                    if there is not None:
                        yield self.planner.deletion(key, str(there.etag))
                elif there is None:
                    yield self.planner.creation(key, *wanted)._replace(digest=digest)
                else:
                    now = StoredText(str(there.etag), bytes(there.value))
                    yield self.planner.change(key, *wanted, now)._replace(digest=digest)


class _WantedText(NamedTuple):
    """For a document to be read: (the wanted document,), None if it is unwanted; and its digest."""

    wanted: tuple[Any] | None
    digest: str | None


class KeyedPlanner(_ReadingPlanner):
    """Plans the rows (key, line, wanted) of an earlier plan again, and reads their documents.

    Each unchanged document has a row: there are few.
    """

    def rows(self, reads: CatalogReads, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            rows = {row["key"]: row for row in batch.to_pylist()}
            for keys in key_chunks(rows):
                found = reads.named(keys, self.revision) if self.revision else []
                there = {each.key: StoredText(str(each.etag), bytes(each.value)) for each in found}
                for key in keys:
                    yield self._planned(key, there.get(key), rows[key])

    def _planned(self, key: str, there: StoredText | None, row: Mapping[str, Any]) -> Planned:
        wanted = wanted_of(row["line"], row["wanted"])
        if wanted is not None:
            return self.planner.plan(Wanted(key, wanted), there)
        if there is None:
            return Planned(UNCHANGED, key)
        return self.planner.deletion(key, there.etag)

"""A catalog's documents as a frame, page by page as Arrow has them.

As ``format("metadata")`` reads them, in the same ranges of keys; but the pages go to Spark as they
come, and the driver starts no Python for planning: for a sync that finds little to do, that would
be most of its time. Of a few keys, the tasks ask for the documents by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from patching.client._reading import key_chunks
from patching.spark.catalog_reads import CatalogReads, DocumentShape, catalog_reads
from patching.spark.options import Options
from patching.spark.plan import UNCHANGED, Planned, Planner, There, Wanted, to_batches
from patching.spark.source import DocumentsReader, KeyRange

_RANGES = "after string, until string"
_SCHEMA = "there string, etag string, content string"
_NAMES = ("there", "etag", "content")
# A connection stays with the worker process that accepted it, and that is one that has time just
# then. So tasks that share one by chance soon have two.
_PAGES_OF_A_CONNECTION = 3


def documents_there(spark: SparkSession, options: Options, revision: int) -> DataFrame:
    """(there, etag, content): key, version token and JSON as ``revision`` had them; its holder is
    the caller. 0: none. Errors of reading come from here and from the tasks."""
    if revision == 0:
        return spark.createDataFrame([], _SCHEMA)
    held = replace(options, revision=revision, pin_seconds=0)
    pieces = [each for each in DocumentsReader(held).partitions() if isinstance(each, KeyRange)]
    ranges = spark.createDataFrame([(piece.after, piece.until) for piece in pieces], _RANGES)
    return ranges.mapInArrow(_Pages(held, revision).batches, _SCHEMA)


@dataclass(frozen=True)
class _Pages:
    options: Options
    revision: int

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._range(row["after"], row["until"])

    def _range(self, after: str, until: str | None) -> Iterator[pa.RecordBatch]:
        while True:
            with catalog_reads(self.options) as reads:
                for _ in range(_PAGES_OF_A_CONNECTION):
                    page = reads.documents(after=after, revision=self.revision)
                    some = [each for each in page.documents if until is None or each.key <= until]
                    yield _batch(some)
                    if page.next is None or len(some) < len(page.documents):
                        return
                    after = page.next.after


def _batch(documents: Sequence[DocumentShape]) -> pa.RecordBatch:
    columns = [
        pa.array([each.key for each in documents], pa.string()),
        pa.array([each.etag for each in documents], pa.string()),
        pa.array([bytes(each.value) for each in documents], pa.binary()).cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(_NAMES))


@dataclass(frozen=True)
class KeyedPlanner:
    """Like ``Planner``, for rows (key, copies, value); reads their documents at ``revision``.

    Unchanged documents have a row each: there are few.
    """

    planner: Planner
    options: Options
    revision: int

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        with catalog_reads(self.options) as reads:
            yield from to_batches(self._rows(reads, batches))

    def _rows(self, reads: CatalogReads, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            rows = {row["key"]: row for row in batch.to_pylist()}
            for keys in key_chunks(rows):
                found = reads.named(keys, self.revision) if self.revision else []
                there = {
                    each.key: There(str(each.etag), bytes(each.value).decode()) for each in found
                }
                for key in keys:
                    copies = rows[key]["copies"]
                    wanted = None if copies is None else Wanted(key, rows[key]["value"], copies)
                    planned = self.planner.plan(wanted, there.get(key), key)
                    yield planned if planned.action != UNCHANGED else Planned(UNCHANGED, key)

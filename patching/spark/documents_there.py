"""A catalog's documents as a frame, page by page as Arrow has them.

As ``format("metadata")`` reads them, in the same ranges of keys; but the pages go to Spark as they
come, and the driver starts no Python for planning: for a sync that finds little to do, that would
be most of its time.

Planning for a few keys: their documents are asked for by name, in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from patching.client import Transport
from patching.client.transport import segment
from patching.spark.catalog_reads import DocumentShape, catalog_reads, patiently
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


_KEYS_MAX: Final = 100
# Servers and proxies take lines of 8 KB; a key has 1,000 bytes at most, three times that encoded.
_QUERY_BYTES_MAX: Final = 4000


class _Shape(msgspec.Struct):
    """An absent one has a key alone."""

    key: str
    etag: str | None
    value: msgspec.Raw = msgspec.Raw(b"")


class _Page(msgspec.Struct):
    documents: list[_Shape]


@dataclass(frozen=True)
class KeyedPlanner:
    """As ``Planner``, for rows (key, copies, value); what is there is read at ``revision``.

    Unchanged documents are told one by one: there are few.
    """

    planner: Planner
    options: Options
    revision: int

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        with self.options.open_transport() as transport:
            yield from to_batches(self._rows(transport, batches))

    def _rows(self, transport: Transport, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            rows = batch.to_pylist()
            for some in _groups(rows):
                there = self._there(transport, [row["key"] for row in some])
                for row in some:
                    key, copies = row["key"], row["copies"]
                    wanted = None if copies is None else Wanted(key, row["value"], copies)
                    planned = self.planner.plan(wanted, there.get(key), key)
                    yield planned if planned.action != UNCHANGED else Planned(UNCHANGED, key)

    def _there(self, transport: Transport, keys: Sequence[str]) -> dict[str, There]:
        if self.revision == 0:
            return {}
        path = f"/v1/catalogs/{segment(self.planner.catalog)}/documents"
        query: list[tuple[str, str | int]] = [("key", key) for key in keys]
        query.append(("revision", self.revision))
        answer = patiently(lambda: transport.request("GET", path, query=query), self.options)
        page = msgspec.json.decode(answer.body, type=_Page)
        return {
            each.key: There(each.etag, bytes(each.value).decode())
            for each in page.documents
            if each.etag is not None
        }


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many rows at a time as one request may name the keys of."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        size_of_key = len(quote(row["key"], safe="")) + len("key=&")
        if group and (len(group) >= _KEYS_MAX or size + size_of_key > _QUERY_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(row)
        size += size_of_key
    if group:
        yield group

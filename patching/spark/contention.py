"""Who gets in whose way: commits of different writers on one document, soon after each other, at
pointers that meet.

Worked example, with a window of a minute. At 10:00:00 A replaces /owner of t, at 10:00:20 B adds
/owner/team, at 10:00:30 B replaces /size, at 10:05:00 C replaces /owner. A and B raced at
/owner/team: had B's been made from what A saw, one of them would have been lost. /size was B's
alone, and C came when nobody else was there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching import Footprint, PatchError, footprint, overlap
from patching.spark.options import READ

from .datasource import register
from .sync import options_for

WRITERS: Final = ("author", "message", "idempotency_key")
SCHEMA: Final = (
    "key string, pointer string, one string, other string,"
    " races long, retried long, attempts_max long"
)
_ARROW: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "pointer", "one", "other")),
        *((name, pa.int64()) for name in ("races", "retried", "attempts_max")),
    ]
)
# A commit is compared with so many before it at most: on a document that is written without a
# pause, the last few tell who races.
_COMPARED_MAX: Final = 100
_ROWS_MAX: Final = 1000


def contention(
    spark: SparkSession,
    catalog: str,
    *,
    url: str,
    window_s: float = 60.0,
    by: str = "author",
    after: int | None = None,
    prefix: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A row for each document, pointer and pair of writers, most races first.

    ``one`` and ``other`` raced at ``pointer`` so often as ``races`` says: both changed the document
    within ``window_s`` seconds, and one of them read or wrote there what the other wrote. A
    pointer stands for all below it. ``retried`` of those commits needed more than one attempt, the
    most being ``attempts_max``; ``other`` null: commits that needed more though nobody was found
    that they raced with.

    Writers are told apart ``by`` the commits' author, or by their message or idempotency key, where
    everybody has the same author. ``after``: commits above this revision alone.
    ValueError, OptionRefused; what reading history raises.
    """
    if by not in WRITERS:
        raise ValueError(f"writers are told apart by {', '.join(WRITERS)}, not by {by!r}")
    if window_s <= 0:
        raise ValueError("the window must be longer than 0 seconds")
    register(spark)
    chosen = options_for({"url": url, "catalog": catalog, **(options or {})}, READ)
    chosen["type"] = "changes"
    if after is not None:
        chosen["startingRevision"] = str(after + 1)
    if prefix is not None:
        chosen["prefix"] = prefix
    history = spark.read.format("metadata").options(**chosen).load()
    commits = (
        history.where(F.col("key").isNotNull() & F.col("patch").isNotNull())
        .select(
            "key",
            "revision",
            "time",
            F.coalesce(F.col(by), F.lit("")).alias("writer"),
            F.col("attempts").cast("long").alias("attempts"),
            "patch",
        )
        .repartition("key")
        .sortWithinPartitions("key", "revision")
    )
    pairs = commits.mapInArrow(Racing(window_s).batches, SCHEMA)
    return (
        pairs.groupBy("key", "pointer", "one", "other")
        .agg(
            F.sum("races").alias("races"),
            F.sum("retried").alias("retried"),
            F.max("attempts_max").alias("attempts_max"),
        )
        .orderBy(F.desc("races"), F.desc("retried"), "key", "pointer", "one", "other")
    )


class _Commit(NamedTuple):
    time: datetime
    writer: str
    attempts: int
    footprint: Footprint


@dataclass(slots=True)
class _Tally:
    races: int = 0
    retried: int = 0
    attempts_max: int = 0

    def add(self, races: int, attempts: int) -> None:
        self.races += races
        self.retried += attempts > 1
        self.attempts_max = max(self.attempts_max, attempts)


# (pointer, one, other)
_Place = tuple[str, str, str | None]


@dataclass
class _Document:
    """The commits of one key, told upwards by revision."""

    key: str | None
    recent: deque[_Commit] = field(default_factory=lambda: deque(maxlen=_COMPARED_MAX))
    tallies: dict[_Place, _Tally] = field(default_factory=dict)

    def add(self, commit: _Commit, window: timedelta) -> None:
        while self.recent and commit.time - self.recent[0].time > window:
            self.recent.popleft()
        places = {
            (pointer, *sorted((earlier.writer, commit.writer)))
            for earlier in self.recent
            if earlier.writer != commit.writer
            for pointer in overlap(commit.footprint, earlier.footprint)
        }
        for pointer, one, other in places:
            self._tally((pointer, one, other)).add(1, commit.attempts)
        if not places and commit.attempts > 1:
            for pointer in commit.footprint.writes:
                self._tally((pointer, commit.writer, None)).add(0, commit.attempts)
        self.recent.append(commit)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for place, tally in self.tallies.items():
            yield (self.key, *place, tally.races, tally.retried, tally.attempts_max)

    def _tally(self, place: _Place) -> _Tally:
        return self.tallies.setdefault(place, _Tally())


@dataclass(frozen=True)
class Racing:
    """Finds races among commits that come by key and revision. Holds those of one key's window."""

    window_s: float

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``, of rows (key, time, writer, attempts, patch)."""
        held: list[tuple[Any, ...]] = []
        for document in self._documents(batches):
            for row in document.rows():
                held.append(row)
                if len(held) >= _ROWS_MAX:
                    yield _batch(held)
                    held = []
        if held:
            yield _batch(held)

    def _documents(self, batches: Iterator[pa.RecordBatch]) -> Iterator[_Document]:
        window = timedelta(seconds=self.window_s)
        document = _Document(None)
        for batch in batches:
            for row in batch.to_pylist():
                if row["key"] != document.key:
                    yield document
                    document = _Document(row["key"])
                patch = msgspec.json.decode(row["patch"])
                document.add(
                    _Commit(row["time"], row["writer"], row["attempts"], _touched(patch)), window
                )
        yield document


def _touched(patch: list[dict[str, Any]]) -> Footprint:
    try:
        return footprint(patch)
    except PatchError:  # larger than what may be sent; the whole document, then
        return Footprint(frozenset(), frozenset([""]))


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, kind.type)
        for column, kind in zip(zip(*rows, strict=True), _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)

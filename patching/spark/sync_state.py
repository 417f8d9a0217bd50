"""What a run of ``sync`` leaves for the next one, which then skips what is the same.

A row for each document that the run left in the catalog, and the head that it ended with::

    key   etag     digest   hash of the wanted text
    a     1f-77e2  9a41…    03c7…       as long as a has this token, this text changes nothing in it
    b     -        -        -           nothing is known of it: it was refused, say

Tokens make a row true for ever: another state of the document has another token. So an old state,
or one of another catalog, says nothing wrong; it only says less. The next run learns the present
tokens from one of two places:

- the commits since the state's revision: documents that they don't name keep their tokens. This
  takes that the state's head is still in the catalog's history, that the principal sees all
  documents, then and now, that there is no manager, and that the commits are few;
- else, the listing of digests.

The rows are Parquet, for Spark to join them where they are, on any file system that it writes to.
Two slots take turns, so that a run which dies leaves the state before. A slot is whole if all of
its rows are of the run that its description names, and as many as it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching.spark import delivery, plan
from patching.spark.catalog_reads import CatalogReads, Compacted, catalog_reads
from patching.spark.documents_there import digests_there
from patching.spark.options import Options

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # a client of Spark Connect alone, which has no JVM
    Py4JError = PySparkException
# What Spark raises for files that are missing, or not what they should be.
_UNREADABLE: Final = (PySparkException, Py4JError)
_FORMAT: Final = 1
_SLOTS: Final = ("a", "b")
_ROWS: Final = "key string, etag string, digest string, hash binary, run string"
_PAGE: Final = 1000
# The most commits to read: `_COMMITS`, or one per `_ROWS_A_COMMIT` rows of the state, if that is
# more; and the most documents that they may change.
_COMMITS: Final = 1_000
_ROWS_A_COMMIT: Final = 20
_TOUCHED_MAX: Final = 20_000
# The most rows, of some 150 bytes, to send to every task.
_BROADCAST_MAX: Final = 50_000
# A state is written again after one change per `_ROWS_A_CHANGE` of its rows; if no document
# differed from it, not before `_RENEWED_AFTER` commits.
_ROWS_A_CHANGE: Final = 40
_RENEWED_AFTER: Final = 500
_GONE: Final = (delivery.DELETED, delivery.LET_GO, delivery.NOT_OWNED)


class RunInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a slot. ``terms`` are the arguments that its rows depend on. The rows are
    true as of ``revision``, or of a later revision of the same run, which ended at ``head``, a
    commit with ``commit_id``. ``sees_all``: no document was hidden from the principal."""

    slot: str
    run: str
    terms: str
    rows: int
    revision: int
    head: int
    commit_id: str
    sees_all: bool


@dataclass(frozen=True)
class LastRun:
    """A whole slot."""

    about: RunInfo
    rows: DataFrame


@dataclass(frozen=True)
class CurrentRows:
    """What the catalog has now. ``rows``: (there, etag, digest, had); ``had``: the hash of the text
    by which the document needs no change. ``by_feed``: nothing is known of a document with a null
    ``etag`` or without a row. ``about``: the state that was used."""

    rows: DataFrame
    by_feed: bool = False
    about: RunInfo | None = None


class SyncState:
    """The state in the folder ``path``, as Spark names it, of runs with these ``terms``."""

    def __init__(
        self, spark: SparkSession, path: str, partitions: int, terms: Mapping[str, object]
    ) -> None:
        self._spark = spark
        self._partitions = partitions
        self._path = path.rstrip("/")
        self._terms = msgspec.json.encode({"format": _FORMAT, **terms}, order="sorted").decode()

    def there(self, reading: Options, revision: int, manager: str | None) -> CurrentRows:
        """What the catalog has at ``revision``, which the caller holds."""
        last = self._last() if revision else None
        if last is not None:
            with catalog_reads(reading) as reads:
                trusted = _is_of(reads, last.about)
                if trusted is False:
                    last = None
                elif trusted and manager is None and last.about.sees_all and sees_all(reads):
                    tokens = _touched(reads, last.about, revision, reading.prefix or "")
                    if tokens is not None:
                        return CurrentRows(self._by_feed(last, tokens), True, last.about)
        listed = self.spread(digests_there(self._spark, reading, revision, manager))
        if last is None:
            return CurrentRows(listed.withColumn("had", F.lit(None).cast("binary")))
        known = last.rows.select("key", F.col("etag").alias("known"), "hash")
        # A key has one row anyway. With nothing between the join and the two shuffles, Spark would
        # make spark.sql.shuffle.partitions tasks of them, and of all that follows.
        known = self.spread(known, "key").dropDuplicates(["key"]).hint("merge")
        had = F.when(F.col("etag") == F.col("known"), F.col("hash")).alias("had")
        rows = listed.join(known, F.col("there") == F.col("key"), "left")
        return CurrentRows(rows.select("there", "etag", "digest", had), about=last.about)

    def spread(self, rows: DataFrame, name: str = "there") -> DataFrame:
        """By key, as the wanted rows are, so that a join needs no other shuffle."""
        return rows.repartition(self._partitions, name)

    def _by_feed(self, last: LastRun, tokens: Mapping[str, str]) -> DataFrame:
        """The rows of ``last``; but nothing is known of documents that have got other ``tokens``
        since."""
        rows = last.rows.select(F.col("key").alias("there"), "etag", "digest", "hash")
        if tokens:
            columns = {"touched": [*tokens], "token": [*tokens.values()]}
            changes = self._spark.createDataFrame(pa.table(columns))  # needs no Python worker
            of_it, own = F.col("there") == F.col("touched"), F.col("etag") == F.col("token")
            known = rows.join(F.broadcast(changes), of_it, "left").where(
                F.col("touched").isNull() | own
            )
            ours = rows.join(F.broadcast(changes), of_it & own, "left_semi").select("there")
            unknown = changes.join(F.broadcast(ours), of_it, "left_anti")
            nothing = [F.lit(None).cast(kind) for kind in ("string", "string", "binary")]
            rows = known.select(*rows.columns).union(unknown.select("touched", *nothing))
        return rows.withColumnRenamed("hash", "had")

    def _last(self) -> LastRun | None:
        """The newest whole slot of these terms."""
        for about in sorted(self._abouts(), key=lambda each: -each.head):
            if about.terms != self._terms:
                continue
            try:
                rows, seen = self._slot(about.slot)
            except _UNREADABLE:
                continue
            if seen == (about.rows, about.run, about.run):
                return LastRun(about, rows)
        return None

    def _abouts(self) -> Iterator[RunInfo]:
        try:
            # An unreadable one mustn't hide the other.
            reader = self._spark.read.option("ignoreCorruptFiles", "true")
            # Twice: for one path, Spark checks whether it is a stream's, and warns with a trace.
            lines = {*reader.text([f"{self._path}/*/about"] * 2).collect()}
        except _UNREADABLE:  # none is there, or it can't be read
            return
        for line in lines:
            try:
                yield msgspec.json.decode(line["value"], type=RunInfo)
            except msgspec.MsgspecError:
                continue

    def _slot(self, slot: str) -> tuple[DataFrame, tuple[int, str | None, str | None]]:
        """The slot's rows; and how many there are, and of which runs."""
        rows = self._spark.read.schema(_ROWS).parquet(f"{self._path}/{slot}/rows")
        seen = rows.agg(F.count(F.lit(1)), F.min("run"), F.max("run")).first()
        assert seen is not None
        return rows, tuple(seen)

    def save(self, rows: DataFrame, about: RunInfo) -> None:
        """Write over the older slot; its description last."""
        folder = f"{self._path}/{about.slot}"
        mine = rows.withColumn("run", F.lit(about.run))
        mine.write.mode("overwrite").parquet(f"{folder}/rows")
        _, (count, first, last) = self._slot(about.slot)
        if count and (first, last) != (about.run, about.run):
            return  # another run writes the same folder
        text = msgspec.json.encode(msgspec.structs.replace(about, rows=count)).decode()
        line = self._spark.range(1, numPartitions=1).select(F.lit(text).alias("value"))
        line.write.mode("overwrite").text(f"{folder}/about")

    def about(
        self, reads: CatalogReads, run: str, there: CurrentRows, revision: int, sent: int | None
    ) -> RunInfo:
        """The description for a run that ends now, with ``sent`` commits of its own (None: unknown)
        since ``revision``. If there were no others, the rows are true as of the head."""
        head = reads.head_if_any()
        others = sent is None or head - revision != sent
        slot = _SLOTS[0] if there.about is None or there.about.slot != _SLOTS[0] else _SLOTS[1]
        return RunInfo(
            slot=slot,
            run=run,
            terms=self._terms,
            rows=0,
            revision=revision if others else head,
            head=head,
            commit_id=(reads.commit_id(head) if head else None) or "",
            sees_all=sees_all(reads),
        )


def needs_saving(there: CurrentRows, revision: int, differing: int) -> bool:
    """Whether a new state saves the next run, at ``revision`` or later, more work than writing it
    takes. With the old one, that run compares documents changed since then, and ``differing``
    ones."""
    if there.about is None or not there.by_feed:
        return True
    behind = revision - there.about.revision
    few = there.about.rows // _ROWS_A_CHANGE
    return differing > few or behind > max(few, 0 if differing else _RENEWED_AFTER)


def remembered(
    pairs: DataFrame,
    there: CurrentRows,
    rounds: Sequence[tuple[DataFrame, DataFrame | None]],
    differing: int,
) -> DataFrame:
    """The rows that a run leaves, made of the compared ``pairs``, and of the plans and
    outcomes of its ``rounds``, which are about at most ``differing`` documents."""
    known = pairs.select(F.coalesce("there", "key").alias("key"), "etag", "digest", "hash")
    if there.by_feed:
        # Rows that are the same have no key: they are in ``there``.
        known = known.where(F.col("key").isNotNull())
    left = known.where(F.col("etag").isNotNull())
    if rounds:
        left = _after_rounds(known, rounds, differing)
    if not there.by_feed:
        return left
    keys = known.select(F.col("key").alias("name"))
    keys = F.broadcast(keys) if differing <= _BROADCAST_MAX else keys
    kept = there.rows.where(F.col("etag").isNotNull())
    kept = kept.join(keys, F.col("there") == F.col("name"), "left_anti")
    same = kept.select(F.col("there").alias("key"), "etag", "digest", F.col("had").alias("hash"))
    return same.union(left)


def _after_rounds(
    known: DataFrame, rounds: Sequence[tuple[DataFrame, DataFrame | None]], differing: int
) -> DataFrame:
    """``known`` as the rounds left it."""
    after: DataFrame | None = None
    for number, (planned, outcomes) in enumerate(rounds):
        for each in _after(planned, outcomes, is_last=number == len(rounds) - 1):
            after = each if after is None else after.union(each)
    assert after is not None
    if differing <= _BROADCAST_MAX:
        after = F.broadcast(after)
    rows = known.join(after, F.col("key") == F.col("name"), "left")
    untouched = F.col("name").isNull()
    stays = F.when(untouched, F.col("etag").isNotNull()).otherwise(~F.col("gone"))
    return rows.where(stays).select(
        "key",
        F.when(untouched, F.col("etag")).otherwise(F.col("new_etag")).alias("etag"),
        F.when(untouched, F.col("digest")).otherwise(F.col("new_digest")).alias("digest"),
        F.when(untouched | F.col("new_etag").isNotNull(), F.col("hash")).alias("hash"),
    )


def _after(planned: DataFrame, outcomes: DataFrame | None, *, is_last: bool) -> Iterator[DataFrame]:
    """(name, new_etag, new_digest, gone) of the documents that a round decided. Those that were
    lost belong to the round after it."""
    seen = planned.where((F.col("action") == plan.UNCHANGED) & F.col("key").isNotNull())
    etag = F.col("etag")
    names = ("name", "new_etag", "new_digest", "gone")
    yield seen.select("key", "etag", "digest", etag.isNull()).toDF(*names)
    if outcomes is None:
        return
    outcome = F.col("outcome")
    rows = outcomes.where(F.col("key").isNotNull())
    if not is_last:
        rows = rows.where(outcome != delivery.LOST)
    # Refused ones have no token, and neither have those with leaves that were left to others.
    rows = rows.select(
        F.col("key").alias("name"),
        etag.alias("new_etag"),
        outcome.isin(*_GONE).alias("gone"),
    )
    lines = planned.where(F.col("line").isNotNull()).select("key", F.col("digest"))
    joined = rows.join(lines, F.col("name") == F.col("key"), "left")
    digest = F.when(F.col("new_etag").isNotNull(), F.col("digest"))
    yield joined.select("name", "new_etag", digest, "gone").toDF(*names)


def sees_all(reads: CatalogReads) -> bool:
    """Whether the principal sees all documents, whatever their acl: an admin does."""
    return any(
        grant.role == "admin" and _stands_for(grant.pattern, reads.catalog)
        for grant in reads.grants()
    )


def _stands_for(pattern: str, catalog: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), catalog, re.S) is not None


def _is_of(reads: CatalogReads, about: RunInfo) -> bool | None:
    """Whether the state's head is in the catalog's history; None: nobody knows any more."""
    if not about.commit_id:
        return None
    try:
        return reads.commit_id(about.head) == about.commit_id
    except Compacted:
        return None


def _touched(
    reads: CatalogReads, about: RunInfo, revision: int, prefix: str
) -> Mapping[str, str] | None:
    """By key, the last tokens of documents that were changed after the state, up to ``revision``.
    None if the commits don't say, or are many: then it is cheaper to list the digests."""
    if revision - about.revision > max(_COMMITS, about.rows // _ROWS_A_COMMIT):
        return None
    tokens: dict[str, str] = {}
    after: int | None = about.revision
    while after is not None and after < revision:
        try:
            page, _ = reads.commits(after, min(_PAGE, revision - after))
        except Compacted:
            return None
        for commit in page.commits:
            if commit.deletes_catalog:
                return None
            # As the gateway makes tokens. If it made others, these would match none.
            token = f"{commit.revision:x}-{commit.commit_id[:8]}"
            for change in commit.changes:
                if change.key is None:  # the settings, which decide what is equal
                    return None
                if change.key.startswith(prefix):
                    tokens[change.key] = token
        if len(tokens) > _TOUCHED_MAX:
            return None
        after = page.next
    return tokens

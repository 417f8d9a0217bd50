"""History as a table: what the commits of a catalog changed, a row for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from patching.spark.catalog_reads import (
    CatalogReads,
    ChangeShape,
    CommitShape,
    Compacted,
    Hold,
    ReadFailed,
    catalog_reads,
)
from patching.spark.options import OptionRefused, Options

DOCUMENTS: Final = "documents"
CHANGES: Final = "changes"
# The action of the rows with which a stream from the state begins.
DOCUMENT: Final = "document"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
STATE: Final = "state"
_PARTITIONS: Final = 1

COMMITS_SCHEMA: Final = StructType(
    [
        StructField("revision", LongType(), nullable=False),
        StructField("time", TimestampType(), nullable=False),
        StructField("commit_id", StringType(), nullable=False),
        StructField("author", StringType(), nullable=True),
        StructField("message", StringType(), nullable=True),
        StructField("attempts", IntegerType(), nullable=False),
        StructField("idempotency_key", StringType(), nullable=True),
        StructField("key", StringType(), nullable=True),
        StructField("action", StringType(), nullable=True),
        StructField("create_revision", LongType(), nullable=True),
        StructField("patch", StringType(), nullable=True),
        StructField("attributes", StringType(), nullable=True),
        StructField("catalog", StringType(), nullable=False),
    ]
)


def commits_schema(options: Options) -> StructType:
    """The columns of commits, and those that the option ``include`` names."""
    images = [StructField(name, StringType(), nullable=True) for name in options.include]
    return StructType([*COMMITS_SCHEMA.fields, *images])


@dataclass
class StateRange(InputPartition):
    """The documents at ``revision``, which was made at ``time``."""

    revision: int
    time: str
    hold: Hold


@dataclass
class RevisionRange(InputPartition):
    """The commits above revision ``after`` up to ``until``."""

    after: int
    until: int
    hold: Hold | None = None


class CommitsReader:
    """Reads commits from the option startingRevision to endingRevision, both included."""

    def __init__(self, options: Options) -> None:
        require_fitting(options)
        self._options = options
        if starting_revision(options) == STATE:  # refused here already if it is no revision
            raise OptionRefused("startingRevision", f"{STATE!r} works only for a stream")

    def partitions(self) -> list[InputPartition]:
        """Also pins the history from its start on. Called once for each action, on the driver."""
        options = self._options
        with catalog_reads(options) as reads:
            head = reads.head()
            until = head if options.ending_revision is None else min(head, options.ending_revision)
            after = self._after(reads, head, until)
            if after >= until:
                return [RevisionRange(until, until)]
            hold = _held(reads, after, options.pin_seconds)
        return list(revision_ranges(after, until, options.partitions or _PARTITIONS, hold))

    def rows(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, RevisionRange)
        return commit_rows(self._options, partition)

    def _after(self, reads: CatalogReads, head: int, until: int) -> int:
        if self._options.starting_timestamp is not None:
            return before_time(reads, self._options.starting_timestamp)
        start = starting_revision(self._options)
        if start == LATEST:
            return until
        floor = reads.floor()
        if start is None or start == EARLIEST:
            return floor
        after = before_revision(reads, start, head)
        if after < floor:
            raise below_floor(reads.catalog, after, floor)
        return after


def starting_revision(options: Options) -> int | str | None:
    """The option: a first revision, EARLIEST, LATEST or STATE; None: it isn't given."""
    given = options.starting_revision
    if given is None:
        return None
    if given.lower() in (EARLIEST, LATEST, STATE):
        return given.lower()
    if not (given.isascii() and given.isdigit()):
        detail = f"it must be a revision, {EARLIEST}, {LATEST} or {STATE}, not {given!r}"
        raise OptionRefused("startingRevision", detail)
    return int(given)


def before_revision(reads: CatalogReads, start: int | str, head: int) -> int:
    """The revision before ``start``. ReadFailed if the next commit would come before ``start``."""
    after = max(int(start) - 1, 0)
    if after > head:
        raise ReadFailed(
            f"option 'startingRevision': it can be at most {head + 1}, not {start}:"
            f" catalog {reads.catalog!r} is at revision {head}"
        )
    return after


def before_time(reads: CatalogReads, timestamp: str) -> int:
    """The revision before the first commit at or after ``timestamp``; the head if there is none
    yet. Raises Compacted if commits at or after it are gone."""
    floor = reads.floor()
    if floor == 0 and _is_next(reads, 0, timestamp):
        return 0
    revision = reads.revision_at(timestamp)
    at_that_time = revision > floor and _is_next(reads, revision - 1, timestamp)
    return revision - 1 if at_that_time else revision


def _is_next(reads: CatalogReads, after: int, timestamp: str) -> bool:
    """Whether the first commit above ``after`` was made at or after ``timestamp``."""
    page, _ = reads.commits(after, 1)
    return not page.commits or _instant(page.commits[0].time) >= _instant(timestamp)


def require_fitting(options: Options) -> None:
    """Refuse options that contradict each other, or are for another ``type`` than is read."""
    if options.key is not None and options.prefix is not None:
        raise OptionRefused("prefix", "it can't be given together with key")
    if options.keys is not None and (options.key or options.prefix) is not None:
        other = "key" if options.key else "prefix"
        raise OptionRefused("keys", f"it can't be given together with {other}")
    documents = {
        "revision": options.revision,
        "timestamp": options.timestamp,
        "keys": options.keys,
        "partitionBytes": options.partition_bytes,
    }
    commits = {
        "startingRevision": options.starting_revision,
        "startingTimestamp": options.starting_timestamp,
        "endingRevision": options.ending_revision,
        "include": options.include or None,
    }
    others = commits if options.type == DOCUMENTS else documents
    for name, value in others.items():
        if value is not None:
            raise OptionRefused(name, f"it has no effect with type={options.type}")


def below_floor(catalog: str, after: int, floor: int) -> Compacted:
    """The error for reading commits above ``after`` if those up to ``floor`` are gone."""
    what = (
        f"the commit at revision {after + 1} (the first that can be read is {floor + 1}:"
        f" startingRevision={floor + 1} or {EARLIEST})"
    )
    return Compacted(catalog, what, floor)


def revision_ranges(
    after: int, until: int, pieces: int, hold: Hold | None = None
) -> Sequence[RevisionRange]:
    """At most ``pieces`` ranges of the revisions in between, of about one size, ascending, none
    empty."""
    count = until - after
    pieces = min(pieces, count)
    edges = [after + count * piece // pieces for piece in range(pieces + 1)] if pieces else []
    return [RevisionRange(low, high, hold) for low, high in pairwise(edges)]


def commit_rows(options: Options, piece: RevisionRange) -> Iterator[tuple[Any, ...]]:
    """A row for each change in the range that ``options`` ask for, by revision."""
    with catalog_reads(options) as reads:
        keep = piece.hold.keeper(reads) if piece.hold else lambda: None
        for commits in _pages(reads, options, piece, keep):
            for commit in commits:
                if commit.revision > piece.until:
                    return
                for change, row in _rows(commit, options, reads.catalog):
                    yield (*row, *(_image(reads, commit, change, n) for n in options.include))


def _pages(
    reads: CatalogReads, options: Options, piece: RevisionRange, keep: Callable[[], None]
) -> Iterator[Sequence[CommitShape]]:
    after: int | None = piece.after
    while after is not None and after < piece.until:
        keep()
        if options.include:
            changes = reads.changes(after)
            yield changes.commits
            after = changes.revision
            continue
        page, head = reads.commits(after, piece.until - after, options.key)
        if head < piece.until:
            raise ReadFailed(
                f"catalog {reads.catalog!r} is at revision {head}, but was at {piece.until} when"
                " this read began: its database was restored to an earlier state"
            )
        yield page.commits
        after = page.next


def _image(
    reads: CatalogReads, commit: CommitShape, change: ChangeShape | None, name: str
) -> str | None:
    """The document before or after a commit; read by itself if it was withheld: it is large, or one
    of many. None if there is none, and for the settings."""
    if change is None or change.key is None:
        return None
    image = change.before if name == "before" else change.value
    if name in change.withheld:
        found = reads.content(change.key, commit.revision - (name == "before"))
        image = msgspec.UNSET if found is None else found
    return None if image is msgspec.UNSET else bytes(image).decode()


def state_rows(options: Options, piece: StateRange) -> Iterator[tuple[Any, ...]]:
    """A row for each document, by key: as if one commit at that revision had made them all."""
    with catalog_reads(options) as reads:
        names = None if options.key is None else [options.key]
        for document in reads.through(piece.revision, piece.hold.keeper(reads), names):
            columns = (None, None, 0, None, document.key, DOCUMENT, document.create_revision)
            patch = b'[{"op":"add","path":"","value":%b}]' % bytes(document.value)
            images = {"before": None, "value": bytes(document.value).decode()}
            yield (
                *(piece.revision, _instant(piece.time), "", *columns, patch.decode()),
                *(json_or_none(document.attributes), reads.catalog),
                *(images[name] for name in options.include),
            )


def _rows(
    commit: CommitShape, options: Options, catalog: str
) -> Iterator[tuple[ChangeShape | None, tuple[Any, ...]]]:
    filtered = options.key is not None or options.prefix is not None
    changes: Sequence[ChangeShape | None] = commit.changes
    if not changes and not filtered and options.type != CHANGES:
        changes = (None,)  # a touch has a row, too
    time = _instant(commit.time)
    for change in changes:
        if filtered and not _is_wanted(change, options):
            continue
        of_it = (commit.commit_id, commit.author, commit.message, commit.attempts)
        named = (*of_it, commit.idempotency_key, *_change_columns(change), catalog)
        yield change, (commit.revision, time, *named)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _change_columns(change: ChangeShape | None) -> tuple[Any, ...]:
    if change is None:
        return (None, None, None, None, None)
    return (
        change.key,
        change.action,
        change.create_revision,
        json_or_none(change.patch),
        json_or_none(change.attributes),
    )


def _is_wanted(change: ChangeShape | None, options: Options) -> bool:
    if change is None or change.key is None:
        return False
    if options.key is not None:
        return change.key == options.key
    return change.key.startswith(options.prefix or "")


def _held(reads: CatalogReads, after: int, seconds: int) -> Hold:
    """Pins the history above ``after``. Raises Compacted if the floor is above it."""
    try:
        return Hold.take(reads, after, seconds)
    except Compacted as error:
        raise below_floor(reads.catalog, after, error.oldest or after) from error


def json_or_none(raw: Any) -> str | None:
    """The JSON text; None if it is null."""
    text = bytes(raw).decode()
    return None if text == "null" else text

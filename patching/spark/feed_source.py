"""Streaming from a catalog's log: each commit once and in order, from a revision on.

An offset is the revision up to which the stream has read, with the id of that commit:
``{"revision": 41, "commit": "3f…"}``; if the documents at that revision are yet to come, it also
has the revision's time (``state``). Spark keeps it in the checkpoint, and the tasks of a
micro-batch read the commits between two offsets: a repeated micro-batch has the same rows. If the
database was restored to an earlier state, other commits have these revisions: the first one above
an offset has another parent than the offset's commit, and the query ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from patching.spark.catalog_reads import CatalogReads, Compacted, Hold, ReadFailed
from patching.spark.history_source import (
    DOCUMENTS,
    EARLIEST,
    LATEST,
    STATE,
    RevisionRange,
    StateRange,
    before_revision,
    before_time,
    below_floor,
    commit_rows,
    require_fitting,
    revision_ranges,
    starting_revision,
    state_rows,
)
from patching.spark.options import OptionRefused, Options
from patching.spark.source import ReadColumns

if TYPE_CHECKING:
    from patching.client.transport import Transport

_PARTITIONS: Final = 1
# The most commits of a request by which the driver adds up sizes.
_SIZED: Final = 200
_REVISION: Final = "revision"
_COMMIT: Final = "commit"
_STATE: Final = "state"
_OTHER: Final = (
    "it is another catalog, or its database was restored to an earlier state. Start with a new"
    " checkpointLocation"
)
_BEHIND: Final = (
    "The stream was stopped for longer than history is kept. Start with a new checkpointLocation"
    " and startingRevision=state, which begins with the documents as they are now, or"
    " startingRevision=earliest, which skips what was done in between. Or set"
    " failOnDataLoss=false, with which this stream skips the gap"
)
_NO_STATE: Final = (
    "Start with a new checkpointLocation; the stream then begins with the documents as they are now"
)


class _FeedReader(DataSourceStreamReader):
    """The part for all releases of Spark.

    It keeps its connection from one micro-batch to the next, and drops it when sent to a task.
    """

    def __init__(self, schema: StructType, options: Options) -> None:
        if options.type == DOCUMENTS:
            raise OptionRefused("type", "a stream reads commits: choose 'commits' or 'changes'")
        require_fitting(options)
        starting_revision(options)  # refused here already if it is no revision
        self._columns = ReadColumns(schema, options)
        self._options = options
        self._transport: Transport | None = None
        self._target: int | None = None  # the head with which it is to end, if any
        self._head: int | None = None  # as last seen
        self._named: dict[str, Any] = {}  # the last offset that was made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transport": None}

    def _first(self) -> int:
        """The revision after which a query without a checkpoint begins."""
        reads = self._reads()
        head = reads.head()
        if self._options.starting_timestamp is not None:
            try:
                return before_time(reads, self._options.starting_timestamp)
            except Compacted as error:
                if self._options.fail_on_data_loss:
                    raise
                return self._passed_over(0, error.oldest)
        start = starting_revision(self._options)
        if start is None or start == LATEST:
            return head
        if start == STATE:
            raise AssertionError("a state has a time, too: see `initialOffset`")
        floor = reads.floor()
        if start == EARLIEST:
            return floor
        after = before_revision(reads, start, head)
        if after < floor and self._options.fail_on_data_loss:
            raise below_floor(reads.catalog, after, floor)
        return after if after >= floor else self._passed_over(after, floor)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset of a query without a checkpoint."""
        if starting_revision(self._options) != STATE:
            return self._offset(self._first())
        state = self._reads().catalog_state()
        return {**self._offset(state.revision), _STATE: state.time}

    def _offset(self, revision: int) -> dict[str, Any]:
        if self._named.get(_REVISION) != revision:
            commit = None
            with suppress(Compacted):
                commit = self._reads().commit_id(revision) if revision else None
            self._named = {_REVISION: revision, **({_COMMIT: commit} if commit else {})}
        return self._named

    def _last(self, after: int | None, most: int | None) -> int:
        """The last revision of a micro-batch: the head, but at most ``most`` revisions above
        ``after`` (None: not known yet), and not beyond the head with which the stream is to end."""
        if after is None:
            self._head = head = self._reads().head()
        else:
            after, head = self._head_above(after)
            self._head = head
        if self._target is not None:
            head = max(min(head, self._target), after or 0)
        if after is None:
            return head
        end = head if most is None else min(head, after + most)
        return end if self._options.max_bytes_per_trigger is None else self._bounded(after, end)

    def _bounded(self, after: int, end: int) -> int:
        """The first revision up to ``end`` at which the changes reach the bytes of the option
        maxBytesPerTrigger. So the driver reads all these changes, too."""
        reads, left = self._reads(), self._options.max_bytes_per_trigger or 0
        place: int | None = after
        while place is not None and place < end:
            page, _ = reads.commits(place, min(_SIZED, end - place), self._options.key)
            for commit in page.commits:
                left -= sum(change.size for change in commit.changes)
                if left <= 0 or commit.revision >= end:
                    return min(commit.revision, end)
            place = page.next
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The documents, if ``start`` begins with them, and the commits up to ``end``."""
        commits = self._ranges(start, end)
        return [*self._state_range(start), *commits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; runs on an executor."""
        return self._columns.batches(self._rows(partition))

    def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _ranges(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The commits of a micro-batch. ReadFailed if the catalog has other ones, or is not as far:
        Spark 4.1 asks for the latest offset without saying where the query is."""
        after, until = _revision(start), _revision(end)
        if until < after:
            raise self._set_back(after, until)
        self._require_history(start, end)
        if not self._options.fail_on_data_loss and after < until:
            floor = self._reads().floor()
            after = after if after >= floor else self._passed_over(after, floor)
        if until <= after:
            return []
        return list(revision_ranges(after, until, self._options.partitions or _PARTITIONS))

    def _state_range(self, offset: dict[str, Any]) -> Sequence[InputPartition]:
        """The documents at an offset that begins with them, else nothing."""
        if _STATE not in offset:
            return []
        revision = _revision(offset)
        try:
            hold = Hold.take(self._reads(), revision, self._options.pin_seconds)
        except Compacted as error:
            catalog = str(self._options.catalog)
            what = f"the state at revision {revision}, with which this stream begins,"
            raise Compacted(catalog, what, error.oldest, _NO_STATE) from error
        return [StateRange(revision, offset[_STATE], hold)]

    def _rows(self, piece: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(piece, StateRange):
            yield from state_rows(self._options, piece)
            return
        assert isinstance(piece, RevisionRange)
        while True:
            try:
                yield from commit_rows(self._options, piece)
            except Compacted as error:
                piece = replace(piece, after=self._passed_over(piece.after, error.oldest))
                if piece.after < piece.until:
                    continue
            return

    def _head_above(self, after: int) -> tuple[int, int]:
        """(``after``, or the floor if the stream passes over compacted commits; the head)."""
        reads = self._reads()
        try:
            _, head = reads.commits(after, 1)
        except Compacted as error:
            if self._options.fail_on_data_loss or error.oldest is None:
                raise self._lost(after, error.oldest) from error
            return error.oldest, reads.head()  # `_ranges` reports the gap
        if head < after:
            raise self._set_back(after, head)
        return after, head

    def _require_history(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Raise ReadFailed if the revision of ``start`` has another commit than the one it
        names."""
        named, after = start.get(_COMMIT), _revision(start)
        there = end.get(_COMMIT)
        if after < _revision(end):
            try:
                page, _ = self._reads().commits(after, 1)
            except Compacted:
                return  # reported when it is read
            there = next((c.parent for c in page.commits if c.revision == after + 1), None)
        if named and there and named != there:
            raise ReadFailed(
                f"catalog {self._options.catalog!r} at {self._options.url} has another commit at"
                f" revision {after} than the checkpoint: {_OTHER}"
            )

    def _set_back(self, after: int, head: int) -> ReadFailed:
        return ReadFailed(
            f"catalog {self._options.catalog!r} at {self._options.url} is at revision {head}, but"
            f" the checkpoint is at {after}: {_OTHER}"
        )

    def _passed_over(self, after: int, floor: int | None) -> int:
        """``floor``, after a warning; Compacted if the stream mustn't pass over commits."""
        if self._options.fail_on_data_loss or floor is None:
            raise self._lost(after, floor)
        print(
            f"metadata: WARNING: catalog {self._options.catalog!r}: this stream skips the "
            f"commits {after + 1} to {floor}, whose history was compacted (failOnDataLoss=false)",
            file=sys.stderr,
            flush=True,
        )
        return floor

    def _lost(self, after: int, floor: int | None) -> Compacted:
        catalog = str(self._options.catalog)
        what = f"the feed after revision {after}, which this stream has reached,"
        return Compacted(catalog, what, floor, _BEHIND)

    def _reads(self) -> CatalogReads:
        if self._transport is None:
            self._transport = self._options.open_transport()
        return CatalogReads(self._transport, self._options)


class PlainFeedReader(_FeedReader):
    """For Spark 4.1, which asks for the latest offset without saying where the query is.

    It asks even before it asks for the initial offset, and a checkpoint may be further than that.
    So maxCommitsPerTrigger doesn't bound the first micro-batch of each run, and ``availableNow``
    takes everything in one micro-batch.
    """

    _last_known: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        offset = super().initialOffset()
        self._last_known = _revision(offset)
        return offset

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        most = self._options.max_commits_per_trigger
        return self._offset(self._last(self._last_known, most))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._last_known = _revision(end)
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        self._last_known = _revision(end)


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2
    FeedReader: type[_FeedReader] = PlainFeedReader
else:

    class BoundedFeedReader(_FeedReader, SupportsTriggerAvailableNow):
        """For Spark 4.2 and later."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            most = self._options.max_commits_per_trigger
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return self._offset(self._last(_revision(start), most))

        def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
            """The head, for the query's progress."""
            return None if self._head is None else {_REVISION: self._head}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._target = self._reads().head()

    FeedReader = BoundedFeedReader


def _revision(offset: dict[str, Any]) -> int:
    """The offset's revision. Raises ReadFailed if the checkpoint is another source's."""
    revision = offset.get(_REVISION)
    if isinstance(revision, bool) or not isinstance(revision, int):
        raise ReadFailed(f"the checkpoint belongs to another source: its offset is {offset!r}")
    return revision

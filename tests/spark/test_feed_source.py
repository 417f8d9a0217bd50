"""Streaming from a catalog: each commit once and in order, through checkpoints."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from patching.spark.catalog_reads import Compacted, ReadFailed, catalog_reads
from patching.spark.feed_source import FeedReader, PlainFeedReader
from patching.spark.history_source import COMMITS_SCHEMA, CommitsReader
from patching.spark.options import READ_STREAM, OptionRefused, Options
from patching.spark.source import DOCUMENTS_SCHEMA
from tests.patience import WAIT_S
from tests.spark.passing import Passing, process_at
from tests.spark.written import Written

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
except ImportError:
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[misc, assignment]
with_limits = pytest.mark.skipif(
    ReadMaxRows is None, reason="limits of a batch came with Spark 4.2"
)


class Sink:
    """What the micro-batches held: the revisions of their rows, and what ``told`` says of these."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[tuple[int, list[int]]] = []
        self.told: Callable[[Any], Any] = lambda _: None
        self.rows: list[Any] = []
        self.fail_on: int | None = None
        # Of the last query: how far it was with each batch, and how far there was to go.
        self.progress: list[tuple[str, str]] = []

    def run(self, frame: Any) -> None:
        """Until there is no more; raises what ended the query."""
        while True:
            query = self.start(frame, availableNow=True)
            try:
                query.awaitTermination(WAIT_S)
                sources = [each.sources[0] for each in query.recentProgress]
                self.progress = [(each.endOffset, each.latestOffset) for each in sources]
                return
            except StreamingQueryException as error:
                # Spark gives Python ten seconds to start, whatever the machine.
                if "failed to connect back" not in str(error):
                    raise
            finally:
                query.stop()

    def start(self, frame: Any, **trigger: Any) -> Any:
        writer = frame.writeStream.foreachBatch(self._take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    @property
    def revisions(self) -> list[int]:
        return [revision for _, revisions in self.batches for revision in revisions]

    def _take(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        self.batches.append((batch, [row.revision for row in rows]))
        self.rows += map(self.told, rows)
        if self.fail_on == batch:
            self.fail_on = None
            raise RuntimeError("the sink fails once")


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "checkpoint")


def reader(written: Written, **options: Any) -> Any:
    return _reader(FeedReader, written, options)


def rows_of(feed: Any, piece: Any) -> Iterator[tuple[Any, ...]]:
    for batch in feed.read(piece):
        yield from zip(*batch.to_pydict().values(), strict=True)


def _reader(kind: Any, written: Written, options: dict[str, Any]) -> Any:
    given = {"url": written.url, "catalog": written.catalog, "type": "commits"}
    given |= {name: str(value) for name, value in options.items()}
    return kind(COMMITS_SCHEMA, Options.parse(given, READ_STREAM))


@with_limits
def test_each_commit_once_and_in_order_through_restarts(
    spark: Any, written: Written, sink: Sink
) -> None:
    """Three runs on one checkpoint, the second of which dies in its sink and is repeated."""
    written.put_each((f"k{i}", i) for i in range(10))
    frame = written.stream(spark, startingRevision="earliest", maxCommitsPerTrigger=4)
    sink.run(frame)
    assert sink.batches == [(0, [1, 2, 3, 4]), (1, [5, 6, 7, 8]), (2, [9, 10])]
    offsets = [tuple(json.loads(offset)["revision"] for offset in each) for each in sink.progress]
    assert offsets[:3] == [(4, 10), (8, 10), (10, 10)]

    written.put_each((f"k{i}", i) for i in range(20, 26))
    sink.fail_on = 4
    with pytest.raises(Exception, match="the sink fails once"):
        sink.run(frame)
    assert sink.batches[3:] == [(3, [11, 12, 13, 14]), (4, [15, 16])]
    written.touch()
    sink.run(frame)
    assert sink.batches[5:] == [(4, [15, 16]), (5, [17])]
    once = dict(sink.batches)
    assert [revision for batch in sorted(once) for revision in once[batch]] == list(range(1, 18))


def test_a_running_stream_yields_new_commits_even_if_a_worker_is_killed(
    spark: Any, written: Written, sink: Sink, passing: Passing, eventually: Any
) -> None:
    written.put_each((f"before{i}", i) for i in range(6))
    killed: list[int] = []
    lock = threading.Lock()

    def kill(_: str, path: str, port: int) -> None:
        with lock:
            if f"/{written.catalog}/commits?" in path and "limit=3" in path and not killed:
                worker = process_at(port)
                killed.append(worker.pid)
                worker.kill()

    passing.before = kill
    through = Written(passing.url, written.catalog, written.transport)
    frame = through.stream(spark, partitions=2, startingRevision=1)
    query = sink.start(frame, processingTime="100 milliseconds")
    try:
        eventually(lambda: len(sink.revisions) >= 6 or query.exception())
        written.put_all({"a": 1, "b": 1})
        written.put_each((f"k{i}", i) for i in range(3))
        eventually(lambda: len(sink.revisions) >= 11 or query.exception())
        assert query.exception() is None
    finally:
        query.stop()
    assert sink.revisions == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10]
    assert len(killed) == 1


def test_a_compacted_offset_ends_the_query_with_a_remedy(
    spark: Any, written: Written, sink: Sink
) -> None:
    written.put_each((f"k{i}", i) for i in range(3))
    frame = written.stream(spark, startingRevision=1)
    sink.run(frame)
    assert sink.revisions == [1, 2, 3]
    written.put_each((f"k{i}", i) for i in range(10, 15))
    written.compact(7)
    with pytest.raises(Exception) as error:  # noqa: PT011
        sink.run(frame)
    assert type(error.value).__name__ == "StreamingQueryException"
    told = str(error.value)
    assert f"catalog '{written.catalog}'" in told
    assert "the feed after revision 3" in told
    assert "the oldest retained revision is 7" in told
    assert "new checkpointLocation" in told
    assert "startingRevision=earliest" in told
    assert "which this stream has reached, can't be read" in told


def test_starting_revision_decides_where_a_stream_begins(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(6))
    written.compact(2)
    assert reader(written).initialOffset()["revision"] == 6
    assert reader(written).initialOffset().keys() == {"revision", "commit"}
    assert reader(written, startingRevision="latest").initialOffset()["revision"] == 6
    assert reader(written, startingRevision="earliest").initialOffset()["revision"] == 2
    assert reader(written, startingRevision=3).initialOffset()["revision"] == 2
    assert reader(written, startingRevision=7).initialOffset()["revision"] == 6
    with pytest.raises(Compacted, match=r"the first that can be read is 3: startingRevision=3 or"):
        reader(written, startingRevision=2).initialOffset()
    with pytest.raises(ReadFailed, match=r"startingRevision.*is at revision 6"):
        reader(written, startingRevision=8).initialOffset()


def test_a_stream_may_begin_with_the_state(spark: Any, written: Written, sink: Sink) -> None:
    """First a row for each document, as of the head then; then the commits, each once. If it asks,
    documents before and after them, too: the state has them as they are."""
    written.put_each((f"k{i}", {"n": i}) for i in range(3))
    written.put_each([("k1", {"n": 5})])
    more = {"startingRevision": "state", "include": "before,value"}
    frame = written.stream(spark, type="changes", **more)
    sink.told = lambda row: (row.key, row.action, row.before, row.value)
    sink.fail_on = 0
    with pytest.raises(Exception, match="the sink fails once"):
        sink.run(frame)
    sink.run(frame)
    assert sink.batches == [(0, [4, 4, 4]), (0, [4, 4, 4])], "the batch is run again"
    written.put_each([("k0", 7)])
    sink.run(frame)
    assert sink.batches[2:] == [(1, [5])]
    first = [
        (key, "document", None, f'{{"n":{n}}}') for key, n in (("k0", 0), ("k1", 5), ("k2", 2))
    ]
    assert sorted(sink.rows[3:6]) == first
    assert sink.rows[6:] == [("k0", "put", '{"n":0}', "7")]


def test_rows_of_the_state_are_the_documents_at_its_revision(written: Written) -> None:
    written.put_each((f"k{i}", {"n": i}) for i in range(3))
    feed = reader(written, startingRevision="state")
    start = feed.initialOffset()
    assert (start["revision"], start["state"]) == (3, times(written)[-1])
    written.put_each([("k1", "later")])
    rows = [
        row for piece in feed.partitions(start, {"revision": 4}) for row in rows_of(feed, piece)
    ]
    names = COMMITS_SCHEMA.fieldNames()
    told = [dict(zip(names, row, strict=True)) for row in rows]
    assert [(each["revision"], each["key"], each["action"]) for each in told] == [
        *((3, f"k{i}", "document") for i in range(3)),
        (4, "k1", "put"),
    ]
    assert told[1]["patch"] == '[{"op":"add","path":"","value":{"n":1}}]'
    assert told[0]["time"].isoformat().startswith(start["state"][:19])
    one = reader(written, startingRevision="state", key="k2")
    (piece,) = one.partitions(start, {"revision": 3})
    assert [row[7] for row in rows_of(one, piece)] == ["k2"]
    with pytest.raises(OptionRefused, match="for a stream"):
        CommitsReader(written.load_options(type="commits", startingRevision="state"))


def test_a_compacted_state_ends_the_query_with_a_remedy(written: Written) -> None:
    """Whatever failOnDataLoss says: no commits show the earlier state."""
    written.put_each((f"k{i}", i) for i in range(3))
    feed = reader(written, startingRevision="state", failOnDataLoss="false")
    start = feed.initialOffset()
    written.put_each([("k1", "later")])
    written.compact(4)
    with pytest.raises(Compacted, match=r"the state at revision 3, .* with a new checkpointLoc"):
        feed.partitions(start, {"revision": 4})


def times(written: Written) -> list[str]:
    """Of the commits that are retained, ascending."""
    with catalog_reads(written.load_options(type="commits")) as reads:
        return [each.time for each in reads.commits(reads.floor(), 100)[0].commits]


def test_a_stream_can_begin_at_a_time(spark: Any, written: Written) -> None:
    """With the first commit at or after it, as a read of the history does."""
    written.put_each((f"k{i}", i) for i in range(4))
    at = times(written)
    between = (datetime.fromisoformat(at[1]) + timedelta(microseconds=1)).isoformat()
    for start, after in [
        ("2020-01-01T00:00:00Z", 0),
        (at[0], 0),
        (at[1], 1),
        (between, 2),
        (datetime.now(UTC).isoformat(), 4),
    ]:
        found = reader(written, startingTimestamp=start).initialOffset()
        assert found["revision"] == after, start
    history = written.frame(spark, type="commits", startingTimestamp=at[2], pinSeconds=0)
    assert [row.revision for row in history.collect()] == [3, 4]
    with pytest.raises(ReadFailed, match="that time is in the future"):
        reader(written, startingTimestamp="2999-01-01T00:00:00Z").initialOffset()
    written.compact(3)
    assert reader(written, startingTimestamp=at[3]).initialOffset()["revision"] == 3
    with pytest.raises(Compacted, match="oldest retained revision is 3"):
        reader(written, startingTimestamp=at[0]).initialOffset()
    going_on = reader(written, startingTimestamp=at[0], failOnDataLoss=False)
    assert going_on.initialOffset()["revision"] == 3


@with_limits
def test_a_stream_can_skip_compacted_commits(spark: Any, written: Written, sink: Sink) -> None:
    """If the option says so: at its start, between two runs, and for the rest of a batch."""
    written.put_each((f"k{i}", i) for i in range(4))
    written.compact(1)
    frame = written.stream(spark, startingRevision=1, failOnDataLoss=False, maxCommitsPerTrigger=2)
    sink.run(frame)
    written.put_each((f"k{i}", i) for i in range(10, 16))
    written.compact(7)
    sink.run(frame)
    assert sink.revisions == [2, 3, 4, 8, 9, 10]


@with_limits
def test_a_gap_is_named_in_the_log(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    written.put_each((f"k{i}", i) for i in range(6))
    feed = reader(written, failOnDataLoss=False)
    (piece,) = feed.partitions({"revision": 1}, {"revision": 6})
    assert capsys.readouterr().err == ""
    written.compact(3)
    assert [row[0] for row in rows_of(feed, piece)] == [4, 5, 6]
    assert "skips the commits 2 to 3, whose history" in capsys.readouterr().err
    assert feed.latestOffset({"revision": 1}, ReadMaxRows(2))["revision"] == 5
    (piece,) = feed.partitions({"revision": 1}, {"revision": 5})
    assert f"catalog {written.catalog!r}: this stream skips" in capsys.readouterr().err
    assert [row[0] for row in rows_of(feed, piece)] == [4, 5]


def test_a_stream_of_an_absent_catalog_is_refused(written: Written) -> None:
    with pytest.raises(ReadFailed, match="there is no catalog"):
        reader(written).initialOffset()


@with_limits
def test_the_number_of_commits_in_a_batch_is_bounded(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(10))
    bounded = reader(written, maxCommitsPerTrigger=4)
    assert bounded.getDefaultReadLimit() == ReadMaxRows(4)
    assert reader(written).getDefaultReadLimit() == ReadAllAvailable()
    assert bounded.latestOffset({"revision": 0}, ReadMaxRows(4))["revision"] == 4
    assert bounded.latestOffset({"revision": 0}, ReadMaxRows(4)).keys() == {"revision", "commit"}
    assert bounded.latestOffset({"revision": 8}, ReadMaxRows(4))["revision"] == 10
    assert bounded.latestOffset({"revision": 2}, ReadAllAvailable())["revision"] == 10
    assert bounded.latestOffset({"revision": 2}, ReadMaxRows(1))["revision"] == 3
    assert bounded.reportLatestOffset() == {"revision": 10}
    bounded.prepareForTriggerAvailableNow()
    written.put("more", 1)
    assert bounded.latestOffset({"revision": 8}, ReadMaxRows(4))["revision"] == 10
    assert bounded.latestOffset({"revision": 10}, ReadMaxRows(4))["revision"] == 10
    bounded.stop()


@with_limits
def test_a_batch_ends_with_the_commit_that_reaches_its_bytes(written: Written) -> None:
    written.put_each((f"k{i}", "x" * 100) for i in range(9))
    for bytes_max, start, end in ((1, 0, 1), (200, 0, 2), (450, 2, 6), (10_000, 2, 9)):
        bounded = reader(written, maxBytesPerTrigger=bytes_max)
        assert bounded.latestOffset({"revision": start}, ReadAllAvailable())["revision"] == end
        bounded.stop()
    both = reader(written, maxBytesPerTrigger=450, maxCommitsPerTrigger=3)
    assert both.latestOffset({"revision": 0}, ReadMaxRows(3))["revision"] == 3
    of_key = reader(written, maxBytesPerTrigger=100, key="k7")
    assert of_key.latestOffset({"revision": 0}, ReadAllAvailable())["revision"] == 8


@with_limits
def test_a_checkpoint_of_another_catalog_or_source_is_refused(written: Written) -> None:
    written.put("a", 1)
    with pytest.raises(ReadFailed, match="is at revision 1, but the checkpoint is at 5"):
        reader(written).latestOffset({"revision": 5}, ReadAllAvailable())
    with pytest.raises(ReadFailed, match="checkpoint belongs to another source"):
        reader(written).partitions({"index": 0}, {"revision": 5})


def test_a_range_is_read_again_identically_and_a_filter_keeps_its_order(written: Written) -> None:
    for n in range(4):
        written.put_all({"a/1": n, "b/1": n})
    written.touch()
    feed = reader(written, partitions=3, prefix="a/")
    feed.initialOffset()
    sent = pickle.loads(pickle.dumps(feed))
    assert sent.partitions({"revision": 2}, {"revision": 2}) == []
    pieces = sent.partitions({"revision": 0}, {"revision": 5})
    assert len(pieces) == 3
    for _ in range(2):
        rows = [row for piece in pieces for row in rows_of(sent, piece)]
        assert [(row[0], row[7]) for row in rows] == [(n, "a/1") for n in range(1, 5)]
    of_key = reader(written, key="b/1")
    (piece,) = of_key.partitions({"revision": 1}, {"revision": 3})
    assert [(row[0], row[7]) for row in rows_of(of_key, piece)] == [(2, "b/1"), (3, "b/1")]


def test_compaction_during_a_task_is_reported(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(4))
    feed = reader(written)
    (piece,) = feed.partitions({"revision": 1}, {"revision": 4})
    written.compact(3)
    with pytest.raises(Compacted, match=r"after revision 1.*oldest retained revision is 3"):
        list(rows_of(feed, piece))


def test_a_spark_without_read_limits_gets_a_plain_reader(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(10))
    plain = _reader(
        PlainFeedReader, written, {"maxCommitsPerTrigger": 4, "startingRevision": "earliest"}
    )
    start = plain.initialOffset()
    told = []
    while (end := plain.latestOffset()) != start:
        told.append(
            [row[0] for piece in plain.partitions(start, end) for row in rows_of(plain, piece)]
        )
        plain.commit(end)
        start = end
    assert told == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    restarted = _reader(PlainFeedReader, written, {"maxCommitsPerTrigger": 4})
    assert restarted.latestOffset()["revision"] == 10
    plain.stop()
    restarted.stop()


def test_a_feed_that_would_go_backwards_fails(written: Written) -> None:
    """Spark 4.1 asks for what is between its checkpoint and a head that was set back."""
    written.put_each((f"k{number}", number) for number in range(3))
    reader = _reader(PlainFeedReader, written, {})
    assert reader.latestOffset()["revision"] == 3
    with pytest.raises(ReadFailed, match=r"is at revision 3, but the checkpoint is at 41"):
        reader.partitions({"revision": 41}, {"revision": 3})
    reader.stop()


@pytest.mark.parametrize("kind", [PlainFeedReader, FeedReader])
def test_a_checkpoint_of_another_history_ends_the_query(written: Written, kind: Any) -> None:
    """The database was put back, and has grown beyond the checkpoint since."""
    written.put_each((f"k{number}", number) for number in range(5))
    feed = _reader(kind, written, {})
    start, end = feed._offset(3), feed._offset(5)
    assert len(feed.partitions(start, end)) == 1
    for until in (feed._offset(3), end):
        with pytest.raises(ReadFailed, match=r"has another commit at revision 3 .*new checkpoint"):
            feed.partitions({**start, "commit": "lost"}, until)
    unnamed = {"revision": 3}  # as earlier releases wrote it
    assert len(feed.partitions(unnamed, end)) == 1
    written.compact(5)
    assert len(feed.partitions({**start, "commit": "lost"}, end)) == 1  # told when it is read
    feed.stop()


def test_a_stream_of_documents_is_refused(written: Written) -> None:
    given = {"url": written.url, "catalog": written.catalog}
    with pytest.raises(OptionRefused, match="option 'type'"):
        FeedReader(DOCUMENTS_SCHEMA, Options.parse(given, READ_STREAM))

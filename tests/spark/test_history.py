"""The history of a catalog as a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from patching.client import ClientError, Conflict
from patching.client.transport import HttpAnswer, Transport
from patching.spark.catalog_reads import ReadFailed
from patching.spark.history_source import CommitsReader, RevisionRange, commit_rows
from tests.spark.passing import Passing
from tests.spark.written import Written


def test_each_row_is_one_change(spark: Any, written: Written) -> None:
    written.put("a", {"n": 1}, **{"Idempotency-Key": "first"})
    written.put_all({"a": {"n": 2}, "b/ö": "x"})
    written.touch()
    written.transport.request("PUT", f"{written.path}/attributes/a", json={"owner": "me"})
    written.transport.request("DELETE", f"{written.path}/documents/a")
    written.transport.request("PUT", written.path, json={"require_precondition": True})
    commits = written.routes.commits(0).commits
    assert len(commits) == 6
    expected = [
        (
            commit.revision,
            commit.commit_id,
            commit.author,
            commit.message,
            commit.attempts,
            commit.idempotency_key,
            *(
                (change.key, change.action, change.create_revision, change.patch, change.attributes)
                if change
                else (None, None, None, None, None)
            ),
        )
        for commit in commits
        for change in (commit.changes or (None,))
    ]
    rows = written.frame(spark, type="commits").collect()
    assert expected == [
        (
            row.revision,
            row.commit_id,
            row.author,
            row.message,
            row.attempts,
            row.idempotency_key,
            row.key,
            row.action,
            row.create_revision,
            None if row.patch is None else json.loads(row.patch),
            None if row.attributes is None else json.loads(row.attributes),
        )
        for row in rows
    ]
    assert [(row.revision, row.key, row.action) for row in rows if row.key is None] == [
        (3, None, None),
        (6, None, "settings"),
    ]
    assert {row.catalog for row in rows} == {written.catalog}


def test_times_are_those_of_the_commits_to_the_microsecond(spark: Any, written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(3))
    frame = written.frame(spark, type="commits")
    micros = frame.selectExpr("revision", "unix_micros(time) AS at").orderBy("revision").collect()
    commits = written.routes.commits(0).commits
    assert [row.at for row in micros] == [
        round(commit.time.timestamp() * 1_000_000) for commit in commits
    ]


def test_a_range_of_revisions_is_read_with_any_number_of_partitions(
    spark: Any, written: Written
) -> None:
    written.put_each((f"k{i:04d}", i) for i in range(1200))
    frame = written.frame(
        spark, type="commits", startingRevision=50, endingRevision=1180, partitions=3
    )
    pieces = frame.rdd.glom().collect()
    assert [len(piece) for piece in pieces] == [377, 377, 377]
    assert [row.revision for piece in pieces for row in piece] == list(range(50, 1181))


def test_a_key_or_prefix_selects_its_changes_only(spark: Any, written: Written) -> None:
    written.put_all({"a/1": 1, "b/1": 1})
    written.touch()
    written.put_all({"a/2": 1, "b/1": 2})
    prefixed = written.frame(spark, type="commits", prefix="a/").collect()
    assert [(row.revision, row.key) for row in prefixed] == [(1, "a/1"), (3, "a/2")]
    of_key = written.frame(spark, type="commits", key="b/1").collect()
    assert [(row.revision, row.key) for row in of_key] == [(1, "b/1"), (3, "b/1")]
    changes = written.frame(spark, type="changes").collect()
    assert [row.revision for row in changes] == [1, 1, 3, 3]


def test_documents_before_and_after_a_change_are_columns(spark: Any, written: Written) -> None:
    """Also large ones, which the gateway names instead of telling them."""
    written.put_all({"a/1": {"n": 1}, "b/1": None})
    written.put("a/1", {"n": 2})
    written.touch()
    large = [{"s": "x" * 1_500_000}, {"s": "y" * 1_500_000}]
    names = [f"a/{number}" for number in range(2, 6)]
    for each in large:
        written.put_all(dict.fromkeys(names, each))
    written.transport.request("DELETE", f"{written.path}/documents/a%2F1")
    both = written.frame(spark, type="commits", include="value,before")
    assert both.columns[-2:] == ["before", "value"]
    rows = {(row.revision, row.key): (row.before, row.value) for row in both.collect()}
    for key in names:
        assert rows.pop((5, key)) == tuple(json.dumps(e, separators=(",", ":")) for e in large)
        assert rows.pop((4, key))[0] is None
    assert rows == {
        (1, "a/1"): (None, '{"n":1}'),
        (1, "b/1"): (None, "null"),
        (2, "a/1"): ('{"n":1}', '{"n":2}'),
        (3, None): (None, None),
        (6, "a/1"): ('{"n":2}', None),
    }
    after = written.frame(
        spark, type="changes", include="value", prefix="a/", startingRevision=2, endingRevision=2
    )
    assert [row.value for row in after.collect()] == ['{"n":2}']
    of_key = written.frame(spark, type="changes", include="before", key="a/1", partitions=3)
    assert [row.before for row in of_key.collect()] == [None, '{"n":1}', '{"n":2}']


def read_all(written: Written, **options: Any) -> list[int]:
    """The revisions read without Spark."""
    reader = CommitsReader(written.load_options(type="commits", **options))
    return [row[0] for piece in reader.partitions() for row in reader.rows(piece)]


def test_the_error_names_the_oldest_retained_revision(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(6))
    written.compact(4)
    assert read_all(written) == [5, 6]
    assert read_all(written, startingRevision=5) == [5, 6]
    assert read_all(written, startingRevision="earliest") == [5, 6]
    assert read_all(written, startingRevision="latest") == []
    assert read_all(written, startingRevision=7) == []
    with pytest.raises(ReadFailed, match=r"'startingRevision': .* at most 7, not 8: .* revision 6"):
        read_all(written, startingRevision=8)
    for start, seconds in [(1, 60), (4, 60), (4, 0)]:
        with pytest.raises(ReadFailed, match=r"startingRevision=5.*oldest retained revision is 4"):
            read_all(written, startingRevision=start, pinSeconds=seconds)


def test_a_table_ends_at_the_revision_of_its_load(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(3))
    reader = CommitsReader(written.load_options(type="commits"))
    written.put("more", 1)
    assert [row[0] for piece in reader.partitions() for row in reader.rows(piece)] == [1, 2, 3]
    assert read_all(written, endingRevision=2) == [1, 2]
    assert read_all(written, endingRevision=0) == []
    assert read_all(written, endingRevision=99) == [1, 2, 3, 4]


def test_history_is_pinned_while_it_is_read(spark: Any, written: Written, passing: Passing) -> None:
    written.put_each((f"k{i}", i) for i in range(30))
    refused: list[str] = []

    def compact(_: str, path: str, __: int) -> None:
        if "/commits?" in path and "limit=10&" not in path + "&":
            return
        if "/commits?" in path:
            written.put("a", len(refused))
            with pytest.raises(Conflict) as error:
                written.compact(written.head())
            refused.append(error.value.code)

    passing.before = compact
    through = Written(passing.url, written.catalog, written.transport)
    frame = through.frame(spark, type="commits", partitions=3)
    assert [row.revision for row in frame.collect()] == list(range(1, 31))
    assert refused == ["pin_holds"] * 3


def test_an_empty_answer_of_a_stopping_worker_is_requested_again(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway's answer then has no commits, and is none above the revision that was asked."""
    written.put_each((f"k{i}", i) for i in range(5))
    ends = {0, 3}
    send = Transport.request

    def request(self: Transport, method: str, path: str, **given: Any) -> HttpAnswer:
        after = dict(given.get("query", ())).get("after")
        if path.endswith("/changes") and after in ends:
            ends.remove(after)
            told = f'{{"commits":[],"revision":{after},"commit_id":null}}'.encode()
            return HttpAnswer(200, {}, told)
        return send(self, method, path, **given)

    monkeypatch.setattr(Transport, "request", request)
    options = written.load_options(type="commits", include="value")
    rows = [*commit_rows(options, RevisionRange(0, 3)), *commit_rows(options, RevisionRange(3, 5))]
    assert [(row[0], row[-1]) for row in rows] == [(n + 1, str(n)) for n in range(5)]
    assert not ends


def test_commits_missing_from_every_answer_end_the_task(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither leaves them out nor asks for ever."""
    written.put_each([("k", 1)])
    asked: list[str] = []
    send = Transport.request

    def request(self: Transport, method: str, path: str, **given: Any) -> HttpAnswer:
        if not path.endswith("/changes"):
            return send(self, method, path, **given)
        asked.append(path)
        assert len(asked) < 10
        return HttpAnswer(200, {}, b'{"commits":[],"revision":0,"commit_id":null}')

    monkeypatch.setattr(Transport, "request", request)
    options = written.load_options(type="commits", include="value", retryTimeout="0.001")
    with pytest.raises(ClientError, match="nothing about the commits above revision 0"):
        list(commit_rows(options, RevisionRange(0, 1)))


def test_a_history_set_back_during_a_task_is_reported(written: Written) -> None:
    written.put_each((f"k{i}", i) for i in range(3))
    with pytest.raises(ReadFailed, match="is at revision 3, but was at 5 when this read began"):
        list(commit_rows(written.load_options(type="commits"), RevisionRange(1, 5)))

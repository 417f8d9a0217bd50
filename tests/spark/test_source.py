"""Reading a catalog with Spark: one revision, every document once, whatever happens meanwhile."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from patching.client import Conflict
from patching.client.transport import Transport
from patching.spark import catalog_reads
from patching.spark.batches import in_batches
from patching.spark.catalog_reads import Compacted, ReadFailed
from patching.spark.options import OptionRefused
from patching.spark.source import DOCUMENTS_SCHEMA, DocumentsReader, KeyRange
from tests.service import RunningGateway
from tests.spark.passing import Passing, process_at
from tests.spark.written import Written

KEYS = [
    "a",
    "a/b",
    "a/b/c",
    "a.b",
    "..",
    "%2F",
    "a%b",
    "key with spaces",
    "urn:li:dataset:(urn:li:dataPlatform:hive,db.t,PROD)",
    "ключ/значение",
    "漢字",
    "🎉/🎉",
    "\U0010ffff",
    "\U0010ffff/x",
    "~tilde",
    'quote"d',
    "a;b=c",
    "z" * 200,
]


def by_key(rows: Iterable[Any]) -> dict[str, Any]:
    found = [(row.key, json.loads(row.value)) for row in rows]
    assert len({key for key, _ in found}) == len(found), "a document was read twice"
    return dict(found)


def is_page(path: str, catalog: str) -> bool:
    """Whether a task asks for documents, not the driver for a few."""
    return f"/{catalog}/documents?" in path and "limit=1000" in path


def test_a_row_is_a_document(spark: Any, written: Written) -> None:
    first = written.put("a", {"n": 1, "text": "ü", "big": 2**60, "ratio": 1.0})
    second = written.put("b", None)
    written.put("a", {"n": 2})
    third = written.head()
    written.transport.request("PUT", f"{written.path}/attributes/b", json={"owner": "x"})
    a, b = written.frame(spark).orderBy("key").collect()
    assert (a.key, json.loads(a.value), a.revision, a.create_revision) == (
        "a",
        {"n": 2},
        third,
        first,
    )
    assert (b.key, b.value, b.create_revision) == ("b", "null", second)
    assert (a.attributes, json.loads(b.attributes)) == (None, {"owner": "x"})
    assert a.catalog == b.catalog == written.catalog
    etag = written.transport.request("GET", f"{written.path}/documents/a").headers["ETag"]
    assert f'"{a.etag}"' == etag


def test_every_document_is_in_exactly_one_partition(spark: Any, written: Written) -> None:
    documents = {key: {"key": key} for key in KEYS} | {f"n/{i:04d}": i for i in range(300)}
    written.put_each(documents.items())
    frame = written.frame(spark, partitions=5)
    pieces = frame.rdd.glom().collect()
    assert len(pieces) == 5
    assert by_key(row for piece in pieces for row in piece) == documents
    assert max(map(len, pieces)) < len(documents) / 4
    in_order = [row.key for piece in pieces for row in piece]
    assert in_order == sorted(documents)


def test_a_read_is_planned_with_one_request(written: Written, passing: Passing) -> None:
    """Of the keys that it needs, at the revision that it is about, without a look at documents."""
    written.put_each((f"{folder}/{i:03d}", i) for folder in "abc" for i in range(100))
    through = Written(passing.url, written.catalog, written.transport)
    options = through.load_options(partitions=4, pinSeconds=0)
    plans = f"GET {written.path}/partitions?count="
    assert passing.asked == [f"{plans}1"]
    written.put("a/000", -1)
    for prefix, asked, expected in (("", "", [100, 100, 100]), ("b/", "&prefix=b%2F", [0, 100, 0])):
        reader = DocumentsReader(replace(options, prefix=prefix or None))
        passing.asked.clear()
        pieces = reader.partitions()
        assert passing.asked == [f"{plans}4&revision=300{asked}"]
        rows = [list(reader.rows(piece)) for piece in pieces]
        assert len(rows) == 4
        assert max(map(len, rows)) <= sum(expected) / 4 + 2
        found = [row[0][0] for piece in rows for row in piece]
        assert [found.count(folder) for folder in "abc"] == expected


def test_more_than_one_page_is_read(spark: Any, written: Written) -> None:
    documents = {f"k{i}": i for i in range(2300)}
    written.put_each(documents.items())
    for partitions in (1, 3):
        assert by_key(written.frame(spark, partitions=partitions).collect()) == documents


def test_a_read_is_at_one_revision_while_others_write(
    spark: Any, written: Written, passing: Passing
) -> None:
    """Every commit sets all documents to one number; before each page there is another commit."""
    names = [f"k{i:03d}" for i in range(200)]
    written.put_all(dict.fromkeys(names, 0))
    at = iter(range(1, 1000))
    lock = threading.Lock()

    def write(_: str, path: str, __: int) -> None:
        if "/documents?" in path:
            with lock:
                written.put_all({**dict.fromkeys(names, next(at)), f"new{next(at)}": 0})

    passing.before = write
    frame = Written(passing.url, written.catalog, written.transport).frame(spark, partitions=8)
    rows = frame.collect()
    read = by_key(rows)
    assert sorted(read) == names + [key for key in sorted(read) if key.startswith("new")]
    values = {value for key, value in read.items() if key in names}
    assert len(values) == 1
    assert len({row.revision for row in rows if row.key in names}) == 1
    assert written.head() >= rows[0].revision + 8


def test_a_frame_stays_at_the_revision_it_was_loaded_at(spark: Any, written: Written) -> None:
    written.put("a", 1)
    frame = written.frame(spark)
    written.put("a", 2)
    written.put("b", 1)
    assert by_key(frame.collect()) == {"a": 1}
    assert frame.count() == 1
    assert frame.alias("l").join(frame.alias("r"), "key").count() == 1
    assert by_key(written.frame(spark).collect()) == {"a": 2, "b": 1}


def test_a_revision_is_not_compacted_while_it_is_read(
    spark: Any, written: Written, passing: Passing
) -> None:
    written.put_each((f"k{i:03d}", i) for i in range(50))
    refused: list[Conflict] = []

    def compact(_: str, path: str, __: int) -> None:
        if is_page(path, written.catalog):
            written.put_all({f"k{i:03d}": -1 for i in range(50)})
            try:
                written.compact(written.head())
            except Conflict as error:
                refused.append(error)

    passing.before = compact
    frame = Written(passing.url, written.catalog, written.transport).frame(spark, partitions=3)
    assert by_key(frame.collect()) == {f"k{i:03d}": i for i in range(50)}
    assert [error.code for error in refused] == ["pin_holds"] * 3
    assert [pin["revision"] for pin in written.pins()] == [50]


def test_many_actions_on_a_frame_share_a_pin(spark: Any, written: Written) -> None:
    written.put("a", 1)
    frame = written.frame(spark)
    for _ in range(3):
        assert frame.count() == 1
    assert len(written.pins()) == 1


def test_without_a_pin_compaction_during_a_read_is_reported(
    spark: Any, written: Written, passing: Passing
) -> None:
    written.put_each((f"k{i}", i) for i in range(5))

    def compact(_: str, path: str, __: int) -> None:
        if is_page(path, written.catalog):
            written.put("more", len(passing.asked))
            written.compact(written.head())

    frame = Written(passing.url, written.catalog, written.transport).frame(spark, pinSeconds=0)
    passing.before = compact
    compacted = r"revision 5 can't be read.*oldest retained revision is"
    with pytest.raises(Exception, match=compacted) as failed:
        frame.collect()
    assert str(failed.value).count(", line ") == 1


def test_a_frame_whose_revision_was_compacted_must_be_loaded_again(written: Written) -> None:
    written.put("a", 1)
    options = written.load_options()
    written.put("a", 2)
    written.compact(2)
    with pytest.raises(ReadFailed, match=r"load it again.*oldest retained revision is 2"):
        DocumentsReader(options).partitions()


def test_a_catalog_can_be_read_at_an_earlier_revision_or_time(spark: Any, written: Written) -> None:
    written.put("a", 1)
    written.put("b", 1)
    at = written.routes.read().time
    written.put("a", 2)
    assert by_key(written.frame(spark, revision=1).collect()) == {"a": 1}
    assert by_key(written.frame(spark, versionAsOf=1).collect()) == {"a": 1}
    given = f"url '{written.url}', catalog '{written.catalog}', versionAsOf '1'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW then USING metadata OPTIONS ({given})")
    assert by_key(spark.table("then").collect()) == {"a": 1}
    spark.catalog.dropTempView("then")
    assert by_key(written.frame(spark, revision=2, partitions=2).collect()) == {"a": 1, "b": 1}
    there = at.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    assert by_key(written.frame(spark, timestamp=there).collect()) == {"a": 1, "b": 1}


def test_an_unavailable_revision_or_time_is_refused(written: Written) -> None:
    written.put("a", 1)
    at = written.routes.read().time
    written.put("a", 2)
    with pytest.raises(ReadFailed, match=r"revision 9.*doesn't exist; the head is 2"):
        written.load_options(revision=9)
    with pytest.raises(ReadFailed, match="no commit that old"):
        written.load_options(timestamp=(at - timedelta(days=1)).isoformat())
    with pytest.raises(OptionRefused, match="'timestamp': it must be a time such as"):
        written.load_options(timestamp="yesterday")
    written.compact(2)
    with pytest.raises(ReadFailed, match=r"revision 1 can't be read.*retained revision is 2"):
        written.load_options(revision=1)


def test_by_key_and_by_prefix(spark: Any, written: Written) -> None:
    written.put_each((key, key) for key in KEYS)
    assert by_key(written.frame(spark, key="a/b").collect()) == {"a/b": "a/b"}
    assert written.frame(spark, key="missing").collect() == []
    below = {key: key for key in KEYS if key.startswith("a/")}
    for partitions in (1, 3):
        frame = written.frame(spark, prefix="a/", partitions=partitions)
        assert by_key(frame.collect()) == below
    some = ["a/b", "漢字", "missing", "a;b=c"]
    found = by_key(written.frame(spark, keys=json.dumps(some), partitions=3).collect())
    assert found == {key: key for key in some if key != "missing"}
    with pytest.raises(
        OptionRefused, match=r"option 'prefix': it can't be given together with key"
    ):
        written.load_options(prefix="a/", key="a")
    with pytest.raises(OptionRefused, match="'keys': it can't be given together with prefix"):
        written.load_options(prefix="a/", keys='["a"]')


def test_a_catalog_without_documents_has_no_rows(spark: Any, written: Written) -> None:
    written.touch()
    for partitions in (1, 4):
        frame = written.frame(spark, partitions=partitions)
        assert frame.collect() == []
        assert frame.columns == [
            "key", "value", "etag", "revision", "create_revision", "attributes", "catalog"
        ]  # fmt: skip


def test_a_missing_catalog_is_an_error(spark: Any, written: Written) -> None:
    missing = rf"option 'catalog'.*no catalog '{written.catalog}'"
    with pytest.raises(Exception, match=missing) as failed:
        written.frame(spark)
    assert str(failed.value).count(", line ") == 1, "the frames of the source help nobody"
    with pytest.raises(ReadFailed, match=missing):
        written.load_options(type="commits")


def test_an_unreachable_gateway_is_an_error_that_names_the_option(written: Written) -> None:
    with Passing(1) as gone:
        url = gone.url
    away = Written(url, written.catalog, written.transport)
    with pytest.raises(ReadFailed, match=rf"option 'url': no gateway answers at {url}"):
        away.load_options(retryTimeout=0.5)


def test_an_outage_shorter_than_the_retry_timeout_goes_unnoticed(
    spark: Any, written: Written, passing: Passing
) -> None:
    written.put("a", 1)
    failing = iter(range(2))

    def fail(_: str, path: str, __: int) -> None:
        if is_page(path, written.catalog) and next(failing, None) is not None:
            raise ConnectionResetError

    passing.before = fail
    frame = Written(passing.url, written.catalog, written.transport).frame(spark)
    assert by_key(frame.collect()) == {"a": 1}
    assert len([path for path in passing.asked if is_page(path, written.catalog)]) == 3


def test_a_killed_worker_costs_nothing_but_time(
    spark: Any, written: Written, passing: Passing
) -> None:
    """The second page of the first task to get there is asked for by a process that then dies."""
    documents = {f"k{i:05d}": i for i in range(2500)}
    written.put_each(documents.items())
    killed: list[int] = []
    lock = threading.Lock()

    def kill(_: str, path: str, port: int) -> None:
        with lock:
            if is_page(path, written.catalog) and "after=" in path and not killed:
                worker = process_at(port)
                killed.append(worker.pid)
                worker.kill()
                written.put_all({"k00000": -1, "another": -1})

    passing.before = kill
    frame = Written(passing.url, written.catalog, written.transport).frame(spark)
    assert by_key(frame.collect()) == documents
    assert len(killed) == 1


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"startingRevision": "1"}, "startingRevision"),
        ({"endingRevision": "1"}, "endingRevision"),
        ({"type": "commits", "revision": "1"}, "revision"),
        ({"type": "changes", "timestamp": "2026-11-21T10:00:00Z"}, "timestamp"),
        ({"type": "commits", "startingRevision": "first"}, "startingRevision"),
    ],
)
def test_options_of_another_type_are_refused(
    written: Written, options: dict[str, str], refused: str
) -> None:
    with pytest.raises(OptionRefused) as error:
        written.load_options(**options)
    assert error.value.name == refused


def test_an_expired_pin_is_made_again_or_the_read_fails(written: Written) -> None:
    written.put_each((f"k{i:04d}", i) for i in range(1500))
    reader = DocumentsReader(written.load_options(pinSeconds=600))
    (piece,) = reader.partitions()
    (pin,) = written.pins()
    written.transport.request("DELETE", f"{written.path}/pins/{pin['pin']}")
    rows = reader.rows(piece)
    next(rows)
    (again,) = written.pins()
    assert (again["revision"], again["pin"] != pin["pin"]) == (1500, True)
    assert len(list(rows)) == 1499

    written.transport.request("DELETE", f"{written.path}/pins/{again['pin']}")
    written.put("k0000", -1)
    written.compact(1501)
    with pytest.raises(Compacted, match="revision 1500"):
        next(reader.rows(piece))


def test_the_error_for_too_many_pins_names_the_option_to_change(mongodb_uri: str) -> None:
    name = f"test_{uuid.uuid4().hex}"
    with (
        RunningGateway(mongodb_uri, name, workers=1, pins_max=1) as running,
        Transport(running.url) as transport,
    ):
        written = Written(running.url, "c", transport)
        written.put_each([("a", 1), ("b", 2)])
        DocumentsReader(written.load_options(revision=2)).partitions()
        with pytest.raises(ReadFailed, match="option pinSeconds"):
            DocumentsReader(written.load_options(revision=1)).partitions()
        assert DocumentsReader(written.load_options(pinSeconds=0)).partitions()


def test_a_catalog_that_is_loaded_every_half_minute_never_runs_out_of_pins(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loads of three minutes share the pin of the first of them, which holds for all."""
    moved_s = 0
    monkeypatch.setattr(catalog_reads, "time", SimpleNamespace(time=lambda: 9_000 + moved_s))
    first = written.put("k", -1) + 1
    pieces = []
    for number in range(120):
        written.put("k", number)
        pieces += DocumentsReader(written.load_options()).partitions()
        moved_s += 30
    assert [pin["revision"] for pin in written.pins()] == list(range(first, first + 120, 6))
    with pytest.raises(Conflict, match="pin"):
        written.compact(first + 1)
    reader = DocumentsReader(written.load_options())
    found = [json.loads(row[1]) for piece in pieces for row in reader.rows(piece)]
    assert found == list(range(120))


def test_rows_are_passed_to_spark_in_batches_of_bounded_size() -> None:
    rows = [(f"k{i}", "x" * 100, "t", i, i, None, "c") for i in range(10)]
    batches = list(in_batches(iter(rows), DOCUMENTS_SCHEMA, bytes_max=300))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]
    read = [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]
    assert read == rows
    many = list(in_batches(iter(rows * 1001), DOCUMENTS_SCHEMA))
    assert [batch.num_rows for batch in many] == [10_000, 10]
    assert list(in_batches(iter([]), DOCUMENTS_SCHEMA)) == []


def test_partitions_have_about_the_requested_size(written: Written) -> None:
    written.put_each((f"k{number:04}", "x" * 998) for number in range(2_400))
    for asked, least, most in ((240_000, 9, 11), (10**9, 1, 1), (1_000, 2_000, 2_400)):
        reader = DocumentsReader(written.load_options(partitionBytes=asked))
        pieces = reader.partitions()
        assert least <= len(pieces) <= most, asked
        keys = [row[0] for piece in (pieces if asked > 1_000 else []) for row in reader.rows(piece)]
        assert keys in ([], [f"k{number:04}" for number in range(2_400)])


def test_more_partitions_than_the_gateway_cuts_at_once_are_cut_in_two_steps(
    written: Written,
) -> None:
    keys = [f"k{number:04}" for number in range(2_100)]
    written.put_each((key, 1) for key in keys)
    pieces = DocumentsReader(written.load_options(partitions=2_100)).partitions()
    bounds = [piece.until for piece in pieces if isinstance(piece, KeyRange)]
    assert len(pieces) > 2_000
    assert bounds[:-1] == sorted(set(bounds[:-1])), "ascending, each once"
    assert bounds[-1] is None
    assert [piece.after for piece in pieces[1:] if isinstance(piece, KeyRange)] == bounds[:-1]
    assert set(bounds[:-1]) < set(keys)

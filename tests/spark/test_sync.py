"""A sync makes a catalog exactly what a frame says, with the fewest writes, whoever else writes."""

from __future__ import annotations

import json
import math
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from patching import digest
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport, segment
from tests.service import RunningGateway

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

import pyarrow as pa
from pyspark.sql.types import StringType

from patching.spark.catalog_reads import CatalogReads, DocumentShape
from patching.spark.desired import DesiredInvalid, read_desired
from patching.spark.documents_there import DigestPlanner, compared
from patching.spark.options import READ, WRITE, OptionRefused, Options
from patching.spark.plan import Planner
from patching.spark.sync import SyncReport, options_for, sync

KEYS = [
    "plain",
    "with/slash",
    "a.b",
    "..",
    "ключ",
    "日本",
    "e\u0301",
    "é",
    "😀",
    "sp ace",
    "%2F",
    "a;b=c",
]


class Catalog:
    """The catalog that a test is about."""

    def __init__(self, spark: Any, gateway: RunningGateway, name: str) -> None:
        self.spark, self.url, self.name = spark, gateway.url, name
        self.transport = Transport(gateway.url)
        self.routes = CatalogRoutes(self.transport, name)

    @property
    def named(self) -> dict[str, Any]:
        return {"catalog": self.name, "url": self.url}

    def put(self, documents: dict[str, Any]) -> None:
        """One by one where they are few, or else in one bulk request."""
        lines = [
            {"catalog": self.name, "key": key, "op": "put", "value": value}
            for key, value in documents.items()
        ]
        body = b"\n".join(msgspec.json.encode(line) for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        answer = self.transport.request("POST", "/v1/bulk", body=body, headers=headers)
        answers = [msgspec.json.decode(line) for line in answer.body.splitlines()]
        assert all(each["status"] in (200, 201) for each in answers), answers

    def set_up(self, settings: Any) -> None:
        headers = {"Content-Type": "application/json"}
        path = f"/v1/catalogs/{segment(self.name)}"
        self.transport.request("PUT", path, body=msgspec.json.encode(settings), headers=headers)

    def documents(self) -> dict[str, Any]:
        return self.routes.export().documents

    def head(self) -> int:
        return self.routes.commits(2**62).head_revision

    def pins(self) -> list[dict[str, Any]]:
        path = f"/v1/catalogs/{segment(self.name)}/pins"
        pins: list[dict[str, Any]] = self.transport.request("GET", path).json()["pins"]
        return [pin for pin in pins if pin["note"].startswith(("sync", "plan", "export"))]

    def frame(self, documents: dict[str, Any]) -> Any:
        """Of JVM values: no Python makes the rows."""
        texts = pa.array([json.dumps(value) for value in documents.values()], pa.string())
        keys = pa.array([*documents], pa.string())
        return self.spark.createDataFrame(pa.table({"key": keys, "document": texts}))

    def sync(self, documents: dict[str, Any], **more: Any) -> SyncReport:
        return sync(self.frame(documents), self.name, url=self.url, **more)


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


def random_value(luck: random.Random, depth: int = 3) -> Any:
    kind = luck.randrange(8 if depth else 5)
    if kind < 5:
        return [None, True, luck.randrange(-(2**40), 2**40), luck.random(), luck.choice(KEYS)][kind]
    if kind == 5:
        return [random_value(luck, depth - 1) for _ in range(luck.randrange(5))]
    return {luck.choice(KEYS): random_value(luck, depth - 1) for _ in range(luck.randrange(6))}


def random_state(luck: random.Random, keys: list[str]) -> dict[str, Any]:
    return {key: random_value(luck) for key in keys if luck.random() < 0.7}


def changed(luck: random.Random, state: dict[str, Any]) -> dict[str, Any]:
    """Some documents another, some gone, the rest the same."""
    return {
        key: random_value(luck) if luck.random() < 0.2 else value
        for key, value in state.items()
        if luck.random() < 0.9
    }


@pytest.mark.parametrize("delete", [False, True])
def test_the_catalog_equals_the_desired_state(there: Catalog, delete: bool) -> None:
    luck = random.Random(7 + delete)
    keys = [*KEYS, *(f"k/{number}" for number in range(100))]
    before: dict[str, Any] = {}
    for _ in range(2):
        others = [key for key in keys if key not in before]
        wanted = {**changed(luck, before), **random_state(luck, others)}
        head = there.head()

        report = there.sync(wanted, delete=delete, options={"partitions": 2})

        after = wanted if delete else {**before, **wanted}
        assert there.documents() == after
        assert report.in_step
        assert report.revision == head
        assert report.created == len(wanted.keys() - before.keys())
        assert report.deleted == (len(before.keys() - wanted.keys()) if delete else 0)
        both = wanted.keys() & before.keys()
        assert report.patched == sum(before[key] != wanted[key] for key in both)
        assert report.unchanged + report.patched == len(both)
        assert there.head() == head + report.sent
        before = after
    assert min(report.created, report.patched, report.unchanged) > 0
    assert (report.deleted > 0) is delete
    assert there.pins() == []


def test_a_second_sync_sends_nothing(there: Catalog) -> None:
    wanted = random_state(random.Random(3), [*KEYS, *map(str, range(50))])
    there.sync(wanted, delete=True)
    head = there.head()

    again = there.sync(wanted, delete=True)

    assert (again.unchanged, again.sent, again.rounds) == (len(wanted), 0, 1)
    assert there.head() == head


def test_a_deleted_catalog_is_created_again(there: Catalog) -> None:
    there.put({"a": 1, "b": 2})
    there.transport.request("DELETE", f"/v1/catalogs/{segment(there.name)}")
    report = there.sync({"a": 1}, delete=True)
    assert (report.created, report.deleted, report.in_step) == (1, 0, True)
    assert there.documents() == {"a": 1}


def test_the_patch_contains_only_the_difference(there: Catalog) -> None:
    document = {"name": "orders", "owner": {"team": "a"}, "columns": [{"n": i} for i in range(9)]}
    there.put({"t": document})

    there.sync({"t": {**document, "owner": {"team": "b"}}})

    [commit] = there.routes.commits(1).commits
    [change] = commit.changes
    assert change.patch == [{"op": "replace", "path": "/owner/team", "value": "b"}]


def test_a_struct_or_all_columns_but_the_key_form_the_document(there: Catalog) -> None:
    rows = there.spark.createDataFrame([("a", 1, [1.5])], "key string, n int, list array<double>")
    sync(rows, there.name, url=there.url)
    structs = there.spark.sql("select 'b' as id, named_struct('x', 'y', 'none', null) as doc")
    sync(structs, there.name, url=there.url, key="id", document="doc")
    upper = structs.toDF("KEY", "DOCUMENT")
    assert sync(upper, there.name, url=there.url).unchanged == 1, "names have no case"

    assert there.documents() == {"a": {"n": 1, "list": [1.5]}, "b": {"x": "y", "none": None}}


def test_equal_values_in_another_spelling_are_unchanged(there: Catalog) -> None:
    value = {"b": [1, 100, None, {"é": 0.5}], "a": {"whole": 7, "text": "1.0"}}
    there.put({"json": value, "plain": {"z": 1, "a": None}, "number": 10**18})
    head = there.head()
    spelled = ' { "a":{"text":"1.0", "whole":7.0},"b":[1.0,1E2,null,{"\\u00e9":5e-1}]} '
    rows = [("json", spelled), ("plain", '{"a":null,"z":1}'), ("number", "1.0e18")]
    report = sync(there.spark.createDataFrame(rows, "key string, document string"), **there.named)
    assert (report.unchanged, report.sent, there.head()) == (3, 0, head)


@pytest.mark.parametrize("kind", ["bigint", "double"])
def test_structs_have_the_digest_of_their_written_form(there: Catalog, kind: str) -> None:
    """Those of texts, booleans and whole numbers come as texts of Spark's; the others don't."""
    value: dict[str, Any] = {"n": 2**53 - 1, "none": None, "t": 'é"\\\n', "yes": True}
    there.put({"a": {"s": value, "l": [value, None], "m": {"k": [], "x": None}}, "b": {}})
    given = {**value, "n": float(value["n"]) if kind == "double" else value["n"]}
    row = f"struct<n:{kind},none:string,t:string,yes:boolean>"
    schema = f"key string, document struct<s:{row},l:array<{row}>,m:map<string,array<int>>>"
    same = ("a", {"s": given, "l": [given, None], "m": {"x": None, "k": []}})
    frame = there.spark.createDataFrame([same, ("b", {"s": None, "l": None, "m": None})], schema)
    report = sync(frame, **there.named)
    assert (report.unchanged, report.patched, report.in_step) == (1, 1, True)
    assert there.documents()["b"] == {"s": None, "l": None, "m": None}
    assert sync(frame, **there.named).sent == 0


def test_documents_that_are_too_large_for_one_answer_are_read_in_several(there: Catalog) -> None:
    large = {f"k{number}": {"n": number, "large": "x" * 3_000_000} for number in range(7)}
    for key, value in large.items():
        there.put({key: value})
    report = there.sync({key: {"n": -1} for key in large})
    assert (report.patched, report.in_step) == (7, True)
    assert set(map(str, there.documents().values())) == {"{'n': -1}"}


class _Reads:
    """Documents by name, and which were asked for."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[str] = []

    def named(self, keys: list[str], _revision: int) -> list[DocumentShape]:
        self.asked += keys
        return [
            DocumentShape(key, "1-a", value=msgspec.Raw(msgspec.json.encode(self.documents[key])))
            for key in keys
        ]


def test_only_documents_that_differ_are_read() -> None:
    there = {f"k{number}": {"n": number} for number in range(3_000)}
    wanted = {**{key: {"n": value["n"] * 1.0} for key, value in there.items()}, "k7": {"n": 0}}
    wanted |= {f"k{number}": [number] for number in range(100, 1_300)} | {"new": 1}
    rows = [
        (key, 1, json.dumps(value), key, "1-a", digest(there[key]))
        if key in there
        else (key, 1, json.dumps(value), None, None, None)
        for key, value in wanted.items()
    ]
    names = ("key", "copies", "value", "there", "etag", "digest")
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    batches = pa.Table.from_arrays(columns, names=list(names)).to_batches(max_chunksize=250)
    reads = _Reads(there)
    planner = DigestPlanner(Planner("c", "run", StringType()), Options(url="u", catalog="c"), 1)
    planned = list(planner.rows(cast(CatalogReads, reads), iter(batches)))
    assert reads.asked == ["k7", *(f"k{number}" for number in range(100, 1_300))]
    assert Counter(each.action for each in planned) == {"patch": 1_201, "create": 1, "unchanged": 1}
    assert sum(each.documents for each in planned if each.action == "unchanged") == 3_000 - 1_201


def test_text_that_is_not_utf8_is_reported() -> None:
    """As Spark has it of a file in another encoding."""
    keys, values = [b"k\xff", b"k"], [b"1", b'"\xfc"']
    nothing: list[None] = [None, None]
    columns = {
        "key": pa.array(keys, pa.binary()).view(pa.string()),
        "copies": [1, 1],
        "value": pa.array(values, pa.binary()).view(pa.string()),
        **dict.fromkeys(("there", "etag", "digest"), pa.array(nothing, pa.string())),
    }
    planner = DigestPlanner(Planner("c", "run", StringType()), Options(url="u", catalog="c"), 1)
    batches = pa.table(columns).to_batches()
    planned = list(planner.rows(cast(CatalogReads, _Reads({})), iter(batches)))
    assert [(each.action, each.key) for each in planned] == [
        ("invalid", "k\ufffd"),
        ("invalid", "k"),
    ]
    assert str(planned[0].detail).startswith(
        "its key: it has a value that can't be written as JSON"
    )
    assert str(planned[1].detail).startswith(
        "its document: it has a value that can't be written as JSON"
    )


@pytest.mark.parametrize("how", ["left_outer", "full_outer"])
def test_digests_are_not_collected_or_broadcast(
    spark: Any, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However few they are: neither on the driver nor in every task."""
    wanted = spark.createDataFrame([("k", 1, "{}")], "key string, copies long, value string")
    there = spark.createDataFrame([("k", "1-a", "")], "there string, etag string, digest string")
    compared(wanted, there, how).explain()
    told = capsys.readouterr().out
    assert "SortMergeJoin" in told
    assert "Broadcast" not in told


def test_only_keys_with_the_prefix_are_deleted(there: Catalog) -> None:
    there.put({"a/1": 1, "a/2": 2, "b/1": 3})

    report = there.sync({"a/1": 9}, delete=True, prefix="a/")

    assert there.documents() == {"a/1": 9, "b/1": 3}
    assert (report.patched, report.deleted) == (1, 1)


def test_no_other_catalog_is_written_than_the_one_that_is_named(there: Catalog) -> None:
    """An option of that name is taken, as by all that this package does, and means nothing."""
    report = there.sync({"a": 1}, options={"Catalog": f"{there.name}-other"})

    assert (report.catalog, report.created) == (there.name, 1)
    assert there.documents() == {"a": 1}


def test_an_empty_source_deletes_nothing_without_allow_empty(there: Catalog) -> None:
    there.put({"a": 1})
    with pytest.raises(DesiredInvalid, match=r"all documents \(1\) would be deleted"):
        there.sync({}, delete=True)
    assert there.documents() == {"a": 1}

    assert there.sync({}, delete=True, allow_empty=True).deleted == 1
    assert there.documents() == {}
    assert there.sync({"a": 2}).created == 1  # over what is left of it
    assert there.documents() == {"a": 2}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", "1"), ("twice", "2"), ("twice", "2")], "key 'twice': 2 rows have this key"),
        ([("a", "1"), (None, '{"x": 1}')], '1 row has no key: {"x": 1}'),
        ([("a", '{"x": 1.000000000000000001}')], "'a': its document has the number 1.0000000"),
        ([("a", "1"), ("broken", '{"x": ')], "key 'broken': its document isn't JSON"),
        ([("a", "1"), ("none", None)], "key 'none': its document is null"),
        ([("a", "1"), ("", "1")], "key '': a key can't be empty"),
        ([("a", "NaN")], "key 'a': its document isn't JSON"),
        ([("a", '{"x": 1, "x": 2}')], "key 'a': its document has the member '/x' twice"),
    ],
)
def test_invalid_rows_are_named_before_anything_is_sent(
    there: Catalog, rows: list[tuple[str | None, str | None]], said: str
) -> None:
    frame = there.spark.createDataFrame(rows, "key string, document string")
    with pytest.raises(DesiredInvalid) as raised:
        sync(frame, there.name, url=there.url)
    assert said in str(raised.value)
    assert there.head() == 0


def test_an_invalid_line_is_named(there: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "wanted.jsonl"
    for broken, why in (
        (b'{"key": "b", "document": 1, "more": 2}', "unknown field `more`"),
        (b'{"key": "b", "docum', "truncated"),
        (b'{"key": "b", "document": 1, "document": 2}', "the member '/document' twice"),
        (b'{"key": "b", "document": "\xfc"}', "a value that can't be written as JSON"),
    ):
        path.write_bytes(b'{"key": "a", "document": 1}\n' + broken)
        shown = re.escape(broken.decode(errors="replace"))
        with pytest.raises(Exception, match=rf"the line '{shown}' isn't .*{why}"):
            sync(read_desired(there.spark, str(path)), there.name, url=there.url)
    assert there.head() == 0


def test_text_in_a_struct_that_is_not_utf8_is_reported(there: Catalog) -> None:
    """Spark would write a replacement character for it; one that was there stays."""
    frame = there.spark.sql(
        """SELECT * FROM VALUES
        ('a', named_struct('x', array('\ufffd'), 'y', map('plain', true))),
        ('b', named_struct('x', array('ok', CAST(x'61ff' AS string)), 'y', map('ok', true))),
        ('c', named_struct('x', array('ok'), 'y', map(CAST(x'eda080' AS string), true)))
        AS (key, document)"""
    )
    with pytest.raises(DesiredInvalid) as raised:
        sync(frame, **there.named)
    unwritable = "its document: it has a value that can't be written as JSON"
    assert raised.value.problems[0][1].startswith(unwritable)
    assert sorted(str(key) for key, _ in raised.value.problems) == ["b", "c"]
    assert sync(frame.where("key = 'a'"), **there.named).created == 1
    assert there.documents() == {"a": {"x": ["\ufffd"], "y": {"plain": True}}}


def test_a_csv_that_spark_would_repair_silently_is_refused(there: Catalog, tmp_path: Path) -> None:
    """With replacement characters, dropped values, nulls, or the columns of another file."""
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text("key,x,y\na,1,2\n")

    def read(text: bytes, **options: str) -> Any:
        second.write_bytes(text)
        return read_desired(there.spark, str(tmp_path), "csv", **options)

    for broken, why in (
        (b"key,x,y\nb,M\xfcller,2\n", "the line 'b,M\ufffdller,2': it isn't UTF-8"),
        (b"key,x,y\nb,1\n", "MALFORMED"),
        (b"key,x,y\nb,1,2,3\n", "MALFORMED"),
        (b"key,y,x\nb,1,2\n", "CSV header does not conform to the schema"),
    ):
        with pytest.raises(Exception, match=why):
            read(broken).collect()
    assert read(b"key,x,y\nb,M\xfcller,3\n", encoding="iso-8859-1").count() == 2
    sync(read(b'key,x,y\n"b","M\xc3\xbcller",\n'), **there.named)
    assert there.documents() == {"a": {"x": "1", "y": "2"}, "b": {"x": "Müller", "y": None}}


def test_numbers_are_kept_exactly_or_refused(there: Catalog) -> None:
    frame = there.spark.sql(
        "SELECT 'a' AS key, named_struct('price', CAST('12.50' AS DECIMAL(38, 18)),"
        " 'ratio', CAST(0.1 AS FLOAT), 'double', CAST(0.1 AS DOUBLE) / 3) AS document"
    )
    assert sync(frame, there.name, url=there.url).created == 1
    found = {"price": 12.5, "ratio": 0.1, "double": 0.1 / 3}
    assert there.documents() == {"a": found}
    assert sync(frame, there.name, url=there.url).unchanged == 1
    digits = there.spark.sql(
        "SELECT 'a' AS key,"
        " named_struct('n', CAST('1.000000000000000001' AS DECIMAL(38, 18))) AS document"
    )
    with pytest.raises(DesiredInvalid, match=r"document\.n is 1\.000000000000000001, which would"):
        sync(digits, there.name, url=there.url)
    text = there.spark.sql("""SELECT 'a' AS key, '{"n": 1.000000000000000001}' AS document""")
    with pytest.raises(DesiredInvalid, match=r"its document has the number 1\.00000"):
        sync(text, there.name, url=there.url)
    assert there.sync({"a": 10**20}).refused == 1
    assert there.documents() == {"a": found}


@pytest.mark.usefixtures("west")
def test_a_date_beyond_python_is_named(there: Catalog) -> None:
    frame = there.spark.sql(
        "SELECT col1 AS key, named_struct('until', timestamp_micros(col2)) AS document"
        " FROM VALUES ('a', 253402300800000000), ('b', 253402300799999999)"
    )
    assert sync(frame.where("key = 'b'"), there.name, url=there.url).created == 1
    assert there.documents() == {"b": {"until": "9999-12-31T23:59:59.999999Z"}}
    with pytest.raises(DesiredInvalid, match="key 'a': its document: it has a value that can't"):
        sync(frame, there.name, url=there.url)


def test_the_source_is_read_once(there: Catalog, tmp_path: Path) -> None:
    """Also where others are first, and their documents are looked at again: what is wanted of these
    is what was found the first time."""
    there.put({"a": {"n": 0}, "b": {"n": 0}, "gone": 1})
    folder = str(tmp_path)

    def noted(batches: Iterator[Any]) -> Iterator[Any]:
        Path(folder, uuid.uuid4().hex).touch()
        yield from batches

    rows = [("a", '{"n": 1, "m": [1, 2]}'), ("b", "2"), ("new", '{"n": 3}')]
    frame = there.spark.createDataFrame(rows, "key string, document string").coalesce(1)
    frame = frame.mapInArrow(noted, "key string, document string")

    def others(number: int) -> None:
        there.put({"a": {"n": -number}, "b": {"n": -number}, "new": -number, "gone": -number})

    more: dict[str, Any] = {"delete": True, "progress": Meanwhile(others, 2)}
    report = sync(frame, there.name, url=there.url, **more)
    assert (report.rounds, report.guards_lost) == (3, 8)
    assert there.documents() == {"a": {"n": 1, "m": [1, 2]}, "b": 2, "new": {"n": 3}}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_source_that_lacks_many_documents_deletes_nothing(there: Catalog) -> None:
    """Most broken sources are incomplete. So such a run needs `max_deletes`."""
    there.put({f"k{number}": number for number in range(10)})
    some = {f"k{number}": number for number in range(4)}
    with pytest.raises(DesiredInvalid, match="it lacks 6 of the 10 documents that are there"):
        there.sync(some, delete=True)
    for most in (5, 0):
        with pytest.raises(DesiredInvalid, match=f"more than max_deletes={most} allows"):
            there.sync(some, delete=True, max_deletes=most)
    not_known: Any = "0.5"
    for bad in (-1, 1.5, math.nan, not_known):
        with pytest.raises(ValueError, match="max_deletes must be a number of documents"):
            there.sync(some, delete=True, max_deletes=bad)
    assert len(there.documents()) == 10
    assert there.sync(some, delete=True, max_deletes=6).deleted == 6
    assert there.sync({"k0": 0, "k1": 1, "new": 1}, delete=True).deleted == 2, "half of four"


@pytest.mark.parametrize(
    "name",
    ["txnAppId", "txnVersion", "txnPrincipals", "reportPath", "deadLetterPath", "columns", "type"],
)
def test_options_without_effect_on_a_sync_are_refused(name: str) -> None:
    for use in (READ, WRITE):
        with pytest.raises(OptionRefused, match=f"option '{name}': it has no effect here"):
            options_for({"url": "http://x", name.upper(): "1"}, use)


def test_unusable_columns_are_named(there: Catalog) -> None:
    frame = there.spark.createDataFrame([(1.5, 2)], "key double, document int")
    with pytest.raises(ValueError, match="column 'key': keys must be strings, not double"):
        sync(frame, there.name, url=there.url)
    with pytest.raises(ValueError, match="no column 'id'; it has key, document"):
        sync(frame, there.name, url=there.url, key="id")
    twice = frame.toDF("Document", "DOCUMENT")
    with pytest.raises(ValueError, match="several columns 'document'; it has Document, DOCUMENT"):
        sync(twice, there.name, url=there.url, key="Document")
    with pytest.raises(ValueError, match="only the column 'key', so it has no documents"):
        sync(frame.select("key"), there.name, url=there.url)


def test_a_refused_document_is_reported_and_the_others_are_written(there: Catalog) -> None:
    there.put({"x": 1})
    settings = {"schemas": {"s/*": {"type": "object"}}}
    there.transport.request("PUT", f"/v1/catalogs/{segment(there.name)}", json=settings)

    report = there.sync({"s/bad": [], "s/good": {}, "x": 2})

    assert (report.created, report.patched, report.refused) == (1, 1, 1)
    assert not report.in_step
    [left] = report.examples
    assert (left.key, left.code) == ("s/bad", "schema_violation")


class Meanwhile:
    """Does something when a sync begins to send, for the given rounds."""

    def __init__(self, act: Callable[[int], None], rounds: int) -> None:
        self.act, self.rounds, self.round = act, rounds, 0

    def __call__(self, stage: str) -> None:
        if stage.startswith("sending"):
            self.round += 1
            if self.round <= self.rounds:
                self.act(self.round)


def test_documents_changed_by_others_are_compared_again(there: Catalog) -> None:
    there.put({"changed": {"a": 1, "by": "x"}, "deleted": 1, "gone": 1, "same": 1, "agreed": 1})
    wanted = {"changed": {"a": 2}, "deleted": 2, "made": 5, "same": 1, "agreed": 7}

    def others(_round: int) -> None:
        there.put({"changed": {"a": 1, "by": "y", "more": []}, "made": 4, "gone": 2, "agreed": 7})
        there.transport.request("DELETE", f"/v1/catalogs/{segment(there.name)}/documents/deleted")

    report = there.sync(wanted, delete=True, progress=Meanwhile(others, 1))

    assert there.documents() == wanted
    assert (report.rounds, report.guards_lost, report.lost) == (2, 5, 0)
    assert (report.created, report.patched, report.deleted) == (1, 2, 1)
    assert report.unchanged == 2
    assert there.pins() == []


def test_the_number_of_rounds_is_bounded_and_documents_still_contested_stay(there: Catalog) -> None:
    there.put({"a": 0, "b": 0})

    def others(number: int) -> None:
        there.put({"a": -number})

    report = there.sync({"a": 9, "b": 9}, rounds=3, progress=Meanwhile(others, 9))

    assert there.documents() == {"a": -3, "b": 9}
    assert (report.rounds, report.guards_lost, report.lost, report.patched) == (3, 3, 1, 1)
    assert [(left.key, left.code) for left in report.examples] == [("a", "precondition_failed")]
    assert not report.in_step


def test_the_pin_is_released_when_it_fails(there: Catalog) -> None:
    there.put({"a": 1})
    held = []

    def broken(_text: str) -> None:
        held.append(there.pins())
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        there.sync({"a": 2}, progress=broken)
    assert len(held[0]) == 1
    assert there.pins() == []


def test_items_of_declared_lists_are_compared_by_key(there: Catalog) -> None:
    declared = {"arrays": [{"keys": "t*", "pointer": "/columns", "item_key": ["n"]}]}
    there.put({"t": {"columns": [{"n": "a", "x": 1}, {"n": "b"}]}, "u": [1, 2]})
    there.set_up(declared)

    moved = {"t": {"columns": [{"n": "b"}, {"n": "a", "x": 1}]}}
    assert there.sync(moved).unchanged == 1

    report = there.sync({"t": {"columns": [{"n": "b", "x": 3}, {"n": "c"}]}, "u": [2]})

    assert (report.patched, report.in_step) == (2, True)
    assert there.documents() == {"t": {"columns": [{"n": "b", "x": 3}, {"n": "c"}]}, "u": [2]}

"""The batch sink on a running session, over a real gateway and a real MongoDB."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patching.client import CatalogRoutes, NotFound
from tests.service import RunningGateway

Write = Callable[..., None]


@pytest.fixture
def write(gateway: RunningGateway, catalog: str) -> Write:
    """`write(frame, **options)` appends it to the catalog."""

    def run(frame: Any, *, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("metadata").mode(mode).option("url", gateway.url)
        for name, value in ({"catalog": catalog} | options).items():
            if value is not None:
                writer = writer.option(name, value)
        writer.save()

    return run


def documents(routes: CatalogRoutes) -> dict[str, Any]:
    try:
        return routes.export().documents
    except NotFound:
        return {}


def test_each_kind_of_change_is_applied(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    write(
        spark.createDataFrame(
            [("gone", '{"n": 1}'), ("merged", '{"a": 1, "b": 2}'), ("patched", '{"log": []}')],
            "key string, document string",
        )
    )
    rows = [
        ("put", None, '{"x": [1, 2.5, null]}', None, None),
        ("merged", None, None, '{"a": null, "c": "é"}', None),
        ("patched", '[{"op": "add", "path": "/log/-", "value": 7}]', None, None, False),
        ("gone", None, None, None, True),
    ]
    schema = "key string, patch string, document string, merge_patch string, delete boolean"
    write(spark.createDataFrame(rows, schema))
    assert documents(routes) == {
        "put": {"x": [1, 2.5, None]},
        "merged": {"b": 2, "c": "é"},
        "patched": {"log": [7]},
    }


def test_patches_may_be_arrays_of_structs(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    operations = [
        ("add", "/a", None, '{"deep": [1]}'),
        ("add", "/none", None, "null"),
        ("copy", "/b", "/a/deep", None),
        ("remove", "/none", None, None),
    ]
    write(spark.createDataFrame([("k", "{}")], "key string, document string"))
    schema = "key string, patch array<struct<op:string,path:string,from:string,value:string>>"
    write(spark.createDataFrame([("k", operations)], schema))
    assert documents(routes) == {"k": {"a": {"deep": [1]}, "b": [1]}}


def test_extended_patches_come_as_json(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    patch = json.dumps(
        {
            "patch": [{"op": "add", "path": "/items/7/x", "value": 1}],
            "array_primary_keys": {"/items": "id"},
        }
    )
    write(spark.createDataFrame([("k", '{"items": [{"id": 7}]}')], "key string, document string"))
    write(spark.createDataFrame([("k", patch)], "key string, patch string"))
    assert documents(routes) == {"k": {"items": [{"id": 7, "x": 1}]}}


def test_structs_and_maps_become_documents(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    schema = (
        "key string, document struct<n:bigint,f:double,d:decimal(20,3),w:decimal(30,0),s:string,"
        "b:binary,day:date,at:timestamp,ntz:timestamp_ntz,yes:boolean,nothing:string,"
        "tags:array<string>,props:map<string,struct<v:int>>>"
    )
    value = (
        2**60,
        0.5,
        decimal.Decimal("1.250"),
        decimal.Decimal(10**25),
        "é\n",
        b"\x00\xff",
        datetime.date(2026, 1, 2),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 2, 3, 4, 5),
        True,
        None,
        ["x", None],
        {"q": (1,), "p": (2,)},
    )
    write(spark.createDataFrame([("k", value)], schema))
    assert documents(routes)["k"] == {
        "n": 2**60,
        "f": 0.5,
        "d": 1.25,
        "w": 10**25,
        "s": "é\n",
        "b": "AP8=",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.600000Z",
        "ntz": "2026-01-02T03:04:05",
        "yes": True,
        "nothing": None,
        "tags": ["x", None],
        "props": {"q": {"v": 1}, "p": {"v": 2}},
    }


def test_rows_name_catalog_condition_key_and_message(
    spark: Any, write: Write, gateway: RunningGateway, catalog: str, routes: CatalogRoutes
) -> None:
    from patching.client import Transport

    rows = [("k", "1", f"{catalog}-2", "mine", "because"), ("k", "2", None, None, None)]
    schema = "key string, document string, catalog string, idempotency_key string, message string"
    write(spark.createDataFrame(rows, schema), message="in general")
    assert documents(routes) == {"k": 2}
    (own,) = routes.commits(after=0).commits
    assert own.message == "in general"
    with Transport(gateway.url) as transport:
        (other,) = CatalogRoutes(transport, f"{catalog}-2").commits(after=0).commits
    assert (other.message, other.idempotency_key) == ("because", "mine")


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("k string, document string", "'k'"),
        ("key string", "'patch'"),
        ("document string", "'key'"),
        ("key int, document string", "'key'"),
        ("key string, documnet string", "the nearest is 'document'"),
        ("key string, document string, author string", "'author'"),
        ("key string, document int", "'document'"),
        ("key string, delete string", "'delete'"),
        ("key string, patch array<string>", "'patch'"),
        ("key string, patch array<struct<op:string,path:string,val:string>>", "'val'"),
        ("key string, document struct<a:struct<i:interval day>>", "document.a.i"),
        ("key string, document map<int,string>", "document"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_sent(
    spark: Any, write: Write, routes: CatalogRoutes, schema: str, column: str
) -> None:
    with pytest.raises(Exception, match=r"column '") as raised:
        write(spark.createDataFrame([], schema))
    assert column in str(raised.value)
    assert documents(routes) == {}


def test_modes_that_would_replace_the_catalog_are_refused(spark: Any, write: Write) -> None:
    frame = spark.createDataFrame([("k", "1")], "key string, document string")
    with pytest.raises(Exception, match="would replace the whole catalog"):
        write(frame, mode="overwrite")


def test_options_are_refused_by_name(spark: Any, write: Write) -> None:
    frame = spark.createDataFrame([("k", "1")], "key string, document string")
    with pytest.raises(Exception, match="the nearest is 'batchSize'"):
        write(frame, batchSizes=3)
    with pytest.raises(Exception, match="'catalog': it is missing"):
        write(frame, catalog=None)


def with_bad_rows(spark: Any, count: int) -> Any:
    """In one partition; of each ten, the third isn't JSON, the fifth fails its test."""

    def patch(number: int) -> str:
        if number % 10 == 3:
            return '[{"op": "add"'
        test = [{"op": "test", "path": "/log/0", "value": "?"}] if number % 10 == 5 else []
        return json.dumps([*test, {"op": "add", "path": "/log/-", "value": number}])

    rows = [("k", patch(number)) for number in range(count)]
    return spark.createDataFrame(rows, "key string, patch string").coalesce(1)


def start_log(spark: Any, write: Write, *keys: str) -> None:
    rows = [(key, '{"log": []}') for key in keys]
    write(spark.createDataFrame(rows, "key string, document string"))


def test_a_bad_row_fails_the_task_after_those_before_it(
    spark: Any, write: Write, routes: CatalogRoutes
) -> None:
    start_log(spark, write, "k")
    with pytest.raises(Exception, match=r"row 3 \(key 'k'\): column 'patch': it is no JSON") as bad:
        write(with_bad_rows(spark, 30))
    assert "partition 0" in str(bad.value)
    assert "3 applied (3 of them by an earlier attempt)" in str(bad.value)
    assert "1 refused (rows 3)" in str(bad.value)
    assert documents(routes) == {"k": {"log": [0, 1, 2]}}


def test_a_refused_row_fails_the_task_and_the_error_says_what_was_applied(
    spark: Any, write: Write, routes: CatalogRoutes
) -> None:
    start_log(spark, write, "k")
    rows = with_bad_rows(spark, 30).filter("patch like '%]'")
    with pytest.raises(Exception, match=r"row 4 \(key 'k'\): refused: 409 test_failed") as refused:
        write(rows, batchSize=6)
    assert "first 6 rows: 5 applied" in str(refused.value)
    assert "1 refused (rows 4)" in str(refused.value)
    assert documents(routes) == {"k": {"log": [0, 1, 2, 4, 6]}}


def test_bad_and_refused_rows_are_skipped(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    start_log(spark, write, "k")
    write(with_bad_rows(spark, 30), onError="skip", batchSize=4)
    assert documents(routes)["k"]["log"] == [n for n in range(30) if n % 10 not in (3, 5)]


def test_bad_and_refused_rows_become_dead_letters(
    spark: Any, write: Write, routes: CatalogRoutes, tmp_path: Path
) -> None:
    start_log(spark, write, "k")
    folder = tmp_path / "dead"
    write(with_bad_rows(spark, 30), onError="deadletter", deadLetterPath=str(folder))
    assert documents(routes)["k"]["log"] == [n for n in range(30) if n % 10 not in (3, 5)]
    (path,) = folder.iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [letter["ordinal"] for letter in letters] == [13, 23, 3, 5, 15, 25] or sorted(
        letter["ordinal"] for letter in letters
    ) == [3, 5, 13, 15, 23, 25]
    by_ordinal = {letter["ordinal"]: letter for letter in letters}
    assert by_ordinal[3]["problem"]["code"] == "bad_row"
    assert by_ordinal[5]["problem"]["code"] == "test_failed"
    assert by_ordinal[5]["row"]["patch"].endswith('"value": 5}]')
    assert spark.read.json(str(folder)).count() == 6


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ((None, "1", None, None), r"row 0 \(key None\): column 'key': it is null"),
        (("k", None, None, None), r"it asks for nothing: no document, delete"),
        (("k", None, False, None), r"it asks for nothing: no document, delete"),
        (("k", "1", True, None), r"column 'delete': there is a document in the same row"),
        (("k", "NaN", None, None), r"column 'document': it is no JSON"),
        (("k", "1", None, "b ad"), r"400 invalid_body"),
    ],
)
def test_a_row_that_asks_for_nothing_sensible_is_named(
    spark: Any, write: Write, routes: CatalogRoutes, row: Any, problem: str
) -> None:
    schema = "key string, document string, delete boolean, idempotency_key string"
    with pytest.raises(Exception, match=problem):
        write(spark.createDataFrame([row], schema))
    assert documents(routes) == {}


def test_a_false_condition_is_a_refusal(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    rows = [("k", "1", "1f-ab12cd34")]
    with pytest.raises(Exception, match="412 precondition_failed"):
        write(spark.createDataFrame(rows, "key string, document string, if_match string"))
    assert documents(routes) == {}


def test_equal_rows_are_each_applied(spark: Any, write: Write, routes: CatalogRoutes) -> None:
    start_log(spark, write, "k")
    patch = '[{"op": "add", "path": "/log/-", "value": "x"}]'
    rows = spark.createDataFrame([("k", patch)] * 60, "key string, patch string").repartition(3)
    write(rows, batchSize=7)
    write(rows)  # another job
    assert documents(routes) == {"k": {"log": ["x"] * 120}}


def test_a_key_of_the_rows_own_makes_jobs_repeatable(
    spark: Any, write: Write, routes: CatalogRoutes
) -> None:
    start_log(spark, write, "k")
    rows = [
        ("k", f'[{{"op": "add", "path": "/log/-", "value": {n}}}]', f"row-{n}") for n in range(9)
    ]
    frame = spark.createDataFrame(rows, "key string, patch string, idempotency_key string")
    for _ in range(2):
        write(frame, idempotency="column")
    assert sorted(documents(routes)["k"]["log"]) == list(range(9))
    with pytest.raises(Exception, match="it is missing; idempotency=column asks for it"):
        write(frame.drop("idempotency_key"), idempotency="column")


def test_a_gateway_out_of_reach_fails_the_task_in_time(spark: Any, catalog: str) -> None:
    rows = spark.createDataFrame([("k", "1"), ("l", "2")], "key string, document string")
    writer = rows.coalesce(1).write.format("metadata").mode("append").option("catalog", catalog)
    with pytest.raises(Exception, match="0 may have been applied, 2 certainly not") as raised:
        # nobody listens on the port of discarding
        writer.option("url", "http://127.0.0.1:9").option("retryTimeout", "0.3").option(
            "onError", "skip"
        ).save()
    assert "row 0 (key 'k') could not be written" in str(raised.value)

"""The batch sink on a running session, over a real gateway and a real MongoDB."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from patching.client import NotFound
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.service import RunningGateway

Write = Callable[..., None]
Frame = Callable[..., Any]
Put = Callable[[str, Any], object]


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


@pytest.fixture
def put(gateway: RunningGateway, catalog: str) -> Iterator[Put]:
    """`put(key, document)`, as any client would."""
    with Transport(gateway.url) as transport:
        yield lambda key, document: transport.request(
            "PUT", f"/v1/catalogs/{catalog}/documents/{key}", json=document
        )


def documents(routes: CatalogRoutes) -> dict[str, Any]:
    try:
        return routes.export().documents
    except NotFound:
        return {}


def test_each_kind_of_change_is_applied(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("gone", {"n": 1})
    put("merged", {"a": 1, "b": 2})
    put("patched", {"log": []})
    rows = [
        ("put", None, '{"x": [1, 2.5, null]}', None, None),
        ("merged", None, None, '{"a": null, "c": "é"}', None),
        ("patched", '[{"op": "add", "path": "/log/-", "value": 7}]', None, None, False),
        ("gone", None, None, None, True),
    ]
    schema = "key string, patch string, document string, merge_patch string, delete boolean"
    write(frame(rows, schema))
    assert documents(routes) == {
        "put": {"x": [1, 2.5, None]},
        "merged": {"b": 2, "c": "é"},
        "patched": {"log": [7]},
    }


def test_a_patch_may_be_an_array_of_structs(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    operations = [
        {"op": "add", "path": "/a", "value": '{"deep": [1]}'},
        {"op": "add", "path": "/none", "value": "null"},
        {"op": "copy", "path": "/b", "from": "/a/deep"},
        {"op": "remove", "path": "/none"},
    ]
    put("k", {})
    schema = "key string, patch array<struct<op:string,path:string,from:string,value:string>>"
    write(frame([("k", operations)], schema))
    assert documents(routes) == {"k": {"a": {"deep": [1]}, "b": [1]}}


def test_an_extended_patch_is_given_as_json(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    patch = json.dumps(
        {
            "patch": [{"op": "add", "path": "/items/7/x", "value": 1}],
            "array_primary_keys": {"/items": ["id"]},
        }
    )
    put("k", {"items": [{"id": 7}]})
    write(frame([("k", patch)], "key string, patch string"))
    assert documents(routes) == {"k": {"items": [{"id": 7, "x": 1}]}}


def test_structs_and_maps_are_converted_to_documents(
    frame: Frame, write: Write, routes: CatalogRoutes
) -> None:
    schema = (
        "key string, document struct<n:bigint,f:double,d:decimal(20,3),w:decimal(30,0),s:string,"
        "b:binary,day:date,at:timestamp,ntz:timestamp_ntz,yes:boolean,nothing:string,"
        "tags:array<string>,props:map<string,struct<v:int>>>"
    )
    value = {
        "n": 2**60,
        "f": 0.5,
        "d": decimal.Decimal("1.250"),
        "w": decimal.Decimal(10**18),
        "s": "é\n",
        "b": b"\x00\xff",
        "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.UTC),
        "ntz": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "yes": True,
        "nothing": None,
        "tags": ["x", None],
        "props": [("q", {"v": 1}), ("p", {"v": 2})],
    }
    write(frame([("k", value)], schema))
    assert documents(routes)["k"] == {
        "n": 2**60,
        "f": 0.5,
        "d": 1.25,
        "w": 10**18,
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


def test_rows_name_catalog_condition_key_author_and_message(
    frame: Frame, write: Write, gateway: RunningGateway, catalog: str, routes: CatalogRoutes
) -> None:
    rows = [
        ("k", "1", f"{catalog}-2", "mine", "ann", "because"),
        ("k", "2", None, None, None, None),
    ]
    texts = ("key", "document", "catalog", "idempotency_key", "author", "message")
    write(frame(rows, ", ".join(f"{name} string" for name in texts)), message="in general")
    assert documents(routes) == {"k": 2}
    (own,) = (each for each in routes.commits(after=0).commits if each.changes)
    assert (own.author, own.message) == ("anonymous", "in general")
    with Transport(gateway.url) as transport:
        commits = CatalogRoutes(transport, f"{catalog}-2").commits(after=0).commits
        (other,) = (each for each in commits if each.changes)
    assert (other.author, other.message, other.idempotency_key) == ("ann", "because", "mine")


def test_wrong_columns_are_refused_before_anything_is_sent(
    frame: Frame, write: Write, routes: CatalogRoutes
) -> None:
    with pytest.raises(Exception, match=r"column 'documnet': .*did you mean 'document'") as failed:
        write(frame([("k", "1")], "key string, documnet string"))
    assert str(failed.value).count(", line ") == 1, "the frames of the source help nobody"
    assert documents(routes) == {}


def test_modes_and_options_are_refused_by_name(frame: Frame, write: Write) -> None:
    rows = frame([("k", "1")], "key string, document string")
    with pytest.raises(Exception, match="would replace the whole catalog"):
        write(rows, mode="overwrite")
    with pytest.raises(Exception, match="did you mean 'batchSize'"):
        write(rows, batchSizes=3)


def append(value: Any) -> str:
    return json.dumps([{"op": "add", "path": "/log/-", "value": value}])


def with_bad_rows(frame: Frame, count: int) -> Any:
    """In one partition; of each ten, the third isn't JSON, the fifth fails its test."""

    def patch(number: int) -> str:
        if number % 10 == 3:
            return '[{"op": "add"'
        test = [{"op": "test", "path": "/log/0", "value": "?"}] if number % 10 == 5 else []
        return json.dumps([*test, {"op": "add", "path": "/log/-", "value": number}])

    rows = [("k", patch(number)) for number in range(count)]
    return frame(rows, "key string, patch string").coalesce(1)


def test_a_bad_row_fails_the_task_after_those_before_it(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("k", {"log": []})
    with pytest.raises(Exception, match=r"row 3 \(key 'k'\): column 'patch': it isn't JSON") as bad:
        write(with_bad_rows(frame, 30))
    assert "partition 0" in str(bad.value)
    assert "3 applied (3 of them by an earlier try)" in str(bad.value)
    assert "1 refused (rows 3)" in str(bad.value)
    assert documents(routes) == {"k": {"log": [0, 1, 2]}}


def test_a_refused_row_fails_the_task_and_the_error_shows_what_was_applied(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("k", {"log": []})
    rows = with_bad_rows(frame, 30).filter("patch like '%]'")
    with pytest.raises(Exception, match=r"row 4 \(key 'k'\): refused: 409 test_failed") as refused:
        write(rows, batchSize=6)
    assert "first 6 rows: 5 applied" in str(refused.value)
    assert "1 refused (rows 4)" in str(refused.value)
    assert documents(routes) == {"k": {"log": [0, 1, 2, 4, 6]}}
    shown = str(refused.value).splitlines()  # the cause is behind one frame, not behind all
    (place,) = [n for n, line in enumerate(shown) if "row 4 (key 'k')" in line]
    assert place <= 5, shown


def test_bad_and_refused_rows_are_skipped(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("k", {"log": []})
    write(with_bad_rows(frame, 30), onError="skip", batchSize=4)
    assert documents(routes)["k"]["log"] == [n for n in range(30) if n % 10 not in (3, 5)]


def test_every_job_writes_a_report_for_the_driver(
    frame: Frame, write: Write, routes: CatalogRoutes, tmp_path: Path
) -> None:
    """Of each job, also of one that failed; without a folder for it nothing is sent."""
    rows = [("a", "1"), ("b", "2"), ("c", "nothing")]
    reports = tmp_path / "reports"
    write(frame(rows, "key string, document string"), onError="skip", reportPath=str(reports))
    (path,) = reports.iterdir()
    report = json.loads(path.read_text())
    assert path.stem == report["name"]
    assert report["done"]
    assert (report["applied"], report["skipped"]) == (2, 1)
    assert ["(key 'c'): column 'document': it isn't JSON" in each for each in report["examples"]]
    with pytest.raises(Exception, match="it isn't JSON"):
        write(frame(rows, "key string, document string"), reportPath=str(tmp_path / "failed"))
    (path,) = (tmp_path / "failed").iterdir()
    assert not json.loads(path.read_text())["done"]
    rows = [("d", "1")]
    with pytest.raises(Exception, match="option 'reportPath': the folder can't be created"):
        write(frame(rows, "key string, document string"), reportPath=str(path))
    assert sorted(documents(routes)) == ["a", "b"]


def test_bad_and_refused_rows_are_written_as_dead_letters(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes, tmp_path: Path
) -> None:
    put("k", {"log": []})
    folder = tmp_path / "dead"
    write(with_bad_rows(frame, 30), onError="deadletter", deadLetterPath=str(folder))
    assert documents(routes)["k"]["log"] == [n for n in range(30) if n % 10 not in (3, 5)]
    (path,) = folder.iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    by_ordinal = {letter["ordinal"]: letter for letter in letters}
    assert sorted(by_ordinal) == [3, 5, 13, 15, 23, 25]
    assert by_ordinal[3]["problem"]["code"] == "bad_row"
    assert by_ordinal[5]["problem"]["code"] == "test_failed"
    assert by_ordinal[5]["row"]["patch"].endswith('"value": 5}]')


def test_a_false_condition_is_a_refusal(frame: Frame, write: Write, routes: CatalogRoutes) -> None:
    rows = [("k", "1", "1f-ab12cd34")]
    with pytest.raises(Exception, match="412 precondition_failed"):
        write(frame(rows, "key string, document string, if_match string"))
    assert documents(routes) == {}


def test_equal_rows_are_each_applied(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("k", {"log": []})
    rows = frame([("k", append("x"))] * 60, "key string, patch string").repartition(3)
    write(rows, batchSize=7)
    write(rows)  # another job
    assert documents(routes) == {"k": {"log": ["x"] * 120}}


def test_a_named_job_is_done_once(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes, catalog: str, tmp_path: Path
) -> None:
    """What a part of it applied isn't applied again, nor anything when it is finished, whatever is
    in it then; one that overtook another leaves nothing to be had from it."""
    put("k", {"log": []})
    job = {"txnAppId": "nightly", "txnVersion": 7, "idempotency": "job"}
    texts = [append(1), append(2), append(2), append(3)]
    schema = "key string, patch string"
    rows = frame([("k", text) for text in texts], schema).coalesce(1)
    broken = frame([("k", text) for text in [*texts[:2], "{"]], schema).coalesce(1)
    with pytest.raises(Exception, match="column 'patch': it isn't JSON"):
        write(broken, message="first", **job)
    other = frame([("k", text) for text in [texts[0], append("?")]], schema).coalesce(1)
    with pytest.raises(Exception, match=r"row 1 \(key 'k'\): an earlier attempt sent another row"):
        write(other, **job)
    write(rows, message="again", **job)
    write(other, **job, reportPath=str(tmp_path))
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert (report["applied"], report["finished_before"]) == (0, [catalog])
    assert documents(routes)["k"]["log"] == [1, 2, 2, 3]
    write(rows, **job | {"txnVersion": 9})
    write(rows, txnAppId="7 nightly", txnVersion=0)
    assert documents(routes)["k"]["log"] == [1, 2, 2, 3] * 3
    write(rows.limit(0), **job | {"txnVersion": 10})
    write(rows, **job | {"txnVersion": 8})
    assert documents(routes)["k"]["log"] == [1, 2, 2, 3] * 3


def test_a_named_job_needs_equal_rows_in_one_partition(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    put("k", {"log": []})
    put("l", {"log": []})
    rows = frame([("k", append("x"))] * 3 + [("l", append("x"))] * 3, "key string, patch string")
    for version, keys in enumerate(("job", "content"), 1):
        job = {"txnAppId": "nightly", "txnVersion": version, "idempotency": keys}
        with pytest.raises(Exception, match="have rows of one document that may be equal"):
            write(rows.repartition(3), **job)
        assert len(documents(routes)["k"]["log"]) < 3 * version
        write(rows.repartition(2, "key"), **job)
        assert documents(routes) == {key: {"log": ["x"] * 3 * version} for key in "kl"}


def test_rows_can_require_that_a_document_exists_or_not(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes, tmp_path: Path
) -> None:
    """As in MERGE, matched or not matched: other rows are skipped and counted."""

    def report() -> dict[str, Any]:
        (path,) = tmp_path.iterdir()
        found: dict[str, Any] = json.loads(path.read_text())
        path.unlink()
        return found

    put("there", 1)
    rows = frame([("there", "2"), ("new", "2")], "key string, document string").coalesce(1)
    write(rows, rowMode="create", reportPath=str(tmp_path))
    assert documents(routes) == {"there": 1, "new": 2}
    told = report()
    assert (told["applied"], told["passed_over"], told["skipped"]) == (1, 1, 0)
    rows = frame([("there", "3"), ("none", "3")], "key string, document string").coalesce(1)
    write(rows, rowMode="update", reportPath=str(tmp_path))
    assert documents(routes) == {"there": 3, "new": 2}
    assert report()["passed_over"] == 1
    schema = "key string, document string, mode string, if_match string"
    mixed = [
        ("there", "4", "create", None),
        ("there", "5", None, None),
        ("a", "6", "create", None),
        ("b", "7", "update", None),
        ("there", "8", "update", "x"),
        ("there", "9", "insert", None),
    ]
    write(frame(mixed, schema).coalesce(1), onError="skip", reportPath=str(tmp_path))
    assert documents(routes) == {"there": 5, "new": 2, "a": 6}
    told = report()
    assert (told["applied"], told["passed_over"], told["skipped"]) == (2, 2, 2)
    assert (
        "column 'mode': it must be one of create, update, upsert"
        in told["examples"][0] + (told["examples"][1])
    )


def test_column_names_are_case_insensitive_and_keys_may_be_numbers(
    frame: Frame, write: Write, routes: CatalogRoutes
) -> None:
    rows = frame([(7, [1, 2]), (8, None)], "KEY int, Value array<int>").where("key = 7")
    write(rows)
    assert documents(routes) == {"7": [1, 2]}


def test_with_a_key_column_jobs_are_repeatable(
    frame: Frame, write: Write, put: Put, routes: CatalogRoutes
) -> None:
    """In whatever partitions; those of a named job are the application's."""
    put("k", {"log": []})
    values = [("k", append(n), f"row-{n}") for n in range(9)]
    rows = frame(values, "key string, patch string, idempotency_key string").repartition(2)
    for _ in range(2):
        write(rows, idempotency="column")
    assert sorted(documents(routes)["k"]["log"]) == list(range(9))
    named = {"idempotency": "column", "txnAppId": "nightly"}
    write(rows.repartition(3), **named, txnVersion=1)
    write(rows.coalesce(1), **named, txnVersion=2)
    assert sorted(documents(routes)["k"]["log"]) == sorted([*range(9), *range(9)])


def test_an_unreachable_gateway_fails_the_task_in_time(frame: Frame, catalog: str) -> None:
    rows = frame([("k", "1"), ("l", "2")], "key string, document string")
    writer = rows.coalesce(1).write.format("metadata").mode("append").option("catalog", catalog)
    with pytest.raises(Exception, match="0 may have been applied, 2 certainly not") as raised:
        # nobody listens on the port of discarding
        writer.option("url", "http://127.0.0.1:9").option("retryTimeout", "0.3").option(
            "onError", "skip"
        ).save()
    assert "could not be written" in str(raised.value)

"""Jobs and queries that failed, and are started again; and rows of jobs that are over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from pyspark.sql.types import StringType, StructField, StructType

from patching.client import NotFound
from patching.spark.dead_letters import DeadLetters, LettersUnseen, settle_letters
from patching.spark.options import WRITE, Options
from patching.spark.outcomes import OutcomeCounts, TaskWritten
from patching.spark.sink import MetadataWriter
from tests.spark.attempts import Asleep
from tests.spark.passing import Passing
from tests.spark.written import Written

Frame = Callable[..., Any]
_SCHEMA = "key string, patch string"
NAMED = {"txnAppId": "nightly", "txnVersion": "7"}


def appended(*items: tuple[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, json.dumps([{"op": "add", "path": "/log/-", "value": item}])) for key, item in items
    ]


def append(frame: Any, written: Written, **options: str) -> None:
    given = {"url": written.url, "catalog": written.catalog, **options}
    frame.write.format("metadata").mode("append").options(**given).save()


def log(written: Written, key: str = "k") -> list[Any]:
    documents: dict[str, Any] = written.routes.export().documents
    return list(documents[key]["log"])


def test_refused_rows_are_tried_again_when_the_version_is_restarted(
    frame: Frame, written: Written
) -> None:
    written.put("k", {"log": []})
    rows = frame(appended(("k", 1), ("new", 2), ("k", 3)), _SCHEMA).coalesce(1)
    for _ in range(2):
        with pytest.raises(Exception, match=r"row 1 \(key 'new'\): refused"):
            append(rows, written, **NAMED)
    written.put("new", {"log": []})
    append(rows, written, **NAMED)
    assert (log(written), log(written, "new")) == ([1, 3], [2])
    append(rows, written, **NAMED)
    assert (log(written), log(written, "new")) == ([1, 3], [2]), "it is finished"


def test_repartitioning_resolves_equal_rows_in_two_partitions(
    frame: Frame, written: Written
) -> None:
    """Differing ones need none. Equal ones are one until they are in one partition."""
    written.put("k", {"log": []})
    rows = frame(appended(("k", "a"), ("k", "b")), _SCHEMA)
    append(rows.repartition(2), written, **NAMED)
    assert sorted(log(written)) == ["a", "b"]
    twice = frame(appended(("k", "c")), _SCHEMA)
    twice = twice.union(twice).union(frame(appended(("k", "d")), _SCHEMA))
    again = {"txnAppId": "nightly", "txnVersion": "8"}
    with pytest.raises(Exception, match="have rows of one document that may be equal"):
        append(twice, written, **again)
    append(twice.repartition(1, "key"), written, **again)
    assert sorted(log(written)) == ["a", "b", "c", "c", "d"]


@pytest.mark.parametrize("more", [{}, NAMED])
def test_a_late_row_of_a_failed_job_is_not_applied(
    spark: Any, written: Written, passing: Passing, more: dict[str, str]
) -> None:
    """Its process sleeps in the middle of a request, through the end of its job and the next one's
    rows. If the job has a name, it may be started again, as if nothing had been sent."""
    written.put("k", {"log": []})
    asleep = Asleep(passing, written, 1, of=more.get("txnAppId", ""))
    ids = spark.range(0, 2, 1, 2)
    rows = ids.selectExpr("'k' AS key", "if(id = 0, '\"old\"', '{') AS document")
    with pytest.raises(Exception, match="it isn't JSON"):
        append(rows, Written(passing.url, written.catalog, written.transport), **more)
    append(spark.range(1).selectExpr("'k' AS key", "'\"new\"' AS document"), written)
    (answer,) = asleep.late_answers()
    assert answer["problem"]["code"] == "application_conflict"
    assert written.routes.export().documents == {"k": "new"}
    again = spark.range(1).selectExpr("'k' AS key", "'\"again\"' AS document")
    append(again, written, idempotency="content", **more)
    assert written.routes.export().documents == {"k": "again"}


@pytest.mark.parametrize("more", [{}, NAMED])
def test_a_task_sends_only_its_rows(
    spark: Any, written: Written, passing: Passing, more: dict[str, str]
) -> None:
    """Its first lines begin the job in each catalog that they name; its end is one request each."""
    catalogs = [written.catalog, f"{written.catalog}-2"]
    rows = spark.range(0, 60, 1, 6).selectExpr(
        "concat('k', id) AS key",
        "'1' AS document",
        f"if(id % 3 = 0, '{catalogs[1]}', null) AS catalog",
    )
    append(rows, Written(passing.url, written.catalog, written.transport), **more)
    asked = Counter(each.split("/applications")[0] for each in passing.asked)
    assert asked == {
        "POST /v1/bulk": 6,
        **{f"PUT /v1/catalogs/{catalog}": 1 for catalog in catalogs},
    }
    assert len(written.routes.export().documents) == 40


@pytest.mark.parametrize("more", [{}, NAMED])
def test_a_frame_without_rows_makes_no_catalog(
    frame: Frame, written: Written, more: dict[str, str]
) -> None:
    append(frame([], _SCHEMA), written, **more)
    with pytest.raises(NotFound):
        written.head()


@pytest.mark.usefixtures("west")
def test_a_value_without_a_json_form_makes_a_row_bad(
    spark: Any, written: Written, tmp_path: Path
) -> None:
    """The usual "for ever", in a session west of Greenwich, is beyond what Python can hold."""
    ends = spark.range(0, 3, 1, 1).selectExpr(
        "concat('k', id) AS key",
        "named_struct('until', if(id = 1, timestamp'9999-12-31 23:59:59',"
        " timestamp'2026-01-01 00:00:00'), 'at', array(map('a', timestamp'2026-01-01 00:00:00')))"
        " AS document",
    )
    append(ends, written, onError="skip")
    utc = "2026-01-01T08:00:00Z"
    document = {"until": utc, "at": [{"a": utc}]}
    assert written.routes.export().documents == {"k0": document, "k2": document}
    with pytest.raises(Exception, match=r"row 1 \(key 'k1'\): column 'document': it has a value"):
        append(ends, written)
    letters = {"onError": "deadletter", "deadLetterPath": str(tmp_path / "dead")}
    append(ends, written, **letters)
    (path,) = (tmp_path / "dead").iterdir()
    (letter,) = map(json.loads, path.read_text().splitlines())
    assert (letter["key"], letter["problem"]["code"]) == ("k1", "bad_row")


def test_dead_letters_are_written_once_however_often_the_version_is_started(
    spark: Any, frame: Frame, written: Written, tmp_path: Path
) -> None:
    folder = tmp_path / "dead"
    letters = {"onError": "deadletter", "deadLetterPath": str(folder), **NAMED}
    written.put("k", {"log": []})
    rows = frame(appended(("none", 1), ("k", 2), ("k", 2)), _SCHEMA)
    with pytest.raises(Exception, match="may be equal"):
        append(rows.repartition(3), written, **letters)
    append(rows.repartition(2, "key"), written, **letters)
    (path,) = folder.glob("*.jsonl")
    (letter,) = map(json.loads, path.read_text().splitlines())
    assert letter["key"] == "none"
    assert log(written) == [2, 2]
    append(rows.repartition(2, "key"), written, **letters)
    assert [*folder.glob("*.jsonl")] == [path], "it was finished, and nothing was sent"
    written.put("none", {"log": []})
    (folder / "job-1-0-0.jsonl.unfinished").write_text("{")  # of a task that still runs
    letters_again = spark.read.format("metadata").option("deadLetters", str(folder)).load()
    (row,) = letters_again.collect()
    assert (row["key"], row["problem"].partition(":")[0]) == ("none", "document_not_found")
    append(letters_again, written)
    assert log(written, "none") == [1], "the rows can be read back, and written again"


def test_a_job_whose_dead_letters_are_invisible_to_the_driver_fails(tmp_path: Path) -> None:
    """Where the folder is each executor's own: nobody would ever read them there."""
    elsewhere = str(tmp_path / "executor" / "job-0-0-0.jsonl")
    told = {"url": "http://127.0.0.1:1", "catalog": "c", "txnAppId": "nightly", "txnVersion": "7"}
    told |= {"onError": "deadletter", "deadLetterPath": str(tmp_path)}
    schema = StructType([StructField(each, StringType()) for each in ("key", "document")])
    writer = MetadataWriter(schema, Options.parse(told, WRITE), overwrite=False)
    written = TaskWritten(0, OutcomeCounts(skipped=1, dead_letters=[elsewhere]), {"c": False})
    with pytest.raises(LettersUnseen, match="deadLetterPath must be a folder that both share"):
        writer.commit([written])


def test_dead_letters_of_an_earlier_start_are_removed_once_all_rows_are_decided_again(
    tmp_path: Path,
) -> None:
    def start(run: str, *, replaces: bool) -> list[str]:
        counts = OutcomeCounts()
        for partition in range(2):
            letters = DeadLetters(str(tmp_path), f"txn-7-{run}-{partition}-0-0")
            if run != "finished":
                letters.add({"key": run})
            path = letters.finish()
            counts.dead_letters += [path] if path else []
        settle_letters(str(tmp_path), "txn-7", counts, replaces=replaces)
        return sorted(path.name for path in tmp_path.glob("*.jsonl"))

    other = "txn-8-one-0-0-0.jsonl"
    (tmp_path / other).touch()
    one = ["txn-7-one-0-0-0.jsonl", "txn-7-one-1-0-0.jsonl"]
    assert start("one", replaces=True) == [*one, other]
    two = ["txn-7-two-0-0-0.jsonl", "txn-7-two-1-0-0.jsonl"]
    assert start("two", replaces=True) == [*two, other]
    assert start("finished", replaces=False) == [*two, other]


def test_dead_letters_of_every_kind_can_be_written_again(
    spark: Any, written: Written, tmp_path: Path
) -> None:
    """Refused for now by a condition, and taken as they were once that is dropped."""
    folder = str(tmp_path / "dead")
    written.put_all({"patch": {"a": 1}, "merge": {"a": 1, "b": 1}, "gone": 1, "text": {"x": 1}})
    rows = spark.sql("""
        SELECT key, 'f-00000000' AS etag,
          if(key = 'struct', named_struct('n', 1, 'no', null), null) AS value,
          if(key = 'merge', named_struct('a', CAST(null AS INT), 'c', 2), null) AS merge_patch,
          if(key = 'patch', array(named_struct('op', 'add', 'path', '/b',
            'from', CAST(null AS STRING), 'value', '{"x": [1]}')), null) AS patch,
          if(key = 'apply', '{"mine": 1}', null) AS apply,
          key = 'gone' AS delete,
          if(key = 'struct', named_struct('owner', 'x'), null) AS attributes
        FROM VALUES ('struct'), ('merge'), ('patch'), ('apply'), ('gone') AS t(key)
    """)
    append(rows, written, onError="deadletter", deadLetterPath=folder)
    found = spark.read.format("metadata").option("deadLetters", folder).load()
    told = {row["key"]: row["problem"].partition(":")[0] for row in found.collect()}
    assert set(told) == {"struct", "merge", "patch", "apply", "gone"}
    assert set(told.values()) <= {"precondition_failed", "document_not_found"}
    append(found.drop("if_match"), written)
    assert written.routes.export().documents == {
        "struct": {"n": 1, "no": None},
        "merge": {"b": 1, "c": 2},
        "patch": {"a": 1, "b": {"x": [1]}},
        "apply": {"mine": 1},
        "text": {"x": 1},
    }
    named = spark.read.format("metadata").options(deadLetters=folder, columns="key,problem")
    assert named.load().columns == ["key", "problem"]


def test_options_without_effect_on_dead_letters_are_refused(spark: Any, tmp_path: Path) -> None:
    letters = spark.read.format("metadata").option("deadLetters", str(tmp_path))
    assert letters.load().count() == 0
    with pytest.raises(Exception, match="option 'catalog': it has no effect with deadLetters"):
        letters.option("catalog", "c").load()
    with pytest.raises(Exception, match="option 'deadLetters': there is no folder"):
        spark.read.format("metadata").option("deadLetters", f"{tmp_path}/none").load()

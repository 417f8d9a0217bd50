"""Plans that are sent later, exports that are read back, and histories by day."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.spark.catalog_reads import ReadFailed
from patching.spark.desired import read_desired
from patching.spark.export import export_catalog, export_history
from patching.spark.sync import replay, sync, write_plan
from tests.service import RunningGateway
from tests.spark.passing import Passing

from .test_sync import KEYS, Catalog

DOCUMENTS = {key: {"name": key, "n": 2**62 + i, "f": 0.1} for i, key in enumerate(KEYS)}


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


def test_a_plan_sends_nothing_and_does_it_all_when_it_is_replayed(
    there: Catalog, tmp_path: Path
) -> None:
    there.put({"a": {"n": 1}, "b": 2, "c": 3})
    head, path = there.head(), str(tmp_path / "plan")
    wanted = {"a": {"n": 9}, "b": 2, **DOCUMENTS}

    plan = write_plan(there.frame(wanted), there.name, path, url=there.url, delete=True)

    assert (plan.unchanged, plan.create, plan.patch, plan.delete) == (1, len(DOCUMENTS), 1, 1)
    assert there.head() == head == plan.revision
    assert there.pins() == []
    report = replay(there.spark, path, url=there.url)
    assert there.documents() == wanted
    assert (report.created, report.patched, report.deleted) == (len(DOCUMENTS), 1, 1)
    assert report.catalog == there.name

    # once more it is answered as it was then, and changes nothing
    there.put({"a": {"n": 10}})
    head = there.head()
    again = replay(there.spark, path, url=there.url)
    assert (again.sent, again.in_step) == (report.sent, True)
    assert there.head() == head


def test_the_guards_of_a_plan_still_apply_at_replay(there: Catalog, tmp_path: Path) -> None:
    there.put({"a": 1, "b": 1, "c": 1})
    path = str(tmp_path / "plan")
    write_plan(
        there.frame({"a": 2, "b": 2, "new": 2}), there.name, path, url=there.url, delete=True
    )
    there.put({"a": "theirs", "c": "theirs", "new": "theirs"})

    report = replay(there.spark, path, url=there.url)

    assert there.documents() == {"a": "theirs", "b": 2, "c": "theirs", "new": "theirs"}
    assert (report.patched, report.lost, report.in_step) == (1, 3, False)
    assert {left.key for left in report.examples} == {"a", "c", "new"}


def test_a_plan_does_not_replace_another_by_accident(there: Catalog, tmp_path: Path) -> None:
    path = str(tmp_path / "plan")
    write_plan(there.frame({"a": 1}), there.name, path, url=there.url)
    with pytest.raises(Exception, match="already exists"):
        write_plan(there.frame({"a": 2}), there.name, path, url=there.url)


def test_an_incomplete_plan_is_refused(there: Catalog, tmp_path: Path) -> None:
    begun = tmp_path / "begun" / "_temporary" / "0"
    begun.mkdir(parents=True)
    (begun / "part-0.txt").write_text("{}")
    with pytest.raises(ValueError, match=r"there is no complete plan in '.*begun'"):
        replay(there.spark, str(tmp_path / "begun"), url=there.url)
    there.put({"a": 1})
    nothing = str(tmp_path / "nothing")
    assert write_plan(there.frame({"a": 1}), there.name, nothing, url=there.url).lines == 0
    assert replay(there.spark, nothing, url=there.url).in_step


def test_a_catalog_exported_as_lines_can_be_read_by_sync(there: Catalog, tmp_path: Path) -> None:
    there.put(DOCUMENTS)
    path = str(tmp_path / "export")

    report = export_catalog(there.spark, there.name, path, url=there.url)

    assert report.rows == len(DOCUMENTS)
    lines = [
        json.loads(line)
        for part in Path(path).glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert {line["key"]: line["document"] for line in lines} == DOCUMENTS
    back = read_desired(there.spark, path, "jsonl")
    assert sync(back, there.name, url=there.url, delete=True).unchanged == len(DOCUMENTS)
    assert sync(back, f"{there.name}-copy", url=there.url).created == len(DOCUMENTS)


def test_a_catalog_is_exported_at_a_revision_as_parquet(there: Catalog, tmp_path: Path) -> None:
    there.put({"a": 1})
    revision = there.head()
    there.put({"a": 2, "b": 2})
    path = str(tmp_path / "export")

    report = export_catalog(
        there.spark, there.name, path, url=there.url, format="parquet", revision=revision
    )

    rows = there.spark.read.parquet(path).collect()
    assert [(row["key"], row["value"]) for row in rows] == [("a", "1")]
    assert (report.rows, report.revision) == (1, revision)


def test_a_history_export_appends_where_the_last_one_ended(there: Catalog, tmp_path: Path) -> None:
    path = str(tmp_path / "history")
    there.put({"a": 1})
    there.put({"a": 2, "b": 1})
    first = export_history(there.spark, there.name, path, url=there.url)
    there.put({"b": 2})

    second = export_history(there.spark, there.name, path, url=there.url, after=first.revision)
    third = export_history(there.spark, there.name, path, url=there.url, after=second.revision)

    assert (first.rows, second.rows, third.rows) == (3, 1, 0)
    assert (second.revision, third.revision) == (there.head(), there.head())
    with pytest.raises(ReadFailed, match="is at revision 4, but the last export was at 5"):
        export_history(there.spark, there.name, path, url=there.url, after=5)
    rows = there.spark.read.parquet(path).orderBy("revision").collect()
    assert [(row["key"], row["revision"]) for row in rows] == [
        ("a", 1),
        ("a", 2),
        ("b", 3),
        ("b", 4),
    ]
    assert all(
        folder.name.startswith("date=") for folder in Path(path).iterdir() if folder.is_dir()
    )
    assert {row["date"] for row in rows} == {row["time"].date() for row in rows}


@pytest.mark.usefixtures("days_stay")
def test_an_overwritten_history_keeps_no_day_of_the_one_before(
    there: Catalog, tmp_path: Path
) -> None:
    there.put({"a": 1})
    path = tmp_path / "history"
    export_history(there.spark, there.name, str(path), url=there.url)
    (day,) = path.glob("date=*")
    day.rename(path / "date=2000-01-01")
    report = export_history(there.spark, there.name, str(path), url=there.url, overwrite=True)
    assert report.rows == there.spark.read.parquet(str(path)).count() == 1


@pytest.mark.parametrize("format", ["jsonl", "parquet", "history"])
def test_an_export_reads_the_catalog_once_and_pins_it_until_the_end(
    there: Catalog, passing: Passing, tmp_path: Path, format: str
) -> None:
    there.put({"a": 1, "b": 2})
    held: list[list[int]] = []

    def look(_method: str, path: str, _port: int) -> None:
        if "limit=" in path:
            held.append([pin["revision"] for pin in there.pins()])

    passing.before = look
    given: dict[str, Any] = {"url": passing.url, "options": {"partitions": 1}}
    path = str(tmp_path / "export")
    if format == "history":
        export_history(there.spark, there.name, path, **given)
        read = [each for each in passing.asked if "/commits?after=0&limit=2" in each]
    else:
        export_catalog(there.spark, there.name, path, format=format, **given)
        read = [each for each in passing.asked if "/documents?limit=1000" in each]
    assert len(read) == 1, passing.asked
    assert held[-1] == [0 if format == "history" else there.head()]
    assert there.pins() == []


def test_csv_and_parquet_are_read_by_column(there: Catalog, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,owner,size\na,x,1\nb,,2\n")
    sync(read_desired(there.spark, str(tmp_path / "t.csv")), there.name, url=there.url)
    assert there.documents() == {
        "a": {"owner": "x", "size": "1"},
        "b": {"owner": None, "size": "2"},
    }
    there.frame({"a": [1]}).write.parquet(str(tmp_path / "t.parquet"))
    sync(read_desired(there.spark, str(tmp_path / "t.parquet")), there.name, url=there.url)
    assert there.documents()["a"] == [1]
    with pytest.raises(ValueError, match="give the format"):
        read_desired(there.spark, str(tmp_path / "t"))

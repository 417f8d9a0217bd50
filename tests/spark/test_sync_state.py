"""What a run of sync leaves spares the next one work, and never a change."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

import msgspec
import pyarrow as pa
from pyspark.sql import types

import patching.spark.sync
from patching.client.transport import segment
from patching.spark import sync_state
from patching.spark.catalog_reads import CatalogReads, GrantShape
from patching.spark.desired import DesiredInvalid, has_text
from patching.spark.documents_there import DigestPlanner
from patching.spark.sync import SyncReport, sync
from tests.spark.passing import Passing
from tests.spark.written import Written


class Noting(DigestPlanner):
    """Leaves a file for each row that reaches Python, in a folder that its tasks have, too."""

    folder = ""

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return super().batches(map(self._noted, batches))

    def _noted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for row in batch.to_pylist():
            name = str(row["key"] or row["there"]).replace("/", "%")
            Path(self.folder, f"{name} {uuid.uuid4().hex}").touch()
        return batch


class Job:
    """A sync with a state; notes what it requests of the gateway, and what reaches Python."""

    def __init__(self, spark: Any, written: Written, passing: Passing, folder: Path) -> None:
        self.spark, self.written, self.passing = spark, written, passing
        self.state, self.noted = folder / "state", folder / "noted"
        self.noted.mkdir()
        self.planned: list[str] = []

    def __call__(self, documents: dict[str, Any], **more: Any) -> SyncReport:
        texts = [json.dumps(value) for value in documents.values()]
        rows = pa.table({"key": [*documents], "document": texts})
        return self.run(self.spark.createDataFrame(rows), **more)

    def run(self, frame: Any, **more: Any) -> SyncReport:
        self.passing.asked.clear()
        given = {"url": self.passing.url, "state": str(self.state), **more}
        report = sync(frame, self.written.catalog, **given)
        files = list(self.noted.iterdir())
        self.planned = sorted(each.name.rpartition(" ")[0].replace("%", "/") for each in files)
        for each in files:
            each.unlink()
        return report

    @property
    def listed(self) -> bool:
        """Whether the run before listed the digests of the catalog."""
        return any("select=digest" in each for each in self.passing.asked)

    def about(self) -> list[Path]:
        return [p for p in self.state.glob("*/about/*") if not p.name.startswith(("_", "."))]


@pytest.fixture
def job(
    spark: Any,
    written: Written,
    passing: Passing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Job:
    made = Job(spark, written, passing, tmp_path)

    class Here(Noting):
        folder = str(made.noted)

    monkeypatch.setattr(patching.spark.sync, "DigestPlanner", Here)
    return made


def documents(count: int = 6) -> dict[str, Any]:
    return {f"k{number}": {"n": number} for number in range(count)}


def test_unchanged_rows_reach_no_python_and_digests_are_not_listed(job: Job) -> None:
    wanted = documents()
    first = job(wanted, delete=True)
    assert (first.created, job.planned) == (6, sorted(wanted))
    wanted |= {"k3": {"n": -3}, "new": 1}
    del wanted["k5"]
    report = job(wanted, delete=True)
    assert (report.unchanged, report.patched, report.created, report.deleted) == (4, 1, 1, 1)
    assert (job.planned, job.listed) == (["k3", "k5", "new"], False)
    assert job.written.routes.export().documents == wanted
    assert (job(wanted, delete=True).unchanged, job.planned, job.listed) == (6, [], False)
    # A key that is there twice is refused whatever the state says.
    twice = [*wanted.items(), ("k0", wanted["k0"])]
    rows = [(key, json.dumps(value)) for key, value in twice]
    with pytest.raises(DesiredInvalid, match="2 rows have this key"):
        job.run(job.spark.createDataFrame(rows, "key string, document string"), delete=True)


def test_a_few_changes_are_compared_again_instead_of_rewriting_all_rows(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_state, "_ROWS_A_CHANGE", 2)
    wanted = documents()
    job(wanted, delete=True)
    before = [path.read_text() for path in job.about()]
    wanted |= {"k1": "changed", "new": 1}
    del wanted["k5"]
    report = job(wanted, delete=True)
    assert (report.sent, job.planned) == (3, ["k1", "k5", "new"])
    assert [path.read_text() for path in job.about()] == before
    wanted["k2"] = "changed"
    assert (job(wanted, delete=True).sent, job.planned) == (1, ["k1", "k2", "k5", "new"])
    assert (job(wanted, delete=True).sent, job.planned, job.listed) == (0, [], False)
    assert job.written.routes.export().documents == wanted


def test_changes_by_others_are_found_in_the_feed(job: Job) -> None:
    wanted = documents()
    job(wanted, delete=True)
    job.written.put_all({"k1": "theirs", "more": 1})
    job.written.transport.request("DELETE", f"{job.written.path}/documents/k2")
    job.written.put("k3", "theirs")
    job.written.put("k3", wanted["k3"])
    report = job(wanted, delete=True)
    assert (report.unchanged, report.patched, report.created, report.deleted) == (4, 1, 1, 1)
    assert (job.planned, job.listed) == (["k1", "k2", "k3", "more"], False)
    assert job.written.routes.export().documents == wanted
    assert (job(wanted, delete=True).unchanged, job.planned) == (6, [])


@pytest.mark.parametrize(("delete", "steps"), [(True, 4), (False, 2)])
def test_with_any_writes_in_between_the_catalog_ends_as_desired(
    job: Job, monkeypatch: pytest.MonkeyPatch, delete: bool, steps: int
) -> None:
    """Others write before and during the runs. Some runs have an older state, some list digests;
    all end like runs without a state."""
    luck = random.Random(11 + delete)
    keys = [f"k/{number}" for number in range(30)]
    wanted = {key: luck.randrange(3) for key in keys[:20]}
    old = job.state.parent / "old"
    for step in range(steps):
        monkeypatch.setattr(sync_state, "_COMMITS", 0 if step == 2 else 1_000)
        if step == 3:
            shutil.rmtree(job.state)
            old.rename(job.state)
        theirs: dict[str, Any] = {}

        def others(stage: str, theirs: dict[str, Any] = theirs) -> None:
            if stage.startswith("sending") and not theirs:
                theirs |= {key: luck.randrange(3) for key in luck.sample(keys, 4)}
                job.written.put_all(theirs)

        before = job.written.routes.export().documents if step else {}
        report = job(
            wanted, progress=others, delete=delete, max_deletes=1.0, options={"partitions": 2}
        )
        assert (report.in_step, job.listed) == (True, step == 2)
        found = job.written.routes.export().documents
        after = wanted if delete else {**before, **wanted}
        assert {k: v for k, v in found.items() if k not in theirs} == {
            k: v for k, v in after.items() if k not in theirs
        }
        assert all(found[key] in (theirs[key], wanted.get(key)) for key in theirs if key in found)
        if step == 1:
            shutil.copytree(job.state, old)
        job.written.put_all({key: luck.randrange(3) for key in luck.sample(keys, 3)})
        wanted = {
            key: luck.randrange(3) if luck.random() < 0.2 else wanted.get(key, 7)
            for key in keys
            if luck.random() < 0.8
        }


def test_without_a_complete_state_of_the_catalog_digests_are_compared(
    job: Job,
) -> None:
    """Whatever became of the folder. A slot that isn't whole isn't read; the older one may be."""
    job(documents(1))
    job(documents(2))
    terms = msgspec.json.decode(json.loads(job.about()[0].read_text())["terms"])
    del terms["format"]
    state = sync_state.SyncState(job.spark, str(job.state), 2, terms)

    def newest() -> int | None:
        last = state._last()
        return None if last is None else last.about.rows

    kept = job.state.parent / "kept"
    for sums in job.state.rglob(".*.crc"):  # they would find all of this by themselves
        sums.unlink()
    shutil.copytree(job.state, kept)
    assert newest() == 2
    [about] = (job.state / "b" / "about").glob("part-*")
    rows = [*(job.state / "b" / "rows").glob("part-*")]
    others = [*(job.state / "a" / "rows").glob("part-*")]
    for spoil in (
        lambda: about.write_text(about.read_text()[:-9]),
        lambda: about.write_text(about.read_text().replace('"rows":2', '"rows":3')),
        lambda: about.unlink(),
        lambda: [each.unlink() for each in rows],
        lambda: shutil.rmtree(job.state / "b" / "rows"),
        lambda: [shutil.copy(each, rows[0].parent / f"more-{each.name}") for each in others],
        lambda: [each.write_bytes(each.read_bytes()[:50]) for each in rows],
    ):
        spoil()
        assert newest() == 1
        shutil.rmtree(job.state)
        shutil.copytree(kept, job.state)
    for name, other in (("catalog", "x"), ("delete", True), ("prefix", "k"), ("lists", "[]")):
        state = sync_state.SyncState(job.spark, str(job.state), 2, {**terms, name: other})
        assert newest() is None, name
    shutil.rmtree(job.state)
    assert newest() is None
    assert (job(documents(2)).unchanged, job.planned, job.listed) == (2, ["k0", "k1"], True)
    assert job.about(), "it was left again"


def test_the_state_of_a_history_that_was_set_back_is_not_used(job: Job) -> None:
    """Nor that of a catalog of this name at another gateway."""
    job(documents(2))
    [about] = job.about()
    told = json.loads(about.read_text())
    (about.parent / f".{about.name}.crc").unlink()
    about.write_text(json.dumps({**told, "commit_id": "another"}))
    assert (job(documents(2)).unchanged, job.planned, job.listed) == (2, ["k0", "k1"], True)


def test_without_the_feed_tokens_are_compared(job: Job) -> None:
    job(documents(3))
    head = job.written.put("k1", "theirs")
    job.written.compact(head)
    report = job(documents(3))
    assert (report.unchanged, report.patched) == (2, 1)
    assert (job.planned, job.listed) == (["k1"], True)
    assert job.written.routes.export().documents == documents(3)


def test_changed_options_or_settings_cause_a_full_comparison(job: Job) -> None:
    """Among them those that decide what is equal."""
    there = {"t": {"columns": [{"n": "a"}, {"n": "b"}]}, "u": 1, "other": 2}
    job.written.put_all(there)
    declared = {"arrays": [{"keys": "t", "pointer": "/columns", "item_key": ["n"]}]}
    routes = job.written
    path = f"/v1/catalogs/{segment(routes.catalog)}"
    routes.transport.request("PUT", path, json=declared)
    wanted = {"t": {"columns": [{"n": "b"}, {"n": "a"}]}, "u": 1}
    assert job(wanted).unchanged == 2, "order is no difference"
    assert (job(wanted).unchanged, job.planned) == (2, [])
    routes.transport.request("PUT", path, json={})
    assert (job(wanted).patched, job.planned, job.listed) == (1, ["t", "u"], True)
    assert (job(wanted, delete=True).deleted, job.listed) == (1, True)
    assert routes.routes.export().documents == wanted
    with pytest.raises(DesiredInvalid, match="it doesn't begin with the prefix"):
        job(wanted, delete=True, prefix="t")


def test_a_principal_that_may_not_see_all_documents_lists_them(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits of a document that an acl has hidden since aren't in the principal's feed."""
    job(documents(2))
    monkeypatch.setattr(CatalogReads, "grants", lambda _reads: [GrantShape("write", "*")])
    report = job(documents(3))
    assert (report.unchanged, report.created, job.planned, job.listed) == (2, 1, ["k2"], True)
    monkeypatch.undo()
    monkeypatch.setattr(patching.spark.sync, "DigestPlanner", DigestPlanner)
    assert job(documents(3)).unchanged == 3
    assert job.listed, "what that one left may lack documents"


def test_a_grant_matches_the_catalogs_of_its_pattern() -> None:
    for pattern, name, stands in (
        ("*", "a/b", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("a/*", "a/b\n", True),
        ("a.c", "abc", False),
        ("*x", "xy", False),
        ("", "a", False),
    ):
        assert sync_state._stands_for(pattern, name) is stands


def test_refused_and_lost_documents_are_compared_again(job: Job) -> None:
    path = f"/v1/catalogs/{segment(job.written.catalog)}"
    job.written.transport.request("PUT", path, json={"schemas": {"bad*": {"type": "object"}}})
    wanted = {"bad": [], "lost": 1, "same": 1, "too": 1}

    def others(stage: str) -> None:
        if stage.startswith("sending"):
            job.written.put("lost", "theirs")

    report = job(wanted, rounds=1, progress=others)
    assert (report.created, report.refused, report.lost) == (2, 1, 1)
    report = job(wanted)
    assert (report.unchanged, report.patched, report.refused) == (2, 1, 1)
    assert job.planned == ["bad", "lost"]
    assert job(wanted, rounds=1).refused == 1
    assert job.planned == ["bad"]


def test_a_source_in_another_spelling_is_compared_by_the_digests_of_the_state(
    job: Job,
) -> None:
    job(documents(2))
    rows = [(key, f" {json.dumps(value)}") for key, value in documents(2).items()]
    report = job.run(job.spark.createDataFrame(rows, "key string, document string"))
    assert (report.unchanged, job.planned) == (2, ["k0", "k1"])
    assert not [each for each in job.passing.asked if "/documents?" in each], "none was read"


def test_a_manager_has_a_state_too(job: Job) -> None:
    """What others leave to it or take from it is in the token, so the digests are listed."""
    job(documents(3), manager="nightly")
    job.written.put("k1", {"n": 1, "more": 1})
    job.written.put("k2", {"n": "taken over"})
    report = job(documents(3), manager="nightly", conflict="force")
    assert job.listed
    assert (report.in_step, job.written.routes.export().documents["k2"]) == (True, {"n": 2})
    report = job(documents(2), manager="nightly", conflict="force", delete=True)
    assert (report.deleted, report.unchanged, job.listed) == (1, 2, True)
    report = job(documents(2), manager="nightly", conflict="force", delete=True)
    assert (report.unchanged, job.planned) == (2, [])


def test_a_run_that_lists_has_as_many_tasks_with_a_state_as_without(job: Job) -> None:
    """Spark's own number is for large jobs: 200 tasks, and as many files, for any catalog."""
    usual = job.spark.conf.get("spark.sql.shuffle.partitions")
    job.spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        for more in ("first", "second"):
            wanted = {f"k{number}": {"n": number, "of": more} for number in range(40)}
            assert job(wanted, manager="nightly", options={"partitions": "2"}).in_step
    finally:
        job.spark.conf.set("spark.sql.shuffle.partitions", usual)
    assert job.listed
    files = [len([*each.glob("rows/*.parquet")]) for each in job.state.iterdir()]
    assert [count <= 2 for count in files] == [True, True], files


def test_only_types_with_unique_texts_are_compared_by_text() -> None:
    double, text = types.DoubleType(), types.StringType()
    row = types.StructType([types.StructField("a", double)])
    for kind, has in (
        (text, True),
        (row, True),
        (types.ArrayType(types.DecimalType(30, 9)), True),
        (types.MapType(text, double), True),
        (types.MapType(double, text), False),
        (types.TimestampType(), False),
        (types.StructType([types.StructField("at", types.TimestampType())]), False),
        (types.BinaryType(), False),
    ):
        assert has_text(kind) is has


def test_values_without_a_text_are_compared_by_digest(job: Job) -> None:
    frame = job.spark.sql("SELECT 'a' AS key, named_struct('at', timestamp_micros(1)) AS document")
    said: list[str] = []
    assert job.run(frame, progress=said.append).created == 1
    assert any(
        "different values of struct<at:timestamp> can have the same text" in each for each in said
    )
    later = job.spark.sql("SELECT 'a' AS key, named_struct('at', timestamp_micros(2)) AS document")
    assert job.run(later).patched == 1
    assert not job.state.exists()


def test_structs_of_numbers_have_a_state(job: Job) -> None:
    def frame(number: str) -> Any:
        return job.spark.sql(f"SELECT 'a' AS key, named_struct('x', {number}) AS document")

    assert job.run(frame("CAST(0.1 AS DOUBLE)")).created == 1
    assert (job.run(frame("CAST(0.1 AS DOUBLE) + 1e-18")).unchanged, job.planned) == (1, [])
    assert job.run(frame("CAST(0.1 AS DOUBLE) + 2e-17")).patched == 1

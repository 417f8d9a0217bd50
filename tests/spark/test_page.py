"""The examples with which docs/spark.md begins do what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.docs.pages import Page
from tests.installation import ROOT
from tests.spark.written import Written

TEXT = Page(ROOT / "docs" / "spark.md").text


def example(heading: str, written: Written, **names: Any) -> dict[str, Any]:
    """The names that the first block of Python below a heading leaves, run on the catalog."""
    code = TEXT.partition(f"\n{heading}\n")[2].partition("```python\n")[2].partition("```")[0]
    for said, meant in names.pop("instead", {}).items():
        assert said in code
        code = code.replace(said, meant)
    code = code.replace("http://gateway:8080", written.url)
    code = code.replace('"tables"', f'"{written.catalog}"')
    exec(compile(code, heading, "exec"), names)
    return names


def test_the_job_of_the_page_writes_once(spark: Any, written: Written) -> None:
    written.put("sales/orders", {"tier": 3})
    for _ in range(2):
        example("## A job that writes", written, spark=spark)
        assert written.routes.export().documents == {
            "sales/orders": {"tier": 1},
            "sales/returns": {"tier": 2},
        }
        assert written.changes() == 3


def test_the_sync_of_the_page_makes_the_catalog_equal(spark: Any, written: Written) -> None:
    written.put_each([("a", {"n": 1}), ("b", {"n": 1}), ("old", {})])
    wanted = spark.sql("""SELECT explode(array('a', 'b', 'c')) AS key, '{"n": 2}' AS document""")
    report = example("## A job that syncs", written, wanted=wanted)["report"]
    assert (report.created, report.patched, report.deleted, report.in_step) == (1, 2, 1, True)
    assert written.routes.export().documents == {key: {"n": 2} for key in "abc"}


def test_the_stream_is_written_and_followed(
    spark: Any, written: Written, tmp_path: Path, eventually: Any
) -> None:
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    events = rate.selectExpr("concat('k', value) AS key", "'1' AS document")
    written.touch()
    instead = {"/lake/checkpoints/events": str(tmp_path)}
    made = example("## A stream", written, spark=spark, events=events, instead=instead)
    try:
        eventually(lambda: "k0" in written.routes.export().documents or made["written"].exception())
    finally:
        made["written"].stop()
    assert made["followed"].isStreaming
    assert made["followed"].columns[:2] == ["revision", "time"]


def test_dead_letters_are_written_as_another_job(
    spark: Any, written: Written, tmp_path: Path
) -> None:
    rows = spark.sql("""SELECT 'a' AS key, '[{"op": "remove", "path": "/n"}]' AS patch""")
    given = {"url": written.url, "catalog": written.catalog}
    put_aside = {**given, "onError": "deadletter", "deadLetterPath": str(tmp_path)}
    rows.write.format("metadata").mode("append").options(**put_aside).save()
    written.put("a", {"n": 1})
    names = {"spark": spark, "folder": str(tmp_path), "url": written.url}
    example("### Refused rows", written, **names)
    assert written.routes.export().documents == {"a": {}}

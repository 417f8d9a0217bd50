"""The report of who races with whom names the documents and pointers where they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from docs.examples.contention import Racing, contention, plot_contention, show
from tests.service import RunningGateway

from .test_sync import Catalog

_COMMIT = "key string, time timestamp, writer string, attempts long, patch string"
A, B, C = "job a", "job b", "job c"


def races(commits: list[tuple[str, int, str, int, str]], window_s: float = 60) -> set[Any]:
    """Of (key, second, writer, attempts, the pointer that is replaced)."""
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa

    begun = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "key": key,
            "time": begun + timedelta(seconds=second),
            "writer": writer,
            "attempts": attempts,
            "patch": msgspec.json.encode([{"op": "replace", "path": path, "value": 1}]).decode(),
        }
        for key, second, writer, attempts, path in commits
    ]
    found = Racing(window_s).batches(iter([pa.RecordBatch.from_pylist(rows)]))
    return {tuple(row.values()) for batch in found for row in batch.to_pylist()}


def test_writers_race_if_they_write_overlapping_places_soon_after_each_other() -> None:
    assert races(
        [
            ("t", 0, A, 1, "/owner"),
            ("t", 20, B, 2, "/owner/team"),
            ("t", 30, B, 1, "/size"),
            ("t", 300, C, 1, "/owner"),
            ("u", 301, A, 1, "/owner"),
        ]
    ) == {("t", "/owner/team", A, B, 1, 1, 2)}


def test_a_pair_of_writers_counts_once_in_either_order() -> None:
    alternating = [("t", second, (A, B)[second % 2], 1, "/n") for second in range(5)]
    assert races(alternating) == {("t", "/n", A, B, 4, 0, 1)}


def test_repeated_attempts_without_a_known_rival_are_listed() -> None:
    assert races([("t", 0, A, 3, "/n"), ("t", 1, A, 1, "/n")]) == {("t", "/n", A, None, 0, 1, 3)}


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


def test_races_in_a_real_history_are_found_and_drawn(
    there: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there.put({"hot": {"n": 0, "m": 0}, "cold": {"n": 0}})
    begun = there.head()
    for number, (key, pointer, writer) in enumerate(
        [
            *(("hot", "/n", "team $a$"), ("hot", "/n", "team b"), ("hot", "/n", "team $a$")),
            *(("hot", "/m", "team b"), ("cold", "/n", "team b")),
        ]
    ):
        line = {
            "catalog": there.name,
            "key": key,
            "op": "patch",
            "patch": [{"op": "replace", "path": pointer, "value": number + 1}],
            "message": writer,
        }
        headers = {"Content-Type": "application/x-ndjson"}
        body = msgspec.json.encode(line)
        there.transport.request("POST", "/v1/bulk", body=body, headers=headers)

    frame = contention(there.spark, there.name, url=there.url, by="message", after=begun)

    rows = [row.asDict() for row in frame.collect()]
    [row] = [row for row in rows if row["races"]]
    assert (row["key"], row["pointer"], row["one"], row["other"]) == (
        *("hot", "/n", "team $a$", "team b"),
    )
    assert row["races"] == 2
    show(rows, there.name)
    assert "team $a$" in capsys.readouterr().out
    plot = plot_contention(rows, tmp_path / "plots" / "races.svg", there.name)
    assert plot.read_text().count("<svg") == 1
    assert contention(there.spark, there.name, url=there.url).where("races > 0").count() == 0


def test_an_empty_report_is_drawn_too(tmp_path: Path) -> None:
    assert plot_contention([], tmp_path / "none.svg", "c").exists()
    with pytest.raises(ValueError, match=r"not 'races\.xls'"):
        plot_contention([], tmp_path / "races.xls", "c")

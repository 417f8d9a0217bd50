"""Rows about one document that were not applied in their order are counted; without a session."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.spark.outcomes import RowOrder


def overtaking(rows: list[tuple[str, int]], **held: int) -> list[int]:
    """The places of those that were applied before an earlier one."""
    order = RowOrder(**held)
    return [
        place
        for place, (key, revision) in enumerate(rows)
        if order.overtakes(key, {"catalog_revision": revision})
    ]


def test_rows_of_other_documents_are_in_no_order() -> None:
    assert overtaking([("a", 5), ("b", 4), ("a", 6), ("b", 5)]) == []


def test_a_row_applied_before_an_earlier_one_is_told() -> None:
    assert overtaking([("a", 5), ("a", 3), ("b", 1), ("a", 4), ("a", 6)]) == [1, 3]


def test_only_so_many_documents_are_remembered() -> None:
    rows = [("a", 5), ("b", 6), ("c", 7), ("a", 1), ("c", 2)]
    assert overtaking(rows, held_max=2) == [4]
    assert overtaking(rows, held_max=3) == [3, 4]

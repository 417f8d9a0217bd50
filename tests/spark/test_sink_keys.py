"""The keys under which a row that is sent twice is applied once; without a session."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.spark.idempotency import row_keys


def keys(
    rows: list[bytes], origin: str = "job", partition: int = 0, held_max: int = 100
) -> list[str]:
    with row_keys(origin, partition, held_max=held_max) as made:
        return [made.key(row) for row in rows]


ROWS = [b"a", b"b", b"a", b"c", b"a", b"b"]


def test_every_row_has_a_key_of_its_own_that_the_gateway_takes() -> None:
    made = keys(ROWS, origin=f"job-{'f' * 32}", partition=10**6)
    assert len(set(made)) == len(ROWS)
    assert all(key.isascii() and " " not in key and len(key) <= 255 for key in made)


def test_the_order_of_the_rows_does_not_matter() -> None:
    shuffled = ROWS.copy()
    random.Random(1).shuffle(shuffled)
    assert shuffled != ROWS
    assert sorted(keys(shuffled)) == sorted(keys(ROWS))


def test_a_row_that_came_between_changes_no_other_key() -> None:
    made = keys([b"new", *ROWS])
    assert made[1:] == keys(ROWS)


def test_jobs_and_partitions_have_their_own() -> None:
    made = keys(ROWS) + keys(ROWS, partition=1) + keys(ROWS, origin="other")
    assert len(set(made)) == 3 * len(ROWS)


@pytest.mark.parametrize("held_max", [0, 1, 2, 7])
def test_counts_that_dont_fit_in_memory_go_on(held_max: int) -> None:
    luck = random.Random(2)
    rows = [str(luck.randrange(40)).encode() for _ in range(500)]
    assert keys(rows, held_max=held_max) == keys(rows, held_max=10_000)

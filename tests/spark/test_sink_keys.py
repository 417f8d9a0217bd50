"""The keys under which a row that is sent twice is applied once; without a session."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

import numpy as np
from pyspark.sql.types import StringType, StructField, StructType

from patching.spark.columns import Columns
from patching.spark.idempotency import (
    PartitionsOverlap,
    are_apart_for_certain,
    require_apart,
    row_keys,
)
from patching.spark.options import WRITE, Options
from patching.spark.task_write import Attempt, Version


def keys(documents: Sequence[str], prefix: str = "spark-7", held_max: int = 100) -> list[str]:
    with row_keys(prefix, held_max=held_max) as made:
        return [made.key("c", document) for document in documents]


DOCUMENTS = ["a", "b", "a", "c", "a", "b"]


def test_keys_are_stable_across_releases() -> None:
    """Through every version of the library, or a job that is upgraded in the middle applies again
    what it did. What a line asks for isn't in them; `tests/http/test_fingerprints.py` has that."""
    assert keys(["tables/é", "tables/é", "k"]) == [
        "spark-7-9c1d68432796f504ac1dffdb6cfd9d37-0",
        "spark-7-9c1d68432796f504ac1dffdb6cfd9d37-1",
        "spark-7-881807c3ce349487fbdf3e0943362f14-0",
    ]
    job = Attempt("job-1f", 3, 2, 17, Version("spark-job-1f", 0, open=True))
    assert job.key_prefix == "spark-job-1f-3"
    for partition, attempt in ((3, 0), (4, 1)):
        named = Attempt("txn-1f", partition, attempt, 17, Version("nightly", 7))
        assert named.key_prefix == "spark-7"


def test_keys_by_content_are_stable_however_a_row_is_written() -> None:
    """Its message and author are no part of it."""
    names = ("key", "document", "message")
    schema = StructType([StructField(name, StringType()) for name in names])
    options = Options.parse({"url": "http://x", "catalog": "c", "message": "nightly"}, WRITE)
    columns = Columns(schema, options)
    with row_keys("spark-7") as made:
        for number, (text, message) in enumerate(
            [('{"a": 1, "b": "é"}', None), ('{"b":"\\u00e9",\n"a":1.0}', "again")]
        ):
            asked = columns.ask({"key": "k", "document": text, "message": message})
            key = made.row_key(asked.identity)
            assert key == f"spark-7-rb2bef5eae0a23e59c5057b66570010a6-{number}"
        other = columns.ask({"key": "l", "document": '{"a": 1, "b": "é"}', "message": None})
        assert made.row_key(other.identity).endswith("-0")


def test_the_samples_of_a_thousand_partitions_fit_into_the_driver() -> None:
    samples = {partition: _sample_of(partition) for partition in range(1_000)}
    tracemalloc.start()
    require_apart(samples)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3 * sum(map(len, samples.values()))
    with pytest.raises(PartitionsOverlap, match="partitions 7 and 999 have rows of one document"):
        require_apart(samples | {999: samples[7][:8]})


def _sample_of(partition: int) -> bytes:
    numbers = np.random.default_rng(partition).integers(0, 2**63, 4_096, np.uint64)
    return np.sort(numbers).tobytes()


def test_every_row_has_a_valid_key_of_its_own() -> None:
    made = keys(DOCUMENTS, prefix=f"spark-job-{'f' * 32}-{10**6}")
    assert len(set(made)) == len(DOCUMENTS)
    assert all(key.isascii() and " " not in key and len(key) <= 255 for key in made)
    with row_keys("spark-7") as other:
        assert other.key("ca", "b") != other.key("c", "ab")


def test_rows_of_other_documents_between_do_not_change_keys() -> None:
    made = keys(["new", *DOCUMENTS])
    assert made[1:] == keys(DOCUMENTS)
    assert sorted(keys(sorted(DOCUMENTS))) == sorted(keys(DOCUMENTS))


@pytest.mark.parametrize("held_max", [0, 1, 2, 7])
def test_keys_do_not_depend_on_how_many_counts_fit_in_memory(held_max: int) -> None:
    luck = random.Random(2)
    documents = [str(luck.randrange(40)) for _ in range(500)]
    assert keys(documents, held_max=held_max) == keys(documents, held_max=10_000)


def test_a_partition_of_any_size_takes_bounded_memory_and_sends_a_bounded_sample() -> None:
    """What doesn't fit is in a file."""
    peaks = []
    for count in (8_000, 32_000):
        tracemalloc.start()
        with row_keys("spark-7", held_max=2_000) as made:
            for number in range(count):
                made.row_key(b"%d" % number)
            assert len(made.sample) == 8 * 4_096
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 3_000_000


def test_rows_are_certainly_distinct_if_none_was_replayed_or_all_are_in_samples() -> None:
    """If two partitions have equal rows, one of the two is answered as replayed, whichever comes
    first."""
    small, full = {0: _sample_of(1)[:80], 1: _sample_of(2)[:8]}, {0: _sample_of(1), 1: b""}
    assert are_apart_for_certain(full, replayed=0)
    assert are_apart_for_certain(small, replayed=1)
    assert not are_apart_for_certain(full, replayed=1)


def sample(documents: Sequence[str], held_max: int = 10_000) -> bytes:
    with row_keys("spark-7", held_max=held_max, sample_max=100) as made:
        for document in documents:
            made.key("c", document)
        return made.sample


@pytest.mark.parametrize("held_max", [3, 10_000])
def test_partitions_that_share_a_document_are_reported(held_max: int) -> None:
    few = [f"{n}" for n in range(40)]
    alone = {0: sample(few[:20] * 2, held_max), 3: sample(few[20:], held_max), 5: sample([])}
    require_apart(alone)
    with pytest.raises(PartitionsOverlap, match="partitions 0 and 4 have rows of one"):
        require_apart(alone | {4: sample(["x", "7"], held_max)})


def test_a_sample_is_enough_for_many_documents() -> None:
    """As far as all of it goes: of partitions that share a tenth, or one that has few of many."""
    many = [f"{n}" for n in range(4_000)]
    require_apart({0: sample(many[:2_000]), 1: sample(many[2_000:])})
    with pytest.raises(PartitionsOverlap):
        require_apart({0: sample(many[:2_200]), 1: sample(many[2_000:])})

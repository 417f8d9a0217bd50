"""With spark.sql.python.filterPushdown.enabled, which Spark offers, each query has its own rows.

Spark keeps the reader that it asked to take filters with the frame, and uses it again for the next
query (seen with 4.3.0), so ours takes none. The last test shows the fault with a source that takes
some. If that test is skipped, Spark has fixed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    InputPartition,
)
from pyspark.sql.functions import lit

from patching.spark.sync import sync
from tests.spark.written import Written

PUSHES = "spark.sql.python.filterPushdown.enabled"
KEYS = [f"k{number}" for number in range(10)]
FILTERS = [
    "key = 'k1'",
    "key = 'k1' OR key = 'k2'",
    "key IN ('k3', 'k4', 'none')",
    "key LIKE 'k%'",
    "key >= 'k5' AND key < 'k7'",
    "lower(key) = 'k8'",
    "key IS NOT NULL",
    "key <=> 'k9'",
    "key = 'k1' AND key = 'k2'",
]


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    """Spark hands filters to Python data sources, which by default it doesn't."""
    spark.conf.set(PUSHES, "true")
    yield
    spark.conf.unset(PUSHES)


def held(keys: list[str], text: str) -> int:
    """How many of the keys hold it."""
    tests: dict[str, Callable[[str], bool]] = {
        FILTERS[0]: lambda key: key == "k1",
        FILTERS[1]: lambda key: key in ("k1", "k2"),
        FILTERS[2]: lambda key: key in ("k3", "k4"),
        FILTERS[3]: lambda key: key.startswith("k"),
        FILTERS[4]: lambda key: "k5" <= key < "k7",
        FILTERS[5]: lambda key: key == "k8",
        FILTERS[6]: lambda _: True,
        FILTERS[7]: lambda key: key == "k9",
        FILTERS[8]: lambda _: False,
    }
    return sum(map(tests[text], keys))


@pytest.mark.usefixtures("pushing")
def test_each_query_on_a_frame_has_its_own_rows(spark: Any, written: Written) -> None:
    written.put_each((key, key) for key in KEYS)
    frame = written.frame(spark)
    for text in (FILTERS[0], FILTERS[2]):  # each on what the one before would have left
        assert frame.where(text).count() == held(KEYS, text), text
    assert frame.count() == 10
    of_all = frame.selectExpr("'' AS text")
    for text in FILTERS:
        of_all = of_all.union(frame.where(text).select(lit(text)))
    counts = {row["text"]: row["count"] for row in of_all.groupBy("text").count().collect()}
    assert counts.pop("") == 10
    assert counts == {text: found for text in FILTERS if (found := held(KEYS, text))}
    assert frame.where("key = 'k1'").join(frame, "key", "right").count() == 10


@pytest.mark.usefixtures("pushing")
def test_each_query_on_a_view_or_a_table_has_its_own_rows(spark: Any, written: Written) -> None:
    written.put_each((key, key) for key in KEYS)
    table = written.catalog.replace("-", "_")
    written.frame(spark).createOrReplaceTempView("pushed")
    spark.sql(
        f"CREATE TABLE {table} USING metadata"
        f" OPTIONS (url '{written.url}', catalog '{written.catalog}')"
    )
    try:
        for name in ("pushed", table):
            for text in FILTERS[:3]:
                rows = spark.sql(f"SELECT key FROM {name} WHERE {text}")
                assert rows.count() == held(KEYS, text), (name, text)
            assert spark.table(name).count() == 10, name
    finally:
        spark.sql(f"DROP TABLE {table}")
        spark.catalog.dropTempView("pushed")


@pytest.mark.usefixtures("pushing")
def test_a_history_and_a_selection_by_options_are_read_completely(
    spark: Any, written: Written
) -> None:
    written.put_each((key, key) for key in KEYS)
    for options, count in (({"type": "commits"}, 10), ({"prefix": "k1"}, 1), ({"key": "k2"}, 1)):
        frame = written.frame(spark, **options)
        assert frame.where("key = 'none'").count() == 0
        assert frame.count() == count


@pytest.mark.usefixtures("pushing")
def test_sync_with_delete_deletes_only_documents_missing_from_the_frame(
    spark: Any, written: Written
) -> None:
    """From a frame that was queried before."""
    written.put_each((key, key) for key in KEYS)
    source = written.frame(spark)
    copy = Written(written.url, f"{written.catalog}-copy", written.transport)
    copy.put_each([*((key, key) for key in KEYS), ("other", 1)])
    assert source.where("key = 'k1'").count() == 1
    wanted = source.selectExpr("key", "value AS document")
    report = sync(wanted, copy.catalog, url=copy.url, delete=True)
    assert (report.deleted, report.unchanged, report.sent) == (1, 10, 1)


class _Ten(DataSource):
    """Ten keys, of which it takes `key =` upon itself."""

    @classmethod
    def name(cls) -> str:
        return "ten"

    def schema(self) -> str:
        return "key string"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        class Reader(DataSourceReader):
            def __init__(self) -> None:
                self.filters: list[Filter] = []

            def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
                self.filters = [each for each in filters if isinstance(each, EqualTo)]
                return [each for each in filters if each not in self.filters]

            def read(self, partition: InputPartition) -> Iterator[tuple[str]]:  # noqa: ARG002
                for number in range(10):
                    if all(each.value == f"k{number}" for each in self.filters):
                        yield (f"k{number}",)

        return Reader()


@pytest.mark.usefixtures("pushing")
def test_spark_reuses_a_reader_with_filters_of_another_query(spark: Any) -> None:
    spark.dataSource.register(_Ten)
    frame = spark.read.format("ten").load()
    assert frame.where("key = 'k1'").count() == 1
    if frame.count() == 10:
        pytest.skip("this Spark keeps no filters: `pushFilters` could be offered again to it")

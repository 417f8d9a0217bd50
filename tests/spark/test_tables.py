"""Catalogs in SQL: tables and views, rows inserted into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.patience import WAIT_S
from tests.spark.written import Written

Sql = Callable[[str], list[Any]]


@pytest.fixture
def sql(spark: Any, written: Written) -> Iterator[Sql]:
    """The rows of a statement, in which T is a table of the catalog and GIVEN its options."""
    table = written.catalog.replace("-", "_")
    given = f"url '{written.url}', catalog '{written.catalog}'"

    def run(text: str) -> list[Any]:
        rows: list[Any] = spark.sql(text.replace("GIVEN", given).replace("T_", table)).collect()
        return rows

    yield run
    for name in (table, f"{table}copy"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_created_filled_and_read(sql: Sql, written: Written) -> None:
    """By its own options, which are for reads and writes; the catalog is made by the first row."""
    sql("CREATE TABLE T_ USING metadata OPTIONS (GIVEN, batchSize '2', partitions '2')")
    sql("INSERT INTO T_ (key, value) VALUES ('a', '1'), ('b', '2'), ('c', '3')")
    sql("INSERT INTO T_ (key, value, etag) SELECT key, '4', etag FROM T_ WHERE key = 'a'")
    assert sql("SELECT key, value FROM T_ ORDER BY key") == [("a", "4"), ("b", "2"), ("c", "3")]
    written.put("d", {"n": 1})
    assert sql("SELECT get_json_object(value, '$.n') FROM T_ WHERE key > 'c'") == [("1",)]
    with pytest.raises(Exception, match="option 'token': everybody can see a table's options"):
        sql("CREATE TABLE T_copy USING metadata OPTIONS (GIVEN, token 'x')")
    with pytest.raises(Exception, match="mode overwrite, which would replace the whole catalog"):
        sql("INSERT OVERWRITE T_ (key, value) VALUES ('a', '1')")


def test_inserted_rows_go_to_the_named_table_or_nowhere(
    spark: Any, sql: Sql, written: Written
) -> None:
    """Spark shows the writer of one table the columns of another where they are the same."""
    copy = Written(written.url, f"{written.catalog}-copy", written.transport)
    written.put("a", 1)
    copy.put("b", 2)
    sql("CREATE TABLE T_ USING metadata OPTIONS (GIVEN)")
    into = f"url '{copy.url}', catalog '{copy.catalog}'"
    sql(f"CREATE TABLE T_copy USING metadata OPTIONS ({into})")
    nulls = "CAST(null AS STRING) AS catalog"
    columns = "key, value, CAST(null AS STRING) AS etag, revision, create_revision, attributes"
    for unclear, why in [
        ("INSERT INTO T_copy SELECT * FROM T_", "say which table to write"),
        (f"INSERT INTO T_copy SELECT {columns}, {nulls} FROM T_", "option 'url': it is required"),
    ]:
        with pytest.raises(Exception, match=why):
            sql(unclear)
    made = written.changes(), copy.changes()
    sql("INSERT INTO T_copy (key, value) SELECT key, value FROM T_")
    assert (written.changes(), copy.changes()) == (made[0], made[1] + 1)
    assert [row.key for row in copy.frame(spark).collect()] == ["a", "b"]
    given = into.replace(" '", " = '")
    sql(f"INSERT INTO T_copy WITH ({given}) SELECT 'c', '3', {', '.join(['null'] * 5)}")
    assert (written.changes(), copy.changes()) == (made[0], made[1] + 2)


def test_an_altered_table_must_be_created_again(sql: Sql, written: Written) -> None:
    """Spark then shows the source columns without the table's options."""
    written.put("a", 1)
    for altered in ("ADD COLUMN x int", "RENAME COLUMN etag TO x"):
        sql("DROP TABLE IF EXISTS T_")
        sql("CREATE TABLE T_ USING metadata OPTIONS (GIVEN)")
        sql(f"ALTER TABLE T_ {altered}")
        for use in ("SELECT key FROM T_", "INSERT INTO T_ (key, value) VALUES ('b', '1')"):
            with pytest.raises(Exception, match="'x' isn't one of its own columns: after ALTER"):
                sql(use)


def test_a_view_is_written_and_read(sql: Sql) -> None:
    sql("CREATE TABLE T_ USING metadata OPTIONS (GIVEN)")
    sql("INSERT INTO T_ (key, value) VALUES ('a', '1')")
    sql("CREATE OR REPLACE TEMPORARY VIEW v USING metadata OPTIONS (GIVEN)")
    sql("INSERT INTO v (key, value) VALUES ('b', '2')")
    assert sql("SELECT key FROM T_ ORDER BY key") == [("a",), ("b",)]
    sql("DROP VIEW v")


def test_the_columns_that_are_read_can_be_named(spark: Any, written: Written) -> None:
    written.put("a", {"n": 1})
    frame = written.frame(spark, columns="etag, key")
    assert frame.columns == ["etag", "key"]
    assert [row.key for row in frame.collect()] == ["a"]
    history = written.frame(spark, type="commits", columns="revision,key").collect()
    assert history == [(1, "a")]
    with pytest.raises(
        Exception, match="option 'columns': unknown column 'x'; known columns: key, value"
    ):
        written.frame(spark, columns="key,x")


def test_the_format_is_registered_in_a_new_session_too(spark: Any, written: Written) -> None:
    """A new session shares nothing that was registered with the old one."""
    written.put("a", {"n": 1})
    found = written.frame(spark.newSession()).collect()
    assert [json.loads(row.value) for row in found] == [{"n": 1}]


def test_a_thread_can_register_the_format_and_write(spark: Any, written: Written) -> None:
    """As threads do that write several catalogs at a time."""
    from patching.spark import register

    def write() -> None:
        register(spark)
        rows = spark.range(1).selectExpr("'a' AS key", "'1' AS document")
        given = {"url": written.url, "catalog": written.catalog}
        rows.write.format("metadata").mode("append").options(**given).save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result(WAIT_S)
    assert written.routes.export().documents == {"a": 1}


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE T_ SET value = '2' WHERE key = 'a'", "does not support UPDATE"),
        ("DELETE FROM T_ WHERE key = 'a'", "does not support deletes"),
        (
            "MERGE INTO T_ USING (SELECT 'b' AS key) s ON T_.key = s.key"
            " WHEN NOT MATCHED THEN INSERT (key, value) VALUES (s.key, '1')",
            "does not support MERGE INTO",
        ),
        ("SELECT * FROM T_ VERSION AS OF 1", "TIME_TRAVEL"),
        ("TRUNCATE TABLE T_", "does not support truncates"),
        ("CREATE TABLE T_copy USING metadata OPTIONS (GIVEN) AS SELECT 'c' AS key", "'url'"),
    ],
)
def test_a_statement_unsupported_by_python_data_sources_is_refused(
    sql: Sql, written: Written, statement: str, why: str
) -> None:
    """As the page on Spark says; where a release can, its table is to be mended."""
    head = written.put("a", 1)
    sql("CREATE TABLE T_ USING metadata OPTIONS (GIVEN)")
    with pytest.raises(Exception, match=why):
        sql(statement)
    assert written.head() == head


def test_save_as_table_writes_but_the_table_cannot_be_read(
    spark: Any, sql: Sql, written: Written
) -> None:
    """Spark gives the writer no table, and the table no options."""
    table = written.catalog.replace("-", "_")
    rows = spark.sql("SELECT 'a' AS key, '1' AS value").write.format("metadata").mode("append")
    rows.option("url", written.url).option("catalog", written.catalog).saveAsTable(table)
    assert [row.key for row in written.frame(spark).collect()] == ["a"]
    with pytest.raises(Exception, match="option 'url': it is required"):
        sql("SELECT * FROM T_")

"""Documents as typed columns and as VARIANT."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from patching.spark import typed
from patching.spark.typed_columns import TypedDocuments, schema_by_sample
from tests.spark.written import Written


def test_documents_have_typed_columns(spark: Any, written: Written) -> None:
    """By a schema, or by what the first documents have together."""
    written.put("a", {"tier": 1, "owner": {"name": "x"}, "tags": ["s"]})
    written.put("b", {"tier": 2.5, "more": True, "tags": []})
    frame = written.frame(spark)
    kind = schema_by_sample(frame)
    assert kind == StructType.fromDDL(
        "more boolean, owner struct<name: string>, tags array<string>, tier double"
    )
    found = typed(frame)
    assert found.columns == [name if name != "value" else "document" for name in frame.columns]
    rows = found.select("key", "document.*").orderBy("key").collect()
    assert [(row.key, row.tier, row.more, row.owner) for row in rows] == [
        ("a", 1.0, None, ("x",)),
        ("b", 2.5, True, None),
    ]
    named = typed(frame, "tier int, other string").select("document.*").collect()
    assert sorted(named, key=str) == [(1, None), (None, None)]
    assert schema_by_sample(frame.where("key = 'a'"))["tier"].dataType.simpleString() == "bigint"
    written.put("c", 7)
    with pytest.raises(ValueError, match="not all of the first 3 documents are objects"):
        typed(written.frame(spark))
    with pytest.raises(ValueError, match="there are no documents"):
        typed(written.frame(spark, prefix="d"))


_DOCUMENT = (
    "struct<n: int, small: tinyint, share: double, float: float, open: boolean,"
    " text: string, tags: array<string>, owner: struct<name: string>, sizes: map<string, int>>"
)
# Of each kind of type, values that fit, and ones that don't.
_FITTING: dict[str, Any] = {
    "n": 1,
    "small": 127,
    "share": 0.5,
    "float": 1,
    "open": True,
    "text": "ü",
    "tags": ["s", 2, None],
    "owner": {"name": "x", "more": 1},
    "sizes": {"s": 1, "l": 2.5},
}
_OTHERS: dict[str, Any] = {
    "n": 2**40,
    "small": 128,
    "share": "0.5",
    "float": False,
    "open": 1,
    "text": {"nested": [1.5, "ü"]},
    "tags": "s",
    "owner": [],
    "sizes": 7,
}
_NOTHING: dict[str, Any] = dict.fromkeys(_FITTING)


def test_a_custom_schema_types_the_documents(spark: Any, written: Written) -> None:
    """What doesn't fit is null, and texts take all: mostly as `from_json` has it."""
    documents = {"a": _FITTING, "b": _OTHERS, "c": {"other": 1}, "d": [1], "e": None}
    written.put_each(documents.items())
    reader = spark.read.format("metadata").option("url", written.url)
    reader = reader.option("catalog", written.catalog)
    read = reader.schema(f"etag string, document {_DOCUMENT}, key string").load()
    found = {row.key: row.document and row.document.asDict(True) for row in read.collect()}
    fitting = {**_FITTING, "tags": ["s", "2", None], "owner": {"name": "x"}}
    assert found == {
        "a": {**fitting, "sizes": {"s": 1, "l": None}},
        "b": {**_NOTHING, "text": '{"nested":[1.5,"ü"]}'},
        "c": _NOTHING,
        "d": None,
        "e": None,
    }
    by_spark = written.frame(spark).selectExpr("key", f"from_json(value, '{_DOCUMENT}') AS d")
    (row,) = by_spark.where("key = 'c'").collect()
    assert row.d.asDict() == found["c"]
    assert read.where("document.n = 1").count() == 1
    lists = reader.schema("document array<int>, key string").load()
    assert [row.document for row in lists.where("key = 'd'").collect()] == [[1]]


def test_missing_or_oversized_values_are_null() -> None:
    """A variant of JSON's null is none, and a float has no number of a double."""
    kind = StructType.fromDDL("f float, d double, v variant, w variant")
    texts = pa.record_batch({"value": ['{"f":1e300,"d":1e300,"v":null}', '{"f":-3.4028235e38}']})
    column = StructField("document", kind)
    (batch,) = TypedDocuments(column).batches(iter([texts]), 0)
    first, second = batch.column(0).to_pylist()
    assert (first["f"], first["d"], first["w"]) == (None, 1e300, None)
    assert first["v"]["value"] == b"\0"
    assert second["f"] == pytest.approx(-3.4028235e38)


def test_a_custom_schema_may_name_only_existing_columns(spark: Any, written: Written) -> None:
    written.put("a", {"tier": 1})
    reader = spark.read.format("metadata").option("url", written.url)
    reader = reader.option("catalog", written.catalog)
    assert reader.schema("key string").load().collect() == [("a",)]
    assert reader.schema("revision bigint, key string").load().collect() == [(1, "a")]
    in_any_case = reader.schema("Document struct<tier: int>, KEY string").load()
    assert in_any_case.where("document.tier = 1").collect() == [((1,), "a")]
    assert written.frame(spark, columns="KEY, Revision").collect() == [("a", 1)]
    for schema, why in (
        (
            "key int",
            r"column 'key': it is string, not int; \.schema\(…\) may have struct<key:string,",
        ),
        ("key string, tier int", "column 'tier': unknown column; "),
        ("key string, value string, document string", "column 'document': it appears twice, or"),
        (
            "document struct<at: timestamp>",
            r"column 'document': document\.at can't be read as time",
        ),
        ("document struct<n: int, n: string>", "document has two fields of the same name"),
        ("document struct<n: int> not null", "document can't be NOT NULL"),
        ("document struct<n: struct<m: int not null>>", r"document\.n\.m can't be NOT NULL"),
        ("document decimal(9,2)", r"document can't be read as decimal\(9,2\)"),
    ):
        with pytest.raises(Exception, match=why):
            reader.schema(schema).load().collect()
    history = reader.option("type", "commits")
    assert history.schema("key string, revision bigint").load().collect() == [("a", 1)]
    with pytest.raises(Exception, match="column 'document': unknown column; "):
        history.schema("key string, document string").load().collect()


def test_a_variant_can_be_written_as_document_or_patch_and_read_back(
    spark: Any, written: Written
) -> None:
    texts = {
        "document": """'{"n": 1, "text": "ü", "list": [1.5, null, {"x": true}]}'""",
        "patch": """'[{"op": "add", "path": "/more", "value": 2}]'""",
    }
    given = {"url": written.url, "catalog": written.catalog}
    for column, text in texts.items():
        rows = spark.sql(f"SELECT 'k' AS key, parse_json({text}) AS {column}")
        rows.write.format("metadata").mode("append").options(**given).save()
    wanted = {"n": 1, "text": "ü", "list": [1.5, None, {"x": True}], "more": 2}
    assert written.routes.export().documents == {"k": wanted}
    reader = spark.read.format("metadata").options(**given)
    for read in (
        written.frame(spark).selectExpr("key", "parse_json(value) AS document"),
        reader.schema("key string, document variant").load(),
    ):
        chosen = read.selectExpr("document", "variant_get(document, '$.list[2].x', 'boolean') AS x")
        assert [(row.document.toPython(), row.x) for row in chosen.collect()] == [(wanted, True)]
    again = read.selectExpr("'l' AS key", "document")
    again.write.format("metadata").mode("append").options(**given).save()
    assert written.routes.export().documents == {"k": wanted, "l": wanted}

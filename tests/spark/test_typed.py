"""Documents as typed columns and as VARIANT."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from patching.spark import typed
from patching.spark.typed_columns import schema_by_sample
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


def test_a_variant_is_a_document_a_patch_and_what_is_read(spark: Any, written: Written) -> None:
    texts = {
        "document": """'{"n": 1, "text": "ü", "list": [1.5, null, {"x": true}]}'""",
        "patch": """'[{"op": "add", "path": "/more", "value": 2}]'""",
    }
    for column, text in texts.items():
        rows = spark.sql(f"SELECT 'k' AS key, parse_json({text}) AS {column}")
        given = {"url": written.url, "catalog": written.catalog}
        rows.write.format("metadata").mode("append").options(**given).save()
    wanted = {"n": 1, "text": "ü", "list": [1.5, None, {"x": True}], "more": 2}
    assert written.routes.export().documents == {"k": wanted}
    read = written.frame(spark).selectExpr("variant_get(parse_json(value), '$.list[2].x') AS x")
    assert [row.x.toPython() for row in read.collect()] == [True]

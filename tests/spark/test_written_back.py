"""A frame that was read can be written: its columns mean what they meant when they were read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from tests.spark.written import Written


def save(frame: Any, written: Written, **options: Any) -> None:
    writer = frame.write.format("metadata").mode("append")
    for name, value in {"url": written.url, "catalog": written.catalog, **options}.items():
        writer = writer.option(name, value)
    writer.save()


def test_a_frame_that_was_read_is_written_back_unless_a_document_changed_since(
    spark: Any, written: Written
) -> None:
    """Values, tokens as conditions, attributes; revisions are ignored."""
    written.put_all({"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 1}})
    written.transport.request("PUT", f"{written.path}/attributes/a", json={"owner": "x"})
    frame = written.frame(spark)
    changes = written.changes()
    save(frame, written)
    assert written.changes() == changes  # equal values change nothing
    read = written.frame(spark)
    written.put("b", {"n": 2})
    value = F.when(F.col("key") != "c", '{"n": 3}').otherwise(F.col("value"))
    owner = F.when(F.col("key") == "c", '{"owner": "y"}').otherwise(F.col("attributes"))
    save(read.withColumns({"value": value, "attributes": owner}), written, onError="skip")
    found = {
        row.key: (json.loads(row.value)["n"], row.attributes and json.loads(row.attributes))
        for row in written.frame(spark).collect()
    }
    assert found == {"a": (3, {"owner": "x"}), "b": (2, None), "c": (1, {"owner": "y"})}


def test_a_copy_omits_the_columns_of_the_source_catalog(spark: Any, written: Written) -> None:
    written.put("a", {"n": 1})
    frame = written.frame(spark)
    copy = f"{written.catalog}-copy"
    with pytest.raises(Exception, match="drop the columns catalog and etag"):
        save(frame, written, catalog=copy)
    save(frame.drop("catalog", "etag"), written, catalog=copy)
    copied = Written(written.url, copy, written.transport).frame(spark)
    assert [json.loads(row.value) for row in copied.collect()] == [{"n": 1}]

"""What a frame may have for columns, and what its rows ask for; without a session."""

from __future__ import annotations

import decimal
import json
import math
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from pyspark.sql import types as t

from patching.spark.columns import ColumnRefused, Columns, RowRefused
from patching.spark.options import WRITE, Options

STRING = t.StringType()


def columns(kinds: dict[str, t.DataType], **options: str) -> Columns:
    given = {"url": "http://gateway", "catalog": "c"} | options
    fields = [t.StructField(name, kind) for name, kind in kinds.items()]
    return Columns(t.StructType(fields), Options.parse(given, WRITE))


def struct(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def document(**kinds: t.DataType) -> dict[str, t.DataType]:
    return {"key": STRING, "document": struct(**kinds)}


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"k": STRING, "document": STRING}, "column 'k': unknown column"),
        ({"key": STRING}, "column 'patch': it is missing; one of these is required"),
        ({"document": STRING}, "column 'key': it is missing"),
        ({"key": t.DoubleType(), "document": STRING}, "column 'key': it must be a string"),
        ({"key": STRING, "KEY": STRING, "document": STRING}, "column 'key': it appears twice"),
        ({"key": STRING, "mode": t.LongType(), "document": STRING}, "column 'mode': it must be a"),
        ({"key": STRING, "documnet": STRING}, "column 'documnet': .* did you mean 'document'"),
        ({"key": STRING, "document": STRING, "author": t.LongType()}, "column 'author'"),
        ({"key": STRING, "document": t.LongType()}, "column 'document': .* not bigint"),
        ({"key": STRING, "delete": STRING}, "column 'delete': it must be a boolean"),
        ({"key": STRING, "patch": t.ArrayType(STRING)}, "column 'patch': .* not array<string>"),
        (
            {"key": STRING, "patch": t.ArrayType(struct(op=STRING, path=STRING, val=STRING))},
            "column 'patch': its operations have an unknown field 'val'",
        ),
        ({"key": STRING, "patch": t.ArrayType(struct(op=STRING))}, "lack the field 'path'"),
        (
            {"key": STRING, "patch": t.ArrayType(struct(op=STRING, path=t.LongType()))},
            "its field 'path' must be a string",
        ),
        (document(a=struct(i=t.DayTimeIntervalType())), r"document\.a\.i has the type interval"),
        (document(m=t.MapType(t.LongType(), STRING)), r"document\.m is a map whose keys"),
        ({"key": STRING, "merge_patch": t.ArrayType(STRING)}, "column 'merge_patch'"),
        (
            {"key": STRING, "value": STRING, "document": STRING},
            "column 'value': it means the same as 'document'",
        ),
        (
            {"key": STRING, "value": STRING, "if_match": STRING, "etag": STRING},
            "column 'etag': it means the same as 'if_match'",
        ),
        ({"key": STRING, "value": t.LongType()}, "column 'value': .* not bigint"),
        ({"key": STRING, "patch": STRING, "attributes": STRING}, "column 'attributes'"),
        (
            {"key": STRING, "value": STRING, "time": STRING},
            "column 'time': unknown column; known columns: key, ",
        ),
    ],
)
def test_wrong_columns_are_named(kinds: dict[str, t.DataType], said: str) -> None:
    with pytest.raises(ColumnRefused, match=said):
        columns(kinds)


def test_required_columns_are_demanded() -> None:
    schema = t.StructType([t.StructField("key", STRING), t.StructField("delete", t.BooleanType())])
    with pytest.raises(ColumnRefused, match="it is missing, and so is the option catalog"):
        Columns(schema, Options.parse({"url": "http://gateway"}, WRITE))
    with pytest.raises(ColumnRefused, match="idempotency=column requires it"):
        columns({"key": STRING, "document": STRING}, idempotency="column")


ALL = {
    "key": STRING,
    "patch": STRING,
    "document": STRING,
    "merge_patch": STRING,
    "delete": t.BooleanType(),
    "catalog": STRING,
    "if_match": STRING,
    "idempotency_key": STRING,
    "message": STRING,
}


def line_of(row: dict[str, Any], **options: str) -> Any:
    full: dict[str, Any] = {**dict.fromkeys(ALL), **row}
    text = columns(ALL, **options).ask(full).text
    assert b"\n" not in text
    return json.loads(text)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"document": '{"a":\n [1]}'}, {"op": "put", "value": {"a": [1]}}),
        ({"document": "null"}, {"op": "put", "value": None}),
        ({"merge_patch": '{"a": null}'}, {"op": "merge", "value": {"a": None}}),
        ({"delete": True}, {"op": "delete"}),
        ({"delete": False, "document": "1"}, {"op": "put", "value": 1}),
        ({"patch": "[]", "if_match": "1f-ab"}, {"op": "patch", "patch": [], "if_match": "1f-ab"}),
        (
            {"patch": '{"patch": [], "array_primary_keys": {}}'},
            {"op": "patch", "patch": [], "array_primary_keys": {}},
        ),
        ({"document": "1", "message": "m"}, {"op": "put", "value": 1, "message": "m"}),
        ({"document": "1", "catalog": "other"}, {"op": "put", "value": 1, "catalog": "other"}),
    ],
)
def test_a_row_becomes_a_bulk_line(row: dict[str, Any], line: dict[str, Any]) -> None:
    assert line_of({"key": "k", **row}) == {"catalog": "c", "key": "k", **line}


READ = {
    "key": STRING,
    "value": STRING,
    "etag": STRING,
    "revision": t.LongType(),
    "create_revision": t.LongType(),
    "attributes": STRING,
    "catalog": STRING,
}
DOCUMENT = {"key": "k", "value": "1", "etag": "1f-ab", "revision": 3, "create_revision": 2}


def test_a_row_read_from_a_catalog_becomes_a_bulk_line() -> None:
    line = {"catalog": "c", "key": "k", "op": "put", "value": 1, "if_match": "1f-ab"}
    row = {**DOCUMENT, "attributes": None, "catalog": "c"}
    assert json.loads(columns(READ).ask(row).text) == line
    owned = {"attributes": {"mode": "replace", "value": {"owner": "x"}}}
    text = columns(READ).ask({**row, "attributes": '{"owner": "x"}'}).text
    assert json.loads(text) == line | owned


def test_attributes_are_accepted_only_with_a_document() -> None:
    kinds = {**READ, "delete": t.BooleanType()}
    row = {**DOCUMENT, "value": None, "delete": True, "attributes": "{}", "catalog": None}
    with pytest.raises(
        RowRefused, match="column 'attributes': they can't be given together with a delete"
    ):
        columns(kinds).ask(row)
    assert json.loads(columns(kinds).ask({**row, "attributes": None}).text)["op"] == "delete"


APPLIED: dict[str, t.DataType] = {"key": STRING, "apply": struct(a=STRING), "document": STRING}


def test_an_apply_uses_the_options_of_the_job() -> None:
    row = {"key": "k", "apply": {"a": None}, "document": None}
    line = {"catalog": "c", "key": "k", "op": "apply", "value": {"a": None}}
    assert json.loads(columns(APPLIED).ask(row).text) == line
    terms = {"manager": "nightly", "conflict": "skip"}
    applied = columns(APPLIED, **terms)
    assert json.loads(applied.ask(row).text) == line | terms
    put = {"key": "k", "apply": None, "document": "1"}
    assert json.loads(applied.ask(put).text) == {**line, "op": "put", "value": 1}
    with pytest.raises(RowRefused, match="column 'apply': the row already has a document"):
        applied.ask(row | put | {"apply": {}})


@pytest.mark.parametrize("terms", [{"manager": "nightly"}, {"conflict": "skip"}])
def test_options_of_an_apply_need_the_apply_column(terms: dict[str, str]) -> None:
    with pytest.raises(ColumnRefused, match=f"'apply': .* option '{next(iter(terms))}' needs it"):
        columns({"key": STRING, "document": STRING}, **terms)


def test_the_message_of_a_row_overrides_the_option() -> None:
    assert line_of({"key": "k", "delete": True}, message="all")["message"] == "all"
    assert (
        line_of({"key": "k", "delete": True, "message": "one"}, message="all")["message"] == "one"
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"key": None, "document": "1"}, "column 'key': it is null"),
        ({"key": "", "document": "1"}, "column 'key': it is empty"),
        ({"document": "1", "catalog": ""}, "column 'catalog': it is empty"),
        ({"document": "1", "idempotency_key": ""}, "column 'idempotency_key': it is empty"),
        ({"document": "1", "mode": ""}, "column 'mode': it must be one of .*, not ''"),
        ({}, "the row changes nothing: no patch, document, merge_patch, delete"),
        ({"delete": False}, "the row changes nothing"),
        ({"document": "1", "delete": True}, "column 'delete': the row already has a document"),
        ({"document": "NaN"}, "column 'document': it isn't JSON"),
        ({"document": "[" * 100_000}, "column 'document': it isn't JSON"),
        ({"document": '{"a": 1, "a": 2}'}, "column 'document': it has the member '/a' twice"),
        (
            {"patch": '{"patch": [], "patch": []}'},
            "column 'patch': it has the member '/patch' twice",
        ),
        ({"patch": '{"patch": [], "x": 1}'}, "column 'patch': a patch must be a JSON array"),
        ({"patch": "7"}, "column 'patch': a patch must be a JSON array"),
        (
            {"document": '{"n": [0.1, 123456789.25, 1.000000000000000001]}'},
            "column 'document': it has the number 1.000000000000000001, which would be rounded",
        ),
        (
            # The first ones are doubles, as Java 17 writes them.
            {"document": "[4.9E-324, 1.15564032677441434E18, 9007199254740993.0]"},
            "column 'document': it has the number 9007199254740993.0, which would be rounded",
        ),
        (
            {"document": "[0e-400, -0.0e-99999999999999999999, 1e-425000000]"},
            "column 'document': it has the number 1e-425000000, which would be rounded",
        ),
    ],
)
def test_an_invalid_row_is_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(RowRefused, match=said):
        line_of({"key": "k", **row})


def test_a_number_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(RowRefused, match=r"document\.x is nan"):
        columns(document(x=t.DoubleType())).ask({"key": "k", "document": {"x": math.nan}})
    precise = columns(document(x=t.DecimalType(38, 18)))
    for text in ("1.25", "100", "0.1"):
        row = {"key": "k", "document": {"x": decimal.Decimal(text)}}
        assert json.loads(precise.ask(row).text)["value"] == {"x": float(text)}
    row = {"key": "k", "document": {"x": decimal.Decimal("1.000000000000000001")}}
    with pytest.raises(
        RowRefused, match=r"document\.x is 1\.000000000000000001, which would be rounded"
    ):
        precise.ask(row)


def test_a_variant_without_a_json_form_is_refused() -> None:
    """A timestamp of the year 10000: its type, and microseconds."""
    microseconds = (253_402_300_800_000_000).to_bytes(8, "little")
    far = {"value": b"\x30" + microseconds, "metadata": b"\x01\x00\x00"}
    variant = columns(document(v=t.VariantType()))
    with pytest.raises(
        RowRefused, match=r"column 'document': document\.v has a value that can't be written"
    ):
        variant.ask({"key": "k", "document": {"v": far}})


def test_a_map_with_a_repeated_key_is_refused() -> None:
    """Whatever its values are, which may not be in any order."""
    maps = columns(document(m=t.MapType(STRING, t.LongType())))
    with pytest.raises(RowRefused, match=r"document\.m has a key twice"):
        maps.ask({"key": "k", "document": {"m": [("a", None), ("a", 1)]}})


def test_the_value_of_an_operation_struct_is_json() -> None:
    kind = t.ArrayType(struct(op=STRING, path=STRING, value=STRING))
    of_structs = columns({"key": STRING, "patch": kind})
    operation = {"op": "add", "path": "/a", "value": "[null]"}
    line = json.loads(of_structs.ask({"key": "k", "patch": [operation]}).text)
    assert line["patch"] == [{"op": "add", "path": "/a", "value": [None]}]
    removal = {"op": "remove", "path": "/a", "value": None}
    line = json.loads(of_structs.ask({"key": "k", "patch": [removal]}).text)
    assert line["patch"] == [{"op": "remove", "path": "/a"}]
    with pytest.raises(RowRefused, match="operation 1: value: it isn't JSON"):
        of_structs.ask({"key": "k", "patch": [operation, {**operation, "value": "x"}]})
    with pytest.raises(RowRefused, match="operation 0 is null"):
        of_structs.ask({"key": "k", "patch": [None]})

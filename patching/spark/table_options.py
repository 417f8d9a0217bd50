"""Tables of Spark's catalog: ``CREATE TABLE t USING metadata OPTIONS (…)``.

Spark keeps the OPTIONS, but hands a Python data source none of them when the table is read or
written, only its columns with their metadata. So a table's options are kept there, too, in each
column beside its name.

A frame that was read from a table has the same columns, and Spark may hand them to the writer of
another table as they are (``INSERT INTO copy SELECT * FROM t``). What is written to a table by its
own options alone is therefore held to be what Spark has made for it: it has all columns of the
table, and ``catalog`` is null in every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from patching.spark.options import (
    READ,
    READ_STREAM,
    WRITE,
    OptionRefused,
    Options,
    for_use,
)

_OPTIONS: Final = "metadata.options"
_COLUMN: Final = "metadata.column"
# Spark's names for the OPTIONS of a table that is being created begin with it.
_GIVEN: Final = "option."
_NOT_KEPT: Final = {
    "token": "everybody can see a table's options; use tokenFile",
    "columns": "a table has all columns",
}
_HINT: Final = (
    "it is required, and Spark doesn't hand a table's OPTIONS to a Python data source: leave the "
    "columns out of CREATE TABLE and name those of INSERT INTO t (key, value), or say WITH (url …, "
    "catalog …) behind the table"
)


def created(given: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that is being created; None: none is."""
    if "provider" not in given:
        return None
    return {
        name[len(_GIVEN) :]: value
        for name, value in given.items()
        if name.lower().startswith(_GIVEN)
    }


def table_schema(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The columns of a new table with the options ``given``. Raises OptionRefused."""
    for use in (WRITE, READ, READ_STREAM):
        Options.parse(for_use(given, use), use)
    for name in given:
        if name.lower() in _NOT_KEPT:
            raise OptionRefused(name, _NOT_KEPT[name.lower()])
    return StructType(
        [
            StructField(
                each.name,
                each.dataType,
                each.nullable,
                {_OPTIONS: dict(given), _COLUMN: each.name},
            )
            for each in schema.fields
        ]
    )


def table_options(schema: StructType, given: Mapping[str, str], use: str) -> dict[str, str] | None:
    """The options of the table whose columns are ``schema``, with ``given`` over them; None: it is
    no table, or ``given`` names another gateway. Raises OptionRefused where nothing is known."""
    lower = {name.lower(): value for name, value in given.items()}
    if "url" in lower:
        return None
    kept = [each.metadata.get(_OPTIONS) for each in schema.fields]
    own_names = all(each.metadata.get(_COLUMN) == each.name for each in schema.fields)
    if kept and kept[0] and own_names and all(each == kept[0] for each in kept):
        own: dict[str, Any] = {name.lower(): value for name, value in kept[0].items()}
        return for_use({**own, **lower}, use)
    if not given:
        raise OptionRefused("url", _HINT)
    return None

"""The data source ``format("metadata")``, which delegates each task to a module.

Its tables in Spark's catalog: ``CREATE TABLE t USING metadata OPTIONS (…)``. Spark keeps the
OPTIONS, but when the table is read or written, it passes only the columns and their metadata to a
Python data source. So the metadata of each column contains the options, too, and the column's name.

A frame that was read from a table has the same columns, and Spark may pass them unchanged to the
writer of another table (``INSERT INTO copy SELECT * FROM t``). So a frame that is written with a
table's own options alone must be as Spark makes it for that table: it has all columns of the table,
and ``catalog`` is null in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructField, StructType

from patching.client import ClientError
from patching.spark.options import (
    LOAD,
    READ,
    READ_STREAM,
    WRITE,
    OptionRefused,
    Options,
    UseRefused,
    brief,
    for_use,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# In the metadata of a table's column: the table's options, and the column's name.
_OPTIONS: Final = "metadata.options"
_COLUMN: Final = "metadata.column"
_brief = brief(UseRefused, ClientError)


class MetadataDataSource(DataSource):
    """A gateway's catalogs as rows. Every option is in ``options.OPTIONS``; others are refused.

    Each part is imported on first use, so that a write loads no reader.
    """

    @classmethod
    def name(cls) -> str:
        return "metadata"

    # The options of a read, from `schema` on: Spark then passes on this object.
    _loaded: Options | None = None

    @_brief
    def schema(self) -> StructType:
        from patching.spark.source import at_one_revision, schema_of

        table = new_table_options(self.options)
        if table is not None:
            return table_schema(schema_of(Options.parse(for_use(table, READ), READ)), table)
        options = self._options(LOAD)
        self._loaded = at_one_revision(options)
        return schema_of(options)

    @_brief
    def reader(self, schema: StructType) -> DataSourceReader:
        from patching.spark.source import MetadataReader

        given, _ = self._of_table(schema, READ)
        return MetadataReader(schema, self._loaded or given)

    @_brief
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from patching.spark.feed_source import FeedReader

        reader: DataSourceStreamReader = FeedReader(schema, self._of_table(schema, READ_STREAM)[0])
        return reader

    @_brief
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from patching.spark.sink import MetadataWriter

        options, of_table = self._of_table(schema, WRITE)
        return MetadataWriter(schema, options, overwrite=overwrite, of_table=of_table)

    @_brief
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from patching.spark.sink import MetadataStreamWriter

        options, of_table = self._of_table(schema, WRITE)
        return MetadataStreamWriter(schema, options, overwrite=overwrite, of_table=of_table)

    def _of_table(self, schema: StructType, use: str) -> tuple[Options, bool]:
        """The options, and whether they are those of a table of Spark's catalog."""
        table = table_options(schema, self.options, use)
        return self._options(use) if table is None else Options.parse(table, use), table is not None

    def _options(self, use: str) -> Options:
        given: Any = self.options
        return Options.parse(given, use)


def register(spark: SparkSession) -> None:
    """Register ``format("metadata")`` in this session, and for writes of this thread."""
    spark.dataSource.register(MetadataDataSource)
    # For a write, Spark looks in the thread's session. This call gives a new thread one.
    spark.createDataFrame([], "key string")


def batch_writer(application: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch``, and so for outputMode("update"), which Spark doesn't
    allow with a Python sink. It writes each micro-batch once: as a version, with the micro-batch's
    number, of the query's own application, whose name begins with ``application``. ``options`` are
    those of the data source.

    With a new checkpoint, numbers begin again, and it is another application. Over Spark Connect,
    and in a thread that the caller starts, the query isn't known: choose another ``application``
    there.
    """
    given = {name: str(value) for name, value in options.items()}

    def write(batch: DataFrame, number: int) -> None:
        query = _running_query(batch.sparkSession)
        name = application if query is None else f"{application}-{query}"
        named = {**given, "txnAppId": name, "txnVersion": str(number)}
        batch.write.format("metadata").mode("append").options(**named).save()

    return write


def _running_query(spark: SparkSession) -> str | None:
    """The query whose micro-batch runs in this thread. None if there is none, or if the session is
    remote: it doesn't say."""
    from patching.spark.session import is_remote
    from patching.spark.sink import QUERY

    return None if is_remote(spark) else spark.sparkContext.getLocalProperty(QUERY)


# Prefix of the OPTIONS of a table that is being created.
_GIVEN: Final = "option."
_NOT_KEPT: Final = {
    "token": "everybody can see a table's options; use tokenFile",
    "columns": "a table always has all columns",
}
_HINT: Final = (
    "it is required, but Spark doesn't pass a table's OPTIONS to a Python data source: leave the "
    "columns out of CREATE TABLE and name them in INSERT INTO t (key, value), or write WITH (url "
    "…, catalog …) after the table's name"
)
_ALTERED: Final = (
    "it is required, but the table's OPTIONS are unknown, because {!r} isn't one of its own "
    "columns: after ALTER TABLE, drop the table and create it again; in an INSERT INTO t (key, "
    "value), name the columns, or write WITH (url …, catalog …) after the table's name"
)


def new_table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that is being created; None if there is no such table."""
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
    """The options of the table whose columns are ``schema``, overridden by ``given``. None if it is
    no table, or ``given`` names a gateway. Raises OptionRefused if there are no options at all."""
    lower = {name.lower(): value for name, value in given.items()}
    if "url" in lower:
        return None
    kept = _kept_options(schema)
    if kept is not None:
        return for_use({name.lower(): value for name, value in kept.items()} | lower, use)
    if not given:
        other = [each.name for each in schema.fields if each.metadata.get(_COLUMN) != each.name]
        altered = 0 < len(other) < len(schema.fields)
        raise OptionRefused("url", _ALTERED.format(other[0]) if altered else _HINT)
    return None


def _kept_options(schema: StructType) -> dict[str, str] | None:
    """The options that `table_schema` put into each column; None: these aren't a table's own
    columns."""
    options: list[dict[str, str] | None] = [each.metadata.get(_OPTIONS) for each in schema.fields]
    if not options or any(each != options[0] for each in options):
        return None
    if any(each.metadata.get(_COLUMN) != each.name for each in schema.fields):
        return None
    return options[0] or None

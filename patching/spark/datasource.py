"""The data source ``format("metadata")``: it hands each task to the module that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from patching.spark.options import LOAD, READ, READ_STREAM, WRITE, Options, for_use
from patching.spark.table_options import created, table_options, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class MetadataDataSource(DataSource):
    """A gateway's catalogs as rows. Every option is in ``options.OPTIONS``; others are refused.

    Each part is imported when it is asked for, so that a write loads nothing of the readers.
    """

    @classmethod
    def name(cls) -> str:
        return "metadata"

    # The options of a read since it was loaded; Spark sends this object on after `schema`.
    _settled: Options | None = None

    def schema(self) -> StructType:
        from patching.spark.source import schema_of, settled

        table = created(self.options)
        if table is not None:
            return table_schema(schema_of(Options.parse(for_use(table, READ), READ)), table)
        options = self._options(LOAD)
        self._settled = settled(options)
        return schema_of(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from patching.spark.source import MetadataReader

        given, _ = self._of_table(schema, READ)
        return MetadataReader(schema, self._settled or given)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from patching.spark.feed_source import FeedReader

        reader: DataSourceStreamReader = FeedReader(schema, self._of_table(schema, READ_STREAM)[0])
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from patching.spark.sink import MetadataWriter

        options, of_table = self._of_table(schema, WRITE)
        return MetadataWriter(schema, options, overwrite=overwrite, of_table=of_table)

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
    """Make ``format("metadata")`` known to this session."""
    spark.dataSource.register(MetadataDataSource)

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

from patching.spark.options import LOAD, READ, READ_STREAM, WRITE, Options

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

        options = self._options(LOAD)
        self._settled = settled(options)
        return schema_of(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from patching.spark.source import MetadataReader

        given = self._options(READ)
        reader: DataSourceReader = MetadataReader(schema, self._settled or given)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from .feed_source import FeedReader

        reader: DataSourceStreamReader = FeedReader(schema, self._options(READ_STREAM))
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from patching.spark.sink import MetadataWriter

        return MetadataWriter(schema, self._options(WRITE), overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from patching.spark.sink import MetadataStreamWriter

        return MetadataStreamWriter(schema, self._options(WRITE), overwrite=overwrite)

    def _options(self, use: str) -> Options:
        given: Any = self.options
        return Options.parse(given, use)


def register(spark: SparkSession) -> None:
    """Make ``format("metadata")`` known to this session."""
    spark.dataSource.register(MetadataDataSource)

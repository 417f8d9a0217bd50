"""Found by PySpark itself, which imports top-level modules named ``pyspark_…`` for the data sources
in them: ``format("metadata")`` needs no `register` where this module is on the driver's path."""

from patching.spark.datasource import MetadataDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""Spark's classes as a JVM has them once they are read, verified and linked, in a file that other
JVMs map into their memory: half of what each of them takes until its first job is done.

    python -m tests.spark.classes FILE

makes the file, as `make test` does once. A JVM that can't use it, as it is another one or has other
jars, goes on without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.patience import RUN_S

FILE = Path(sys.prefix, "spark-classes.jsa")


def sharing(java_options: str) -> str:
    """These options of a JVM, and one to use the classes, if they are there."""
    return f"{java_options} -XX:SharedArchiveFile={FILE}" if FILE.exists() else java_options


def _use(spark: Any, folder: str) -> None:
    """A little of all that the tests do."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, _: Any) -> Iterator[tuple[str]]:
            yield ("a",)

    class Rows(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rows"

        def schema(self) -> str:
            return "key string"

        def reader(self, schema: Any) -> Reader:  # noqa: ARG002
            return Reader()

    spark.dataSource.register(Rows)
    rows = spark.read.format("rows").load()
    rows.join(rows.withColumnRenamed("key", "other"), rows.key.startswith("a")).count()
    rows.repartition(2, "key").sortWithinPartitions("key").write.json(f"{folder}/json")
    spark.read.json(f"{folder}/json").createOrReplaceTempView("them")
    spark.sql("SELECT DISTINCT struct(key) AS x, upper(key) FROM them").toArrow()
    feed = spark.readStream.schema("key string").json(f"{folder}/json").writeStream
    feed = feed.option("checkpointLocation", f"{folder}/offsets").trigger(availableNow=True)
    feed.start(f"{folder}/copied", format="json").awaitTermination()


def _make(file: str) -> None:
    from tests.spark.sessions import JAVA, Sessions, spark_settings

    with TemporaryDirectory() as folder:
        settings = spark_settings(Path(folder), f"{JAVA} -XX:ArchiveClassesAtExit={file}") | {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        spark = Sessions(Path(folder), settings).living()
        jvm = spark.sparkContext._gateway.proc
        _use(spark, folder)
        spark.stop()
        jvm.stdin.close()  # which ends it
        jvm.wait(RUN_S)


if __name__ == "__main__":
    _make(*sys.argv[1:])

"""A catalog, or its history, as files that other jobs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from patching.spark.catalog_reads import ReadFailed, held_history, held_revision
from patching.spark.datasource import register
from patching.spark.options import READ, Options
from patching.spark.session import parallelism
from patching.spark.source import at_one_revision
from patching.spark.sync import COMMON_OPTIONS, options_for

FORMATS: Final = ("jsonl", "parquet")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """``rows`` were written, up to ``revision``; of documents, the newest. None: there were
    none."""

    path: str
    rows: int
    revision: int | None


def export_catalog(
    spark: SparkSession,
    catalog: str,
    path: str,
    *,
    url: str,
    format: str = "jsonl",
    revision: int | None = None,
    at: str | None = None,
    prefix: str | None = None,
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write the documents at ``revision`` or at the time ``at`` (RFC 3339), by default the newest.

    ``jsonl``: a line ``{"key": …, "document": …}`` for each, spelled as by the gateway, which
    ``sync`` reads. ``parquet``: the columns of the data source, in files by key range.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known formats: {', '.join(FORMATS)}")
    chosen = _chosen(catalog, url, options)
    wanted = {"revision": revision, "timestamp": at}
    reading = Options.parse(chosen | _given(wanted), READ)
    # A remote session may choose the revision again at each action, and find a newer one.
    revision = at_one_revision(reading).revision
    given = {"type": "documents", "revision": revision, "prefix": prefix}
    seen = Observation()
    newest = F.max("revision").alias("revision")
    with held_revision(reading, "export", revision):
        rows = _rows(spark, chosen, given).observe(seen, newest)
        if format == "parquet":
            rows.write.mode(_mode(overwrite)).parquet(path)
        else:
            # Made of the JSON as it is: to parse and write it again would lose something.
            key = F.expr("substring(to_json(array(key)), 2, length(to_json(array(key))) - 2)")
            line = F.concat(
                F.lit('{"key":'), key, F.lit(',"document":'), F.col("value"), F.lit("}")
            )
            rows.select(line).write.mode(_mode(overwrite)).text(path)
    return ExportReport(path, _written(spark, path, format), seen.get["revision"])


def export_history(
    spark: SparkSession,
    catalog: str,
    path: str,
    *,
    url: str,
    after: int | None = None,
    key: str | None = None,
    prefix: str | None = None,
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write the changes of every commit, a row for each, as Parquet in folders by day (UTC).

    ``after``: add only commits above this revision to the existing files. To continue an export,
    pass its report's ``revision``: it contains all commits up to there. Without ``after``, all
    retained commits. Raises ReadFailed if the catalog is at an earlier revision than ``after``.
    """
    start = None if after is None else after + 1
    given = {"type": "commits", "startingRevision": start, "key": key, "prefix": prefix}
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    day = F.to_date(F.to_utc_timestamp("time", zone))
    seen = Observation()
    counted = F.count(F.lit(1)).alias("rows")
    mode = "append" if after is not None else _mode(overwrite)
    chosen = _chosen(catalog, url, options)
    with held_history(Options.parse(chosen, READ), "export", after or 0) as head:
        if after is not None and after > head:
            raise ReadFailed(
                f"catalog {catalog!r} at {url} is at revision {head}, but the last export was at"
                f" {after}: it is another catalog, or its database was restored to an earlier state"
            )
        rows = _rows(spark, chosen, given | {"endingRevision": head})
        dated = rows.withColumn("date", day).observe(seen, counted)
        # By ``spark.sql.sources.partitionOverwriteMode=dynamic``, other days would stay.
        writer = dated.write.mode(mode).option("partitionOverwriteMode", "static")
        writer.partitionBy("date").parquet(path)
    return ExportReport(path, seen.get["rows"], head)


def _chosen(catalog: str, url: str, options: Mapping[str, Any] | None) -> dict[str, str]:
    return options_for({"url": url, "catalog": catalog, **(options or {})}, READ, COMMON_OPTIONS)


def _given(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def _rows(spark: SparkSession, chosen: Mapping[str, str], given: Mapping[str, Any]) -> DataFrame:
    """The rows, to be read while the caller holds their revisions."""
    register(spark)
    apart = {"partitions": str(parallelism(spark))}
    texts = apart | dict(chosen) | _given(given) | {"pinSeconds": "0"}
    return spark.read.format("metadata").options(**texts).load()


def _written(spark: SparkSession, path: str, format: str) -> int:
    read = spark.read.parquet if format == "parquet" else spark.read.text
    return int(read(path).count())


def _mode(overwrite: bool) -> str:
    return "overwrite" if overwrite else "error"

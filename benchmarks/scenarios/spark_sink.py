"""Rows through the Spark sink, against one PATCH a row and against bulk_write without guards."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from benchmarks import rounds
from benchmarks.measurement import Measurement, measured
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import DATABASE, Rig
from benchmarks.spark_session import THREADS, datasets, session, write

DOCUMENTS = 20_000
DOCUMENTS_QUICK = 2_000
# One PATCH a row is slow: fewer rows say as much.
SINGLE_SHARE = 10

SINK = "sink, 1,000 lines a request"
SINGLE = "one PATCH a row"
PYMONGO = "pymongo bulk_write, unguarded"


def run(rig: Rig) -> Result:
    single = Figure(f"Spark sink, local[{THREADS}] / one PATCH a row", ">=", 10, None)
    pymongo = Figure(f"Spark sink, local[{THREADS}] / pymongo bulk_write", ">=", 0.4, None)
    if not rig.with_gateway:
        return Result(figures=[single, pymongo])
    count = DOCUMENTS_QUICK if rig.quick else DOCUMENTS
    port, catalog = rig.gateway(), f"spark-{rig.serial()}"
    with session() as spark:
        loaded = datasets(spark, count)
        rig.progress("loading")
        write(loaded, port, catalog)
        loaded.foreachPartition(partial(_insert, rig.uri, catalog))

        def patches(share: int = 1) -> Any:
            value = rig.serial()
            patch = f'[{{"op":"replace","path":"/counters/c0","value":{value}}}]'
            rows = loaded.where(f"crc32(key) % {share} = 0")
            return rows.selectExpr("key", f"'{patch}' as patch")

        def timed(share: int, act: Callable[[Any], Any]) -> Measurement:
            rows = patches(share).persist()
            rows_count = rows.count()
            begun = time.perf_counter()
            act(rows)
            seconds = time.perf_counter() - begun
            rows.unpersist()
            window = measured([seconds], seconds)
            return Measurement(rows_count, seconds, window.p50_ms, window.p99_ms, window.max_ms)

        single_act = partial(_single, port, catalog)
        pymongo_act = partial(_update, rig.uri, catalog)
        variants = {
            SINK: lambda: timed(1, lambda rows: write(rows, port, catalog)),
            SINGLE: lambda: timed(SINGLE_SHARE, lambda rows: rows.foreachPartition(single_act)),
            PYMONGO: lambda: timed(1, lambda rows: rows.foreachPartition(pymongo_act)),
        }
        for measure in variants.values():  # the workers' Python has to start, too
            measure()
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [
            Table(
                f"Patches of {count:,} documents by Spark (latency: of the whole job)",
                LOAD_COLUMNS,
                load_rows(THREADS, results),
            )
        ],
        [
            Figure(single.name, ">=", 10, rounds.ratio(results[SINK], results[SINGLE])),
            Figure(pymongo.name, ">=", 0.4, rounds.ratio(results[SINK], results[PYMONGO])),
        ],
    )


def _single(port: int, catalog: str, rows: Iterator[Any]) -> None:
    """By one kept connection for each task."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    for row in rows:
        connection.request(
            "PATCH",
            f"/v1/catalogs/{catalog}/documents/{row['key']}",
            row["patch"].encode(),
            {"Content-Type": "application/json-patch+json"},
        )
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} for {row['key']}")
    connection.close()


def _insert(uri: str, collection: str, rows: Iterator[Any]) -> None:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](uri) as client:
        documents = [{"_id": row["key"], **msgspec.json.decode(row["document"])} for row in rows]
        client[DATABASE][collection].insert_many(documents)


def _update(uri: str, collection: str, rows: Iterator[Any]) -> None:
    """The same change without conditions, history or order; as durable."""
    from pymongo import MongoClient, UpdateOne
    from pymongo.write_concern import WriteConcern

    with MongoClient[dict[str, Any]](uri) as client:
        target = client[DATABASE].get_collection(
            collection, write_concern=WriteConcern(w="majority", j=True)
        )
        updates: list[Any] = []
        for row in rows:
            value = msgspec.json.decode(row["patch"])[0]["value"]
            updates.append(UpdateOne({"_id": row["key"]}, {"$set": {"counters.c0": value}}))
            if len(updates) == 1000:
                target.bulk_write(updates, ordered=False)
                updates = []
        if updates:
            target.bulk_write(updates, ordered=False)

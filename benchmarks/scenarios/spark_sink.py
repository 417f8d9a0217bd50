"""Rows through the Spark sink, against one PATCH a row and against bulk_write without guards.

Rows of two kinds: patches of documents that are there, and whole documents into a new catalog.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
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

SINK = "patches: sink"
SINGLE = "patches: one PATCH a row"
PYMONGO = "patches: pymongo bulk_write, unguarded"
SINK_WHOLE = "documents: sink"
PYMONGO_WHOLE = "documents: pymongo bulk_write, unguarded"


def run(rig: Rig) -> Result:
    compared = {
        f"Spark sink, local[{THREADS}] / one PATCH a row": (30, SINK, SINGLE),
        f"Spark sink, local[{THREADS}] / pymongo bulk_write": (0.3, SINK, PYMONGO),
        "the same, rows of whole documents": (0.35, SINK_WHOLE, PYMONGO_WHOLE),
    }
    if not rig.with_gateway:
        return Result(figures=[Figure(n, ">=", each[0], None) for n, each in compared.items()])
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

        def timed(frame: Any, act: Callable[[Any], Any]) -> Measurement:
            rows = frame.persist()
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
            SINK: lambda: timed(patches(), lambda rows: write(rows, port, catalog)),
            SINGLE: lambda: timed(
                patches(SINGLE_SHARE), lambda rows: rows.foreachPartition(single_act)
            ),
            PYMONGO: lambda: timed(patches(), lambda rows: rows.foreachPartition(pymongo_act)),
            SINK_WHOLE: lambda: timed(
                loaded, lambda rows: write(rows, port, f"spark-{rig.serial()}")
            ),
            PYMONGO_WHOLE: lambda: timed(
                loaded,
                lambda rows: rows.foreachPartition(
                    partial(_replace, rig.uri, f"spark-{rig.serial()}")
                ),
            ),
        }
        for measure in variants.values():  # the workers' Python has to start, too
            measure()
        results = rounds.interleave(variants, rig.rounds, rig.progress)
    return Result(
        [
            Table(
                f"{count:,} rows of 1.5 KB documents by Spark (latency: of the whole job)",
                LOAD_COLUMNS,
                load_rows(THREADS, results),
            )
        ],
        [
            Figure(name, ">=", least, rounds.ratio(results[ours], results[theirs]))
            for name, (least, ours, theirs) in compared.items()
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
    from pymongo import UpdateOne

    def update(row: Any) -> UpdateOne:
        value = msgspec.json.decode(row["patch"])[0]["value"]
        return UpdateOne({"_id": row["key"]}, {"$set": {"counters.c0": value}})

    _bulk_write(uri, collection, map(update, rows))


def _replace(uri: str, collection: str, rows: Iterator[Any]) -> None:
    """The same documents, as durable; without history."""
    from pymongo import ReplaceOne

    def replace(row: Any) -> ReplaceOne[dict[str, Any]]:
        return ReplaceOne({"_id": row["key"]}, msgspec.json.decode(row["document"]), upsert=True)

    _bulk_write(uri, collection, map(replace, rows))


def _bulk_write(uri: str, collection: str, writes: Iterator[Any]) -> None:
    from pymongo import MongoClient
    from pymongo.write_concern import WriteConcern

    with MongoClient[dict[str, Any]](uri) as client:
        target = client[DATABASE].get_collection(
            collection, write_concern=WriteConcern(w="majority", j=True)
        )
        while some := list(islice(writes, 1000)):
            target.bulk_write(some, ordered=False)

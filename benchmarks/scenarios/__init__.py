"""The scenarios, one module each, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.results import Result
from benchmarks.rig import Rig
from benchmarks.scenarios import (
    against,
    appends,
    applies,
    batching,
    bulk,
    bulk_streams,
    compaction,
    console,
    cost,
    hot_document,
    lag,
    large_document,
    many_documents,
    overload,
    patch_apply,
    reads,
    replica_set,
    request_cpu,
    sick_catalog,
    spark_memory,
    spark_sink,
    spark_sync,
    time_travel,
    transactions,
    two_hosts,
    two_workers,
    watchers,
    workers,
)

Scenario = Callable[[Rig], Result]

SCENARIOS: dict[str, Scenario] = {
    "hot-document": hot_document.run,
    "replica-set": replica_set.run,
    "two-workers": two_workers.run,
    "two-hosts": two_hosts.run,
    "workers": workers.run,
    "many-documents": many_documents.run,
    "reads": reads.run,
    "request-cpu": request_cpu.run,
    "large-document": large_document.run,
    "applies": applies.run,
    "patch-apply": patch_apply.run,
    "transactions": transactions.run,
    "appends": appends.run,
    "batching": batching.run,
    "time-travel": time_travel.run,
    "bulk": bulk.run,
    "bulk-streams": bulk_streams.run,
    "lag": lag.run,
    "watchers": watchers.run,
    "compaction": compaction.run,
    "sick-catalog": sick_catalog.run,
    "overload": overload.run,
    "cost": cost.run,
    "console": console.run,
    "spark-sink": spark_sink.run,
    "spark-sync": spark_sync.run,
    "spark-sync-manager": spark_sync.run_managed,
    "spark-sync-state": spark_sync.run_remembered,
    "spark-memory": spark_memory.run,
    "against": against.run,
}

ONLY_BY_NAME = frozenset(
    {
        "workers",
        "batching",
        "sick-catalog",
        "overload",
        "cost",
        "console",
        "spark-sink",
        "spark-sync",
        "spark-sync-manager",
        "spark-sync-state",
        "spark-memory",
        "against",
    }
)
"""Not part of a whole run: they compare settings and have no target, take the whole machine, need
Java and Spark, or an earlier commit."""

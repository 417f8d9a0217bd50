"""Every metric: name, type, help and labels. docs/metrics.md is printed from this table.

No label takes its value from a client (catalog names, keys, methods): a client could fill the
memory of every process that keeps the series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
# How the gauges of all live workers are combined.
Merge = Literal["livesum", "livemax", "livemostrecent"]

_SHORT_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_FEW: Final = (1, 2, 3, 5, 8, 13, 21, 55)
_MANY: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Merge = "livesum"

    @property
    def series(self) -> tuple[str, ...]:
        """The metric's names in queries."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))


METRICS: Final = (
    # Requests
    Metric(
        "gateway_request_seconds",
        "histogram",
        "HTTP requests, and the time until the answer was made or, for streams, until they ended."
        " `route` is the path's template, or `(none)` if no template matches or the request was"
        " refused earlier; `status` is the class, such as `2xx`",
        ("route", "method", "status"),
        _REQUEST_S,
    ),
    Metric(
        "gateway_problems_total",
        "counter",
        "requests answered with a problem, by its code; not the problems in lines of bulk answers",
        ("code",),
    ),
    # Writes
    Metric(
        "gateway_writes_total",
        "counter",
        "writes that went through the commit loop, including those of bulk requests, by outcome:"
        " `applied`, `replayed`, `unchanged`, `dry_run`, or the code of the problem",
        ("outcome",),
    ),
    Metric(
        "gateway_write_attempts",
        "histogram",
        "attempts per write; more than one if it lost races for the head",
        buckets=_FEW,
    ),
    Metric(
        "gateway_queue_wait_seconds",
        "histogram",
        "time from a write's arrival in the queue until a leader took it",
        buckets=_SHORT_S,
    ),
    Metric("gateway_queue_writes", "gauge", "writes that wait or are under way"),
    Metric("gateway_queue_bytes", "gauge", "bytes of the writes that wait or are under way"),
    Metric(
        "gateway_batch_commits",
        "histogram",
        "commits in one move of a catalog's head",
        buckets=_MANY,
    ),
    Metric(
        "gateway_commit_seconds",
        "histogram",
        "time from when a batch was taken from the queue until the heads of all its catalogs had"
        " moved",
        buckets=_SHORT_S,
    ),
    Metric(
        "gateway_write_out_seconds",
        "histogram",
        "time from when the heads of a batch had moved until it was written out",
        buckets=_SHORT_S,
    ),
    Metric(
        "gateway_races_lost_total",
        "counter",
        "batches that lost the race for their catalog's head to another worker",
    ),
    Metric(
        "gateway_bases_refused_total",
        "counter",
        "documents that were rebuilt from the log, because they weren't the ones that a change was"
        " made from; 0 unless somebody edited the database, or there is a defect: run"
        " `gateway verify`",
    ),
    Metric(
        "gateway_heads_went_back_total",
        "counter",
        "catalogs whose heads were behind what a worker had known, or had other commits; 0 unless"
        " the database was restored to an earlier state while the gateway ran",
    ),
    # The cache
    Metric("gateway_cache_hits_total", "counter", "times that a document was found in the cache"),
    Metric(
        "gateway_cache_misses_total",
        "counter",
        "times that a document wasn't in the cache",
    ),
    Metric("gateway_cache_bytes", "gauge", "estimated memory of the cached documents"),
    # Memory of requests
    Metric(
        "gateway_memory_held_bytes",
        "gauge",
        "estimated memory of what requests read and build, and of answers that wait to be sent",
    ),
    Metric(
        "gateway_memory_unsent_bytes",
        "gauge",
        "of `gateway_memory_held_bytes`, the answers that wait to be sent",
    ),
    Metric("gateway_memory_waiting_requests", "gauge", "requests that wait for memory"),
    Metric("gateway_memory_waits_total", "counter", "times that a request waited for memory"),
    Metric(
        "gateway_memory_refusals_total",
        "counter",
        "requests that were refused with `overloaded` after they had waited for memory",
    ),
    # Feeds
    Metric("gateway_watchers", "gauge", "open feeds and long polls"),
    Metric(
        "gateway_feed_lag_commits",
        "gauge",
        "commits between the slowest watcher and its catalog's head",
        merge="livemax",
    ),
    Metric(
        "gateway_feed_delay_seconds",
        "histogram",
        "time from a commit until a watcher took it; of commits taken together, the oldest",
        buckets=_REQUEST_S,
    ),
    # Subscriptions
    Metric("gateway_relay_subscriptions", "gauge", "subscriptions that workers deliver for"),
    Metric(
        "gateway_relay_waiting_subscriptions",
        "gauge",
        "subscriptions that no worker delivers for, because each has `relay_subscriptions_max`",
        merge="livemax",
    ),
    Metric(
        "gateway_relay_failing_subscriptions",
        "gauge",
        "subscriptions whose last five deliveries, or more, have failed",
    ),
    Metric(
        "gateway_relay_lag_commits",
        "gauge",
        "commits between the subscription that is furthest behind and its catalog's head; paused"
        " ones don't count",
        merge="livemax",
    ),
    Metric(
        "gateway_relay_events_total",
        "counter",
        "events that receivers have taken (`delivered`), and deliveries that have `failed`",
        ("outcome",),
    ),
    # Compaction and uploads
    Metric(
        "gateway_compaction_rounds_total",
        "counter",
        "rounds of the compactor over all catalogs, `finished` or `failed`",
        ("outcome",),
    ),
    Metric(
        "gateway_compaction_commits_total",
        "counter",
        "commits that compaction removed, or reduced to the parts that are still needed",
    ),
    Metric(
        "gateway_compaction_failures_total",
        "counter",
        "catalogs that a round of the compactor could not compact; the log says why",
    ),
    Metric(
        "gateway_uploads_open",
        "gauge",
        "uploads that were neither dropped nor expired (a committed one stays until it expires),"
        " counted in MongoDB every 15 seconds. Each gateway reports the count of all gateways, so"
        " don't add them up",
        merge="livemostrecent",
    ),
    # MongoDB
    Metric(
        "gateway_store_seconds",
        "histogram",
        "calls to MongoDB and their time, including failed calls, by operation",
        ("operation",),
        _SHORT_S,
    ),
    Metric(
        "gateway_store_unreachable_total",
        "counter",
        "calls that MongoDB didn't answer in time, or refused, by operation",
        ("operation",),
    ),
    # Processes
    Metric(
        "gateway_worker_starts_total",
        "counter",
        "started workers; more than `workers` if some were replaced",
    ),
    Metric("gateway_workers", "gauge", "running workers"),
    Metric(
        "gateway_worker_resident_bytes",
        "gauge",
        "memory of a worker process, by the worker's slot",
        ("worker",),
    ),
    Metric("gateway_worker_open_files", "gauge", "open files and connections", ("worker",)),
    Metric(
        "gateway_worker_cpu_seconds_total",
        "counter",
        "processor time of the workers, by slot, including workers that have ended",
        ("worker",),
    ),
    Metric(
        "gateway_longest_slice_seconds",
        "gauge",
        "the most processor time that a worker has used at a stretch since its start, while all its"
        " other requests waited",
        merge="livemax",
    ),
    Metric(
        "gateway_long_slices_total",
        "counter",
        "how often a worker used more than a quarter of a second at a stretch; the log says where",
    ),
    Metric(
        "gateway_turns_total",
        "counter",
        "times that the computation for a request was interrupted to let others go on",
    ),
    Metric(
        "gateway_broken_off_total",
        "counter",
        "requests, or lines of bulk requests, that were broken off because they took more processor"
        " time than `request_cpu_ms`",
    ),
    Metric(
        "gateway_info",
        "gauge",
        "1, with the versions of the gateway and of Python",
        ("version", "python"),
        merge="livemax",
    ),
)


def markdown() -> str:
    """The text of docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "`GET /metrics` returns the metrics of all workers of a gateway, in the Prometheus text",
        "format. Counters survive the replacement of a worker, and start from 0 with the gateway.",
        "Gauges are at most a second old, unless their row says otherwise.",
        "",
        "With access control on, any valid token may read them (`authorization:` in the scrape",
        "configuration). No label has a value that a client chose. [operations.md](operations.md)",
        "says what to watch, and what to do;",
        "[operations/grafana-dashboard.json](operations/grafana-dashboard.json) and",
        "[operations/alerts.yaml](operations/alerts.yaml) use these names.",
        "",
        "Printed by `python -m gateway.metrics.definitions`.",
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")

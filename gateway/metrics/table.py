"""Every metric: name, type, help and labels. docs/metrics.md is printed from this table.

No label takes its value from a client (catalog names, keys, methods): a client could fill the
memory of every process that keeps the series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
# How the gauges of all living workers become one.
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
        """The names that queries use for it."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))


METRICS: Final = (
    # Requests
    Metric(
        "gateway_request_seconds",
        "histogram",
        "HTTP requests and how long they took until the answer was made, or for streams until they"
        " ended. `route` is the path's template, `(none)` where none fits or the request was"
        " refused before one was looked for; `status` is the class, such as `2xx`",
        ("route", "method", "status"),
        _REQUEST_S,
    ),
    Metric(
        "gateway_problems_total",
        "counter",
        "requests answered with a problem, by its code (those in lines of a bulk answer aside)",
        ("code",),
    ),
    # Writes
    Metric(
        "gateway_writes_total",
        "counter",
        "writes that went through the commit loop, those of bulk requests included, by outcome:"
        " `applied`, `replayed`, `unchanged`, `dry_run`, or the code of the problem",
        ("outcome",),
    ),
    Metric(
        "gateway_write_attempts",
        "histogram",
        "attempts per write; more than one where the race for the head was lost",
        buckets=_FEW,
    ),
    Metric(
        "gateway_queue_wait_seconds",
        "histogram",
        "time from a write's arrival in the queue until a leader took it up",
        buckets=_SHORT_S,
    ),
    Metric("gateway_queue_writes", "gauge", "writes that wait or are under way"),
    Metric("gateway_queue_bytes", "gauge", "bytes of the writes that wait or are under way"),
    Metric(
        "gateway_batch_commits",
        "histogram",
        "commits by which one move of a catalog's head took it on",
        buckets=_MANY,
    ),
    Metric(
        "gateway_commit_seconds",
        "histogram",
        "time from a batch being taken out of the queue until its heads had moved, for all"
        " catalogs of the batch together",
        buckets=_SHORT_S,
    ),
    Metric(
        "gateway_write_out_seconds",
        "histogram",
        "time from the heads of a batch having moved until it was written out",
        buckets=_SHORT_S,
    ),
    Metric(
        "gateway_races_lost_total",
        "counter",
        "batches of a catalog whose head somebody else had moved meanwhile",
    ),
    # The cache
    Metric("gateway_cache_hits_total", "counter", "documents that were looked for and cached"),
    Metric("gateway_cache_misses_total", "counter", "documents that were looked for in vain"),
    Metric("gateway_cache_bytes", "gauge", "memory that cached documents are estimated to take"),
    # Feeds
    Metric("gateway_watchers", "gauge", "feeds and long polls that are open"),
    Metric(
        "gateway_feed_lag_commits",
        "gauge",
        "commits by which the watcher that is furthest behind its catalog's head is behind",
        merge="livemax",
    ),
    Metric(
        "gateway_feed_delay_seconds",
        "histogram",
        "time from a commit until a watcher took it; the oldest of what is taken at a time",
        buckets=_REQUEST_S,
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
        "commits that compaction removed, or reduced to what is still needed of them",
    ),
    Metric(
        "gateway_compaction_failures_total",
        "counter",
        "catalogs that a round of the compactor could not compact; the log says why",
    ),
    Metric(
        "gateway_uploads_open",
        "gauge",
        "uploads that were opened and have neither been dropped nor expired (a committed one stays"
        " until it expires), counted in MongoDB every 15 seconds: of all gateways, so not to be"
        " added up over them",
        merge="livemostrecent",
    ),
    # MongoDB
    Metric(
        "gateway_store_seconds",
        "histogram",
        "calls to MongoDB and how long they took, failed ones included, by operation",
        ("operation",),
        _SHORT_S,
    ),
    Metric(
        "gateway_store_unreachable_total",
        "counter",
        "calls to MongoDB that had no answer in time, or that it refused, by operation",
        ("operation",),
    ),
    # Processes
    Metric(
        "gateway_worker_starts_total",
        "counter",
        "workers that were started; more than `workers` where some were replaced",
    ),
    Metric("gateway_workers", "gauge", "workers that run"),
    Metric(
        "gateway_worker_resident_bytes",
        "gauge",
        "memory of a worker process, by the place among the workers that it has",
        ("worker",),
    ),
    Metric("gateway_worker_open_files", "gauge", "open files and connections", ("worker",)),
    Metric(
        "gateway_worker_cpu_seconds_total",
        "counter",
        "processor time of the workers, by place, ended workers included",
        ("worker",),
    ),
    Metric(
        "gateway_info",
        "gauge",
        "1, with the versions of the gateway and of Python",
        ("version", "python"),
        merge="livemax",
    ),
)

BY_NAME: Final = {metric.name: metric for metric in METRICS}


def markdown() -> str:
    """The text of docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "`GET /metrics` answers in the Prometheus text format, for all workers of a gateway:",
        "whichever worker answers reads what all have counted. Counters go on where a worker is",
        "replaced, and begin anew where the gateway is. Gauges are at most a second old.",
        "",
        "With access control on, any valid token may read it (`authorization:` in the scrape",
        "configuration). Labels never hold anything that a client chose.",
        "[operations.md](operations.md) says what to watch and what to do about it;",
        "[operations/grafana-dashboard.json](operations/grafana-dashboard.json) and",
        "[operations/alerts.yaml](operations/alerts.yaml) use these names.",
        "",
        "Printed by `python -m gateway.metrics` from the table in `gateway/metrics/table.py`.",
        "",
        "| name | type | labels | what it says |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"

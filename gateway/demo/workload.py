"""A contended workload of metadata as a data platform keeps it.

Half of all patches go to one hot document, the state of a nightly job that every worker of the
job reports to. A tenth append to an event list, the kind of change that shows when it is applied
twice. The rest change the aspects of datasets, one catalog for each dataset.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from patching.client import Gateway, RequestError

CLIENTS = 32
PATCHES = 6_000
JOBS = "pipelines"
NIGHTLY = "jobs/nightly-load"
EVENTS = "jobs/nightly-load/events"
DATASETS = [
    f"urn:li:dataset:(urn:li:dataPlatform:hive,{schema}.{table},PROD)"
    for schema in ("sales", "finance", "web", "support", "research")
    for table in ("orders", "customers", "events", "refunds", "sessions", "daily_summary")
]
ASPECTS = ("datasetProperties", "ownership", "schemaMetadata")


@dataclass(slots=True)
class Result:
    """The clients' view. ``acknowledged`` is by (catalog, key, member): the last value."""

    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    applied: int = 0
    attempts: int = 0
    refused: list[str] = field(default_factory=list)
    acknowledged: dict[tuple[str, str, str], int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    revisions: dict[str, set[int]] = field(default_factory=dict)


def prepare(gateway: Gateway) -> None:
    """Create the documents that will be patched."""
    jobs = gateway.catalog(JOBS)
    jobs.put(NIGHTLY, {"job": "nightly-load", "owner": "data-eng", "progress": {}}, if_absent=True)
    jobs.put(EVENTS, {"events": []}, if_absent=True)
    for dataset in DATASETS:
        for aspect in ASPECTS:
            gateway.catalog(dataset).put(aspect, _aspect(dataset, aspect), if_absent=True)


def _aspect(dataset: str, aspect: str) -> dict[str, Any]:
    fields = [
        {"path": f"column_{n}", "type": "string", "description": f"column {n} of {dataset}"}
        for n in range(12)
    ]
    owners = [{"owner": f"urn:li:corpuser:user{n}", "type": "DATAOWNER"} for n in range(4)]
    return {
        "dataset": dataset,
        "aspect": aspect,
        "fields": fields if aspect == "schemaMetadata" else [],
        "owners": owners if aspect == "ownership" else [],
        "seen_by": {},
    }


def run(gateway: Gateway, console: Console, *, patches: int, clients: int) -> Result:
    """Send ``patches`` patches from ``clients`` threads as fast as the answers come."""
    result = Result()
    lock = threading.Lock()
    with Progress(
        TextColumn("Patching from {task.fields[clients]} clients"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("", total=patches, clients=clients)
        threads = [
            threading.Thread(
                target=_client,
                args=(gateway, number, len(range(number, patches, clients)), result, lock),
                kwargs={"advance": lambda: progress.advance(task)},
            )
            for number in range(clients)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        result.elapsed_s = time.perf_counter() - started
        progress.update(task, completed=patches)
    return result


def _client(
    gateway: Gateway, number: int, count: int, result: Result, lock: threading.Lock, advance: Any
) -> None:
    luck = random.Random(number)
    for turn in range(count):
        catalog, key, operations, member = _patch(luck, number, turn)
        part, name = gateway.catalog(catalog), f"demo-{number}-{turn}"
        begun = time.perf_counter()
        try:
            written = part.patch(key, operations, idempotency_key=name)
        except RequestError as error:
            with lock:
                result.refused.append(str(error))
            continue
        took_s = time.perf_counter() - begun
        with lock:
            result.latencies_s.append(took_s)
            result.applied += 1
            result.attempts += written.attempts
            result.revisions.setdefault(catalog, set()).add(written.revision or 0)
            if key == EVENTS:
                result.events.append(member)
            else:
                result.acknowledged[catalog, key, member] = turn
        advance()


def _patch(luck: random.Random, number: int, turn: int) -> tuple[str, str, list[Any], str]:
    """(catalog, key, operations, the member or event that the patch leaves)."""
    member = f"worker-{number:02}"
    draw = luck.random()
    if draw < 0.1:
        event = f"{member} finished part {turn}"
        return JOBS, EVENTS, [{"op": "add", "path": "/events/-", "value": event}], event
    if draw < 0.6:
        guard = {"op": "test", "path": "/job", "value": "nightly-load"}
        change = {"op": "add", "path": f"/progress/{member}", "value": turn}
        return JOBS, NIGHTLY, [guard, change], member
    change = {"op": "add", "path": f"/seen_by/{member}", "value": turn}
    return luck.choice(DATASETS), luck.choice(ASPECTS), [change], member

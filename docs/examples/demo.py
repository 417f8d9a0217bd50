"""Racing clients, and proof that nothing was lost: `make demo`, or `python -m docs.examples.demo`.

With `--owners`: a nightly job and people in the same documents (`demo_owners.py`). The demo starts
everything on free ports. It uses the MongoDB of the settings (GATEWAY_MONGODB_URI) if there is one,
and otherwise one of its own.

The workload is metadata as a data platform keeps it. Half of all patches go to one hot document,
the state of a nightly job that every worker of the job reports to. A tenth append to an event list,
the kind of change that shows when it is applied twice. The rest change the aspects of datasets, one
catalog for each dataset.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from docs.examples.demo_owners import show_owners
from gateway.settings import Settings, resolve
from gateway.store.embedded import EmbeddedMongod, MongodError
from gateway.store.mongodb import count_head_writes
from patching.client import Gateway, RequestError, Unreachable

WORKERS = 2
_READY_S = 60.0
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
    """What the clients saw. ``acknowledged``: the last value by (catalog, key, member)."""

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
    """Return (catalog, key, operations, the member or event that the patch writes)."""
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


def run_demo(settings: Settings, patches: int = PATCHES, clients: int = CLIENTS) -> int:
    """Start everything on free ports, run the workload, verify, and print a table.

    Return the exit code, 1 if anything was lost or applied twice. The demo uses the MongoDB of the
    settings if there is one, with a new database that it leaves there, and otherwise an embedded
    MongoDB in a temporary directory.
    """
    console = Console()
    with ExitStack() as stack:
        service = _started(settings, console, stack)
        if service is None:
            return 1
        gateway = stack.enter_context(Gateway(_url(service.port), pool_size=clients))
        prepare(gateway)
        writes_before = count_head_writes(service.uri, service.database)
        result = run(gateway, console, patches=patches, clients=clients)
        head_writes = count_head_writes(service.uri, service.database) - writes_before
        findings = verify(gateway, result)
        show(console, result, head_writes, findings)
        return 1 if findings else 0


def run_owners_demo(settings: Settings) -> int:
    """Do so with a nightly job and people that share documents; 1 if anybody lost anything."""
    console = Console()
    with ExitStack() as stack:
        service = _started(settings, console, stack)
        if service is None:
            return 1
        found = show_owners(stack.enter_context(Gateway(_url(service.port))), console)
        for fault in found:
            console.print(fault, style="red", markup=False)
        if not found:
            console.print("Verified: what people wrote is there, and what the job left is gone.")
        return 1 if found else 0


class _Service(NamedTuple):
    uri: str
    database: str
    port: int


def _started(settings: Settings, console: Console, stack: ExitStack) -> _Service | None:
    """Start MongoDB and the service until ``stack`` ends; if that fails, print why, return None."""
    database = f"demo_{uuid.uuid4().hex[:12]}"
    console.print("Starting MongoDB and two gateway workers …")
    try:
        uri = settings.mongodb_uri or stack.enter_context(_own_mongodb())
    except MongodError as error:
        console.print(str(error), style="red", markup=False)  # it may contain brackets
        return None
    port = stack.enter_context(_service(uri, database))
    if port is None:
        console.print("The service did not become ready; see its output above.", style="red")
        return None
    return _Service(uri, database, port)


@contextmanager
def _own_mongodb() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="gateway-demo-") as directory,
        EmbeddedMongod(Path(directory)) as mongod,
    ):
        yield mongod.uri


@contextmanager
def _service(uri: str, database: str) -> Iterator[int | None]:
    """Run ``gateway serve`` on a free port; yield the port, or None if it isn't ready in time."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = {
        "--bind": f"127.0.0.1:{port}",
        "--workers": str(WORKERS),
        "--mongodb-uri": uri,
        "--database": database,
    }
    command = [sys.executable, "-m", "gateway.cli", "serve", "--no-access"]
    command += [part for flag in flags.items() for part in flag]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield port if _becomes_ready(port, process) else None
    finally:
        process.terminate()
        process.wait(60)


def _becomes_ready(port: int, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _READY_S
    with Gateway(_url(port)) as gateway:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(Unreachable):
                if gateway.is_ready():
                    return True
            time.sleep(0.05)
    return False


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def verify(gateway: Gateway, result: Result) -> list[str]:
    """Return a line for each fault; none if every acknowledged patch was applied exactly once."""
    return [
        *(f"refused: {problem}" for problem in result.refused),
        *_lost_members(gateway, result),
        *_events(gateway, result),
        *_history(gateway, result),
    ]


def _lost_members(gateway: Gateway, result: Result) -> list[str]:
    findings = []
    documents: dict[tuple[str, str], dict[str, int]] = {}
    for (catalog, key, member), value in result.acknowledged.items():
        if (catalog, key) not in documents:
            document: Any = gateway.catalog(catalog).get(key).value
            documents[catalog, key] = document["progress" if key == NIGHTLY else "seen_by"]
        found = documents[catalog, key].get(member)
        if found != value:
            findings.append(f"{key} of {catalog}: {member} is {found}, acknowledged was {value}")
    return findings


def _events(gateway: Gateway, result: Result) -> list[str]:
    document: Any = gateway.catalog(JOBS).get(EVENTS).value
    found, expected = Counter(document["events"]), Counter(result.events)
    lost = [f"lost event: {event}" for event in expected - found]
    return lost + [f"event applied twice: {event}" for event in found - expected]


def _history(gateway: Gateway, result: Result) -> list[str]:
    """Check that the log of ``JOBS`` has no gap, and has each acknowledged revision."""
    revisions = [commit.revision for commit in gateway.catalog(JOBS).commits(page_size=1000)]
    findings = []
    if revisions != list(range(1, len(revisions) + 1)):
        findings.append(f"the history of {JOBS} has gaps")
    missing = result.revisions.get(JOBS, set()) - set(revisions)
    return findings + [f"acknowledged revision {revision} is not there" for revision in missing]


def show(console: Console, result: Result, head_writes: int, findings: Sequence[str]) -> None:
    """Print what was measured and whether anything was lost."""
    ordered = sorted(result.latencies_s)
    table = Table(
        title="Racing clients, two gateway workers, one MongoDB",
        caption="One conditional write commits all patches that waited for their catalog meanwhile:"
        " the more clients share a catalog, the more patches share a write.",
    )
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("patches acknowledged", f"{result.applied:,}")
    table.add_row("throughput", f"{result.applied / result.elapsed_s:,.0f} patches/s")
    table.add_row("latency p50", f"{1000 * ordered[len(ordered) // 2]:.1f} ms")
    table.add_row("latency p99", f"{1000 * ordered[len(ordered) * 99 // 100]:.1f} ms")
    table.add_row("commits", f"{result.applied:,}")
    table.add_row("conditional writes to MongoDB", f"{head_writes:,}")
    table.add_row("patches per conditional write", f"{result.applied / max(head_writes, 1):.1f}")
    table.add_row("requests decided again (races lost)", f"{result.attempts - result.applied:,}")
    console.print(table)
    if findings:
        for finding in findings[:20]:
            console.print(finding, style="red", markup=False)
        console.print(f"{len(findings)} findings: this must not happen.", style="bold red")
    else:
        console.print(
            "Verified: every acknowledged patch is there, none of them twice, no revision missing.",
            style="green",
        )


@click.command("demo")
@click.option("--owners", is_flag=True, help="A nightly job and people in the same documents.")
def main(owners: bool) -> None:
    """Show, in a minute, concurrent writers that keep each other's changes."""
    settings = resolve({}).settings
    sys.exit(run_owners_demo(settings) if owners else run_demo(settings))


if __name__ == "__main__":
    main()

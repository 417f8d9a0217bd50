"""Debian's packages as a catalog, kept in step with the lists of its suites.

    python docs/examples/debian_packages.py FOLDER

FOLDER has lists as `apt-get update` leaves them (see apt-lists.sh). The first sync loads the
largest of them, a release, into an empty catalog. The second adds all others, the updates and
security fixes, as a machine sees them that installs from all lists. A table shows how little the
second sync sends, and that the third sends nothing.

The gateway and its MongoDB are started here, and removed at the end. Needs the extras `embedded`
and `spark`, and Java 17 or 21.
"""

from __future__ import annotations

import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import packages_index
import pyspark
from packages_index import LISTS, Index, IndexUnreadable, indexes, packages
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from patching.spark.session import JavaMissing, Shown, command_session, require_java
from patching.spark.sync import sync
from patching.spark.sync_reports import SyncReport

CATALOG = "debian/bookworm"
JOBS = "jobs"
_READY_S = 90.0
_PATCHES_SHOWN = 3
_PATCH_CHARACTERS = 300
_console = Console()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=LISTS)
@click.option("--driver-memory", default="1g", help="Of Spark. Default: 1g.")
def main(folder: Path, driver_memory: str) -> None:
    """Load a Debian release, then bring its updates in."""
    lists = sorted(indexes(folder), key=lambda index: -index.path.stat().st_size)
    if len(lists) < 2:
        raise click.ClickException(
            f"{folder} has {len(lists)} lists of packages, two are needed; see apt-lists.sh"
        )
    try:
        require_java(pyspark.__version__)
        with tempfile.TemporaryDirectory(prefix="debian-packages-") as scratch, _gateway() as url:
            show(url, lists, Path(scratch), driver_memory)
    except (JavaMissing, IndexUnreadable) as error:
        raise click.ClickException(str(error)) from error


def show(url: str, lists: list[Index], scratch: Path, driver_memory: str) -> None:
    """Run three syncs, and print a table of what each of them sent."""
    steps = [
        (f"{lists[0].suite} into an empty catalog", lists[:1]),
        (f"with {', '.join(index.suite for index in lists[1:])}", lists),
        ("the same once more", lists),
    ]
    table = Table(title=f"Catalog {CATALOG}: a document for each package")
    table.add_column("wanted", overflow="fold")
    for name in ("unchanged", "created", "patched", "deleted", "seconds"):
        table.add_column(name, justify="right")
    reports: list[SyncReport] = []
    with (
        command_session("local[2]", driver_memory) as spark,
        Shown(spark) as progress,
    ):
        spark.sparkContext.addPyFile(packages_index.__file__)  # the tasks import it
        for number, (title, chosen) in enumerate(steps):
            _console.print(f"[bold]{escape(title)}")
            folder = scratch / str(number)
            folder.mkdir()
            wanted = packages(spark, chosen, folder)
            report = sync(wanted, CATALOG, url=url, delete=True, message=title, progress=progress)
            if not report.in_step:
                raise click.ClickException(f"not all is as wanted: {report}")
            reports.append(report)
            counts = [report.unchanged, report.created, report.patched, report.deleted]
            table.add_row(title, *(f"{n:,}" for n in counts), f"{report.seconds:.1f}")
        _show_started_again(spark, url)
    _console.print(table)
    with Transport(url) as transport:
        _show_patches(CatalogRoutes(transport, CATALOG), reports[0].revision + reports[0].sent)
    if reports[-1].sent:
        raise click.ClickException("the same state once more sent something")


def _show_started_again(spark: SparkSession, url: str) -> None:
    """Run a named job with a refused row, and start it again when the row can be applied."""
    _console.print("[bold]a job with a refused row, started again")
    patch = '[{"op": "add", "path": "/log/-", "value": "seen"}]'
    rows = spark.createDataFrame([("a", patch), ("b", patch)], "key string, patch string")
    named = {"url": url, "catalog": JOBS, "txnAppId": "demo", "txnVersion": 1}
    job = rows.coalesce(1).write.format("metadata").mode("append").options(**named)
    with Transport(url) as transport:
        for key, said in (("a", "b isn't there"), ("b", "b was made")):
            transport.request("PUT", f"/v1/catalogs/{JOBS}/documents/{key}", json={"log": []})
            try:
                job.save()
                done = "done"
            except Exception as error:  # noqa: BLE001 - Spark raises its own
                done = "failed" if "refused" in str(error) else str(error)
            documents = CatalogRoutes(transport, JOBS).export().documents
            logs = {key: document["log"] for key, document in documents.items()}
            _console.print(f"{said}: {done}; {escape(str(logs))}", soft_wrap=True)
            if any(len(log) > 1 for log in logs.values()):
                raise click.ClickException("a row was applied twice")
    if logs != {"a": ["seen"], "b": ["seen"]}:
        raise click.ClickException("the job that was started again isn't done")


def _show_patches(routes: CatalogRoutes, after: int) -> None:
    """Print a few of the changes that the second sync made."""
    shown = 0
    size_bytes = 0
    page = routes.commits(after, limit=1000)
    count = len(page.commits)
    for commit in page.commits:
        for change in commit.changes:
            text = _encoded(change.patch)
            size_bytes += len(text)
            if change.action == "patch" and shown < _PATCHES_SHOWN:
                shown += 1
                cut = text if len(text) <= _PATCH_CHARACTERS else text[:_PATCH_CHARACTERS] + " …"
                _console.print(f"{escape(change.key or '')}: {escape(cut)}", soft_wrap=True)
    if count:
        _console.print(f"a change takes {size_bytes / count:,.0f} bytes on average")


def _encoded(patch: Any) -> str:
    import msgspec

    return msgspec.json.encode(patch).decode()


@contextmanager
def _gateway() -> Iterator[str]:
    """Run `gateway serve` with its own MongoDB in a temporary folder; yield its address."""
    _console.print("Starting MongoDB and two gateway workers …")
    with tempfile.TemporaryDirectory(prefix="debian-packages-mongod-") as data:
        command = [sys.executable, "-m", "gateway.cli", "serve", "--embedded", "--workers=2"]
        command += ["--no-access", "--bind=127.0.0.1:0", f"--data-dir={data}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            yield _ready(process)
        finally:
            process.terminate()
            process.wait(60)


def _ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    until = time.monotonic() + _READY_S
    while (left_s := until - time.monotonic()) > 0 and process.poll() is None:
        readable, _, _ = select.select([process.stdout], [], [], left_s)
        line = process.stdout.readline() if readable else ""
        if match := re.search(r"ready at (http://\S+)", line):
            return match[1]
        if not line:
            break
    raise click.ClickException("the gateway did not become ready")


if __name__ == "__main__":
    main()

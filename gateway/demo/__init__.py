"""``gateway demo``: the service here, racing clients, and proof that nothing was lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from gateway.demo.owners import show_owners
from gateway.demo.verification import show, verify
from gateway.demo.workload import CLIENTS, PATCHES, prepare, run
from gateway.settings import Settings
from gateway.store.embedded import EmbeddedMongod, MongodError
from gateway.store.mongodb import count_head_writes
from patching.client import Gateway, Unreachable

WORKERS = 2
_READY_S = 60.0


def run_demo(settings: Settings, patches: int = PATCHES, clients: int = CLIENTS) -> int:
    """Start everything on free ports, run the workload, verify, print a table; the exit code.

    Uses the MongoDB of the settings where one is given (in a database of its own, left there),
    else an embedded one in a temporary directory. 1 where anything was lost or applied twice.
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
    """The same for a nightly job and people that share documents. 1 where anybody lost anything."""
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
    """MongoDB and the service until ``stack`` ends; None, with the reason told, where it can't."""
    database = f"demo_{uuid.uuid4().hex[:12]}"
    console.print("Starting MongoDB and two gateway workers …")
    try:
        uri = settings.mongodb_uri or stack.enter_context(_own_mongodb())
    except MongodError as error:
        console.print(str(error), style="red", markup=False)  # it may hold brackets
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
    """``gateway serve`` on a free port; the port when it is ready, None when it isn't in time."""
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

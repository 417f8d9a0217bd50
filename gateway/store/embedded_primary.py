"""Makes a freshly started mongod the primary of its own one-member replica set.

Runs as a process of its own (`embedded_primary.py REPLICA_SET SOCKET PID SECONDS`), and imports
nothing of this project: the process that keeps the mongod also forks the workers, so it must not
import the driver. gevent patches `ssl` and `threading` in each worker after the fork, which has to
come before that import.
"""

from __future__ import annotations

import sys
import time
from typing import Any
from urllib.parse import quote

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

_NOT_YET_INITIALIZED = 94
_POLL_S = 0.01


def make_primary(replica_set: str, address: str, pid: int, timeout_s: float) -> None:
    """Return when the mongod with this process id takes writes on the Unix socket ``address``.

    A new data directory gets its replica set; one that was used at another address gets this
    address. Raises `PyMongoError` or `TimeoutError` if that fails or takes too long, and
    `LookupError`, without a change, if another mongod answers there.
    """
    deadline = time.monotonic() + timeout_s
    with MongoClient[dict[str, Any]](
        f"mongodb://{quote(address, safe='')}/?directConnection=true",
        serverSelectionTimeoutMS=int(timeout_s * 1000),
    ) as client:
        admin = client.admin
        serving = admin.command("serverStatus", repl=0, metrics=0, wiredTiger=0)["pid"]
        if serving != pid:
            raise LookupError(f"another mongod (pid {serving}) answers on {address}")
        refused: OperationFailure | None = None
        while True:
            hello = admin.command("hello")
            if hello["isWritablePrimary"]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no primary after {timeout_s} s; {refused or hello}")
            if "setName" not in hello:
                # mongod refuses while it loads its data: ask again.
                try:
                    _configure(admin, replica_set, address)
                except OperationFailure as error:
                    refused = error
            time.sleep(_POLL_S)


def _configure(admin: Database[dict[str, Any]], replica_set: str, address: str) -> None:
    try:
        config = admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        members = [{"_id": 0, "host": address}]
        admin.command("replSetInitiate", {"_id": replica_set, "members": members})
        return
    if [member["host"] for member in config["members"]] != [address]:
        # Forced: at its new address, the member doesn't find itself in the set, so there is no
        # primary that could agree.
        config["members"] = [config["members"][0] | {"host": address}]
        config["version"] += 1
        admin.command("replSetReconfig", config, force=True)


def main(arguments: list[str]) -> int:
    replica_set, address, pid, seconds = arguments
    try:
        make_primary(replica_set, address, int(pid), float(seconds))
    except (PyMongoError, TimeoutError, LookupError) as error:
        print(str(error).replace("\n", " "), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

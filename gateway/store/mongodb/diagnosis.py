"""What a MongoDB is, and whether it takes the writes that the service makes: `gateway doctor`."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bson.objectid import ObjectId
from pymongo.read_preferences import ReadPreference

from gateway.store.contract import Unreachable
from gateway.store.mongodb.connection import Connection


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``replicated``: a replica set or a sharded cluster of them, which is what the service needs.
    ``topology`` names it. ``refused``: why a journaled majority write isn't acknowledged; None: it
    is, after ``acknowledged_ms``."""

    version: str
    topology: str
    replicated: bool
    acknowledged_ms: float
    refused: str | None


def diagnose(uri: str, database: str, timeout_ms: int) -> Diagnosis:
    """Ask the primary; nothing is changed. ValueError where the URI is malformed; Unreachable."""
    connection = Connection.to(uri, database, timeout_ms, appname="metadata-gateway doctor")
    try:
        with connection.reaching():
            admin = connection.client.admin
            hello = admin.command("hello", read_preference=ReadPreference.PRIMARY)
            version = str(admin.command("buildInfo")["version"])
        topology = "a single server"
        if hello.get("msg") == "isdbgrid":
            topology = "a sharded cluster"
        elif hello.get("setName"):
            topology = f"replica set {hello['setName']} of {len(hello.get('hosts', []))}"
        begun = time.monotonic()
        refused = _refusal(connection)
        waited_ms = (time.monotonic() - begun) * 1000
    finally:
        connection.client.close()
    return Diagnosis(version, topology, topology != "a single server", waited_ms, refused)


def _refusal(connection: Connection) -> str | None:
    """Of an update that finds nothing: it needs the same right as one that does, and waits for the
    majority just so."""
    try:
        with connection.reaching():
            connection.catalogs.update_one({"_id": ObjectId()}, {"$set": {"checked": True}})
    except Unreachable as error:
        return str(error)
    return None

"""Which election made the primary that answers, and from when on it is up to date.

A new primary has every write that was acknowledged, but a majority read on it answers from the
last state that it knows a majority to have, and it learns of acknowledgements later than those
who waited for them. Until it has committed something of its own, its majority reads may be older
than what its predecessor answered. The time of its last write, asked for once it is primary, is
later than all that: a read told to see that time sees everything.
"""

from __future__ import annotations

from typing import Any

from bson.objectid import ObjectId
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError, ServerSelectionTimeoutError
from pymongo.read_preferences import ReadPreference

from gateway.store.contract import Unreachable


def has_primary(client: MongoClient[Any]) -> bool:
    """Whether the driver knows of one (or of a router) that it would ask now; no I/O."""
    servers = client.topology_description.server_descriptions().values()
    return any(server.is_writable for server in servers)


def explained(client: MongoClient[Any], error: PyMongoError) -> str:
    """In words for whoever runs it, where they are known; else what the driver said."""
    servers = client.topology_description.server_descriptions()
    kinds = {server.server_type_name: _named(place) for place, server in servers.items()}
    if "RSGhost" in kinds:
        return f"the replica set of {kinds['RSGhost']} is not initiated: run rs.initiate() there"
    if not isinstance(error, ServerSelectionTimeoutError):
        return str(error)
    if kinds.keys() & {"RSSecondary", "RSOther", "RSArbiter"}:
        members = ", ".join(sorted(map(_named, servers)))
        return f"there is no primary among {members}: is a majority of the members up?"
    return str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]


def _named(place: tuple[str, int | None]) -> str:
    host, port = place
    return host if port is None else f"{host}:{port}"  # a socket of this machine has no port


def known_election(client: MongoClient[Any]) -> ObjectId | None:
    """Of the primary that the driver would ask now; no I/O.

    None where it knows of no primary, and on a sharded cluster, whose primaries it never sees.
    """
    for server in client.topology_description.server_descriptions().values():
        if server.server_type_name == "RSPrimary":
            return server.election_id
    return None


def ask_primary(client: MongoClient[Any], session: ClientSession) -> ObjectId | None:
    """The primary's election; None on a sharded cluster.

    Afterwards the session's operation time is not before the last write that the primary has.
    Raises Unreachable where it has stepped down, and the driver's errors.
    """
    hello = client.admin.command("hello", session=session, read_preference=ReadPreference.PRIMARY)
    if not hello["isWritablePrimary"]:
        raise Unreachable("there is no primary at the moment")
    election: ObjectId | None = hello.get("electionId")
    return election

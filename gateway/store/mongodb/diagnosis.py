"""For `gateway doctor`: the kind of MongoDB, and whether it takes the gateway's writes.

For the demonstration: the server's own count of head writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

from bson.objectid import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.read_preferences import ReadPreference

from gateway.store.contract import StoreUnreachable
from gateway.store.mongodb.connection import Connection
from gateway.store.mongodb.format import BROKEN_OFF, UnknownFormat, known_format
from gateway.store.mongodb.indexes import COLLECTIONS, INDEXES
from gateway.store.mongodb.records import Record

# The most heads and notes of backups that are read.
_LOOKED_AT: Final = 10_000
# Filters that find only records as gateways write them, not those that somebody wrote by hand.
_NAME: Final[Record] = {"$type": "string"}
_NUMBER: Final[Record] = {"$type": ["int", "long"]}
_TIME: Final[Record] = {**_NUMBER, "$gte": 0, "$lt": 200_000_000_000_000_000}  # the year 8307
_NOTE: Final[Record] = {"_id": _NAME, "revision": _NUMBER, "time_us": _TIME}
# What the gateway does with all of its collections, as MongoDB names it in a role.
_DONE: Final = frozenset(("find", "insert", "update"))
_NOTHING_REMOVED: Final = ("backups", "format", "tokens", "verdicts")
_OPTIONS: Final = ("key", "unique", "sparse", "expireAfterSeconds", "partialFilterExpression")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found out about a MongoDB.

    ``replicated``: it is a replica set or a sharded cluster, as the gateway needs. ``topology``
    says which. ``refused`` is the reason why a journaled majority write isn't acknowledged; None:
    it is, after ``acknowledged_ms``. ``foreign`` are additions to the gateway's collections that
    can refuse its writes or delete its data. ``misfits`` are collections that can't hold the
    gateway's data, and why. ``open_to_all``: it lets everybody in, without a user.
    ``backups``: those of `gateway backup`, None if none was made. ``broken_restores``: the
    catalogs that nobody can use because a `gateway restore` of them broke off. ``unknown_format``
    says why no gateway of this version can use the database. ``forbidden`` says what the gateway
    does and this user may not do, by collection; then the other findings may be lacking.
    """

    version: str
    topology: str
    replicated: bool
    acknowledged_ms: float
    refused: str | None
    foreign: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    open_to_all: bool = False
    backups: BackupAges | None = None
    broken_restores: tuple[str, ...] = ()
    unknown_format: str | None = None
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupAges:
    """The backups that `gateway backup` made. ``catalogs`` is the number of catalogs that were
    looked at (at most _LOOKED_AT); ``without`` names those that were never saved. ``oldest`` is the
    oldest backup of a catalog that has changed since: the catalog's name, and the backup's time."""

    catalogs: int
    without: tuple[str, ...]
    oldest: tuple[str, datetime] | None


def diagnose(uri: str, database: str, timeout_ms: int) -> Diagnosis:
    """Diagnose a MongoDB by asking its primary; this changes nothing. Raises ValueError for a
    malformed URI, and StoreUnreachable."""
    connection = Connection.to(uri, database, timeout_ms, appname="metadata-gateway doctor")
    try:
        with connection.as_unreachable():
            admin = connection.client.admin
            hello = admin.command("hello", read_preference=ReadPreference.PRIMARY)
            version = str(admin.command("buildInfo")["version"])
            user = admin.command("connectionStatus", showPrivileges=True)["authInfo"]
        topology = "a single server"
        if hello.get("msg") == "isdbgrid":
            topology = "a sharded cluster"
        elif hello.get("setName"):
            topology = f"replica set {hello['setName']} of {len(hello.get('hosts', []))}"
        begun = time.monotonic()
        refused = _refusal(connection)
        diagnosis = Diagnosis(
            version=version,
            topology=topology,
            replicated=topology != "a single server",
            acknowledged_ms=(time.monotonic() - begun) * 1000,
            refused=refused,
            # A MongoDB with users would have refused these calls without one.
            open_to_all=not user["authenticatedUsers"] and refused is None,
            forbidden=tuple(_forbidden(user, database)),
        )
        try:
            return _looked_into(connection, diagnosis)
        except StoreUnreachable:
            if diagnosis.forbidden:
                return diagnosis
            raise
    finally:
        connection.client.close()


def _looked_into(connection: Connection, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with what is stored in the database. Raises StoreUnreachable."""
    with connection.as_unreachable():
        found = connection.database.list_collections()
        there = {each["name"]: each for each in found if each["name"] in COLLECTIONS}
        return replace(
            diagnosis,
            unknown_format=_unknown_format(connection.database),
            misfits=tuple(
                f"{name} {why}" for name in sorted(there) if (why := _misfit(there[name]))
            ),
            foreign=tuple(_foreign(connection.database, there)),
            backups=_backups(connection.database),
            broken_restores=_broken_restores(connection.database),
        )


def _forbidden(user: Mapping[str, Any], database: str) -> Iterator[str]:
    """What the user may not do with each collection. A user who isn't known may do all, or MongoDB
    would have refused to answer."""
    if not user["authenticatedUsers"]:
        return
    for name in sorted((*COLLECTIONS, "format")):
        needed = {
            *_DONE,
            *(("remove",) if name not in _NOTHING_REMOVED else ()),
            *(("createIndex",) if name in INDEXES else ()),
            *(("changeStream",) if name == "commits" else ()),
        }
        about = (
            each["actions"]
            for each in user["authenticatedUserPrivileges"]
            if _is_about(each["resource"], database, name)
        )
        lacking = needed.difference(granted := {*chain.from_iterable(about)})
        if lacking and "anyAction" not in granted:
            yield f"{', '.join(sorted(lacking))} on {name}"


def _is_about(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    if "db" not in resource:
        return bool(resource.get("anyResource", False))
    named = resource["db"], resource.get("collection")
    return named[0] in ("", database) and named[1] in ("", collection)


def _unknown_format(database: Database[Record]) -> str | None:
    try:
        known_format(database)
    except UnknownFormat as error:
        return str(error)
    return None


def _backups(database: Database[Record]) -> BackupAges | None:
    """None if none was made: MongoDB may be backed up as a whole."""
    noted = {each["_id"]: each for each in database["backups"].find(_NOTE).limit(_LOOKED_AT)}
    if not noted:
        return None
    shown = {"head.revision": 1}
    there = {"_id": _NAME, "deleted": False, "head.revision": _NUMBER}
    heads = list(database["catalogs"].find(there, shown).limit(_LOOKED_AT))
    without = tuple(sorted(each["_id"] for each in heads if each["_id"] not in noted))
    aged = [
        (noted[each["_id"]]["time_us"], each["_id"])
        for each in heads
        if each["_id"] in noted and each["head"]["revision"] > noted[each["_id"]]["revision"]
    ]
    if not aged:
        return BackupAges(len(heads), without, None)
    time_us, catalog = min(aged)
    oldest = datetime.fromtimestamp(time_us / 1_000_000, UTC)
    return BackupAges(len(heads), without, (catalog, oldest))


def _broken_restores(database: Database[Record]) -> tuple[str, ...]:
    found = database["catalogs"].find({"_id": _NAME, **BROKEN_OFF}, {"_id": 1}).limit(_LOOKED_AT)
    return tuple(sorted(each["_id"] for each in found))


def _refusal(connection: Connection) -> str | None:
    """Why MongoDB refuses an update; None if it doesn't. The update matches nothing, but it needs
    the same right and waits for the same majority as one that matches.
    """
    try:
        with connection.as_unreachable():
            connection.catalogs.update_one({"_id": ObjectId()}, {"$set": {"checked": True}})
    except StoreUnreachable as error:
        return str(error)
    return None


def _misfit(collection: Mapping[str, Any]) -> str | None:
    """Why the collection can't hold what the gateway writes; None if it can."""
    if collection["type"] != "collection":
        return f"is a {collection['type']}"
    return (
        "is capped: it deletes its oldest records" if collection["options"].get("capped") else None
    )


def _foreign(database: Database[Record], there: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The validators and indexes that aren't the gateway's. ``there``: its collections, as the
    database describes them."""
    for name in sorted(there):
        if there[name]["type"] != "collection":  # a view has no indexes
            continue
        if there[name]["options"].get("validator"):
            yield f"{name}: a validator"
        own = {each.document["name"]: each.document for each in INDEXES.get(name, ())}
        for index in database[name].list_indexes():
            problem = _problem(index, own.get(index["name"]))
            if problem is not None and index["name"] != "_id_":
                yield f"{name}: index {index['name']!r} {problem}"


def _problem(index: Mapping[str, Any], own: Mapping[str, Any] | None) -> str | None:
    """Why an index can't stay; None if it can. ``own`` is the gateway's index of that name."""
    if own is not None:
        same = all(index.get(option) == own.get(option) for option in _OPTIONS)
        return None if same else "is not as the gateway makes it"
    if index.get("unique"):
        return "is unique"
    if "expireAfterSeconds" in index:
        return "deletes documents"
    if len(index["key"]) > 1:
        return "has several fields, of which two may be arrays"
    kind = next(iter(index["key"].values()))
    return None if kind in (1, -1) else f"is of a kind ({kind}) that refuses some values"


def count_head_writes(uri: str, database: str) -> int:
    """The number of head writes since the server started, whether won or lost."""
    with MongoClient[Record](uri) as client:
        stages: list[Record] = [{"$collStats": {"latencyStats": {}}}]
        found = list(client[database]["catalogs"].aggregate(stages))
    return int(found[0]["latencyStats"]["writes"]["ops"]) if found else 0

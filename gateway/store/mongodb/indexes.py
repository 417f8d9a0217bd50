"""Which indexes there are, and why; how the collections are sharded.

Each ``_id`` begins with the catalog's name (``gateway.store.mongodb.records``), so the one index
that every collection has anyway serves what is done all day: a head, a document, a span of
commits, a scan over keys. The ones below serve the rest:

``catalogs``   open, sparse: the heads that have a tail; a move of one that has doesn't touch it
               uncommitted, sparse: those without a commit, by the time of their last verdict; no
               move beyond the first commit touches it
``commits``    catalog, keys, revision: the history of a key; with ``keys`` empty, the commits that
               are kept for their reply alone (an empty array has an entry of its own)
               catalog, time_us: the state at a time
               reply_id, sparse: what became of an idempotency key; a commit without one costs
               nothing
``documents``  catalog, revision of tombstones alone: what can be purged, without a look at a
               living document, whose writes it costs nothing
``uploads``, ``upload_parts``, ``verdicts``
               expires: MongoDB deletes what is past it
``uploads``    open, expires, principal, bytes: who holds how much, read from the index alone

Sharding: ``catalogs``, ``documents``, ``commits``, ``verdicts``, ``uploads`` and ``upload_parts``
by range of ``_id``, for example ``sh.shardCollection("metadata.commits", {_id: 1})``. Since a
catalog is a range of ``_id``, every write and every read by ``_id`` goes to one shard, the only
unique index stays unique, and a catalog stays in one place as long as it fits into a chunk. Reads
by another index have the catalog's range of ``_id`` beside it, so that they ask the shards that
have the catalog alone; they name their index, since that range would have the planner choose
between two.
Nothing relies on where a record is. ``leases``, ``subscriptions`` and ``backups`` are a handful of
records, and not sharded.

Filters on ``_id``: a few values, a span of commits, the names that begin with a prefix.

Every query on ``documents`` and ``commits`` has one, also where another index serves it and the
catalog is in that: by it a sharded cluster knows whom to ask. Only a verification of all catalogs
asks for the next name, whichever that is.

MongoDB orders text by its UTF-8 bytes, which is the order of its code points.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pymongo import ASCENDING, IndexModel

from gateway.store.mongodb import records
from gateway.store.mongodb.records import Record

# The gateway's collections; no foreign index on them may refuse a write.
COLLECTIONS: Final = frozenset(
    (
        *("backups", "catalogs", "commits", "documents", "leases", "subscriptions", "tokens"),
        *("upload_parts", "uploads", "verdicts"),
    )
)
BY_KEY: Final = "catalog_1_keys_1_revision_1"
BY_TIME: Final = "catalog_1_time_us_1"
BY_REPLY: Final = "reply_id_1"
TOMBSTONES: Final = "tombstones"
HELD: Final = "held"
OPEN: Final = "open_1"
UNCOMMITTED: Final = "uncommitted_1"

_EXPIRY = IndexModel([("expires", ASCENDING)], expireAfterSeconds=0)

INDEXES: Mapping[str, Sequence[IndexModel]] = {
    "catalogs": [
        IndexModel([("open", ASCENDING)], name=OPEN, sparse=True),
        IndexModel([("uncommitted", ASCENDING)], name=UNCOMMITTED, sparse=True),
    ],
    "commits": [
        IndexModel(
            [("catalog", ASCENDING), ("keys", ASCENDING), ("revision", ASCENDING)], name=BY_KEY
        ),
        IndexModel([("catalog", ASCENDING), ("time_us", ASCENDING)], name=BY_TIME),
        IndexModel([("reply_id", ASCENDING)], name=BY_REPLY, sparse=True),
    ],
    "documents": [
        IndexModel(
            [("catalog", ASCENDING), ("state.revision", ASCENDING)],
            name=TOMBSTONES,
            partialFilterExpression={"state.deleted": True},
        ),
    ],
    "uploads": [
        _EXPIRY,
        IndexModel(
            [
                ("open", ASCENDING),
                ("expires", ASCENDING),
                ("principal", ASCENDING),
                ("bytes", ASCENDING),
            ],
            name=HELD,
        ),
    ],
    "upload_parts": [_EXPIRY],
    "verdicts": [_EXPIRY],
}


_SURROGATES = (0xD800, 0xDFFF)


def one_of(values: Collection[str]) -> Any:
    """A filter on these values; on a single one it is cheaper than a list of one."""
    return next(iter(values)) if len(values) == 1 else {"$in": list(values)}


def of_catalog(catalog: str) -> Record:
    """A filter on all names in the catalog."""
    return names_after("", f"{catalog}\0")


def of_catalogs(catalogs: Collection[str]) -> Record:
    """A filter on all names in any of the catalogs.

    It is one range over all of them: a range for each would take the server several times as long,
    and many catalogs are on all shards anyway.
    """
    if len(catalogs) == 1:
        return {"_id": of_catalog(next(iter(catalogs)))}
    first, last = of_catalog(min(catalogs)), of_catalog(max(catalogs))
    return {"_id": {**first, "$lt": last["$lt"]}, "catalog": {"$in": list(catalogs)}}


def span(catalog: str, after: int, through: int) -> Record:
    return {
        "_id": {
            "$gt": records.commit_id(catalog, after),
            "$lte": records.commit_id(catalog, through),
        }
    }


def in_spans(spans: Mapping[str, tuple[int, int]]) -> Record:
    single = [
        records.commit_id(catalog, through)
        for catalog, (after, through) in spans.items()
        if through == after + 1
    ]
    branches = [
        span(catalog, after, through)
        for catalog, (after, through) in spans.items()
        if through != after + 1
    ]
    if single:
        branches.append({"_id": one_of(single)})
    return branches[0] if len(branches) == 1 else {"$or": branches}


def names_after(after: str, prefix: str) -> Record:
    """The bounds of the names above ``after`` that begin with ``prefix``."""
    bounds: Record = {"$gt": after} if after >= prefix else {"$gte": prefix}
    end = prefix_end(prefix)
    if end is not None:
        bounds["$lt"] = end
    return bounds


def prefix_end(prefix: str) -> str | None:
    """The lowest text above all texts that begin with ``prefix``; None where there is none."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < sys.maxunicode:
            following = last + 1
            if following == _SURROGATES[0]:
                following = _SURROGATES[1] + 1
            return prefix[: length - 1] + chr(following)
    return None

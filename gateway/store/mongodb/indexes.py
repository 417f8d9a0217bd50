"""The indexes, and why there are; how the collections are sharded.

Each ``_id`` begins with the catalog's name (``gateway.store.mongodb.records``), so the index that
every collection has anyway serves the frequent reads: a head, a document, a span of commits, a scan
over keys. The indexes below serve the rest:

``catalogs``   open, sparse: the heads that have a tail; moving a head that has one doesn't touch
               the index
               uncommitted, sparse: the heads without a commit, by the time of their last verdict;
               only moves up to the first commit touch the index
``commits``    catalog, keys, revision: the history of a key; with ``keys`` empty, the commits that
               are kept only for their reply (an empty array has an entry of its own)
               catalog, time_us: the state at a time
               reply_id, sparse: the reply under an idempotency key; a commit without one costs
               nothing
``documents``  catalog, revision of tombstones only: finds what can be purged without reading live
               documents; their writes don't touch the index
``uploads``, ``upload_parts``, ``verdicts``
               expires: MongoDB deletes what has expired
``uploads``    open, expires, principal, bytes: who holds how much, read from the index alone

Sharding: ``catalogs``, ``documents``, ``commits``, ``verdicts``, ``uploads`` and ``upload_parts``
by range of ``_id``, for example ``sh.shardCollection("metadata.commits", {_id: 1})``. Since a
catalog is a range of ``_id``, every write and every read by ``_id`` goes to one shard, the only
unique index stays unique, and a catalog stays on one shard as long as it fits into a chunk. Reads
by another index also have the catalog's range of ``_id`` in their filter, so they ask only the
shards that have the catalog. They name their index, since with that range the planner would choose
between two.
Nothing relies on where a record is. ``leases``, ``subscriptions`` and ``backups`` are a handful of
records, and not sharded.

This module also makes filters on ``_id``: a few values, a span of commits, the names that begin
with a prefix.

Every query on ``documents`` and ``commits`` has one, even if it uses another index that contains
the catalog: the filter tells a sharded cluster which shards to ask. Only a verification of all
catalogs asks for the next name, whichever it is.

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
    """A filter on these values. For a single one, the value itself is cheaper than a list."""
    return next(iter(values)) if len(values) == 1 else {"$in": list(values)}


def of_catalog(catalog: str) -> Record:
    """A filter on all ``_id``s that belong to the catalog."""
    return names_after("", f"{catalog}\0")


def of_catalogs(catalogs: Collection[str]) -> Record:
    """A filter on all ``_id``s that belong to any of the catalogs.

    It has one range over all of them: a range for each would take the server several times as long,
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
    """A filter on the names above ``after`` that begin with ``prefix``."""
    bounds: Record = {"$gt": after} if after >= prefix else {"$gte": prefix}
    end = prefix_end(prefix)
    if end is not None:
        bounds["$lt"] = end
    return bounds


def prefix_end(prefix: str) -> str | None:
    """The lowest text above all texts that begin with ``prefix``; None if there is none."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < sys.maxunicode:
            following = last + 1
            if following == _SURROGATES[0]:
                following = _SURROGATES[1] + 1
            return prefix[: length - 1] + chr(following)
    return None

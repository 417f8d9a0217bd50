"""Which indexes there are, and why; how the collections are sharded.

Each ``_id`` begins with the catalog's name (``gateway.store.mongodb.records``), so the one index
that every collection has anyway serves what is done all day: a head, a document, a span of
commits, a scan over keys. The ones below serve the rest:

``commits``    catalog, keys, revision: the history of a key; with ``keys`` empty, the commits that
               are kept for their reply alone (an empty array has an entry of its own)
               catalog, time_us: the state at a time
               reply_id, sparse: what became of an idempotency key; a commit without one costs
               nothing
``documents``  catalog, revision of tombstones alone: what can be purged, without a look at a
               living document, whose writes it costs nothing
``uploads``, ``upload_parts``
               expires: MongoDB deletes what is past it
``uploads``    open, expires, principal, bytes: who holds how much, read from the index alone

Sharding: ``catalogs``, ``documents``, ``commits``, ``uploads`` and ``upload_parts`` by range of
``_id``, for example ``sh.shardCollection("metadata.commits", {_id: 1})``. Since a catalog is a
range of ``_id``, every write and every read by ``_id`` goes to one shard, the only unique index
stays unique, and a catalog stays in one place as long as it fits into a chunk. Reads by another
index have the catalog's range of ``_id`` beside it, so that they ask the shards that have the
catalog alone; they name their index, since that range would have the planner choose between two.
Nothing relies on where a record is. ``leases`` is a handful of records, and not sharded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pymongo import ASCENDING, IndexModel

# All that the gateway keeps; nobody else may make an index on them that can refuse a write.
COLLECTIONS: Final = frozenset(
    ("catalogs", "commits", "documents", "leases", "tokens", "upload_parts", "uploads")
)
BY_KEY: Final = "catalog_1_keys_1_revision_1"
BY_TIME: Final = "catalog_1_time_us_1"
BY_REPLY: Final = "reply_id_1"
TOMBSTONES: Final = "tombstones"
HELD: Final = "held"

_EXPIRY = IndexModel([("expires", ASCENDING)], expireAfterSeconds=0)

INDEXES: Mapping[str, Sequence[IndexModel]] = {
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
}

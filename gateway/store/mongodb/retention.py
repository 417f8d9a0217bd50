"""Pins, the floor, and the removal of history below it.

Whether a pin holds or the floor passes it is decided by two updates of one record, the head: each
checks what the other has written, and MongoDB puts them in an order. All other steps follow a
raised floor, and may be broken off and repeated. A lease has only one process of all gateways
compact in the background; it runs by the database's clock.

``leases`` ``_id`` the lease's name; holder, and the fields of a lease
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo import DeleteOne, ReplaceOne, ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from gateway.model import CommitRecord, HeadPosition, PinRecord, Retention
from gateway.store.contract import Swept
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.indexes import BY_KEY, TOMBSTONES, of_catalog, span
from gateway.store.mongodb.records import Record

_BOUNDS = dict.fromkeys(("head", "floor", "swept", "pins", "raises"), 1)
# The most raises of a floor that a head keeps. A further one replaces the last, so what the last
# would have let sweep waits for the new one.
_RAISES_MAX = 100


class RetentionPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def retention(self, catalog: str) -> Retention | None:
        there = {"_id": catalog, records.REVISION: {"$gt": 0}}
        with self._on.reading() as session:
            record = self._on.catalogs.find_one(there, _BOUNDS, session=session)
            if record is None or not record.get("raises"):
                return None if record is None else records.retention_from(record)
            # The clock is read after the raises, so no age is too short.
            clock = self._on.catalogs.find_one(there, {"now": "$$NOW"}, session=session)
        return None if clock is None else records.retention_from(record, clock["now"])

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        allowed: Record = {
            "_id": catalog,
            records.REVISION: {"$gte": max(1, pin.revision)},
            "floor": {"$not": {"$gt": pin.revision}},  # no floor: 0
        }
        if held is not None:
            allowed["pins"] = {"$elemMatch": {"id": held.id, "expires_us": held.expires_us}}
        others = _members("$pins", {"$ne": ["$$this.id", {"$literal": pin.id}]})
        mine = {"$literal": [records.pin_record(pin)]}
        return self._update_head(allowed, [{"$set": {"pins": {"$concatArrays": [others, mine]}}}])

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        return self._update_head(
            {"_id": catalog, "pins.id": pin_id}, {"$pull": {"pins": {"id": pin_id}}}
        )

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        holding = {"revision": {"$lt": floor}, "expires_us": {"$gt": now_us}}
        standing: Record = {"$gte": floor} if at is None else {"$gte": floor, "$eq": at}
        allowed = {
            "_id": catalog,
            records.REVISION: standing,
            "floor": {"$not": {"$gte": floor}},
            "pins": {"$not": {"$elemMatch": holding}},
        }
        raised = {
            **_raised(floor),
            "pins": _members("$pins", {"$gt": ["$$this.expires_us", now_us]}),
            "out": {"$max": ["$out", floor]},
            "tail": _members("$tail", {"$gt": ["$$this.revision", floor]}),
        }
        return self._update_head(allowed, [{"$set": raised}])

    def advance_head(self, position: HeadPosition, commit: CommitRecord) -> bool:
        advanced = records.head_advanced(position, commit)
        as_they_are = {name: {"$literal": value} for name, value in advanced.items()}
        update = [{"$set": {**_raised(commit.revision), **as_they_are}}]
        record = records.commit_record(commit)

        def both(session: ClientSession) -> bool:
            at = records.head_at(commit.catalog, position)
            moved = self._on.catalogs.update_one(at, update, session=session).matched_count == 1
            if moved:
                there = {"_id": record["_id"]}
                self._on.commits.replace_one(there, record, upsert=True, session=session)
            return moved

        return self._on.in_transaction(both)

    def end_sweep(self, catalog: str, floor: int) -> None:
        swept = {"$max": {"swept": floor}, "$pull": {"raises": {"floor": {"$lte": floor}}}}
        self._update_head({"_id": catalog}, swept)

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        operations = [_sweep(catalog, each) for each in swept]
        if operations:
            self._on.bulk(self._on.commits.bulk_write, operations, ordered=True)

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        query = {
            **span(catalog, 0, through),
            "catalog": catalog,
            "keys": [],
            "revision": {"$lt": through},
            "time_us": {"$lt": before_us},
            "reply_id": {"$exists": True},
        }
        self._on.ensure_indexes()
        with self._on.writing() as session:
            commits = self._on.commits
            return commits.delete_many(query, hint=BY_KEY, session=session).deleted_count

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        query = {
            "_id": of_catalog(catalog),
            "catalog": catalog,
            "state.deleted": True,
            "state.revision": {"$lte": through},
            "state.time_us": {"$lt": before_us},
        }
        with self._on.reading() as session:
            cursor = self._on.documents.find(query, {"state.revision": 1}, session=session)
            found = list(cursor.hint(TOMBSTONES).limit(limit))
        if not found:
            return 0
        # Each only at the revision that was read: a document that was made again since stays.
        deletions = [
            DeleteOne({"_id": r["_id"], "state.revision": r["state"]["revision"]}) for r in found
        ]
        with self._on.writing() as session:
            documents = self._on.documents
            return documents.bulk_write(deletions, ordered=False, session=session).deleted_count

    def _update_head(self, allowed: Record, update: Any) -> bool:
        with self._on.writing() as session:
            return self._on.catalogs.update_one(allowed, update, session=session).matched_count == 1

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        me = {"$literal": holder}
        free = {"$or": [{"$eq": ["$holder", me]}, records.LEASE_IS_OVER]}
        taken = {
            name: {"$cond": [free, value, f"${name}"]}
            for name, value in {"holder": me, **records.lease_fields(duration_s)}.items()
        }
        with self._on.writing() as session:
            try:
                lease = self._on.database["leases"].find_one_and_update(
                    {"_id": name},
                    [{"$set": taken}],
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            except DuplicateKeyError as error:
                require_name_taken(error)
                return False  # another holder made it at that moment
        return lease is not None and bool(lease["holder"] == holder)


def _raised(floor: int) -> Record:
    earlier = {"$slice": [{"$ifNull": ["$raises", []]}, _RAISES_MAX - 1]}
    raises = {"$concatArrays": [earlier, [{"floor": floor, "at": "$$NOW"}]]}
    return {"floor": floor, "raises": raises}


def _members(array: str, condition: Record) -> Record:
    return {"$filter": {"input": {"$ifNull": [array, []]}, "cond": condition}}


def _sweep(catalog: str, swept: Swept) -> DeleteOne | ReplaceOne[Record]:
    name: Record = {"_id": records.commit_id(catalog, swept.revision)}
    if swept.commit is None:
        return DeleteOne(name)
    # A sweep that arrives late must not bring back what a later one has removed: the filter finds
    # no commit that lacks one of the keys, and nothing is upserted.
    if swept.keys:
        name["keys"] = {"$all": sorted(swept.keys)}
    return ReplaceOne(name, records.commit_record(swept.commit, swept.keys))

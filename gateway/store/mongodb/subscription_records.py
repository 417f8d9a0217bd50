"""Subscriptions: see ``gateway.store.contract`` for the contract.

``subscriptions``  ``_id`` catalog + NUL + name; the fields of ``SubscriptionRecord``; holder and
                   the lease of the worker that delivers for it. A handful of records,
                   listed as a whole, not sharded
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
from pymongo import ReturnDocument
from pymongo.collection import Collection as MongoCollection
from pymongo.errors import DuplicateKeyError

from gateway.store.contract import PROGRESS, SubscriptionRecord
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.indexes import of_catalog
from gateway.store.mongodb.records import LEASE_IS_OVER, LEASE_RUNS, Record, lease_fields

# A revision, and perhaps a position within its documents; see ``SubscriptionRecord``.
_is_position = re.compile(r"(?:[0-9]{1,19}(?:/.*)?)?", re.DOTALL).fullmatch


class MongoSubscriptions(StorePart):
    """See ``gateway.store.contract.SubscriptionStore``. Skips records that can't be read."""

    @property
    def _records(self) -> MongoCollection[Record]:
        return self._on.database["subscriptions"]

    def _ours(self, found: Iterable[Record]) -> list[SubscriptionRecord]:
        return self._readable(found, _from, "subscription")

    def subscription(self, catalog: str, name: str) -> SubscriptionRecord | None:
        with self._on.reading() as session:
            found = list(self._records.find({"_id": _id(catalog, name)}, session=session))
        return next(iter(self._ours(found)), None)

    def has_unreadable_subscription(self, catalog: str, name: str) -> bool:
        return self._unreadable(_id(catalog, name)) is not None

    def _unreadable(self, name: str) -> Record | None:
        """A filter that finds the record, unless it changes, if there is one that can't be read;
        else None."""
        with self._on.reading() as session:
            there = self._records.find_one({"_id": name}, session=session)
        if there is None or self._ours([there]):
            return None
        return {"_id": name, "number": there.get("number")}

    def subscriptions_of(self, catalog: str) -> Sequence[SubscriptionRecord]:
        with self._on.reading() as session:
            found = self._records.find({"_id": of_catalog(catalog)}, session=session)
            return self._ours(found.sort("_id"))

    def create_subscription(self, record: SubscriptionRecord) -> bool:
        named, fields = {"_id": _id(record.catalog, record.name)}, _fields(record)
        with self._on.writing() as session:
            try:
                self._records.insert_one({**named, **fields}, session=session)
                return True
            except DuplicateKeyError as error:
                require_name_taken(error)
        as_it_was = self._unreadable(named["_id"])
        if as_it_was is None:
            return False
        with self._on.writing() as session:
            done = self._records.replace_one(as_it_was, fields, session=session)
        return done.matched_count == 1

    def change_subscription(
        self,
        record: SubscriptionRecord,
        number: int,
        progress: Collection[str],
        *,
        at_revision: bool = False,
    ) -> bool:
        kept = set(PROGRESS).difference(progress)
        fields = {name: value for name, value in _fields(record).items() if name not in kept}
        named: Record = {"_id": _id(record.catalog, record.name), "number": number}
        if at_revision:
            named["position"] = {"$regex": "^[0-9]+$"}
        with self._on.writing() as session:
            done = self._records.update_one(named, {"$set": fields}, session=session)
        return done.matched_count == 1

    def drop_subscription(self, catalog: str, name: str, number: int | None) -> bool:
        named: Record | None = {"_id": _id(catalog, name), "number": number}
        if number is None:
            named = self._unreadable(_id(catalog, name))
        if named is None:
            return False
        with self._on.writing() as session:
            done = self._records.delete_one(named, session=session)
        return done.deleted_count == 1

    def claimable(
        self, holder: str, limit: int
    ) -> tuple[Sequence[SubscriptionRecord], Sequence[tuple[str, str]]]:
        with self._on.reading() as session:
            mine = self._records.find({"holder": holder, "$expr": LEASE_RUNS}, session=session)
            held = self._ours(mine)
            over = {"_id": {"$type": "string"}, "$expr": LEASE_IS_OVER}
            free = self._records.find(over, {"_id": 1}, session=session).limit(limit)
            named = [record["_id"].partition("\0") for record in free]
            return held, [(catalog, name) for catalog, _, name in named]

    def claim_subscription(
        self, catalog: str, name: str, holder: str, duration_s: float
    ) -> SubscriptionRecord | None:
        named = {"_id": _id(catalog, name), "$expr": LEASE_IS_OVER}
        taken = {"holder": {"$literal": holder}, **lease_fields(duration_s)}
        with self._on.writing() as session:
            record = self._records.find_one_and_update(
                named, [{"$set": taken}], return_document=ReturnDocument.AFTER, session=session
            )
        return next(iter(self._ours([] if record is None else [record])), None)

    def renew_claims(self, holder: str, duration_s: float) -> None:
        held = {"holder": holder, "$expr": LEASE_RUNS}
        with self._on.writing() as session:
            self._records.update_many(held, [{"$set": lease_fields(duration_s)}], session=session)

    def end_claim(self, catalog: str, name: str, holder: str) -> None:
        held = {"_id": _id(catalog, name), "holder": holder}
        with self._on.writing() as session:
            self._records.update_one(
                held, {"$unset": {"holder": 1, "until": 1, "lasts_ms": 1}}, session=session
            )

    def save_progress(self, record: SubscriptionRecord, holder: str) -> bool:
        fields = _fields(record)
        held = {
            "_id": _id(record.catalog, record.name),
            "number": record.number,
            "holder": holder,
            "$expr": LEASE_RUNS,
        }
        progress = {"$set": {name: fields[name] for name in PROGRESS}}
        with self._on.writing() as session:
            done = self._records.update_one(held, progress, session=session)
        return done.matched_count == 1


def _id(catalog: str, name: str) -> str:
    return f"{catalog}\0{name}"


def _fields(record: SubscriptionRecord) -> dict[str, Any]:
    return asdict(record) | {"secrets": [list(each) for each in record.secrets]}


def _from(record: Record) -> SubscriptionRecord:
    """The subscription in a record. Raises LookupError, TypeError and ValueError."""
    found = msgspec.convert(record, SubscriptionRecord)
    if record["_id"] != _id(found.catalog, found.name):
        raise ValueError(f"its _id isn't that of {found.name!r} of {found.catalog!r}")
    if not _is_position(found.position):
        raise ValueError(f"its position is {found.position!r}")
    msgspec.json.encode(found)  # raises ValueError for a text that isn't UTF-8
    return found

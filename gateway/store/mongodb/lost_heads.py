"""A head that can't be read as a whole, is at the wrong place, or is gone: what is left of it, and
another one put there. See ``gateway.store.contract.HeadMending``."""

from __future__ import annotations

from typing import Any, Final

from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from gateway.model import CommitRecord, Head
from gateway.store.contract import LostHead
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart
from gateway.store.mongodb.indexes import of_catalog

_NUMBER: Final = {"$type": ["int", "long"]}


class MongoLostHeads(StorePart):
    """See ``gateway.store.contract.HeadMending``."""

    def lost_head(self, catalog: str) -> LostHead:
        with self._on.reading() as session:
            record = self._on.catalogs.find_one({"_id": catalog}, session=session)
        query = {"_id": of_catalog(catalog), "number": _NUMBER}
        with self._on.reading() as session:
            verdicts = self._on.verdicts.find(query, {"number": 1}, session=session)
            judged = max((each["number"] for each in verdicts), default=0)
        return records.lost_head_from(record, judged)

    def put_head(self, lost: LostHead, head: Head, advance: CommitRecord | None) -> bool:
        record = records.whole_head(head, lost)
        put: list[Any] = [{"$literal": record}]
        if head.floor > lost.swept:
            put.append({"raises": [{"floor": head.floor, "at": "$$NOW"}]})
        instead = [{"$replaceWith": {"$mergeObjects": put}}]
        as_found: records.Record = {"_id": head.catalog, "head": {"$exists": False}}
        if lost.record is not None:
            is_it = {"$eq": ["$$ROOT", {"$literal": lost.record}]}
            as_found = {"_id": head.catalog, "$expr": is_it}

        def both(session: ClientSession) -> bool:
            new = lost.record is None
            done = self._on.catalogs.update_one(as_found, instead, upsert=new, session=session)
            is_done = done.matched_count == 1 or done.upserted_id is not None
            if is_done and advance is not None:
                self._on.commits.insert_one(records.commit_record(advance), session=session)
            return is_done

        with self._on.writing() as session:
            concern = self._on.database.write_concern
            try:
                return session.with_transaction(both, write_concern=concern)
            except DuplicateKeyError:  # there is a head by now
                return False

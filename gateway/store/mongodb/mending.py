"""A head that can't be read as a whole, is at the wrong place, or is gone: what is left of it, and
another one put there. A document that nothing can be written over: its record deleted. See
``gateway.store.contract.Mending``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from gateway.model import CommitRecord, Head
from gateway.store.contract import ForeignRecord, LostHead
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart
from gateway.store.mongodb.indexes import of_catalog

_NUMBER: Final = {"$type": ["int", "long"]}


class MongoMending(StorePart):
    """See ``gateway.store.contract.Mending``."""

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
            as_found = _as_it_is(lost.record)

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

    def drop_document(self, catalog: str, key: str, through: int) -> None:
        name = {"_id": records.document_id(catalog, key)}
        with self._on.reading() as session:
            record = self._on.raw_documents.find_one(name, session=session)
        if record is None:
            return
        with suppress(ForeignRecord):
            if records.unweighed_from(record)[1].revision <= through:
                return
        with self._on.writing() as session:
            self._on.documents.delete_one(_as_it_is(record), session=session)


def _as_it_is(record: Mapping[str, Any]) -> records.Record:
    """The filter on a record that is as it was found."""
    return {"_id": record["_id"], "$expr": {"$eq": ["$$ROOT", {"$literal": record}]}}

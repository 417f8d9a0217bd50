"""Replaces a head that can't be read as a whole, is at the wrong position, or is gone; and, by a
move of the head, a record of a document that can't be written over. See
``gateway.store.contract.Mending``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from gateway.model import CommitRecord, DocumentRecord, Head, HeadMove
from gateway.store.contract import ForeignRecord, FoundDocument, LostHead
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.indexes import of_catalog

_NUMBER: Final = {"$type": ["int", "long"]}


class MongoMending(StorePart):
    """See ``gateway.store.contract.Mending``."""

    def lost_head(self, catalog: str) -> LostHead:
        with self._on.reading() as session:
            record = self._on.raw_catalogs.find_one({"_id": catalog}, session=session)
        query = {"_id": of_catalog(catalog), "number": _NUMBER}
        highest = {"$group": {"_id": None, "number": {"$max": "$number"}}}
        with self._on.reading() as session:
            found = list(self._on.verdicts.aggregate([{"$match": query}, highest], session=session))
        return records.lost_head_from(record, found[0]["number"] if found else 0)

    def put_head(self, lost: LostHead, head: Head, advance: CommitRecord | None) -> bool:
        record = records.whole_head(head, lost)
        put: list[Any] = [{"$literal": record}]
        if head.floor > lost.swept:
            put.append({"raises": [{"floor": head.floor, "at": "$$NOW"}]})
        instead = [{"$replaceWith": {"$mergeObjects": put}}]
        name = {"_id": head.catalog}

        def both(session: ClientSession) -> bool:
            # Not in the update's filter: with a long tail, that and the record would be too large
            # for one call.
            if self._on.raw_catalogs.find_one(name, session=session) != lost.record:
                return False
            self._on.catalogs.update_one(name, instead, upsert=True, session=session)
            if advance is not None:
                self._on.commits.insert_one(records.commit_record(advance), session=session)
            return True

        return self._in_transaction(both)

    def found_document(self, catalog: str, key: str) -> FoundDocument | None:
        name = {"_id": records.document_id(catalog, key)}
        with self._on.reading() as session:
            record = self._on.raw_documents.find_one(name, session=session)
        if record is None:
            return None
        document = None
        with suppress(ForeignRecord):
            document = records.unweighed_from(record)[1]
        return FoundDocument(record, document)

    def put_document(
        self, found: FoundDocument, move: HeadMove, document: DocumentRecord | None
    ) -> bool:
        name = {"_id": found.record["_id"]}
        at = records.moved_from(move) | records.in_line(move)

        def both(session: ClientSession) -> bool:
            if self._on.raw_documents.find_one(name, session=session) != found.record:
                return False
            moved = self._on.catalogs.update_one(at, records.head_move(move), session=session)
            if not moved.matched_count:
                return False
            if document is None:
                self._on.documents.delete_one(name, session=session)
            else:
                record = records.document_record(move.catalog, document)
                self._on.documents.replace_one(name, record, session=session)
            return True

        return self._in_transaction(both)

    def _in_transaction(self, write: Callable[[ClientSession], bool]) -> bool:
        """Run ``write`` in a transaction; False also if a record that it would make exists by then.
        Nobody changes what it has read before it writes over that: otherwise, MongoDB refuses its
        write, and the driver begins anew."""

        def unless_taken(session: ClientSession) -> bool:
            try:
                return write(session)
            except DuplicateKeyError as error:
                require_name_taken(error)
                raise _Taken from error

        try:
            return self._on.in_transaction(unless_taken, ReadConcern("snapshot"))
        except _Taken:
            return False


class _Taken(Exception):
    """There was no record to be written over, but there is one by now."""

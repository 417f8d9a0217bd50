"""One client, its collections, and how every part of the store reads and writes through it.

Everything read is majority-read from the primary, and everything written is acknowledged by a
majority with its journal on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from gateway.store.contract import Unreachable
from gateway.store.mongodb import records
from gateway.store.mongodb.elections import ask_primary, known_election
from gateway.store.mongodb.indexes import INDEXES
from gateway.store.mongodb.records import Record

_DUPLICATE_KEY = 11000


class Connection:
    """What the parts of the store share."""

    def __init__(self, client: MongoClient[Record], database: str) -> None:
        self.client = client
        self.database = client.get_database(
            database,
            codec_options=records.PLAIN,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self.catalogs = self.database["catalogs"]
        self.commits = self.database["commits"]
        self.documents = self.database["documents"]
        self.raw_documents = self.documents.with_options(codec_options=records.RAW)
        self._has_indexes = False
        self._lock = Lock()
        self._seen_until: Timestamp | None = None
        # The primary whose last write is among what was seen; "" before any was asked.
        self._election: ObjectId | str | None = ""

    def ensure_indexes(self) -> None:
        """Make the indexes, once for each connection: before its first read, at the latest.

        Raises Unreachable.
        """
        if not self._has_indexes:
            with reaching():
                for name, indexes in INDEXES.items():
                    self.database[name].create_indexes(list(indexes))
            self._has_indexes = True

    @contextmanager
    def reading(self) -> Iterator[ClientSession]:
        """Reads that see every acknowledged write, by whatever process, whichever member answers.

        A member that has just become primary may for a moment answer from before its election;
        told the time of its last write, it waits until a majority has that. Raises Unreachable,
        also where another one became primary meanwhile: it may have answered without being told.
        """
        self.ensure_indexes()
        with reaching(), self.client.start_session(causal_consistency=True) as session:
            election = self._meet_primary()
            if self._seen_until is not None:
                session.advance_operation_time(self._seen_until)
            yield session
            self._saw(session)
            if known_election(self.client) != election:
                raise Unreachable("the primary changed during a read")

    @contextmanager
    def writing(self) -> Iterator[ClientSession]:
        """A write that later reads of this process see. Raises Unreachable."""
        with reaching(), self.client.start_session(causal_consistency=True) as session:
            try:
                yield session
            finally:
                self._saw(session)

    def bulk(
        self, bulk_write: Callable[..., Any], operations: Sequence[Any], ordered: bool = False
    ) -> set[int]:
        """Run a bulk; the indexes of the operations that met a duplicate key. Else Unreachable."""
        try:
            with self.client.start_session(causal_consistency=True) as session:
                try:
                    bulk_write(operations, ordered=ordered, session=session)
                finally:
                    self._saw(session)
        except BulkWriteError as error:
            details = error.details or {}
            failures = details.get("writeErrors", [])
            others = [f for f in failures if f.get("code") != _DUPLICATE_KEY]
            if others or details.get("writeConcernErrors"):
                reasons = others or details["writeConcernErrors"]
                # Not the whole of them: they repeat what was to be written.
                told = [(each.get("code"), str(each.get("errmsg"))[:200]) for each in reasons[:3]]
                raise Unreachable(f"a bulk write failed: {told}") from None
            return {failure["index"] for failure in failures}
        except PyMongoError as error:
            raise Unreachable(str(error)[:500]) from error
        return set()

    def _meet_primary(self) -> ObjectId | str | None:
        """The election of the primary, once its last write is among what was seen."""
        if known_election(self.client) != self._election:
            with self.client.start_session(causal_consistency=True) as session:
                election = ask_primary(self.client, session)
                self._saw(session)
                self._election = election
        return self._election

    def _saw(self, session: ClientSession) -> None:
        time = session.operation_time
        with self._lock:
            if time is not None and (self._seen_until is None or time > self._seen_until):
                self._seen_until = time


class Part:
    """One concern of the store; all of them share a connection."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection


@contextmanager
def reaching() -> Iterator[None]:
    """Tell the driver's errors as the contract's."""
    try:
        yield
    except PyMongoError as error:
        raise Unreachable(str(error)[:500]) from error

"""The commit loop's store on MongoDB. Everything read is majority-read from the primary, and
everything written is acknowledged by a majority with its journal on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bson.timestamp import Timestamp
from pymongo import ASCENDING, DESCENDING, IndexModel, InsertOne, MongoClient, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from gateway.model import Commit, Document, Head
from gateway.store.contract import Move, Moved, Unreachable
from gateway.store.mongodb import records
from gateway.store.mongodb.records import Record
from patching import Json

_DUPLICATE_KEY = 11000
_FEW = 4
_COMMITS_BYTES_MAX = 16 * 1024 * 1024
_HEAD_WITHOUT_BATCH = {"revision": 1, "time_us": 1, "base_revision": 1, "floor": 1}

# None on documents: their `_id` begins with the catalog.
_INDEXES: Mapping[str, Sequence[IndexModel]] = {
    "commits": [
        IndexModel([("catalog", ASCENDING), ("keys", ASCENDING), ("revision", ASCENDING)]),
        IndexModel([("catalog", ASCENDING), ("time_us", ASCENDING)]),
        IndexModel([("reply_id", ASCENDING)], sparse=True),
    ],
}


def connect(uri: str, database: str, timeout_ms: int) -> MongoStore:
    """A store on the database named; connects in the background, with the first call at the latest.

    ``timeout_ms`` bounds each call as a whole, the driver's own retries included. Raises
    ValueError where the URI is malformed.
    """
    try:
        client: MongoClient[Record] = MongoClient(
            uri,
            timeoutMS=timeout_ms,
            serverSelectionTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
            # The loop repeats writes itself, and knows which of them must be looked up first. The
            # driver's own way costs the server a fifth to a third more for each write.
            retryWrites=False,
            appname="metadata-gateway",
        )
    except (PyMongoError, ValueError) as error:
        raise ValueError(f"the MongoDB URI can't be used: {error}") from error
    return MongoStore(client, database)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except PyMongoError as error:
        raise Unreachable(str(error)[:500]) from error


class MongoStore:
    """See ``gateway.store.contract.Store``."""

    def __init__(self, client: MongoClient[Record], database: str) -> None:
        self._client = client
        self._database = client.get_database(
            database,
            codec_options=records.PLAIN,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self._catalogs = self._database["catalogs"]
        self._commits = self._database["commits"]
        self._documents = self._database["documents"]
        self._raw_documents = self._documents.with_options(codec_options=records.RAW)
        self._has_indexes = False
        self._seen_until: Timestamp | None = None

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        query = {"_id": _one_of(catalogs)}
        self._ensure_indexes()
        with self._reading() as session:
            found = list(self._catalogs.find(query, _HEAD_WITHOUT_BATCH, session=session))
        return {record["_id"]: records.head_from(record) for record in found}

    def head_with_batch(self, catalog: str) -> Head | None:
        with self._reading() as session:
            record = self._catalogs.find_one({"_id": catalog}, session=session)
        return None if record is None else records.head_from(record)

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
        prefixes: dict[str, list[Commit]] = {}
        left_bytes = _COMMITS_BYTES_MAX
        with self._reading() as session:
            for record in self._commits.find(_in_spans(spans), session=session).sort("_id"):
                catalog = record["catalog"]
                prefix = prefixes.setdefault(catalog, [])
                if record["revision"] == spans[catalog][0] + len(prefix) + 1:
                    prefix.append(records.commit_from(record))
                left_bytes -= len(record["changes"])
                if left_bytes < 0:
                    break
        return prefixes

    def documents(self, keys: Mapping[str, Collection[str]]) -> Mapping[tuple[str, str], Document]:
        ids = [records.document_id(c, key) for c, wanted in keys.items() for key in wanted]
        query = {"_id": _one_of(ids)}
        with self._reading() as session:
            raw = self._raw_documents.find(query, session=session)
            found = [records.document_from(each) for each in raw]
        return {(catalog, document.key): document for catalog, document in found}

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Commit]:
        ids = [
            records.reply_id(catalog, principal, key)
            for catalog, wanted in keys.items()
            for principal, key in wanted
        ]
        with self._reading() as session:
            found = list(self._commits.find({"reply_id": _one_of(ids)}, session=session))
        replies = {}
        for commit in map(records.commit_from, found):
            assert commit.idempotency is not None
            replies[commit.catalog, commit.idempotency.principal, commit.idempotency.key] = commit
        return replies

    def move_heads(self, moves: Sequence[Move]) -> Mapping[str, Moved]:
        # With upsert, a head that is elsewhere answers with a duplicate key, for that catalog
        # alone: the filter doesn't match it, and its name can't be inserted a second time.
        updates = [
            UpdateOne(
                {"_id": move.to.catalog, "revision": move.to.base_revision},
                {"$set": records.head_record(move.to)},
                upsert=True,
            )
            for move in moves
        ]
        lost = self._bulk(self._catalogs.bulk_write, updates)
        return {
            move.to.catalog: Moved.LOST if index in lost else Moved.WON
            for index, move in enumerate(moves)
        }

    def write_documents(self, documents: Mapping[str, Sequence[Document]]) -> None:
        left = [
            UpdateOne(
                {"_id": records.document_id(catalog, document.key)},
                records.document_update(catalog, document),
                upsert=True,
            )
            for catalog, changed in documents.items()
            for document in changed
        ]
        while left:
            # Two inserts of one document at the same time: the second one becomes an update.
            left = [left[index] for index in self._bulk(self._documents.bulk_write, left)]

    def write_commits(self, commits: Sequence[Commit]) -> None:
        left = [InsertOne(records.commit_record(commit)) for commit in commits]
        while left:
            # In order, so that a visible commit proves the ones before it; one that is there
            # already stops the insert, which goes on behind it.
            there = self._bulk(self._commits.bulk_write, left, ordered=True)
            left = left[min(there) + 1 :] if there else []

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[Commit]:
        query = {"catalog": catalog, "keys": key, "revision": {"$lte": through}}
        found: list[Commit] = []
        with self._reading() as session:
            cursor = self._commits.find(query, session=session).sort("revision", DESCENDING)
            # Few at a time: often the first one says everything, and they may be large.
            for record in cursor.batch_size(_FEW):
                found.append(records.commit_from(record))
                if found[-1].change_of(key).begins_at(found[-1].revision):
                    break
        return found

    def commit_at(self, catalog: str, time_us: int) -> Commit | None:
        query = {"catalog": catalog, "time_us": {"$lte": time_us}}
        with self._reading() as session:
            latest = [("time_us", DESCENDING)]
            record = self._commits.find_one(query, sort=latest, session=session)
        return None if record is None else records.commit_from(record)

    def list_commits(
        self, catalog: str, after: int, through: int, limit: int, key: str | None, bytes_max: int
    ) -> Sequence[Commit]:
        if key is None:
            query: Record = _span(catalog, after, through)
            order = "_id"
        else:
            query = {"catalog": catalog, "keys": key, "revision": {"$gt": after, "$lte": through}}
            order = "revision"
        commits: list[Commit] = []
        with self._reading() as session:
            cursor = self._commits.find(query, session=session).sort(order, ASCENDING)
            for record in cursor.limit(limit):
                commits.append(records.commit_from(record))
                bytes_max -= len(record["changes"])
                if bytes_max <= 0:
                    break
        return commits

    def stored_bytes(self, content: Json) -> int:
        return records.stored_bytes(content)

    def ping(self) -> None:
        with _reaching():
            self._client.admin.command("ping", read_preference=ReadPreference.PRIMARY)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _reading(self) -> Iterator[ClientSession]:
        """Reads that see everything this process has seen or written, whichever member answers.

        A member that has just become primary may for a moment answer from before its election;
        told the latest time that was seen, it waits until it has caught up. Raises Unreachable.
        """
        with _reaching(), self._client.start_session(causal_consistency=True) as session:
            if self._seen_until is not None:
                session.advance_operation_time(self._seen_until)
            yield session
            self._saw(session)

    def _saw(self, session: ClientSession) -> None:
        time = session.operation_time
        if time is not None and (self._seen_until is None or time > self._seen_until):
            self._seen_until = time

    def _bulk(
        self, bulk_write: Callable[..., Any], operations: Sequence[Any], ordered: bool = False
    ) -> set[int]:
        """Run a bulk; the indexes of the operations that met a duplicate key. Else Unreachable."""
        try:
            with self._client.start_session(causal_consistency=True) as session:
                try:
                    bulk_write(operations, ordered=ordered, session=session)
                finally:
                    self._saw(session)
        except BulkWriteError as error:
            details = error.details or {}
            failures = details.get("writeErrors", [])
            others = [f for f in failures if f.get("code") != _DUPLICATE_KEY]
            if others or details.get("writeConcernErrors"):
                reason = others or details["writeConcernErrors"]
                raise Unreachable(f"a bulk write failed: {str(reason)[:500]}") from error
            return {failure["index"] for failure in failures}
        except PyMongoError as error:
            raise Unreachable(str(error)[:500]) from error
        return set()

    def _ensure_indexes(self) -> None:
        if not self._has_indexes:
            with _reaching():
                for name, indexes in _INDEXES.items():
                    self._database[name].create_indexes(list(indexes))
            self._has_indexes = True


def _one_of(values: Collection[str]) -> Any:
    """A query on a single value is cheaper than one on a list of one."""
    return next(iter(values)) if len(values) == 1 else {"$in": list(values)}


def _span(catalog: str, after: int, through: int) -> Record:
    return {
        "_id": {
            "$gt": records.commit_id(catalog, after),
            "$lte": records.commit_id(catalog, through),
        }
    }


def _in_spans(spans: Mapping[str, tuple[int, int]]) -> Record:
    single = [
        records.commit_id(catalog, through)
        for catalog, (after, through) in spans.items()
        if through == after + 1
    ]
    branches = [
        _span(catalog, after, through)
        for catalog, (after, through) in spans.items()
        if through != after + 1
    ]
    if single:
        branches.append({"_id": _one_of(single)})
    return branches[0] if len(branches) == 1 else {"$or": branches}

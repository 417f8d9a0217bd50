"""Reads of written-out commits, by key, by time and in pages; catalogs and documents by name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar, cast

import msgspec
import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection as Stored

from gateway import memory
from gateway.cpu import yield_if_over
from gateway.model import (
    APPLICATIONS_KEY,
    BareDocument,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
)
from gateway.store.contract import (
    NEAR_COMMITS,
    RANGE_BYTES_MAX,
    SCANNED_BYTES_MAX,
    Scanned,
    Undecoded,
)
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart
from gateway.store.mongodb.indexes import BY_KEY, BY_TIME, names_after, of_catalog, one_of, span
from gateway.store.mongodb.records import Record

_T = TypeVar("_T")
# How many commits on a key are read first, and how many at a time after that.
_FEW = 4
_MANY = 64
# The highest revision that there can be.
_LAST: Final = 2**63 - 1
# The size of the pieces in which raw batches are decoded.
_PIECE_BYTES: Final = 512 * 1024
_length_at = struct.Struct("<i").unpack_from  # each record begins with its length


class HistoryPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
        found: list[Record] = []
        size = 0
        # Few at first: the newest often holds the whole document, and may be large. If it doesn't,
        # one query reads the rest of the chain: patches, and then one whole document.
        for limit in (_FEW, 0):
            through = found[-1]["revision"] - 1 if found else through
            newest_first = self._newest_first(catalog, key, through, limit)
            for record in newest_first:
                size += len(record["changes"])
                if size > memory.REPLY_BYTES:  # the account already holds that much for an answer
                    memory.account().require(size)
                found.append(record)
                if _begins(record):
                    newest_first.close()
                    return _chain(found)
            if len(found) < _FEW:
                break
        return _chain(found)

    def _newest_first(
        self, catalog: str, key: str, through: int, limit: int
    ) -> Generator[Record, None, None]:
        """At most ``limit`` commits on ``key`` up to ``through``, newest first; 0: all of them."""
        query = _of_keys(catalog, key, 0, through)
        with self._on.reading() as session:
            cursor = self._on.commits.find(query, session=session).sort("revision", DESCENDING)
            with cursor.hint(BY_KEY).limit(limit).batch_size(limit or _MANY) as records_found:
                for record in records_found:
                    yield _of_key_alone(record, key)

    def commit_at(self, catalog: str, time_us: int) -> CommitRecord | None:
        query = {"_id": of_catalog(catalog), "catalog": catalog, "time_us": {"$lte": time_us}}
        with self._on.reading() as session:
            latest = [("time_us", DESCENDING)]
            record = self._on.commits.find_one(query, sort=latest, hint=BY_TIME, session=session)
        return None if record is None else records.commit_from(record)

    def list_commits(
        self,
        catalog: str,
        after: int,
        through: int,
        limit: int,
        keys: str | Collection[str] | None,
        bytes_max: int,
        *,
        author: str | None = None,
        newest_first: bool = False,
    ) -> Sequence[CommitRecord]:
        if keys is None:
            query, order, index = span(catalog, after, through), "_id", "_id_"
        else:
            named = keys if isinstance(keys, str) else one_of(keys)
            query, order, index = _of_keys(catalog, named, after, through), "revision", BY_KEY
        if author is not None:
            query = {**query, "author": author}
        direction = DESCENDING if newest_first else ASCENDING
        found: list[Record] = []
        with self._on.reading() as session:
            cursor = self._on.commits.find(query, session=session).sort(order, direction)
            with cursor.hint(index).limit(limit):
                for record in cursor:
                    found.append(record)
                    bytes_max -= _changes_size(record)
                    if bytes_max <= 0:
                        break
        return Undecoded(found, records.commit_from, _changes_size)

    def count_commits(self, catalog: str, after: int, through: int) -> int:
        query = span(catalog, after, through)
        with self._on.reading() as session:
            return self._on.commits.count_documents(query, hint="_id_", session=session)

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[CommitRecord]:
        if not keys:
            return []
        query = _of_keys(catalog, one_of(keys), 0, through)
        with self._on.reading() as session:
            cursor = self._on.commits.find(query, session=session).hint(BY_KEY)
            found = [records.commit_from(record) for record in cursor]
        # Sorted here: the server would sort whole records, and has less memory for it.
        return sorted(found, key=lambda commit: commit.revision)


class _Named(msgspec.Struct):
    key: str


class _Beginning(msgspec.Struct):
    """The fields that tell whether a change holds the whole document; its content isn't parsed."""

    action: str
    create_revision: int
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_beginnings_in = msgspec.json.Decoder(list[_Beginning]).decode
_changes_in = msgspec.json.Decoder(list[msgspec.Raw]).decode
_name_of = msgspec.json.Decoder(_Named).decode


def _chain(found: Sequence[Record]) -> Undecoded[CommitRecord]:
    return Undecoded(found, records.bounded_commit_from, _changes_size, _changes_text)


def _begins(record: Record) -> bool:
    """Whether the record's one change needs no state before it: see ``Change.begins_at``."""
    with records.as_unreadable(record):
        (change,) = _beginnings_in(record["changes"])
    is_whole = change.action == "delete" or change.value is not msgspec.UNSET
    return is_whole or change.create_revision == record["revision"]


def _of_key_alone(record: Record, key: str) -> Record:
    """The record without its changes of other keys, which may be many and large."""
    with records.as_unreadable(record):
        changes = _changes_in(record["changes"])
        if len(changes) < 2:
            return record
        of_key = [each for each in changes if _name_of(each).key == key]
    return {**record, "changes": b"[" + b",".join(map(bytes, of_key)) + b"]"}


def _of_keys(catalog: str, keys: Any, after: int, through: int) -> Record:
    """The query for the commits on ``keys`` (one key, or a filter on keys) above ``after`` up to
    ``through``."""
    revisions = {"$gt": after, "$lte": through}
    return {
        **span(catalog, after, through),
        "catalog": catalog,
        "keys": keys,
        "revision": revisions,
    }


def _scan(catalog: str, after: str, prefix: str) -> Record:
    first, beginning, own = (
        records.document_id(catalog, name) for name in (after, prefix, APPLICATIONS_KEY)
    )
    return {"_id": {**names_after(first, beginning), "$ne": own}}


class ListingsPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        heads: list[Head] = []
        while (lacking := limit - len(heads)) > 0:
            query = {"_id": names_after(after, prefix), records.REVISION: {"$gt": 0}}
            with self._on.reading() as session:
                cursor = self._on.catalogs.find(query, records.BARE_HEAD, session=session)
                found = list(cursor.sort("_id").limit(lacking))
            heads += records.readable_heads(found)
            if len(found) < lacking:
                break
            after = found[-1]["_id"]
        return heads

    def catalog_names(self, after: str, limit: int) -> Sequence[str]:
        query = {"_id": names_after(after, ""), records.REVISION: {"$ne": 0}}
        with self._on.reading() as session:
            heads = self._on.catalogs.find(query, {"_id": 1}, session=session)
            names = {record["_id"] for record in heads.sort("_id").limit(limit)}
        last = max(names) if len(names) == limit else None
        for collection in (self._on.commits, self._on.documents):
            names |= self._without_head(collection, after, last, limit)
        return sorted(names)[:limit]

    def _without_head(
        self, collection: Stored[Record], after: str, last: str | None, limit: int
    ) -> set[str]:
        """At most ``limit`` catalogs above ``after``, up to ``last``, that have no head, but
        records in this collection."""
        found: set[str] = set()
        beginning = f"{after}\x01" if after else ""  # above all records of that catalog
        while len(found) < limit:
            with self._on.reading() as session:
                query = {"_id": {"$gt": beginning}}
                record = collection.find_one(query, {"_id": 1}, sort=[("_id", 1)], session=session)
                name = None if record is None else record["_id"].partition("\0")[0]
                if name is None or (last is not None and name > last):
                    break
                if not self._on.catalogs.find_one({"_id": name}, {"_id": 1}, session=session):
                    found.add(name)
            beginning = f"{name}\x01"
        return found

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[DocumentRecord]:
        query = _scan(catalog, after, prefix)
        found: list[RawBSONDocument] = []
        with self._on.reading() as session:
            cursor = self._on.raw_documents.find(query, session=session).sort("_id").limit(limit)
            with cursor:
                for raw in cursor:
                    found.append(raw)
                    bytes_max -= len(raw.raw)
                    if bytes_max <= 0:
                        break
        return Undecoded(found, _document, _size)

    def list_range(
        self, catalog: str, prefix: str, newer_than: int, limit: int
    ) -> Scanned[BareDocument]:
        query = {
            **_scan(catalog, "", prefix),
            # These include documents that can't be read: they aren't known to be deleted.
            "$or": [{"state.deleted": {"$ne": True}}, {"state.revision": {"$gt": newer_than}}],
        }
        with self._on.reading() as session:
            batches = self._on.documents.find_raw_batches(
                query, records.BARE_DOCUMENT, session=session
            )
            with batches.sort("_id").hint("_id_").limit(limit).batch_size(limit) as cursor:
                return _scanned(cursor, records.bare_documents_from, limit, RANGE_BYTES_MAX)

    def range_changed(
        self, catalog: str, prefix: str, after: int, through: int, within_s: float | None = None
    ) -> int | None:
        keys = {"$elemMatch": {**names_after("", prefix), "$ne": APPLICATIONS_KEY}}
        query = _of_keys(catalog, keys, after, through)
        in_time = nullcontext() if within_s is None else pymongo.timeout(within_s)
        with in_time, self._on.reading() as session:
            cursor = self._on.commits.find(query, {"revision": 1, "_id": 0}, session=session)
            if through - after <= NEAR_COMMITS:
                cursor = cursor.sort("_id", DESCENDING).hint("_id_")
            else:
                cursor = cursor.hint(BY_KEY)
            found = next(iter(cursor.limit(1)), None)
        return None if found is None else int(found["revision"])

    def scan_digests(
        self,
        catalog: str,
        after: str,
        prefix: str,
        limit: int,
        *,
        above: int = 0,
        parts: bool = False,
    ) -> Scanned[Digested]:
        if above and self._is_near(catalog, above):
            return self._changed_above(catalog, after, prefix, limit, above, parts)
        query = _scan(catalog, after, prefix)
        if above:
            query["state.revision"] = {"$not": {"$lte": above}}  # matches also what is no number
        return self._digests(query, parts, limit)

    def _is_near(self, catalog: str, above: int) -> bool:
        query = span(catalog, above, _LAST)
        with self._on.reading() as session:
            count = self._on.commits.count_documents(
                query, limit=NEAR_COMMITS + 1, hint="_id_", session=session
            )
        return count <= NEAR_COMMITS

    def _changed_above(
        self, catalog: str, after: str, prefix: str, limit: int, above: int, parts: bool
    ) -> Scanned[Digested]:
        """The documents that the few commits above revision ``above`` have changed."""
        found: Scanned[Digested] = Scanned()
        while True:
            keys = self._keys_above(catalog, after, prefix, limit, above)
            records = self.digests_of(catalog, keys, parts=parts)
            found += [each for each in records if each.revision > above]
            # Fewer records than keys don't mean the end: what a commit deleted may be purged.
            found.is_whole = records.is_whole and len(keys) < limit
            if found.is_whole or len(found) >= limit or (found and not records.is_whole):
                if len(found) > limit:
                    return Scanned(found[:limit], is_whole=False)
                return found
            after = keys[-1] if records.is_whole else records[-1].key

    def _keys_above(
        self, catalog: str, after: str, prefix: str, limit: int, above: int
    ) -> Sequence[str]:
        stages: list[Record] = [
            {"$match": span(catalog, above, _LAST)},
            {"$project": {"keys": 1}},
            {"$unwind": "$keys"},
            {"$match": {"keys": {**names_after(after, prefix), "$ne": APPLICATIONS_KEY}}},
            {"$group": {"_id": "$keys"}},
            {"$sort": {"_id": 1}},
            {"$limit": limit},
        ]
        with self._on.reading() as session:
            cursor = self._on.commits.aggregate(stages, hint="_id_", session=session)
            return [each["_id"] for each in cursor]

    def digests_of(
        self, catalog: str, keys: Collection[str], *, parts: bool = False
    ) -> Scanned[Digested]:
        ids = [records.document_id(catalog, key) for key in keys]
        return self._digests({"_id": {"$in": ids}}, parts)

    def _digests(self, query: Record, parts: bool, limit: int = 0) -> Scanned[Digested]:
        """At most ``limit`` of the documents that ``query`` finds; 0: all."""
        shown = {**records.DIGESTED, **records.PARTS} if parts else records.DIGESTED
        with self._on.reading() as session:
            batches = self._on.documents.find_raw_batches(query, shown, session=session)
            with batches.sort("_id").limit(limit).batch_size(limit) as cursor:
                return _scanned(cursor, records.digested_from, limit, SCANNED_BYTES_MAX)

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
        by_id = {records.document_id(*name): name for name in keys}
        query = {"_id": one_of([*by_id])}
        found: dict[tuple[str, str], BareDocument] = {}
        left_bytes = SCANNED_BYTES_MAX
        with self._on.reading() as session:
            raw = self._on.raw_documents.find(query, records.BARE_DOCUMENT, session=session)
            with raw.sort("_id") as cursor:
                for each in cursor:
                    catalog, document = records.bare_document_from(each)
                    found[catalog, document.key] = document
                    left_bytes -= len(each.raw)
                    if left_bytes <= 0:
                        last = records.document_id(catalog, document.key).encode()
                        return found, [by_id[i] for i in by_id if i.encode() > last]
        return found, ()

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        with self._on.reading() as session:
            query = _scan(catalog, after, prefix)
            cursor = self._on.documents.find(query, {"_id": 1}, session=session).sort("_id")
            ids = [record["_id"] for record in cursor.limit(limit).batch_size(limit)]
        return [each[len(catalog) + 1 :] for each in ids]


def _document(raw: RawBSONDocument) -> DocumentRecord:
    return records.document_from(raw)[1]


def _size(raw: RawBSONDocument) -> int:
    return len(raw.raw)


def _changes_size(record: Record) -> int:
    with records.as_unreadable(record):
        return len(record["changes"])


def _changes_text(record: Record) -> str | bytes:
    return cast("str | bytes", record["changes"])


def _scanned(
    batches: Iterable[Any], decode: Callable[[bytes], list[_T]], limit: int, bytes_max: int
) -> Scanned[_T]:
    """The records of raw batches, up to the one that fills ``bytes_max``, or a few more. ``limit``
    is that of the query (0: none)."""
    found: Scanned[_T] = Scanned()
    for piece in _pieces(batches):
        if bytes_max <= 0:
            found.is_whole = False
            return found
        bytes_max -= len(piece)
        yield_if_over()
        found += decode(piece)
    found.is_whole = not 0 < limit <= len(found)
    return found


def _pieces(batches: Iterable[Any]) -> Iterator[bytes]:
    """The same records in pieces of _PIECE_BYTES or a little more, each to be decoded at once."""
    for batch in batches:
        begin = end = 0
        while len(batch) - begin > _PIECE_BYTES:
            while end - begin < _PIECE_BYTES:
                end += _length_at(batch, end)[0]
            yield batch[begin:end]
            begin = end
        if begin < len(batch):
            yield batch[begin:] if begin else batch

"""A catalog's log as it is stored, read and written as BSON, and the file that holds it.

The file is a sequence of BSON documents: one with the catalog's head, then the commits, oldest
first, then their number and SHA-256, so that a file that was cut off or damaged is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Final

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from gateway.model import DocumentRecord, Head
from gateway.store.contract import BackupRefused, LoggedCommit, StoredCommit
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.format import BROKEN_OFF, RESTORED
from gateway.store.mongodb.indexes import of_catalog, span

# The most commits of a page.
_AT_ONCE: Final = 500
# The most records that one call erases.
_ERASED_ONCE: Final = 2_000
# The bytes of commits that end a page.
_PAGE_BYTES: Final = 16 * 1024 * 1024
# How long a catalog's name stays reserved for a restore that stands still.
_KEPT_S: Final = 60.0
_KIND: Final = "metadata gateway backup"
_HEAD: Final = ("catalog", "revision", "time_us", "floor", "deleted", "last")


class CopyFile:
    """A file that a catalog is copied to."""

    def __init__(self, file: BinaryIO, head: Head) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.commits = 0
        shown = {name: getattr(head, name) for name in _HEAD}
        file.write(bson.encode({"kind": _KIND, "format": records.FORMAT, "head": shown}))

    def add(self, commit: bytes) -> None:
        self._file.write(commit)
        self._digest.update(commit)
        self.commits += 1

    def end(self) -> None:
        end = {"commits": self.commits, "sha256": self._digest.hexdigest()}
        self._file.write(bson.encode(end))


def _under(catalog: str, commit: RawBSONDocument) -> bytes:
    """The stored commit, as one of another catalog. It can't be found by its idempotency key: the
    request under that key was for the former catalog."""
    record: records.Record = bson.decode(commit.raw)  # this keeps 64-bit numbers 64 bits wide
    record["_id"] = records.commit_id(catalog, record["revision"])
    record["catalog"] = catalog
    record.pop("reply_id", None)
    return bson.encode(record)


def _head(begin: RawBSONDocument | None) -> Head:
    if begin is None or begin.get("kind") != _KIND:
        raise BackupRefused("the file isn't a backup of a catalog")
    if begin["format"] != records.FORMAT:
        raise BackupRefused(
            f"the file has database format {begin['format']}, but this gateway has {records.FORMAT}"
        )
    return Head(**{name: begin["head"][name] for name in _HEAD}, written=begin["head"]["revision"])


def _elsewhere(catalog: str) -> BackupRefused:
    return BackupRefused(
        f"another restore of {catalog!r} is under way; if it was killed, try again in a minute"
    )


def _restored(catalog: str, by: str) -> records.Record:
    return {"_id": catalog, "head.format": RESTORED, "head.last": by}


def _records(file: BinaryIO) -> Iterator[Any]:
    file.seek(0)
    return bson.decode_file_iter(file, records.RAW)


class MongoCopies(StorePart):
    """See ``gateway.store.contract.CopyStore``."""

    def copy_to(self, file: BinaryIO, head: Head) -> CopyFile:
        return CopyFile(file, head)

    def copied_head(self, file: BinaryIO) -> tuple[Head, int]:
        count, digest, end = 0, hashlib.sha256(), None
        try:
            begin = next(_records(file), None)
        except BSONError:
            begin = None  # another kind of file
        try:
            head = _head(begin)
            for each in islice(_records(file), 1, None):
                if "sha256" in each:
                    end = each["commits"], each["sha256"]
                else:
                    count += 1
                    digest.update(each.raw)
        except (BSONError, KeyError, TypeError) as error:
            raise BackupRefused("the file is damaged, or a part of it is missing") from error
        if end != (count, digest.hexdigest()):
            raise BackupRefused("the file is damaged, or a part of it is missing")
        return head, count

    def copied_commits(self, file: BinaryIO, head: Head) -> Iterator[StoredCommit]:
        for each in islice(_records(file), 1, None):
            if "sha256" in each:
                return
            if each["catalog"] == head.catalog:
                yield StoredCommit(bytes(each.raw), each["keys"])
            elif each["keys"] or each["revision"] >= head.floor:
                yield StoredCommit(_under(head.catalog, each), each["keys"])

    def commits(self, catalog: str, after: int, through: int) -> tuple[Sequence[bytes], int]:
        raw = self._on.commits.with_options(codec_options=records.RAW)
        query = span(catalog, after, through)
        with self._on.reading() as session:
            cursor = raw.find(query, session=session).sort("_id", ASCENDING)
            found, last = _page(cursor.limit(_AT_ONCE))
        return found, records.named_by(last)[1] if found else through

    def logged(self, commit: bytes) -> LoggedCommit:
        return records.logged_from(commit)

    def begin_restore(self, catalog: str, by: str) -> None:
        head = {"format": RESTORED, "revision": 0, "last": by, "judged": 0, "verdict": ""}
        kept = [{"$set": {"head": head, **records.lease_fields(_KEPT_S)}}]
        new = {"_id": catalog, "head": {"$exists": False}}
        with self._on.writing() as session:
            try:
                self._on.catalogs.update_one(new, kept, upsert=True, session=session)
                return
            except DuplicateKeyError as error:
                require_name_taken(error)
        with self._on.writing() as session:
            left = {"_id": catalog, **BROKEN_OFF}
            taken = self._on.catalogs.update_one(left, kept, session=session)
        if not taken.matched_count:
            raise self._refusal(catalog)
        self._erase(catalog, by)

    def _refusal(self, catalog: str) -> BackupRefused:
        with self._on.reading() as session:
            named = {"_id": catalog, "head.format": RESTORED}
            restored = self._on.catalogs.find_one(named, session=session)
        if restored:
            return _elsewhere(catalog)
        return BackupRefused(
            f"catalog {catalog!r} exists, or was deleted and its history is kept: restore it under"
            " another name (--as), or into another database (--database)"
        )

    def drop_restore(self, catalog: str, by: str) -> None:
        self._erase(catalog, by)
        with self._on.writing() as session:
            self._on.catalogs.delete_one(_restored(catalog, by), session=session)

    def _erase(self, catalog: str, by: str) -> None:
        of_it = {"_id": of_catalog(catalog)}
        for collection in (self._on.commits, self._on.documents):
            while True:
                with self._on.reading() as session:
                    found = collection.find(of_it, {"_id": 1}, session=session).limit(_ERASED_ONCE)
                    names = [each["_id"] for each in found]
                if not names:
                    break
                those = {"_id": {"$in": names}}
                self._as_restorer(catalog, by, partial(collection.delete_many, those))

    def put_commits(self, catalog: str, by: str, commits: Sequence[bytes]) -> None:
        inserts = [RawBSONDocument(each, records.RAW) for each in commits]
        self._as_restorer(catalog, by, partial(self._on.commits.insert_many, inserts))

    def put_documents(self, catalog: str, by: str, documents: Sequence[DocumentRecord]) -> None:
        inserts = [records.document_record(catalog, each) for each in documents]
        self._as_restorer(catalog, by, partial(self._on.documents.insert_many, inserts))

    def put_head(self, head: Head, by: str) -> None:
        record: records.Record = {
            "head": records.head_fields(head.position),
            "time_us": head.time_us,
            "out": head.revision,
            "tail": [],
            "floor": head.floor,
            "deleted": head.deleted,
        }
        with self._on.writing() as session:
            begun = _restored(head.catalog, by)
            if not self._on.catalogs.replace_one(begun, record, session=session).matched_count:
                raise _elsewhere(head.catalog)

    def _as_restorer(self, catalog: str, by: str, write: Callable[..., Any]) -> None:
        """Write, and reserve the name for another minute, both or neither: a process that stood
        still writes nothing into what a later restore makes."""

        def both(session: ClientSession) -> None:
            kept = [{"$set": records.lease_fields(_KEPT_S)}]
            held = self._on.catalogs.update_one(_restored(catalog, by), kept, session=session)
            if not held.matched_count:
                raise _elsewhere(catalog)
            write(session=session)

        self._on.in_transaction(both)

    def note_copy(self, catalog: str, revision: int, time_us: int) -> None:
        noted = {"revision": revision, "time_us": time_us}
        with self._on.writing() as session:
            self._on.database["backups"].update_one(
                {"_id": catalog}, {"$set": noted}, upsert=True, session=session
            )


def _page(cursor: Iterable[RawBSONDocument]) -> tuple[list[bytes], str]:
    """The commits up to the one that exceeds _PAGE_BYTES, and the ``_id`` of the last."""
    page: list[bytes] = []
    size_bytes, last = 0, ""
    for each in cursor:
        page.append(bytes(each.raw))
        size_bytes, last = size_bytes + len(page[-1]), each["_id"]
        if size_bytes > _PAGE_BYTES:
            break
    return page, last

"""One catalog's log as it is stored, read and put back as BSON, and the file that holds it.

The file is a sequence of BSON documents: what it is of, then the commits, oldest first, then how
many and their SHA-256, so that one that was cut off or damaged is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, InsertOne
from pymongo.errors import DuplicateKeyError

from gateway.model import Head
from gateway.store.contract import BackupRefused, StoredCommit
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart
from gateway.store.mongodb.format import RESTORED
from gateway.store.mongodb.indexes import of_catalog, span

_AT_ONCE: Final = 500
_ERASED_ONCE: Final = 2_000
_PAGE_BYTES: Final = 16 * 1024 * 1024
_KIND: Final = "metadata gateway backup"
_HEAD: Final = ("catalog", "revision", "time_us", "floor", "deleted", "last")


class CopyFile:
    """A file that a catalog is copied to."""

    def __init__(self, file: BinaryIO, head: Head) -> None:
        self._file = file
        self._seen = hashlib.sha256()
        self.commits = 0
        shown = {name: getattr(head, name) for name in _HEAD}
        file.write(bson.encode({"kind": _KIND, "format": records.FORMAT, "head": shown}))

    def add(self, commit: bytes) -> None:
        self._file.write(commit)
        self._seen.update(commit)
        self.commits += 1

    def end(self) -> None:
        end = {"commits": self.commits, "sha256": self._seen.hexdigest()}
        self._file.write(bson.encode(end))


def _copied_head(file: BinaryIO) -> tuple[Head, int]:
    count, seen, end = 0, hashlib.sha256(), None
    try:
        head = _head(next(_records(file), None))
        for each in islice(_records(file), 1, None):
            if "sha256" in each:
                end = each["commits"], each["sha256"]
            else:
                count += 1
                seen.update(each.raw)
    except (BSONError, KeyError, TypeError) as error:
        raise BackupRefused(f"the file is damaged: {error}") from error
    if end != (count, seen.hexdigest()):
        raise BackupRefused("the file is damaged, or a part of it is missing")
    return head, count


def _copied_commits(file: BinaryIO) -> Iterator[StoredCommit]:
    return (
        StoredCommit(bytes(each.raw), each["keys"])
        for each in islice(_records(file), 1, None)
        if "sha256" not in each
    )


def _head(begin: RawBSONDocument | None) -> Head:
    if begin is None or begin.get("kind") != _KIND:
        raise BackupRefused("this is no backup of a catalog")
    if begin["format"] != records.FORMAT:
        raise BackupRefused(
            f"it has format {begin['format']} of the database, and this gateway {records.FORMAT}"
        )
    return Head(**{name: begin["head"][name] for name in _HEAD}, written=begin["head"]["revision"])


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
        return _copied_head(file)

    def copied_commits(self, file: BinaryIO) -> Iterator[StoredCommit]:
        return _copied_commits(file)

    def commits(self, catalog: str, through: int) -> Iterator[Sequence[bytes]]:
        after = 0
        raw = self._on.commits.with_options(codec_options=records.RAW)
        while True:
            query = span(catalog, after, through)
            with self._on.reading() as session:
                cursor = raw.find(query, session=session).sort("_id", ASCENDING)
                found, last = _page(cursor.limit(_AT_ONCE))
            if not found:
                return
            yield found
            _, after = records.named_by(last)

    def begin_restore(self, catalog: str, by: str) -> bool:
        head = {"format": RESTORED, "revision": 0, "last": by, "judged": 0, "verdict": ""}
        with self._on.writing() as session:
            try:
                self._on.catalogs.replace_one(
                    {"_id": catalog, "head.format": RESTORED},
                    {"head": head},
                    upsert=True,
                    session=session,
                )
            except DuplicateKeyError:
                return False
        self._erase(catalog)
        return True

    def restores(self, catalog: str, by: str) -> bool:
        with self._on.reading() as session:
            return self._on.catalogs.find_one(_restored(catalog, by), session=session) is not None

    def drop_restore(self, catalog: str, by: str) -> None:
        if not self.restores(catalog, by):
            return
        self._erase(catalog)
        with self._on.writing() as session:
            self._on.catalogs.delete_one(_restored(catalog, by), session=session)

    def _erase(self, catalog: str) -> None:
        of_it = {"_id": of_catalog(catalog)}
        for collection in (self._on.commits, self._on.documents):
            while True:
                with self._on.reading() as session:
                    found = collection.find(of_it, {"_id": 1}, session=session).limit(_ERASED_ONCE)
                    names = [each["_id"] for each in found]
                if not names:
                    break
                with self._on.writing() as session:
                    collection.delete_many({"_id": {"$in": names}}, session=session)

    def put_commits(self, commits: Sequence[bytes]) -> None:
        inserts = [InsertOne(RawBSONDocument(each, records.RAW)) for each in commits]
        self._on.bulk(self._on.commits.bulk_write, inserts)

    def put_head(self, head: Head, by: str) -> bool:
        record: records.Record = {
            "head": {
                "format": records.FORMAT,
                "revision": head.revision,
                "last": head.last,
                "judged": 0,
                "verdict": "",
            },
            "time_us": head.time_us,
            "out": head.revision,
            "tail": [],
            "floor": head.floor,
            "deleted": head.deleted,
        }
        with self._on.writing() as session:
            begun = _restored(head.catalog, by)
            return self._on.catalogs.replace_one(begun, record, session=session).matched_count > 0

    def note_copy(self, catalog: str, revision: int, time_us: int) -> None:
        noted = {"revision": revision, "time_us": time_us}
        with self._on.writing() as session:
            self._on.database["backups"].update_one(
                {"_id": catalog}, {"$set": noted}, upsert=True, session=session
            )


def _page(cursor: Iterable[RawBSONDocument]) -> tuple[list[bytes], str]:
    """As many as take some megabytes, and the name of the last one."""
    page: list[bytes] = []
    size_bytes, last = 0, ""
    for each in cursor:
        page.append(bytes(each.raw))
        size_bytes, last = size_bytes + len(page[-1]), each["_id"]
        if size_bytes > _PAGE_BYTES:
            break
    return page, last

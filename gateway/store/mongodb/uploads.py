"""Two-phase uploads: see ``gateway.store.contract`` for the contract.

``uploads``       ``_id`` catalog + NUL + upload id; what it is for, terms as JSON text, expires;
                  ``open``; while that is true, ``rooms``: the bytes reserved for each part, and
                  ``bytes``: their sum
``upload_parts``  ``_id`` catalog + NUL + upload id + NUL + number as 8 hex digits; its size, its
                  digest, its content, expires
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from gateway.store.contract import UploadPart, UploadRecord, UploadsHeld
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.indexes import names_after
from gateway.store.mongodb.records import Record

PART_BYTES_MAX: Final = 12 * 1024 * 1024

# How long parts and uploads are kept after they expire. MongoDB deletes expired records about once
# a minute, in any order, by its own clock, which may be ahead of the gateways'; the parts have to
# go first.
_PARTS_KEPT = timedelta(minutes=10)
_UPLOAD_KEPT = 2 * _PARTS_KEPT
_EPOCH = datetime.fromtimestamp(0, UTC)


class MongoUploads(StorePart):
    """See ``gateway.store.contract.UploadStore``. A part holds at most ``PART_BYTES_MAX`` bytes."""

    @property
    def _uploads(self) -> Collection[Record]:
        return self._on.database["uploads"]

    @property
    def _parts(self) -> Collection[Record]:
        return self._on.database["upload_parts"]

    def create_upload(self, upload: UploadRecord) -> None:
        record = {
            "_id": _upload_id(upload.catalog, upload.id),
            "catalog": upload.catalog,
            "id": upload.id,
            "key": upload.key,
            "principal": upload.principal,
            "terms": msgspec.json.encode(upload.terms).decode(),
            "created_us": upload.created_us,
            "expires_us": upload.expires_us,
            "expires": _date(upload.expires_us) + _UPLOAD_KEPT,
            "open": upload.is_open,
        }
        if upload.is_open:
            record |= {"rooms": {}, "bytes": 0}
        self._on.ensure_indexes()
        with self._on.writing() as session:
            self._uploads.replace_one({"_id": record["_id"]}, record, upsert=True, session=session)

    def end_upload(self, upload: UploadRecord) -> None:
        name = {"_id": _upload_id(upload.catalog, upload.id)}
        ended = {"$set": {"open": False}, "$unset": {"rooms": 1, "bytes": 1}}
        with self._on.writing() as session:
            self._uploads.update_one(name, ended, session=session)

    def upload(self, catalog: str, upload_id: str) -> UploadRecord | None:
        with self._on.reading() as session:
            name = {"_id": _upload_id(catalog, upload_id)}
            found = list(self._uploads.find(name, session=session))
        return next(iter(self._readable(found, _upload_from, "upload")), None)

    def held(self, principal: str, now_us: int) -> tuple[UploadsHeld, UploadsHeld]:
        # The index has all fields, so no upload is read.
        now = _date(now_us) + _UPLOAD_KEPT
        is_own = {"$eq": ["$principal", {"$literal": principal}]}
        count = {"_id": is_own, "uploads": {"$sum": 1}, "bytes": {"$sum": "$bytes"}}
        pipeline = [{"$match": {"open": True, "expires": {"$gt": now}}}, {"$group": count}]
        with self._on.reading() as session:
            found = {
                group["_id"]: UploadsHeld(group["uploads"], group["bytes"])
                for group in self._uploads.aggregate(pipeline, session=session)
            }
        own, others = found.get(True, UploadsHeld()), found.get(False, UploadsHeld())
        return UploadsHeld(own.uploads + others.uploads, own.bytes + others.bytes), own

    def make_room(self, upload: UploadRecord, number: int, size_bytes: int, bytes_max: int) -> bool:
        part = f"p{number}"
        room = {"$max": [f"$rooms.{part}", size_bytes]}
        others = {"$subtract": ["$bytes", {"$ifNull": [f"$rooms.{part}", 0]}]}
        name = {
            "_id": _upload_id(upload.catalog, upload.id),
            "open": True,
            "$expr": {"$lte": [{"$add": [others, room]}, bytes_max]},
        }
        change = {"$set": {"bytes": {"$add": [others, room]}, f"rooms.{part}": room}}
        with self._on.writing() as session:
            done = self._uploads.update_one(name, [change], session=session)
        return done.matched_count == 1

    def put_part(self, upload: UploadRecord, number: int, content: bytes) -> UploadPart:
        """Raises ValueError if the content is too large for one record."""
        if len(content) > PART_BYTES_MAX:
            raise ValueError(f"a part can hold at most {PART_BYTES_MAX} bytes")
        part = UploadPart(number, len(content), hashlib.sha256(content).hexdigest())
        record = {
            "_id": _part_id(upload, number),
            "number": number,
            "size_bytes": part.size_bytes,
            "sha256": part.sha256,
            "content": content,
            "expires": _date(upload.expires_us) + _PARTS_KEPT,
        }
        with self._on.writing() as session:
            name = {"_id": record["_id"]}
            try:
                self._parts.replace_one(name, record, upsert=True, session=session)
            except DuplicateKeyError as error:
                require_name_taken(error)
                # Another put made the part at the same moment: replace it.
                self._parts.replace_one(name, record, session=session)
        return part

    def parts(self, upload: UploadRecord) -> Sequence[UploadPart]:
        fields = {"number": 1, "size_bytes": 1, "sha256": 1}
        with self._on.reading() as session:
            cursor = self._parts.find(_all_parts(upload), fields, session=session).sort("_id")
            return [UploadPart(r["number"], r["size_bytes"], r["sha256"]) for r in cursor]

    def part_content(self, upload: UploadRecord, number: int) -> bytes | None:
        with self._on.reading() as session:
            record = self._parts.find_one({"_id": _part_id(upload, number)}, session=session)
        return None if record is None else bytes(record["content"])

    def count_uploads(self, now_us: int) -> int:
        # Uses the index on the time of deletion, which is a fixed time after the expiry.
        query = {"expires": {"$gt": _date(now_us) + _UPLOAD_KEPT}}
        with self._on.reading() as session:
            return self._uploads.count_documents(query, session=session)

    def drop_parts(self, upload: UploadRecord) -> None:
        with self._on.writing() as session:
            self._parts.delete_many(_all_parts(upload), session=session)

    def drop_upload(self, upload: UploadRecord) -> None:
        name = {"_id": _upload_id(upload.catalog, upload.id)}
        with self._on.writing() as session:
            self._uploads.delete_one(name, session=session)
        # If this fails, the parts expire.
        with self._on.writing() as session:
            self._parts.delete_many(_all_parts(upload), session=session)


def _upload_id(catalog: str, upload_id: str) -> str:
    return f"{catalog}\0{upload_id}"


def _part_id(upload: UploadRecord, number: int) -> str:
    return f"{_upload_id(upload.catalog, upload.id)}\0{number:08x}"


def _all_parts(upload: UploadRecord) -> Record:
    beginning = f"{_upload_id(upload.catalog, upload.id)}\0"
    return {"_id": names_after("", beginning)}


def _date(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _upload_from(record: Record) -> UploadRecord:
    """The upload in a record. Raises LookupError, TypeError and ValueError."""
    terms = msgspec.json.decode(record["terms"])
    is_open = record.get("open", True)
    upload = msgspec.convert({**record, "terms": terms, "is_open": is_open}, UploadRecord)
    if record["_id"] != _upload_id(upload.catalog, upload.id):
        raise ValueError(f"its _id isn't that of {upload.id!r} of {upload.catalog!r}")
    return upload

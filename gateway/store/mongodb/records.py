"""How records are laid out as BSON, and their conversion to and from the values of ``model``.

``catalogs``   ``_id`` the catalog's name; ``head``, which each move requires and replaces: format
               (see ``format``), revision and last (the commit's id), judged (the number of the last
               verdict) and verdict (its id); time_us, deleted, ``out`` (the revision up to which
               everything is written out), tail: [commit], judged_out and verdicts: [verdict], with
               ``open`` if there are any of either; claims: [claim]; for retention: floor, raises,
               swept and pins: [pin], which no move touches; and ``uncommitted``, the time of the
               last verdict, if there is no commit
``documents``  ``_id`` catalog + NUL + key; catalog, key, and ``state``. Its first field is the
               revision. Content and attributes are native BSON, so that people can query them.
               The content's digest is there unless the content is large, or an earlier version
               wrote it. If anybody has applied, there are the owners, as JSON text, and ``parts``,
               the digests of what each manager owns, unless the content is large, there are many
               managers, or they own items of lists
``commits``    ``_id`` catalog + NUL + revision as 16 hex digits, so the order of ``_id`` is that of
               history; ``keys`` are those that the commit is found under: the ones that it changed,
               or those of them that compaction kept; the ``base`` of a change is the document that
               it was made from: [revision, commit id]
``verdicts``   ``_id`` catalog + NUL + principal + NUL + idempotency key; expires (a date). Until
               they are written out, they are in the head

The changes of a commit are JSON text: they are written three times as often as they are read, and
text needs neither BSON's restrictions nor a walk over every value. Catalog names contain no NUL.
A field that has the same value in most commits is stored only if it has another one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from bson import Int64, decode, decode_all, encode
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from gateway import memory
from gateway.cpu import interruptible, yield_if_over
from gateway.model import (
    WITHHELD,
    Action,
    BareDocument,
    ChangeRecord,
    Claim,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
    HeadMove,
    HeadPosition,
    Idempotency,
    PinRecord,
    Retention,
    Skipped,
    Verdict,
)
from gateway.store.contract import ForeignRecord, LoggedCommit, LostHead
from patching import ABSENT, Json, digest
from patching.owners import OwnersChange, OwnerTree
from patching.part_digests import owned_digests
from patching.values import decoded

_log = logging.getLogger(__name__)

Record = dict[str, Any]
_T = TypeVar("_T")

# What the functions that read a record may raise if no gateway has written it.
_FOREIGN: Final = (LookupError, TypeError, ValueError, AttributeError, BSONError)

_encode = msgspec.json.Encoder().encode
_parts_from = msgspec.json.Decoder(dict[str, str]).decode
_owners_from = msgspec.json.Decoder(OwnerTree).decode
_skipped_from = msgspec.json.Decoder(tuple[Skipped, ...]).decode
_outcome_from = msgspec.json.Decoder(dict[str, Any]).decode


_Whole = Annotated[int, msgspec.Meta(ge=0)]
_TimeUs = Annotated[int, msgspec.Meta(ge=0, lt=200_000_000_000_000_000)]  # the year 8307


class _StoredCommit(msgspec.Struct):
    """The fields of a stored commit, without its changes, with the types that gateways write."""

    revision: _Whole
    time_us: _TimeUs
    id: str
    author: str
    attempts: int
    keys: tuple[str, ...]
    message: str | None = None
    idempotency: Idempotency | None = None
    succeeded: bool = True
    rebased_from: str | None = None
    deletes_catalog: bool = False
    skipped: str | None = None
    left_out: tuple[int, ...] = ()
    parent: str = ""


class _StoredChange(msgspec.Struct):
    """The fields of one of its changes. The patch is checked by the code that applies it."""

    key: str
    action: Action
    create_revision: _Whole
    size_bytes: _Whole
    patch: Any = None
    value: Any = ABSENT
    attributes: dict[str, Any] | None = None
    owners: OwnerTree | None = None
    owners_change: OwnersChange | None = None
    base: tuple[_Whole, str] = (0, "")
    managers: tuple[str, ...] = ()


class _StoredVerdict(msgspec.Struct):
    """The fields of a stored verdict."""

    number: _Whole
    revision: _Whole
    time_us: _TimeUs
    id: str
    idempotency: Idempotency
    attempts: int
    outcome: str


class _StoredPosition(msgspec.Struct, forbid_unknown_fields=True):
    """The position of a stored head. With any other field, no move would match the head."""

    format: int
    revision: _Whole
    last: str
    judged: _Whole
    verdict: str


class _StoredHead(msgspec.Struct):
    """The fields of a stored head, without its tail."""

    head: _StoredPosition
    time_us: _TimeUs
    out: _Whole
    floor: _Whole = 0
    deleted: bool = False
    judged_out: _Whole = 0
    claims: tuple[Claim, ...] = ()


class _StoredRaise(msgspec.Struct):
    """A floor of a stored head, and when it was raised."""

    floor: _Whole
    at: datetime


class _StoredRetention(msgspec.Struct):
    """The fields of a stored head that are about retention."""

    head: _StoredPosition
    floor: _Whole = 0
    swept: _Whole = 0
    pins: tuple[PinRecord, ...] = ()
    raises: tuple[_StoredRaise, ...] = ()


class _PlainInt(TypeDecoder):
    """Decodes 64-bit integers as int: JSON encoders refuse the driver's subclass."""

    bson_type = Int64

    def transform_bson(self, value: Any) -> int:
        return int(value)


# The size of a content, and the number of managers, up to which digests are stored. Beyond that, it
# costs more to compute them with each write than when somebody asks for them.
_DIGESTED_BYTES_MAX: Final = 64 * 1024
_DIGESTED_MANAGERS_MAX: Final = 16

# The driver decodes all records of an answer together. These options decode whatever somebody has
# written into one of them, so that the others can be read. Documents come raw, and are decoded one
# by one with ``_STRICT``.
_ANYTHING: Final[dict[str, Any]] = {
    "datetime_conversion": DatetimeConversion.DATETIME_AUTO,
    "unicode_decode_error_handler": "surrogateescape",
}
_STRICT: CodecOptions[dict[str, Any]] = CodecOptions(type_registry=TypeRegistry([_PlainInt()]))
PLAIN: CodecOptions[dict[str, Any]] = _STRICT.with_options(**_ANYTHING)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument, **_ANYTHING)

# The fields of a document that are numbers.
_NUMBERS: Final = ("revision", "create_revision", "time_us", "patches", "size_bytes")

# To encode more than this may take so long that other requests may go on first.
_APART_BYTES: Final = 64 * 1024

# The fields of a document without its content. Its catalog and key are in its ``_id``.
_BARE_STATE = ("revision", "create_revision", "deleted", "attributes.acl")
BARE_DOCUMENT: Final = {f"state.{name}": 1 for name in _BARE_STATE}
# The same, with its digest; and the digests of what each manager owns. ``owned`` False: there are
# no owners, so there are no such digests.
DIGESTED: Final = {
    **BARE_DOCUMENT,
    **{f"state.{name}": 1 for name in ("commit_id", "size_bytes", "digest")},
}
PARTS: Final = {"state.parts": 1, "state.owned": {"$ne": [{"$type": "$state.owners"}, "missing"]}}


def with_content(bytes_max: int) -> Record:
    """The projection of documents that leaves out contents larger than ``bytes_max``."""
    fields = ("revision", "create_revision", "commit_id", "time_us", "patches", "size_bytes")
    few = {"$lte": ["$state.size_bytes", bytes_max]}
    return {
        "catalog": 1,
        "key": 1,
        **{f"state.{field}": 1 for field in (*fields, "deleted", "attributes", "owners")},
        "state.content": {"$cond": [few, "$state.content", "$$REMOVE"]},
    }


def document_id(catalog: str, key: str) -> str:
    return f"{catalog}\0{key}"


def commit_id(catalog: str, revision: int) -> str:
    return f"{catalog}\0{revision:016x}"


def named_by(name: str) -> tuple[str, int]:
    """The catalog and revision in a commit's ``_id``."""
    catalog, _, revision = name.rpartition("\0")
    return catalog, int(revision, 16)


@contextmanager
def as_unreadable(record: Mapping[str, Any]) -> Iterator[None]:
    """For use around code that reads a stored commit: raises its errors as ForeignRecord."""
    try:
        yield
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def _unreadable(
    record: Mapping[str, Any], what: Callable[[str], str], error: Exception
) -> ForeignRecord:
    """The error for a record that can't be read. ``what`` makes the record's description from the
    part of its name after the catalog."""
    why = (
        f"it has no {error}" if isinstance(error, KeyError) else f"{error or type(error).__name__}"
    )
    catalog, _, rest = str(record.get("_id")).partition("\0")
    key = rest if what is _as_document else None
    return ForeignRecord(catalog, key, f"{what(rest)} can't be read: {why}")


def _as_commit(rest: str) -> str:
    try:
        return f"commit {int(rest, 16)}"
    except ValueError:
        return f"a commit named {rest!r}"


def _as_document(rest: str) -> str:
    return f"document {rest!r}"


def _as_verdict(rest: str) -> str:
    principal, _, key = rest.partition("\0")
    return f"the verdict of key {key!r} of {principal!r}"


def _as_head(rest: str) -> str:
    del rest
    return "the head"


def stored_bytes(content: Json) -> int:
    """The size of the BSON that holds ``content``."""
    return len(encode({"content": content}))


def commit_record(commit: CommitRecord, keys: Collection[str] | None = None) -> Record:
    """The record of a commit, to be found under ``keys``; None: under the keys of all changes."""
    record: Record = {
        "_id": commit_id(commit.catalog, commit.revision),
        "catalog": commit.catalog,
        **commit_fields(commit),
    }
    if keys is not None:
        record["keys"] = [key for key in record["keys"] if key in keys]
    asked = commit.idempotency
    if asked is not None:
        record["reply_id"] = reply_id(commit.catalog, asked.principal, asked.key)
    return record


def bounded_commit_from(record: Mapping[str, Any]) -> CommitRecord:
    """The commit in a record that is one of several; the caller bounds their memory together.

    Raises ForeignRecord.
    """
    try:
        return _logged_commit(record)
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def commit_from(record: Mapping[str, Any]) -> CommitRecord:
    """The commit in a record. Raises ForeignRecord; and AboveLimit and MemoryFull, like all
    functions here that decode large values."""
    try:
        memory.account().take_parsed(record["changes"])
        return _logged_commit(record)
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def _logged_commit(record: Mapping[str, Any]) -> CommitRecord:
    """The commit in a record. Raises _FOREIGN; ValueError also if its ``_id``, by which it is
    looked up, isn't that of its catalog and revision."""
    commit = commit_of(record["catalog"], record)
    if record["_id"] != commit_id(commit.catalog, commit.revision):
        raise ValueError(f"its _id isn't that of commit {commit.revision} of {commit.catalog!r}")
    return commit


def logged_from(raw: bytes) -> LoggedCommit:
    """The revision, id and parent of a stored commit. Raises ForeignRecord unless all of it can be
    read."""
    with as_unreadable(RawBSONDocument(raw, RAW)):
        record = _decode_plain(raw)
        commit = _logged_commit(record)
        if {*record["keys"]} - {change.key for change in commit.changes}:
            raise ValueError("it has no change of one of its keys")
        return LoggedCommit(commit.revision, commit.id, commit.parent)


def commit_fields(commit: CommitRecord) -> Record:
    if commit.size_bytes > _APART_BYTES:
        yield_if_over()
    fields: Record = {
        "revision": commit.revision,
        "time_us": commit.time_us,
        "id": commit.id,
        "author": commit.author,
        "attempts": commit.attempts,
        "keys": [change.key for change in commit.changes],
        "changes": _encode([_change_fields(c) for c in commit.changes]).decode(),
    }
    if commit.message is not None:
        fields["message"] = commit.message
    if commit.idempotency is not None:
        fields["idempotency"] = idempotency_fields(commit.idempotency)
    if not commit.succeeded:
        fields["succeeded"] = False
    if commit.rebased_from is not None:
        fields["rebased_from"] = commit.rebased_from
    if commit.deletes_catalog:
        fields["deletes_catalog"] = True
    if commit.skipped:
        fields["skipped"] = _encode(commit.skipped).decode()
    if commit.left_out:
        fields["left_out"] = list(commit.left_out)
    if commit.parent:
        fields["parent"] = commit.parent
    return fields


def _require_texts(*texts: str | None) -> None:
    """Raises ValueError if a text isn't UTF-8 in the database (see ``_ANYTHING``): later, the code
    that encodes it would fail."""
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()


def _listed(text: str | bytes) -> list[Record]:
    return cast(list[Record], memory.trees.parse(decoded, text, len(text)))


@interruptible
def commit_of(catalog: str, record: Mapping[str, Any]) -> CommitRecord:
    stored = msgspec.convert(record, _StoredCommit)
    _require_texts(stored.id, stored.author, stored.parent, stored.message, stored.rebased_from)
    if stored.idempotency is not None:
        _require_idempotency(stored.idempotency)
    return CommitRecord(
        catalog=catalog,
        revision=stored.revision,
        time_us=stored.time_us,
        id=stored.id,
        author=stored.author,
        message=stored.message,
        idempotency=stored.idempotency,
        attempts=stored.attempts,
        changes=tuple(_change_from(fields) for fields in _listed(record["changes"])),
        succeeded=stored.succeeded,
        rebased_from=stored.rebased_from,
        deletes_catalog=stored.deletes_catalog,
        skipped=() if stored.skipped is None else _skipped_from(stored.skipped),
        left_out=stored.left_out,
        size_bytes=len(record["changes"]),
        parent=stored.parent,
    )


def _change_fields(change: ChangeRecord) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "key": change.key,
        "action": change.action,
        "create_revision": change.create_revision,
        "size_bytes": change.size_bytes,
    }
    if change.patch is not None:
        fields["patch"] = cast(Json, change.patch)
    if change.value is not ABSENT:
        fields["value"] = change.value
    if change.attributes is not None:
        fields["attributes"] = change.attributes
    if change.owners is not None:
        fields["owners"] = cast(Json, change.owners)
    if change.owners_change is not None:
        fields["owners_change"] = cast(Json, change.owners_change)
    if change.base_revision:
        fields["base"] = [change.base_revision, change.base_id]
    if change.managers:
        fields["managers"] = list(change.managers)
    return fields


def _change_from(fields: Mapping[str, Any]) -> ChangeRecord:
    stored = msgspec.convert(fields, _StoredChange)
    base_revision, base_id = stored.base
    return ChangeRecord(
        key=stored.key,
        action=stored.action,
        create_revision=stored.create_revision,
        patch=stored.patch,
        value=stored.value,
        size_bytes=stored.size_bytes,
        attributes=stored.attributes,
        owners=stored.owners,
        owners_change=stored.owners_change,
        base_revision=base_revision,
        base_id=base_id,
        managers=stored.managers,
    )


def document_update(catalog: str, document: DocumentRecord) -> Record:
    """The update that writes a document or tombstone out, unless a newer one is stored.

    MongoDB compares objects member by member, and the revision is the first one of ``state``, so
    ``$max`` keeps the newer state. It takes a third less of the server's time than a filter on the
    revision, and always matches.
    """
    named = {"catalog": catalog, "key": document.key}
    return {"$max": {"state": _state(document)}, "$setOnInsert": named}


def document_record(catalog: str, document: DocumentRecord) -> Record:
    """The record of a document, to be inserted."""
    name = document_id(catalog, document.key)
    state = _state(document)
    return {"_id": name, "catalog": catalog, "key": document.key, "state": state}


def _state(document: DocumentRecord) -> Record | RawBSONDocument:
    """The field ``state``. A large one is encoded here, by itself: the driver would encode a whole
    bulk in one go, during which no other request can go on."""
    yield_if_over()  # each time: a write-out may have thousands of small ones
    state = _document_state(document)
    if document.size_bytes <= _APART_BYTES:
        return state
    return RawBSONDocument(encode(state), RAW)


def _document_state(document: DocumentRecord) -> Record:
    state: Record = {
        "revision": document.revision,
        "create_revision": document.create_revision,
        "commit_id": document.commit_id,
        "time_us": document.time_us,
        "patches": document.patches,
        "size_bytes": document.size_bytes,
        "deleted": not document.exists,
    }
    if document.content is not ABSENT:
        state["content"] = document.content
        if document.size_bytes <= _DIGESTED_BYTES_MAX:
            state["digest"] = digest(document.content)
    if document.attributes is not None:
        state["attributes"] = document.attributes
    if document.owners is not None:
        state["owners"] = _encode(document.owners).decode()
        if (parts := _parts(document, document.owners)) is not None:
            state["parts"] = _encode(parts).decode()
    return state


def _parts(document: DocumentRecord, owners: OwnerTree) -> Mapping[str, str] | None:
    if document.content is ABSENT or document.size_bytes > _DIGESTED_BYTES_MAX:
        return None
    if len(owners.managers()) > _DIGESTED_MANAGERS_MAX:
        return None
    return owned_digests(document.content, owners)


def document_from(raw: RawBSONDocument) -> tuple[str, DocumentRecord]:
    """(catalog, document) from a record of ``documents``."""
    size = len(raw.raw)
    return weighed_document_from(raw) if size > memory.UNWEIGHED_BYTES else unweighed_from(raw)


def documents_from(raw: Iterable[RawBSONDocument]) -> list[tuple[str, DocumentRecord]]:
    """(catalog, document) of all these records. Once many small ones add up, they are weighed
    like large ones."""
    found = []
    size = 0
    for each in raw:
        size += len(each.raw)
        weighed = size > memory.UNWEIGHED_BYTES
        found.append(weighed_document_from(each) if weighed else unweighed_from(each))
    return found


def weighed_document_from(raw: RawBSONDocument) -> tuple[str, DocumentRecord]:
    account = memory.account()
    held = account.held
    account.take_record(len(raw.raw))
    catalog, document = unweighed_from(raw)
    account.settle(held, *document.parts)
    return catalog, document


@interruptible
def unweighed_from(raw: RawBSONDocument) -> tuple[str, DocumentRecord]:
    try:
        record = _decoded(raw)
        state = record["state"]
        document = DocumentRecord(
            key=record["key"],
            content=ABSENT if state["deleted"] else state.get("content", WITHHELD),
            revision=state["revision"],
            create_revision=state["create_revision"],
            commit_id=state["commit_id"],
            time_us=state["time_us"],
            patches=state["patches"],
            size_bytes=state["size_bytes"],
            attributes=state.get("attributes"),
            owners=_owners_from(state["owners"]) if "owners" in state else None,
        )
        _require_right(record, document)
        return record["catalog"], document
    except _FOREIGN as error:
        raise _unreadable(raw, _as_document, error) from error


def _require_right(record: Mapping[str, Any], document: DocumentRecord) -> None:
    """Raises ValueError if somebody has replaced a number, or if the ``_id`` is that of another
    key: a page is read in the order of ``_id``, and the next one begins after the last key."""
    if record["_id"] != document_id(record["catalog"], document.key):
        raise ValueError(f"its _id isn't that of its key {document.key!r}")
    for name in _NUMBERS:
        if type(value := getattr(document, name)) is not int:
            raise ValueError(f"its {name} is {value!r}")


def bare_document_from(raw: RawBSONDocument) -> tuple[str, BareDocument]:
    """(catalog, document) from a record of ``documents`` with the fields of BARE_DOCUMENT."""
    try:
        record = _decoded(raw)
        return record["_id"].partition("\0")[0], _bare_of(record)
    except _FOREIGN as error:
        raise _unreadable(raw, _as_document, error) from error


def bare_documents_from(batch: bytes) -> list[BareDocument]:
    """The documents in a raw batch of records with the fields of BARE_DOCUMENT."""
    return _all_of(batch, _bare_of)


def digested_from(batch: bytes) -> list[Digested]:
    """The documents in a raw batch of records with the fields of DIGESTED, and perhaps those of
    PARTS."""
    return _all_of(batch, _digested_of)


def _all_of(batch: bytes, make: Callable[[Mapping[str, Any]], _T]) -> list[_T]:
    try:
        return [make(record) for record in decode_all(batch, _STRICT)]
    except _FOREIGN:
        for raw in decode_all(batch, RAW):
            try:
                make(_decode_plain(raw.raw))
            except _FOREIGN as error:
                raise _unreadable(raw, _as_document, error) from error
        raise


def _bare_of(record: Mapping[str, Any]) -> BareDocument:
    state = record["state"]
    return BareDocument(
        record["_id"].partition("\0")[2],
        _whole(state["revision"]),
        _whole(state["create_revision"]),
        not state["deleted"],
        state.get("attributes") or None,
    )


def _digested_of(record: Mapping[str, Any]) -> Digested:
    state = record["state"]
    return Digested(
        record["_id"].partition("\0")[2],
        _whole(state["revision"]),
        _whole(state["create_revision"]),
        not state["deleted"],
        state.get("attributes") or None,
        state["commit_id"],
        _whole(state["size_bytes"]),
        state.get("digest"),
        _parts_told(state),
    )


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise ValueError(f"{number!r} isn't a whole number")
    return number


def _parts_told(state: Mapping[str, Any]) -> Mapping[str, str] | None:
    if "parts" in state:
        return _parts_from(state["parts"])
    return {} if state.get("owned") is False else None


_has_reference: Final = re.compile(rb"\$ref\0").search


def _decode_plain(raw: bytes | memoryview) -> Mapping[str, Any]:
    return decode(raw, codec_options=_STRICT)


def _decoded(raw: RawBSONDocument) -> Mapping[str, Any]:
    """The record, in which an object that looks like a DBRef stays a plain object."""
    # Not ``in``: large records are memory views, in which it would compare byte by byte in Python.
    if _has_reference(raw.raw):
        return cast(Mapping[str, Any], _plain(raw))
    return memory.trees.parse(_decode_plain, raw.raw, len(raw.raw))


def _plain(value: Any) -> Any:
    if isinstance(value, RawBSONDocument):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, Int64) else value


def verdict_record(verdict: Verdict, kept_s: int) -> Record:
    asked = verdict.idempotency
    return {
        "_id": reply_id(verdict.catalog, asked.principal, asked.key),
        "catalog": verdict.catalog,
        "expires": datetime.fromtimestamp(verdict.time_us / 1_000_000 + kept_s, UTC),
        **verdict_fields(verdict),
    }


def verdict_from(record: Mapping[str, Any]) -> Verdict:
    try:
        verdict = verdict_of(record["catalog"], record)
        asked = verdict.idempotency
        if record["_id"] != reply_id(verdict.catalog, asked.principal, asked.key):
            raise ValueError(f"its _id isn't that of key {asked.key!r} of {asked.principal!r}")
        return verdict
    except _FOREIGN as error:
        raise _unreadable(record, _as_verdict, error) from error


def verdict_fields(verdict: Verdict) -> Record:
    return {
        "number": verdict.number,
        "revision": verdict.revision,
        "time_us": verdict.time_us,
        "id": verdict.id,
        "idempotency": idempotency_fields(verdict.idempotency),
        "attempts": verdict.attempts,
        "outcome": _encode(verdict.outcome).decode(),
    }


def verdict_of(catalog: str, record: Mapping[str, Any]) -> Verdict:
    stored = msgspec.convert(record, _StoredVerdict)
    _require_texts(stored.id)
    _require_idempotency(stored.idempotency)
    return Verdict(
        catalog=catalog,
        number=stored.number,
        revision=stored.revision,
        time_us=stored.time_us,
        id=stored.id,
        idempotency=stored.idempotency,
        attempts=stored.attempts,
        outcome=_outcome_from(stored.outcome),
        size_bytes=len(stored.outcome),
    )


def _require_idempotency(asked: Idempotency) -> None:
    _require_texts(asked.principal, asked.key, asked.fingerprint)


def idempotency_fields(asked: Idempotency) -> Record:
    return {"principal": asked.principal, "key": asked.key, "fingerprint": asked.fingerprint}


def reply_id(catalog: str, principal: str, key: str) -> str:
    """The name under which a reply is found: a verdict, or a commit with an idempotency key."""
    return f"{catalog}\0{principal}\0{key}"


_Reply = TypeVar("_Reply", CommitRecord, Verdict)

# The number of this layout: see ``format``.
FORMAT: Final = 4

# The fields of a head without its tail.
_BARE_HEAD = ("head", "time_us", "out", "floor", "deleted", "judged_out")
BARE_HEAD: Final = dict.fromkeys(_BARE_HEAD, 1)
HEAD_WITH_TAIL: Final = {**BARE_HEAD, "tail": 1, "verdicts": 1, "claims": 1}


def head_at(catalog: str, position: HeadPosition) -> Record:
    """The filter on a head at this position, and of this format."""
    return {"_id": catalog, "head": head_fields(position)}


def moved_from(move: HeadMove) -> Record:
    """The filter on the head that a move starts from. Only a move from revision 0 may make a head:
    with a second condition on one field, MongoDB's upsert makes no record."""
    at = head_at(move.catalog, move.position)
    return {**at, REVISION: move.base} if move.base else at


def head_fields(position: HeadPosition) -> Record:
    """The field ``head``. The order counts: MongoDB compares objects member by member."""
    return {
        "format": FORMAT,
        "revision": position.revision,
        "last": position.last,
        "judged": position.judged,
        "verdict": position.last_verdict,
    }


# The path of a head's revision, for filters.
REVISION: Final = "head.revision"


def in_line(move: HeadMove) -> Record:
    """The filter on a head that has no claim, or whose first claim the move may overtake."""
    if move.passes_all:
        return {}
    nobody: Record = {"claims.0": {"$exists": False}}
    if not move.passed:
        return nobody
    # Not ``claims.0.by`` missing: that path also means the member "0" of each claim.
    return {"$or": [nobody, {"claims.0.by": {"$in": [*move.passed]}}]}


def head_move(move: HeadMove) -> Record:
    """The update that makes a move; it leaves retention alone.

    The tail keeps its last commits down to ``written``, whatever ``out`` says in the head: so
    neither this update nor the one that empties tails can drop too many commits. The same goes for
    verdicts.
    """
    end = move.end
    revision, judged = end.revision, end.judged
    state: Record = {"head": head_fields(end), "open": True}
    if move.commits:
        last = move.commits[-1]
        state |= {"time_us": last.time_us, "deleted": last.deletes_catalog}
    written = {"out": move.written}
    tail = [commit_fields(commit) for commit in move.commits]
    pushed: Record = {"tail": {"$each": tail, "$slice": move.written - revision}}
    if judged:
        written["judged_out"] = move.judged_written
        verdicts = [verdict_fields(verdict) for verdict in move.verdicts]
        pushed["verdicts"] = {"$each": verdicts, "$slice": move.judged_written - judged}
    update: Record = {"$set": state, "$max": written, "$push": pushed}
    if not move.base:  # the catalog has no commit yet, but it may have verdicts
        if move.commits:
            update["$unset"] = {"uncommitted": ""}
        elif move.verdicts:
            state["uncommitted"] = move.verdicts[-1].time_us
    if move.passed:
        update["$pull"] = {"claims": {"by": {"$in": [*move.passed]}}}
    if not move.commits:
        update["$setOnInsert"] = {"time_us": 0}
    return update


def head_advanced(position: HeadPosition, commit: CommitRecord) -> Record:
    """The fields of a head once it has moved from ``position`` to a commit that is written out."""
    return {
        "head": head_fields(position._replace(revision=commit.revision, last=commit.id)),
        "time_us": commit.time_us,
        "deleted": commit.deletes_catalog,
        "out": commit.revision,
        "tail": [],
        "pins": [],
    }


def head_from(record: Mapping[str, Any]) -> Head:
    try:
        return _head_of(record)
    except _FOREIGN as error:
        raise _unreadable(record, _as_head, error) from error


def readable_heads(found: Iterable[Mapping[str, Any]]) -> list[Head]:
    """The heads that can be read; the others are left out, and logged."""
    heads = []
    for record in found:
        try:
            heads.append(head_from(record))
        except ForeignRecord as error:
            about = {"catalog": error.catalog}
            _log.error("%s; it is left out: see `gateway verify`", error, extra=about)
    return heads


def _head_of(record: Mapping[str, Any]) -> Head:
    catalog = record["_id"]
    tail = record.get("tail")
    if tail is None and "tail" in record:
        raise ValueError("its tail is null")
    stored = msgspec.convert(record, _StoredHead)
    at = stored.head
    if at.format != FORMAT:
        raise ValueError(f"its format is {at.format}")
    _require_texts(at.last, at.verdict, *(claim.by for claim in stored.claims))
    return Head(
        catalog=catalog,
        revision=at.revision,
        time_us=stored.time_us,
        written=stored.out,
        floor=stored.floor,
        deleted=stored.deleted,
        tail=None if tail is None else tuple(_of_tail(commit_of(catalog, c), c) for c in tail),
        judged=at.judged,
        judged_written=stored.judged_out,
        verdicts=None
        if tail is None
        else tuple(_of_tail(verdict_of(catalog, v), v) for v in record.get("verdicts", ())),
        claims=stored.claims,
        last=at.last,
        last_verdict=at.verdict,
    )


def lost_head_from(record: RawBSONDocument | None, judged: int) -> LostHead:
    """The parts of a head's record that can be read by themselves. ``judged``: the highest number
    of a verdict that is written out."""
    found = {} if record is None else decode(record.raw, codec_options=PLAIN)
    at: Any = found.get("head")
    at = at if isinstance(at, dict) else {}
    swept, floor = _read_as(found.get("swept", 0), _Whole), _read_as(found.get("floor", 0), _Whole)
    pins: Any = found.get("pins")
    pins = pins if isinstance(pins, list) else ()
    tail = None
    with suppress(*_FOREIGN):
        catalog = found["_id"]
        tail = tuple(_of_tail(commit_of(catalog, each), each) for each in found["tail"])
    return LostHead(
        record=record,
        revision=_read_as(at.get("revision"), _Whole),
        last=_read_as(at.get("last"), str),
        tail=tail,
        floor=None if record is None else floor,
        swept=swept or 0,
        pins=tuple(pin for each in pins if (pin := _read_as(each, PinRecord)) is not None),
        judged=max(judged, _read_as(at.get("judged"), _Whole) or 0),
    )


def _read_as(value: Any, kind: Any) -> Any:
    """The value as this type; None if it isn't of the type, or has a text that isn't UTF-8."""
    with suppress(ValueError):
        found = msgspec.convert(value, kind)
        _encode(found)
        return found
    return None


def text_of(record: Mapping[str, Any], name: str) -> str | None:
    """The text in this field; None if there is none, or it can't be read."""
    return cast(str | None, _read_as(record.get(name), str))


def whole_head(head: Head, lost: LostHead) -> Record:
    """The record of ``head``, with what is left of the lost head's retention."""
    record: Record = {
        "_id": head.catalog,
        "head": head_fields(head.position),
        "time_us": head.time_us,
        "deleted": head.deleted,
        "out": head.written,
        "tail": [commit_fields(commit) for commit in head.tail or ()],
        "judged_out": head.judged_written,
        "floor": head.floor,
        "swept": min(lost.swept, head.floor),
        "pins": [pin_record(pin) for pin in lost.pins if pin.revision >= head.floor],
    }
    return {**record, "open": True} if head.tail else record


def _of_tail(reply: _Reply, record: Mapping[str, Any]) -> _Reply:
    """The commit or verdict, with the size that it has in the head."""
    return msgspec.structs.replace(reply, size_bytes=len(encode(record)))


def pin_record(pin: PinRecord) -> Record:
    return asdict(pin)


def retention_from(record: Mapping[str, Any], now: datetime | None = None) -> Retention:
    """The bounds of history in a head's record. ``now``, by the database's clock, is needed only if
    the record has ``raises``."""
    try:
        return _retention_of(record, now)
    except _FOREIGN as error:
        raise _unreadable(record, _as_head, error) from error


def _retention_of(record: Mapping[str, Any], now: datetime | None) -> Retention:
    stored = msgspec.convert(record, _StoredRetention)
    for pin in stored.pins:
        _require_texts(pin.id, pin.owner, pin.note)
    return Retention(
        revision=stored.head.revision,
        floor=stored.floor,
        swept=stored.swept,
        pins=stored.pins,
        raises=()
        if now is None
        else tuple((each.floor, (now - each.at).total_seconds()) for each in stored.raises),
    )


# A lease is a record with ``until`` (a date) and ``lasts_ms``, by the clock of the database.
#
# A lease is also over if it ends later than anybody could have asked for: then the clock was set
# back since, or a new primary's clock is behind. Twice its length is allowed, since clocks differ.
# A lease that was never taken, or was ended, has no ``until``; MongoDB orders that below any date.
#
# If somebody wrote anything else into ``lasts_ms``, it counts as the longest lease: an expression
# that fails for one record would fail the whole query, and no other record would be found.
_LONGEST_MS: Final = 10**13
_LASTS_MS: Final = {
    "$cond": [
        {
            "$and": [
                {"$isNumber": "$lasts_ms"},
                {"$gte": ["$lasts_ms", 0]},
                {"$lte": ["$lasts_ms", _LONGEST_MS]},
            ]
        },
        "$lasts_ms",
        _LONGEST_MS,
    ]
}
_LONGEST_LEASE: Final = {"$add": ["$$NOW", {"$multiply": [2, _LASTS_MS]}]}
LEASE_IS_OVER: Final[Record] = {
    "$or": [{"$lte": ["$until", "$$NOW"]}, {"$gt": ["$until", _LONGEST_LEASE]}]
}
LEASE_RUNS: Final[Record] = {"$not": LEASE_IS_OVER}


def lease_fields(duration_s: float) -> Record:
    """The fields of a lease that begins now, for an update by a pipeline."""
    milliseconds = round(duration_s * 1000)
    return {"until": {"$add": ["$$NOW", milliseconds]}, "lasts_ms": milliseconds}

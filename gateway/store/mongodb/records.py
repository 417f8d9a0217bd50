"""How everything is laid out as BSON.

``catalogs``   ``_id`` the catalog's name; ``head``, which each move asks for and replaces: format
               (see ``format``), revision and last (the commit's id), judged (the number of the last
               verdict) and verdict (its id); time_us, deleted, ``out`` (up to where it is written
               out), tail: [commit], judged_out and verdicts: [verdict], with ``open`` where it has
               any of either; claims: [claim]; of retention floor, raises, swept and pins: [pin],
               which no move touches; and ``uncommitted``, the time of the last verdict, where it
               has no commit
``documents``  ``_id`` catalog + NUL + key; catalog, key, and ``state``, which has the revision
               first, and content and attributes as native BSON, so that people can query them,
               with the content's digest, unless that is large, or an earlier version wrote it;
               and owners, as JSON text, where anybody has applied, with ``parts``, the digests of
               what each manager owns, unless that is large, or of items of lists
``commits``    ``_id`` catalog + NUL + revision as 16 hex digits, so that ``_id`` order is history;
               ``keys`` are those that it is found under: of what it changed, or what was kept;
               of each change ``base`` is what it was made from: [revision, commit id]
``verdicts``   ``_id`` catalog + NUL + principal + NUL + idempotency key; expires (a date); until
               they are written out, the head has them

What a commit changed is kept as JSON text: it is written three times as often as it is read, and
text needs neither BSON's restrictions nor a walk over every value. Catalog names hold no NUL.
A field that most commits would hold the same value of is there only where it says otherwise.
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
from gateway.cpu import interruptible, let_others
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

# What a record that no gateway has written makes the functions raise that read it.
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
    """Likewise of one of its changes; the patch is read by whoever applies it."""

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
    """Likewise of a verdict."""

    number: _Whole
    revision: _Whole
    time_us: _TimeUs
    id: str
    idempotency: Idempotency
    attempts: int
    outcome: str


class _StoredPlace(msgspec.Struct, forbid_unknown_fields=True):
    """Likewise of where a head is. No move finds a head that has more there."""

    format: int
    revision: _Whole
    last: str
    judged: _Whole
    verdict: str


class _StoredHead(msgspec.Struct):
    """Likewise of a head, without its tail."""

    head: _StoredPlace
    time_us: _TimeUs
    out: _Whole
    floor: _Whole = 0
    deleted: bool = False
    judged_out: _Whole = 0
    claims: tuple[Claim, ...] = ()


class _StoredRaise(msgspec.Struct):
    """Likewise of one of its floors, and when that was raised."""

    floor: _Whole
    at: datetime


class _StoredRetention(msgspec.Struct):
    """Likewise of what a head says of retention."""

    head: _StoredPlace
    floor: _Whole = 0
    swept: _Whole = 0
    pins: tuple[PinRecord, ...] = ()
    raises: tuple[_StoredRaise, ...] = ()


class _PlainInt(TypeDecoder):
    """64-bit integers as int: an encoder refuses the driver's subclass as no JSON value."""

    bson_type = Int64

    def transform_bson(self, value: Any) -> int:
        return int(value)


# Of a larger content the digest costs more, with each write, than to make it when it is asked for.
_DIGESTED_BYTES_MAX: Final = 64 * 1024
_DIGESTED_MANAGERS_MAX: Final = 16

# The driver decodes all records of an answer together. Whatever somebody has written into one of
# them can be decoded, so that the others can be read; documents, which come raw, are decoded one by
# one, as ``_STRICT`` has it.
_ANYTHING: Final[dict[str, Any]] = {
    "datetime_conversion": DatetimeConversion.DATETIME_AUTO,
    "unicode_decode_error_handler": "surrogateescape",
}
_STRICT: CodecOptions[dict[str, Any]] = CodecOptions(type_registry=TypeRegistry([_PlainInt()]))
PLAIN: CodecOptions[dict[str, Any]] = _STRICT.with_options(**_ANYTHING)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument, **_ANYTHING)

# The numbers of a document.
_NUMBERS: Final = ("revision", "create_revision", "time_us", "patches", "size_bytes")

# To encode more than this may take long enough that others should have their turn before it.
_APART_BYTES: Final = 64 * 1024

# The fields of a document without its content. Its name has its catalog and key.
_BARE_STATE = ("revision", "create_revision", "deleted", "attributes.acl")
BARE_DOCUMENT: Final = {f"state.{name}": 1 for name in _BARE_STATE}
# Likewise, with its digest, and with what tells the parts of managers; without owners there are
# none.
DIGESTED: Final = {
    **BARE_DOCUMENT,
    **{f"state.{name}": 1 for name in ("commit_id", "size_bytes", "digest")},
}
PARTS: Final = {"state.parts": 1, "state.owned": {"$ne": [{"$type": "$state.owners"}, "missing"]}}


def with_content(bytes_max: int) -> Record:
    """The fields of documents, without the content of those larger than ``bytes_max``."""
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
    """The catalog and revision of a commit's ``_id``."""
    catalog, _, revision = name.rpartition("\0")
    return catalog, int(revision, 16)


@contextmanager
def as_unreadable(record: Mapping[str, Any]) -> Iterator[None]:
    """Around what reads the changes of a stored commit."""
    try:
        yield
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def _unreadable(
    record: Mapping[str, Any], what: Callable[[str], str], error: Exception
) -> ForeignRecord:
    """``what`` calls the record by what comes behind the catalog in its name."""
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
    """``keys`` are those of its changes that find the commit; None: all."""
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
    """One of several whose memory is bounded together."""
    try:
        return _logged_commit(record)
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def commit_from(record: Mapping[str, Any]) -> CommitRecord:
    """Raises AboveLimit and MemoryFull, as all do here that decode what may be large."""
    try:
        memory.account().take_parsed(record["changes"])
        return _logged_commit(record)
    except _FOREIGN as error:
        raise _unreadable(record, _as_commit, error) from error


def _logged_commit(record: Mapping[str, Any]) -> CommitRecord:
    """Raises ValueError, too, where its name isn't that of its catalog and revision, by which it is
    looked for."""
    commit = commit_of(record["catalog"], record)
    if record["_id"] != commit_id(commit.catalog, commit.revision):
        raise ValueError(f"its name isn't that of {commit.revision} of {commit.catalog!r}")
    return commit


def logged_from(raw: bytes) -> LoggedCommit:
    """Of a stored commit that can be read as a whole."""
    with as_unreadable(RawBSONDocument(raw, RAW)):
        record = _decode_plain(raw)
        commit = _logged_commit(record)
        if {*record["keys"]} - {change.key for change in commit.changes}:
            raise ValueError("it has no change of one of its keys")
        return LoggedCommit(commit.revision, commit.id, commit.parent)


def commit_fields(commit: CommitRecord) -> Record:
    if commit.size_bytes > _APART_BYTES:
        let_others()
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
    """Raises ValueError where one isn't UTF-8 in the database (see ``_ANYTHING``): it would fail
    whoever encodes it, long after."""
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
    """The record of a document where none is stored."""
    name = document_id(catalog, document.key)
    state = _state(document)
    return {"_id": name, "catalog": catalog, "key": document.key, "state": state}


def _state(document: DocumentRecord) -> Record | RawBSONDocument:
    """A large one is encoded by itself: all of a bulk would be one call that lets nobody else go
    on."""
    state = _document_state(document)
    if document.size_bytes <= _APART_BYTES:
        return state
    let_others()
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
    """Likewise all of them; small ones count where they are many."""
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
    """Raises ValueError where a number is none, by hand, or the name is that of another document:
    pages go by names, and on from keys."""
    if record["_id"] != document_id(record["catalog"], document.key):
        raise ValueError(f"its name isn't that of its key {document.key!r}")
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
    """From a raw batch of records with the fields of BARE_DOCUMENT."""
    return _all_of(batch, _bare_of)


def digested_from(batch: bytes) -> list[Digested]:
    """From a raw batch of records with the fields of DIGESTED, and those of PARTS or not."""
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
        raise ValueError(f"{number!r} is no whole number")
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
    # The driver gives views of what is large, in which ``in`` would look at numbers one by one.
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
            raise ValueError(f"its name isn't that of key {asked.key!r} of {asked.principal!r}")
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
    """The name that finds a reply: a verdict, or a commit with an idempotency key."""
    return f"{catalog}\0{principal}\0{key}"


_Reply = TypeVar("_Reply", CommitRecord, Verdict)

# The number of this layout: see ``format``.
FORMAT: Final = 4

# The fields of a head without its tail.
_BARE_HEAD = ("head", "time_us", "out", "floor", "deleted", "judged_out")
BARE_HEAD: Final = dict.fromkeys(_BARE_HEAD, 1)
HEAD_WITH_TAIL: Final = {**BARE_HEAD, "tail": 1, "verdicts": 1, "claims": 1}


def head_at(catalog: str, place: HeadPosition) -> Record:
    """The filter on a head at this place, of this format."""
    return {"_id": catalog, "head": _head_fields(place)}


def moved_from(move: HeadMove) -> Record:
    """The filter on a head that a move begins at. Only one that begins at revision 0 may make a
    head: of two conditions on one field MongoDB makes no record."""
    at = head_at(move.catalog, move.place)
    return {**at, REVISION: move.base} if move.base else at


def _head_fields(place: HeadPosition) -> Record:
    """In the order in which MongoDB compares them."""
    return {
        "format": FORMAT,
        "revision": place.revision,
        "last": place.last,
        "judged": place.judged,
        "verdict": place.last_verdict,
    }


# The revision of a head, to be asked for.
REVISION: Final = "head.revision"


def in_line(move: HeadMove) -> Record:
    """The filter on a head whose first claim the move may pass, or that has none."""
    if move.passes_all:
        return {}
    nobody: Record = {"claims.0": {"$exists": False}}
    if not move.past:
        return nobody
    # That the name is missing says nothing: the path means a member "0" of each claim, too.
    return {"$or": [nobody, {"claims.0.by": {"$in": [*move.past]}}]}


def head_move(move: HeadMove) -> Record:
    """The update that makes a move; it leaves retention alone.

    The tail keeps as many of its last commits as are above ``written``, whichever revision the head
    itself has been noted to be written out to: so neither update can take too many from it. The
    verdicts likewise.
    """
    goal = move.goal
    revision, judged = goal.revision, goal.judged
    state: Record = {"head": _head_fields(goal), "open": True}
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
    if not move.base:  # a catalog that was never written may have verdicts
        if move.commits:
            update["$unset"] = {"uncommitted": ""}
        elif move.verdicts:
            state["uncommitted"] = move.verdicts[-1].time_us
    if move.past:
        update["$pull"] = {"claims": {"by": {"$in": [*move.past]}}}
    if not move.commits:
        update["$setOnInsert"] = {"time_us": 0}
    return update


def head_advanced(place: HeadPosition, commit: CommitRecord) -> Record:
    """The fields of a head at ``place`` once it has moved on to a commit that is written out."""
    return {
        "head": _head_fields(place._replace(revision=commit.revision, last=commit.id)),
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
    """The heads of whatever catalogs: one that can't be read is left out, and told in the log."""
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
    """Whatever of a head's record can be read by itself. ``judged``: the highest number of a
    verdict that is written out."""
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
    """None where it isn't of this kind, or has a text that isn't UTF-8."""
    with suppress(ValueError):
        found = msgspec.convert(value, kind)
        _encode(found)
        return found
    return None


def text_of(record: Mapping[str, Any], name: str) -> str | None:
    """None where it has none, or it can't be read."""
    return cast(str | None, _read_as(record.get(name), str))


def whole_head(head: Head, lost: LostHead) -> Record:
    """The record of ``head``, with what the lost one says of retention."""
    record: Record = {
        "_id": head.catalog,
        "head": _head_fields(head.place),
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
    """The commit or verdict with the size that it takes in its head."""
    return msgspec.structs.replace(reply, size_bytes=len(encode(record)))


def pin_record(pin: PinRecord) -> Record:
    return asdict(pin)


def retention_from(record: Mapping[str, Any], now: datetime | None = None) -> Retention:
    """``now``, by the database's clock, is needed where the floor was raised."""
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
# A lease that ends later than anybody could have asked for is over, too: the clock was set back
# since, or a new primary's is behind. Twice its length is allowed, since clocks differ. One that
# was never taken, or was ended, has no ``until``, which is lower than any date.
#
# Where somebody wrote anything else into ``lasts_ms``, it counts as the longest one: what can't be
# computed for one record would end the query, and keep all others from being found.
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
    """Of a lease that begins now, for an update by a pipeline."""
    milliseconds = round(duration_s * 1000)
    return {"until": {"$add": ["$$NOW", milliseconds]}, "lasts_ms": milliseconds}

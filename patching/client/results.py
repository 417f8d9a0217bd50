"""What the gateway answers, as values, and how they are read from its JSON and headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from patching import ABSENT, Json
from patching.client._wire import HttpAnswer
from patching.client.errors import Moment, UnexpectedAnswer
from patching.values import Absent


@dataclass(frozen=True, slots=True)
class Document:
    """A document's content and its version token, as the catalog had it at ``catalog_revision``.

    ``value`` is decoded JSON; changing it changes nothing elsewhere. Only listings have
    ``revision`` (of its last change), ``create_revision`` and ``attributes``; only reads of a
    single document have ``modified`` (the time of its last change, in whole seconds); otherwise
    these are None. What ``catalog.attributes`` reads has the attributes as its ``value``.
    """

    key: str
    value: Json
    etag: str
    catalog_revision: int
    revision: int | None = None
    create_revision: int | None = None
    attributes: Mapping[str, Any] | None = None
    modified: datetime | None = None


@dataclass(frozen=True, slots=True)
class DocumentDigest:
    """A document's version token, and the digest of its content (`patching.digest`), or of what a
    manager owns of it (`patching.part_digests.owned_digest`)."""

    key: str
    etag: str
    digest: str
    catalog_revision: int


@dataclass(frozen=True, slots=True)
class Owner:
    """``manager`` has owned a leaf since revision ``since``; ``plain``: by a write that wasn't an
    apply, whose author it is."""

    manager: str
    since: int
    plain: bool


@dataclass(frozen=True, slots=True)
class LeafOwners:
    """A leaf of a document, and its owners."""

    pointer: str
    owners: tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Takeover:
    """A commit that took ``fields`` of document ``key`` over from a manager; each with its present
    owners."""

    key: str
    revision: int
    time: Moment
    author: str
    message: str | None
    fields: tuple[LeafOwners, ...]


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """The pointers of the leaves that a manager, or (``plain``) an author, gained and lost."""

    manager: str
    plain: bool
    gained: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContestedLeaf:
    """A leaf that others own and that a manager wants with another value; or a place, of document
    ``key`` in its ``part`` "content" or "attributes", that was changed since what a revert would
    undo, the last time at ``revision`` or before.

    ``value`` is there, ``wanted`` was sent or was there before; ABSENT if the gateway doesn't show
    it, or there is, or would be, nothing.
    """

    pointer: str
    owners: tuple[Owner, ...]
    value: Any = ABSENT
    wanted: Any = ABSENT
    key: str | None = None
    part: str | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    ``etag`` (the next token), ``revision`` and ``create_revision`` are None if there is no document
    afterwards, or if a dry run would have changed it. ``catalog_revision`` is the catalog's
    afterwards. ``commit_id`` is that of the commit that last changed the document: this one or, if
    not ``changed``, an earlier one; None if there is none. ``attempts`` counts the gateway's tries.
    ``rebased_from`` is the token that a rebased patch was made for. ``replayed``: the write was
    applied before, under the same idempotency key. ``skipped`` is what an apply left to others,
    ``changes`` what a dry run would do to the document, each as in the history.
    """

    key: str
    etag: str | None
    revision: int | None
    create_revision: int | None
    changed: bool
    created: bool
    catalog_revision: int
    commit_id: str | None
    attempts: int
    rebased_from: str | None = None
    replayed: bool = False
    dry_run: bool = False
    skipped: tuple[LeafOwners, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogWritten:
    """The result of a write on a catalog as a whole. ``etag``: the token of the settings, if the
    write is about them. ``commit_id`` None: nothing was committed."""

    catalog: str
    revision: int
    changed: bool
    commit_id: str | None
    attempts: int
    etag: str | None = None
    replayed: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class CatalogHead:
    """``floor``: the oldest revision that can be read. ``time``: when it was last written."""

    name: str
    revision: int
    time: Moment
    floor: int


@dataclass(frozen=True, slots=True)
class Several:
    """Documents by key, all as the catalog had them at ``revision``; None: there is none.

    ``etag`` is their composite: a write with ``if_match=several`` depends on all of them, even
    those that don't exist.
    """

    revision: int
    documents: Mapping[str, Document | None]
    etag: str


@dataclass(frozen=True, slots=True)
class Updated:
    """The result of `update`: ``value`` is the content that the function returned, with the token
    ``etag`` (None: deleted, or a dry run). ``written`` is None if there was nothing to change.
    ``tries`` counts the calls of the function."""

    key: str
    value: Any
    etag: str | None
    changed: bool
    tries: int
    written: Written | None


@dataclass(frozen=True, slots=True)
class Compaction:
    """``floor`` is the oldest revision that can be read now."""

    floor: int
    head_revision: int


@dataclass(frozen=True, slots=True)
class CatalogState:
    """``time`` is that of the commit at ``revision``, ``floor`` the oldest revision that can be
    read; ``settings`` and their token ``etag`` are None if nothing was set."""

    revision: int
    time: Moment
    settings: dict[str, Any] | None
    floor: int = 0
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A commit's change of one document; ``key`` None: of the catalog's settings.

    ``patch`` is the effective RFC 6902 patch of the content, removal at "" if it was deleted. It
    applies to the document as the commit at ``base_revision`` left it; 0: to any, or not known.
    ``attributes`` are those afterwards, None if they are unchanged; ``owners`` how the owners of
    its leaves changed; ``managers`` those who applied or let go. All values are shared: treat them
    as immutable.

    ``before`` and ``value`` are the content before and after the commit, in a feed that includes
    them; ABSENT if there is no document, or if ``withheld`` names them: they were too large.
    """

    key: str | None
    action: str
    create_revision: int
    patch: list[dict[str, Any]]
    attributes: dict[str, Any] | None = None
    owners: tuple[OwnershipChange, ...] = ()
    managers: tuple[str, ...] = ()
    before: Any = ABSENT
    value: Any = ABSENT
    withheld: tuple[str, ...] = ()
    base_revision: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A document that differs between two revisions; ``key`` None: the catalog's settings.

    ``change`` is "created", "changed" or "deleted". ``value`` and ``attributes`` are those of a
    document that was created or deleted. For a changed one ``value`` is ABSENT and ``attributes``
    None; ``patch`` and ``attributes_patch`` lead from the first revision to the second. ``etag``
    and ``revision`` are those at the second, None if it was deleted.
    """

    key: str | None
    change: str
    etag: str | None
    revision: int | None
    value: Json | Absent = ABSENT
    attributes: Mapping[str, Any] | None = None
    patch: tuple[Mapping[str, Any], ...] = ()
    attributes_patch: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change of a catalog; without changes it was a touch. ``parent`` is the id of the
    commit before it: None for the first one, and if an earlier gateway didn't record it."""

    revision: int
    time: Moment
    commit_id: str
    author: str
    message: str | None
    idempotency_key: str | None
    attempts: int
    changes: tuple[Change, ...]
    succeeded: bool = True
    rebased_from: str | None = None
    deletes_catalog: bool = False
    parent: str | None = None

    def touches(self, prefix: str) -> bool:
        """Whether it changes a document whose key begins with ``prefix``."""
        return any(
            change.key is not None and change.key.startswith(prefix) for change in self.changes
        )


@dataclass(frozen=True, slots=True)
class ActionResult:
    """A document as the whole transaction left it; ``key`` None: of ``touch``, and of ranges.

    Only ``get`` has a ``value``: ABSENT if there is no document. ``etag`` is None then, or if a dry
    run would have changed it. ``exists`` None: it is no longer known. ``left_out``: the action's
    own condition is false. ``written`` and ``deleted`` count the documents of the range ``prefix``,
    if the action is about one.
    """

    action: str
    key: str | None
    etag: str | None
    revision: int | None
    exists: bool | None
    value: Json | Absent = ABSENT
    attributes: Mapping[str, Any] | None = None
    left_out: bool = False
    prefix: str | None = None
    written: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """``revision`` is the catalog's afterwards; ``commit_id`` None if nothing was written.

    ``succeeded``: ``then`` was done; otherwise ``otherwise`` was. ``results`` has one for each
    action done. ``etag`` is the composite of the documents that it wrote. ``replayed``: it was done
    before, under the same idempotency key. ``changes``: what a dry run would have committed.
    """

    revision: int
    succeeded: bool
    changed: bool
    commit_id: str | None
    attempts: int
    results: tuple[ActionResult, ...]
    etag: str | None = None
    replayed: bool = False
    dry_run: bool = False
    changes: tuple[Change, ...] = ()


_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class SkippedPlace:
    """A place that a revert left, as it was changed since: in a document's content or, by ``part``,
    its attributes. ``key`` None: in the catalog's settings."""

    key: str | None
    part: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Reverted:
    """``revision`` is the catalog's afterwards; ``commit_id`` None if nothing was written.

    ``changes`` are those of the commit, or those that a dry run would have made. ``replayed``: it
    was done before, under the same idempotency key.
    """

    revision: int
    changed: bool
    commit_id: str | None
    attempts: int
    skipped: tuple[SkippedPlace, ...]
    changes: tuple[Change, ...]
    replayed: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PinState:
    """A pin as the gateway has it: ``revision`` is held until ``expires``.

    ``owner`` is the principal that made it, "" the gateway itself.
    """

    id: str
    revision: int
    expires: Moment
    owner: str
    note: str


@dataclass(frozen=True, slots=True)
class UploadState:
    """An upload as the gateway has it. ``parts`` are the numbers of the staged ones; ``committed``
    is the revision of its commit, None before that."""

    id: str
    key: str
    expires: Moment
    parts: tuple[int, ...]
    committed: int | None


@contextmanager
def expecting(what: str) -> Iterator[None]:
    """Turns the errors of reading an answer of an unexpected shape into UnexpectedAnswer."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise UnexpectedAnswer(
            f"this is not a valid {what}: {type(error).__name__} {error}",
            status=200,
            applied="unknown",
        ) from error


def value_of(kind: type[_Value], shape: Any, **given: Any) -> _Value:
    """Makes a ``kind`` of ``shape``, decoded JSON: a field is the member of its name, or is
    ``given``. Other members are ignored. Raises UnexpectedAnswer if it doesn't fit."""
    with expecting(kind.__name__):
        return msgspec.convert({**shape, **given}, kind)


def parse_commit(shape: Any) -> Commit:
    with expecting("Commit"):
        return value_of(Commit, shape, changes=_changes(shape["changes"]))


def parse_difference(shape: Any) -> Difference:
    with expecting("Difference"):
        return Difference(
            shape["key"],
            shape["change"],
            shape["etag"],
            shape["revision"],
            shape.get("value", ABSENT),
            shape.get("attributes"),
            tuple(shape.get("patch", ())),
            tuple(shape.get("attributes_patch", ())),
        )


def changes_of(shapes: Any) -> tuple[Change, ...]:
    """The changes that an answer lists; a patch of null is one without operations."""
    return msgspec.convert(_changes(shapes), tuple[Change, ...])


def _changes(shapes: Any) -> list[Any]:
    return [{**shape, "patch": shape["patch"] or []} for shape in shapes]


def parse_state(shape: Any) -> CatalogState:
    with expecting("CatalogState"):
        return value_of(CatalogState, shape, etag=shape.get("settings_etag"))


def parse_document(key: str, answer: HttpAnswer) -> Document:
    with expecting("document"):
        headers = answer.headers
        modified = headers.get("Last-Modified")
        return Document(
            key=key,
            value=answer.json(),
            etag=unquoted(headers["ETag"]),
            catalog_revision=int(headers["Catalog-Revision"]),
            modified=None if modified is None else parsedate_to_datetime(modified).astimezone(UTC),
        )


def parse_listed(shape: Any, revision: int) -> Document | None:
    """None if ``shape`` says that there is no such document."""
    if shape["etag"] is None:
        return None
    attributes = shape.get("attributes", {})
    return value_of(Document, shape, catalog_revision=revision, attributes=attributes)


def parse_written(key: str, answer: HttpAnswer) -> Written:
    """The result of a write; that of a deletion, which has no body, comes from its headers."""
    absent = {"etag": None, "revision": None, "create_revision": None}
    headers = answer.headers
    with expecting("answer to a write"):
        return value_of(
            Written,
            absent | _written(answer),
            key=key,
            created=answer.status == 201,
            catalog_revision=int(headers["Catalog-Revision"]),
            attempts=int(headers["Attempts"]),
        )


def parse_catalog_written(catalog: str, answer: HttpAnswer) -> CatalogWritten:
    written = _written(answer)
    with expecting("answer to a write"):
        return value_of(
            CatalogWritten,
            written,
            catalog=catalog,
            revision=int(answer.headers["Catalog-Revision"]),
            attempts=int(answer.headers.get("Attempts", 1)),
            etag=written.get("settings_etag"),
        )


def _written(answer: HttpAnswer) -> dict[str, Any]:
    """The fields that the answers to all writes have."""
    commit_id = answer.headers.get("Commit-Id")
    body = {"changed": commit_id is not None} if answer.status == 204 else answer.json()
    with expecting("answer to a write"):
        return {**body, "commit_id": commit_id, "replayed": is_replayed(answer)}


def is_replayed(answer: HttpAnswer) -> bool:
    return answer.headers.get("Idempotency-Replayed") == "true"


def parse_transaction(answer: HttpAnswer) -> TransactionResult:
    content = answer.json()
    etag = answer.headers.get("ETag")
    with expecting("answer to a transaction"):
        return TransactionResult(
            revision=content["revision"],
            succeeded=content["succeeded"],
            changed=content["changed"],
            commit_id=content["commit_id"],
            attempts=content["attempts"],
            results=tuple(_parse_result(shape) for shape in content.get("results", ())),
            etag=None if etag is None else unquoted(etag),
            replayed=is_replayed(answer),
            dry_run=content.get("dry_run", False),
            changes=changes_of(content.get("changes", ())),
        )


def _parse_result(shape: Mapping[str, Any]) -> ActionResult:
    return ActionResult(
        action=shape["action"],
        key=shape["key"],
        etag=shape["etag"],
        revision=shape["revision"],
        exists=shape["exists"],
        value=shape.get("value", ABSENT),
        attributes=shape.get("attributes"),
        left_out=shape.get("left_out", False),
        prefix=shape.get("prefix"),
        written=shape.get("written"),
        deleted=shape.get("deleted"),
    )


def unquoted(etag: str) -> str:
    """The version token in an ``ETag`` header."""
    return etag.strip().removeprefix("W/").strip('"')

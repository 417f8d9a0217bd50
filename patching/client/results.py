"""What the gateway answers, as values.

What a transaction came to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from patching import ABSENT, Absent, Json
from patching.client.commits import Change, expecting, parse_change, parse_time, whole
from patching.client.transport import Answer


@dataclass(frozen=True, slots=True)
class Document:
    """A document's content and its version token, as the catalog had it at ``catalog_revision``.

    ``value`` is decoded JSON; changing it changes nothing elsewhere. ``revision`` (of its last
    change), ``create_revision`` and ``attributes`` are told by listings alone, ``modified`` (the
    time of its last change, in whole seconds) by reads of a single document; else they are None.
    What was read by ``catalog.attributes`` has the attributes as its ``value``.
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
class Written:
    """What a write came to.

    ``etag`` (the token to go on with), ``revision`` and ``create_revision`` are None where there is
    no document afterwards, and where a dry run would have changed it. ``catalog_revision``: the
    catalog's afterwards. ``commit_id``: of the commit that last changed the document, this one or,
    where ``changed`` is False, another; None where there is none. ``attempts``: how often the
    gateway tried. ``rebased_from``: the token that it was made for, where it was rebased.
    ``replayed``: it was applied before, under the same idempotency key.
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


@dataclass(frozen=True, slots=True)
class CatalogWritten:
    """What a write on a catalog as a whole came to. ``etag``: the settings' token, where it is
    about those. ``commit_id`` None: nothing was committed."""

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
    time: datetime
    floor: int


@dataclass(frozen=True, slots=True)
class Several:
    """Documents by key, all as the catalog had them at ``revision``; None: there is none.

    ``etag`` is their composite: a write with ``if_match=several`` depends on all of them, also on
    those that aren't there.
    """

    revision: int
    documents: Mapping[str, Document | None]
    etag: str


@dataclass(frozen=True, slots=True)
class Updated:
    """What `update` came to: ``value`` is the content that the function returned, under the token
    ``etag`` (None: deleted, or a dry run). ``written`` is None where there was nothing to change.
    ``tries``: how often the function was called."""

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


def parse_document(key: str, answer: Answer) -> Document:
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


def parse_listed(shape: Mapping[str, Any], revision: int) -> Document | None:
    """None where ``shape`` says that there is no such document."""
    if shape["etag"] is None:
        return None
    return Document(
        key=shape["key"],
        value=shape["value"],
        etag=shape["etag"],
        catalog_revision=revision,
        revision=whole(shape["revision"]),
        create_revision=whole(shape["create_revision"]),
        attributes=shape.get("attributes", {}),
    )


def parse_written(key: str, answer: Answer) -> Written:
    """Of a deletion, which has no body: what its headers say."""
    with expecting("write's answer"):
        headers = answer.headers
        commit_id = headers.get("Commit-Id")
        shape: Mapping[str, Any] = {}
        if answer.status != 204:
            shape = answer.json()
        return Written(
            key=key,
            etag=shape.get("etag"),
            revision=shape.get("revision"),
            create_revision=shape.get("create_revision"),
            changed=shape["changed"] if shape else commit_id is not None,
            created=answer.status == 201,
            catalog_revision=int(headers["Catalog-Revision"]),
            commit_id=commit_id,
            attempts=int(headers["Attempts"]),
            rebased_from=shape.get("rebased_from"),
            replayed=headers.get("Idempotency-Replayed") == "true",
            dry_run=shape.get("dry_run", False),
        )


def parse_catalog_written(catalog: str, answer: Answer) -> CatalogWritten:
    with expecting("write's answer"):
        headers = answer.headers
        commit_id = headers.get("Commit-Id")
        shape: Mapping[str, Any] = {} if answer.status == 204 else answer.json()
        return CatalogWritten(
            catalog=catalog,
            revision=int(headers["Catalog-Revision"]),
            changed=shape["changed"] if shape else commit_id is not None,
            commit_id=commit_id,
            attempts=int(headers.get("Attempts", 1)),
            etag=shape.get("settings_etag"),
            replayed=headers.get("Idempotency-Replayed") == "true",
            dry_run=shape.get("dry_run", False),
        )


def parse_head(shape: Mapping[str, Any]) -> CatalogHead:
    return CatalogHead(
        shape["catalog"], whole(shape["revision"]), parse_time(shape["time"]), whole(shape["floor"])
    )


def unquoted(etag: str) -> str:
    """The version token in an ``ETag`` header."""
    return etag.strip().removeprefix("W/").strip('"')


@dataclass(frozen=True, slots=True)
class ActionResult:
    """A document as the whole transaction left it; ``key`` None: of ``touch``.

    ``value`` is told of ``get`` alone, and ABSENT where there is no document. ``etag`` is None then
    and where a dry run would have changed it. ``exists`` None: it can't be told any more.
    """

    action: str
    key: str | None
    etag: str | None
    revision: int | None
    exists: bool | None
    value: Json | Absent = ABSENT
    attributes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """``revision`` is the catalog's afterwards; ``commit_id`` None where nothing was written.

    ``succeeded``: ``then`` was done; else ``otherwise`` was. ``results`` has one for each action of
    that. ``etag`` is the composite of the documents that it wrote. ``replayed``: it was done
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


def parse_transaction(answer: Answer) -> TransactionResult:
    content = answer.json()
    with expecting("transaction's answer"):
        etag = answer.headers.get("ETag")
        return TransactionResult(
            revision=whole(content["revision"]),
            succeeded=content["succeeded"],
            changed=content["changed"],
            commit_id=content["commit_id"],
            attempts=content["attempts"],
            results=tuple(_parse_result(shape) for shape in content.get("results", ())),
            etag=None if etag is None else unquoted(etag),
            replayed=answer.headers.get("Idempotency-Replayed") == "true",
            dry_run=content.get("dry_run", False),
            changes=tuple(parse_change(shape) for shape in content.get("changes", ())),
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
    )

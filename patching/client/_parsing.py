"""The gateway's answers read: the values in ``_results`` of their JSON and headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from patching import ABSENT
from patching.client._errors import UnexpectedAnswer
from patching.client._results import (
    ActionResult,
    CatalogState,
    CatalogWritten,
    Change,
    Commit,
    Difference,
    Document,
    TransactionResult,
    Written,
)
from patching.client._transport import Answer

_Value = TypeVar("_Value")


@contextmanager
def expecting(what: str) -> Iterator[None]:
    """Turns the errors of reading an answer of another shape into UnexpectedAnswer."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise UnexpectedAnswer(
            f"this is no {what}: {type(error).__name__} {error}", status=200, applied="unknown"
        ) from error


def value_of(kind: type[_Value], shape: Any, **given: Any) -> _Value:
    """The ``kind`` that ``shape``, decoded JSON, tells of: a field is called as its member, or is
    ``given``. Other members are left out. UnexpectedAnswer where it is none."""
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
    return msgspec.convert(_changes(shapes), tuple[Change, ...])


def _changes(shapes: Any) -> list[Any]:
    return [{**shape, "patch": shape["patch"] or []} for shape in shapes]


def parse_state(shape: Any) -> CatalogState:
    with expecting("CatalogState"):
        return value_of(CatalogState, shape, etag=shape.get("settings_etag"))


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


def parse_listed(shape: Any, revision: int) -> Document | None:
    """None where ``shape`` says that there is no such document."""
    if shape["etag"] is None:
        return None
    attributes = shape.get("attributes", {})
    return value_of(Document, shape, catalog_revision=revision, attributes=attributes)


def parse_written(key: str, answer: Answer) -> Written:
    """The result of a write; that of a deletion, which has no body, comes from its headers."""
    told = {"etag": None, "revision": None, "create_revision": None}
    headers = answer.headers
    with expecting("write's answer"):
        return value_of(
            Written,
            told | _written(answer),
            key=key,
            created=answer.status == 201,
            catalog_revision=int(headers["Catalog-Revision"]),
            attempts=int(headers["Attempts"]),
        )


def parse_catalog_written(catalog: str, answer: Answer) -> CatalogWritten:
    told = _written(answer)
    with expecting("write's answer"):
        return value_of(
            CatalogWritten,
            told,
            catalog=catalog,
            revision=int(answer.headers["Catalog-Revision"]),
            attempts=int(answer.headers.get("Attempts", 1)),
            etag=told.get("settings_etag"),
        )


def _written(answer: Answer) -> dict[str, Any]:
    """The fields that the answers to all writes have."""
    commit_id = answer.headers.get("Commit-Id")
    body = {"changed": commit_id is not None} if answer.status == 204 else answer.json()
    return {**body, "commit_id": commit_id, "replayed": is_replayed(answer)}


def is_replayed(answer: Answer) -> bool:
    return answer.headers.get("Idempotency-Replayed") == "true"


def parse_transaction(answer: Answer) -> TransactionResult:
    content = answer.json()
    etag = answer.headers.get("ETag")
    with expecting("transaction's answer"):
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

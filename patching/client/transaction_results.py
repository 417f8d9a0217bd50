"""What a transaction came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patching import ABSENT, Absent, Json

from .commits import Change, expecting, parse_change, whole
from .results import unquoted
from .transport import Answer


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

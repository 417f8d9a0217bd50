"""The result of a write, and the answer to it, with the same headers on all routes.

The result of a commit is made from the commit alone, so that a repeated request gets the first
answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from gateway.decide.conditions import CatalogTag
from gateway.decide.request import Applied, Request, Unchanged, Unknown, WriteOutcome
from gateway.errors import CommitError, UnknownOutcome
from gateway.http.context import Context, DecidedWrite, HeaderList
from gateway.http.wire.headers import document_path
from gateway.http.wire.responses import (
    Answer,
    body_answer,
    empty_answer,
    encode,
    etag,
    last_modified,
)
from gateway.http.wire.shapes import change_shape, owners_shape, skipped_shape
from gateway.http.write.ask import Ask, Part
from gateway.http.write.explain import further_members
from gateway.model import CommitRecord, DocumentRecord, Skipped, version_token
from gateway.read.visibility import Life
from gateway.service import GatewayService
from patching import Json


class DocumentState(msgspec.Struct, frozen=True):
    """A write's document as it is afterwards; ``time_s`` since the epoch."""

    token: str
    revision: int
    create_revision: int
    commit_id: str
    time_s: int


class Result(msgspec.Struct, frozen=True):
    """The result of a write that was neither refused nor unknown.

    ``commit`` is the write's own, made now or (``replayed``) when it was first sent; None after a
    dry run or a no-op, which may be replayed too. ``document`` is None if the write left no
    document, or if a dry run would change it. ``created``: the commit created the document; false
    in a dry run. ``skipped`` are the places that its applies left to others.
    """

    outcome: Applied | Unchanged
    commit: CommitRecord | None
    document: DocumentState | None
    created: bool
    changed: bool
    catalog_revision: int
    attempts: int
    rebased_from: str | None
    replayed: bool
    skipped: tuple[Skipped, ...]


def result_of(written: WriteOutcome, key: str, *, dry_run: bool) -> Result:
    """The result of a write on ``key``. Raises the CommitError of a refused or unknown write."""
    outcome = written.outcome
    if isinstance(outcome, Applied):
        commit = outcome.commit
        document, is_new = None, False
        for change in commit.changes:
            if change.key == key and change.action != "delete":
                is_new = change.create_revision == commit.revision
                document = DocumentState(
                    version_token(commit.revision, commit.id),
                    commit.revision,
                    change.create_revision,
                    commit.id,
                    commit.time_us // 1_000_000,
                )
        return Result(
            outcome=outcome,
            commit=commit,
            document=document,
            created=is_new and not dry_run,
            changed=not dry_run,
            catalog_revision=commit.revision,
            attempts=commit.attempts,
            rebased_from=commit.rebased_from,
            replayed=outcome.replayed,
            skipped=commit.skipped,
        )
    if isinstance(outcome, Unchanged):
        kept = None if outcome.would_change else outcome.documents.get(key)
        return Result(
            outcome=outcome,
            commit=None,
            document=None if kept is None else _document_after(kept),
            created=False,
            changed=outcome.would_change,
            catalog_revision=outcome.catalog_revision,
            attempts=written.attempts,
            rebased_from=outcome.rebased_from,
            replayed=outcome.replayed,
            skipped=outcome.skipped,
        )
    if isinstance(outcome, Unknown):
        raise UnknownOutcome(outcome.commit_id)
    raise outcome.error


def _document_after(document: DocumentRecord) -> DocumentState:
    return DocumentState(
        document.token,
        document.revision,
        document.create_revision,
        document.commit_id,
        document.time_us // 1_000_000,
    )


def commit(gateway: GatewayService, context: Context, ask: Ask, request: Request) -> Result:
    """Commit the request that was made from ``ask``. Raises as ``carried_out`` does."""
    return carried_out(gateway, context, ask, lambda: gateway.commit(request))


def carried_out(
    gateway: GatewayService, context: Context, ask: Ask, run: Callable[[], WriteOutcome]
) -> Result:
    """The result of ``run``, which does the write that ``ask`` describes.

    Leaves the outcome in ``context.observed`` for observers, and what helps against a refusal for
    its problem. Raises the CommitError of a refused or unknown write.
    """
    try:
        done = run()
        context.observed.decided_write = DecidedWrite(ask.author, ask.dry_run, done)
        return result_of(done, ask.key, dry_run=ask.dry_run)
    except CommitError as error:
        context.observed.helps = further_members(
            gateway,
            ask.by,
            ask.catalog,
            error,
            key=ask.key,
            idempotency_key=ask.idempotency_key,
            shows=ask.prefer.refusal_shows,
        )
        raise


def headers_of(result: Result) -> HeaderList:
    """The headers of every write's answer; each route adds its tag."""
    headers = [
        ("Catalog-Revision", str(result.catalog_revision)),
        ("Attempts", str(result.attempts)),
    ]
    if result.commit is not None:
        headers.append(("Commit-Id", result.commit.id))
    if result.replayed:
        headers.append(("Idempotency-Replayed", "true"))
    return headers


def is_minimal(ask: Ask) -> bool:
    """Whether a minimal answer is preferred, and will do: a dry run has changes to show."""
    return ask.prefer.returns == "minimal" and not ask.dry_run


def preferences_applied(ask: Ask, result: Result, *, represented: bool) -> HeaderList:
    """The preferences that the answer follows. ``represented``: its body shows the document."""
    applied = []
    if represented or is_minimal(ask):
        applied.append(f"return={ask.prefer.returns}")
    if ask.prefer.wait_s is not None:
        applied.append(f"wait={ask.prefer.wait_s}")
    if result.rebased_from is not None:
        applied.append("rebase")
    return [("Preference-Applied", ", ".join(applied))] if applied else []


class WriteAnswer(msgspec.Struct, frozen=True):
    """The body of a write's answer; ``etag`` is the version token, without the header's quotes.

    ``etag``, ``revision`` and ``create_revision`` are those of ``Result.document``. ``skipped``:
    the places that an apply left to others. ``changes``: those that a dry run would make.
    """

    catalog: str
    key: str
    etag: str | None
    revision: int | None
    create_revision: int | None
    changed: bool
    attempts: int
    rebased_from: str | None = None
    dry_run: bool | msgspec.UnsetType = msgspec.UNSET
    skipped: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    changes: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


def document_answer(gateway: GatewayService, ask: Ask, result: Result) -> Answer:
    """The answer to a write of one document, or of its attributes."""
    headers, after = headers_of(result), result.document
    if after is not None:
        headers += (etag(after.token), last_modified(after.time_s))
        if result.commit is None:
            headers.append(("Commit-Id", after.commit_id))
    if result.created:
        headers.append(("Location", document_path(ask.catalog, ask.key)))
    document, skipped = None, result.skipped
    if ask.prefer.returns == "representation" and not skipped:
        document = _document_left(gateway, ask, result)
    if document is not None:
        return _answer(ask, result, headers, shown_part(document, ask.part), represented=True)
    content = WriteAnswer(
        catalog=ask.catalog,
        key=ask.key,
        etag=after.token if after else None,
        revision=after.revision if after else None,
        create_revision=after.create_revision if after else None,
        changed=result.changed,
        attempts=result.attempts,
        rebased_from=result.rebased_from,
        dry_run=ask.dry_run or msgspec.UNSET,
        skipped=skipped_shape(skipped) if skipped else msgspec.UNSET,
        changes=_would_change(gateway, ask, result),
    )
    return _answer(ask, result, headers, content, needed=bool(skipped))


def shown_part(document: DocumentRecord, part: Part) -> Json:
    """The part of a live document, as a read shows it."""
    if part == "owners":
        return {"owners": owners_shape(document.owners)}
    return cast(Json, document.content if part == "content" else document.attributes or {})


def written_shape(ask: Ask, result: Result) -> dict[str, Any]:
    """The body of the answer to a write that isn't of one document."""
    return {
        "catalog": ask.catalog,
        "revision": result.catalog_revision,
        "commit_id": None if result.commit is None else result.commit.id,
        "changed": result.changed,
        "attempts": result.attempts,
    }


def catalog_answer(
    ask: Ask,
    result: Result,
    *,
    with_settings: bool = False,
    more: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer to a write on a catalog as a whole, whose tag is its revision."""
    content = {**written_shape(ask, result), **(more or {})}
    if with_settings:
        content["settings_etag"] = result.document.token if result.document else None
    if ask.dry_run:
        content["dry_run"] = True
    headers = [*headers_of(result), etag(CatalogTag(result.catalog_revision))]
    return _answer(ask, result, headers, content)


def _answer(
    ask: Ask,
    result: Result,
    headers: HeaderList,
    content: Any,
    *,
    represented: bool = False,
    needed: bool = False,
) -> Answer:
    """The answer in the preferred form. A dry run's has a body in any case, and so has one whose
    body is ``needed``."""
    headers += preferences_applied(ask, result, represented=represented)
    status = 201 if result.created else 200
    if represented or needed:
        return body_answer(encode(content), headers, status)
    if is_minimal(ask) and status == 201:
        # A creation is answered with 201, body or not (RFC 9110, section 9.3.4).
        headers.append(("Content-Length", "0"))
        return empty_answer(headers, status)
    deletes = ask.method == "DELETE" and ask.part != "owners"
    if is_minimal(ask) or (deletes and not ask.dry_run):
        return empty_answer(headers)
    return body_answer(encode(content), headers, status)


def _would_change(
    gateway: GatewayService, ask: Ask, result: Result
) -> list[dict[str, Any]] | msgspec.UnsetType:
    """The changes of a dry run, if its principal may read the document that it would leave, or, if
    it would leave none, the document as it is."""
    outcome = result.outcome
    if not isinstance(outcome, Unchanged) or not outcome.changes:
        return msgspec.UNSET
    document = outcome.document
    if document is not None and document.exists:
        if _document_left(gateway, ask, result) is None:
            return msgspec.UNSET
    elif ask.key in hidden_now(gateway, ask, outcome):
        return msgspec.UNSET
    return [change_shape(each, result.catalog_revision + 1) for each in outcome.changes]


def _document_left(gateway: GatewayService, ask: Ask, result: Result) -> DocumentRecord | None:
    """The document as the write left it, or would leave it.

    None if there is none, if history no longer has it, or if the principal may not read it.
    """
    if result.replayed:
        return _document_then(gateway, ask, result)
    document = result.outcome.document
    if document is None or not document.exists:
        return None
    if ask.key in hidden_now(gateway, ask, result.outcome):
        return None
    if document.attributes is None:
        return document
    viewer = gateway.acls.viewer(ask.by, ask.catalog)
    return document if viewer is None or viewer.sees(document) else None


def hidden_now(gateway: GatewayService, ask: Ask, outcome: Applied | Unchanged) -> frozenset[str]:
    """The keys that a dry run would change, of documents that the principal may not read now.

    The dry run might open them to the principal, or delete them. To see them, it has to do so
    really, and everybody then sees who did it.
    """
    viewer = gateway.acls.viewer(ask.by, ask.catalog)
    if viewer is None or not isinstance(outcome, Unchanged) or not outcome.changes:
        return frozenset()
    changed = {
        Life(each.key, each.create_revision)
        for each in outcome.changes
        if each.create_revision <= outcome.catalog_revision
    }
    before = frozenset(life.key for life in viewer.hidden(changed))
    return before | viewer.hidden_keys([each.key for each in outcome.changes])


def _document_then(gateway: GatewayService, ask: Ask, result: Result) -> DocumentRecord | None:
    if result.document is None:
        return None
    try:
        revision = result.document.revision
        document = gateway.read_at_revision(ask.catalog, ask.key, revision).document
        viewer = gateway.acls.viewer(ask.by, ask.catalog)
        if viewer is not None and document is not None:
            viewer.require_past(document)
        return document
    except CommitError:
        return None

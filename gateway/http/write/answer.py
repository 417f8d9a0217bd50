"""What became of a write, and the answer to it: one result and one set of headers on all routes.

A result is told from the commit alone where one was made, so that a replay is answered like the
first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.decide.conditions import CatalogTag
from gateway.decide.request import Applied, Request, Unchanged, Unknown, Written
from gateway.errors import CommitError, OutcomeUnknown
from gateway.http.context import Context, Decided, HeaderList
from gateway.http.wire import query as names
from gateway.http.wire.answers import (
    Answer,
    body_answer,
    empty_answer,
    encode,
    etag,
    last_modified,
)
from gateway.http.write.ask import Ask
from gateway.http.write.explain import what_helps
from gateway.model import Commit, Document, version_token
from gateway.service import Gateway


@dataclass(frozen=True, slots=True)
class Standing:
    """The document that a write is about, as it stands afterwards; ``time_s`` since the epoch."""

    token: str
    revision: int
    create_revision: int
    commit_id: str
    time_s: int


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a write that was neither refused nor lost from sight.

    ``commit`` is the one that it made, now or (``replayed``) the first time it was sent; None where
    it changes nothing, or was a dry run. ``standing`` is None where the write left no document, or
    (a dry run) would leave another one than there is. ``created``: it is there by this
    commit, and this was no dry run.
    """

    outcome: Applied | Unchanged
    commit: Commit | None
    standing: Standing | None
    created: bool
    changed: bool
    catalog_revision: int
    attempts: int
    rebased_from: str | None
    replayed: bool


def result_of(written: Written, key: str, *, dry_run: bool) -> Result:
    """Of a write on ``key``. Raises the CommitError of what was not applied."""
    outcome = written.outcome
    if isinstance(outcome, Applied):
        commit = outcome.commit
        change = next((each for each in commit.changes if each.key == key), None)
        standing, is_new = None, False
        if change is not None and change.action != "delete":
            is_new = change.create_revision == commit.revision
            standing = Standing(
                version_token(commit.revision, commit.id),
                commit.revision,
                change.create_revision,
                commit.id,
                commit.time_us // 1_000_000,
            )
        return Result(
            outcome=outcome,
            commit=commit,
            standing=standing,
            created=is_new and not dry_run,
            changed=not dry_run,
            catalog_revision=commit.revision,
            attempts=commit.attempts,
            rebased_from=commit.rebased_from,
            replayed=outcome.replayed,
        )
    if isinstance(outcome, Unchanged):
        kept = None if outcome.would_change else outcome.documents.get(key)
        return Result(
            outcome=outcome,
            commit=None,
            standing=None if kept is None else _standing(kept),
            created=False,
            changed=outcome.would_change,
            catalog_revision=outcome.catalog_revision,
            attempts=written.attempts,
            rebased_from=outcome.rebased_from,
            replayed=False,
        )
    if isinstance(outcome, Unknown):
        raise OutcomeUnknown(outcome.commit_id)
    raise outcome.error


def _standing(document: Document) -> Standing:
    return Standing(
        document.token,
        document.revision,
        document.create_revision,
        document.commit_id,
        document.time_us // 1_000_000,
    )


def commit(gateway: Gateway, context: Context, ask: Ask, request: Request) -> Result:
    """Commit the request that ``ask`` became. Raises the CommitError of what was not applied."""
    return carried_out(gateway, context, ask, lambda: gateway.commit(request))


def carried_out(gateway: Gateway, context: Context, ask: Ask, run: Callable[[], Written]) -> Result:
    """What becomes of ``run``, which does what is asked, for the audit log and for the answer.

    Raises the CommitError of what was not applied; its problem tells what helps.
    """
    try:
        done = run()
        context.decided = Decided(ask.author, ask.dry_run, done)
        return result_of(done, ask.key, dry_run=ask.dry_run)
    except CommitError as error:
        context.helps = what_helps(gateway, ask.by, ask.catalog, error, ask.idempotency_key)
        raise


def headers_of(result: Result) -> HeaderList:
    """What the answer to every write has; the tags are its route's."""
    headers = [
        ("Catalog-Revision", str(result.catalog_revision)),
        ("Attempts", str(result.attempts)),
    ]
    if result.commit is not None:
        headers.append(("Commit-Id", result.commit.id))
    if result.replayed:
        headers.append(("Idempotency-Replayed", "true"))
    return headers


def preferences_applied(ask: Ask, result: Result, *, represented: bool) -> HeaderList:
    """``represented``: the body shows what was written."""
    applied = []
    if represented or ask.is_minimal:
        applied.append(f"return={ask.prefer.returns}")
    if ask.prefer.wait_s is not None:
        applied.append(f"wait={ask.prefer.wait_s}")
    if result.rebased_from is not None:
        applied.append("rebase")
    return [("Preference-Applied", ", ".join(applied))] if applied else []


class WriteAnswer(msgspec.Struct, frozen=True):
    """The body of a write's answer; ``etag`` is the version token, without the header's quotes.

    ``etag``, ``revision`` and ``create_revision`` are those of ``Result.standing``.
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


def document_answer(gateway: Gateway, ask: Ask, result: Result) -> Answer:
    """The answer to a write of one document, or of its attributes."""
    headers, standing = headers_of(result), result.standing
    if standing is not None:
        headers += (etag(standing.token), last_modified(standing.time_s))
        if result.commit is None:
            headers.append(("Commit-Id", standing.commit_id))
    if result.created:
        headers.append(("Location", names.document_path(ask.catalog, ask.key)))
    document = None
    if ask.prefer.returns == "representation":
        document = _document_left(gateway, ask, result)
    if document is not None:
        shown = document.content if ask.part == "content" else document.attributes or {}
        return _answer(ask, result, headers, shown, represented=True)
    content = WriteAnswer(
        catalog=ask.catalog,
        key=ask.key,
        etag=standing.token if standing else None,
        revision=standing.revision if standing else None,
        create_revision=standing.create_revision if standing else None,
        changed=result.changed,
        attempts=result.attempts,
        rebased_from=result.rebased_from,
        dry_run=ask.dry_run or msgspec.UNSET,
    )
    return _answer(ask, result, headers, content)


def catalog_answer(ask: Ask, result: Result, *, with_settings: bool = False) -> Answer:
    """The answer to a write on a catalog as a whole, whose tag is its revision."""
    content: dict[str, Any] = {
        "catalog": ask.catalog,
        "revision": result.catalog_revision,
        "commit_id": None if result.commit is None else result.commit.id,
        "changed": result.changed,
        "attempts": result.attempts,
    }
    if with_settings:
        content["settings_etag"] = result.standing.token if result.standing else None
    if ask.dry_run:
        content["dry_run"] = True
    headers = [*headers_of(result), etag(CatalogTag(result.catalog_revision))]
    return _answer(ask, result, headers, content)


def _answer(
    ask: Ask, result: Result, headers: HeaderList, content: Any, *, represented: bool = False
) -> Answer:
    """In the form that was preferred, where that form can say what there is to say."""
    headers += preferences_applied(ask, result, represented=represented)
    status = 201 if result.created else 200
    if represented:
        return body_answer(encode(content), headers, status)
    if ask.is_minimal and status == 201:
        # What was created is told also where no body is wanted (RFC 9110, section 9.3.4).
        headers.append(("Content-Length", "0"))
        return empty_answer(headers, status)
    if ask.is_minimal or (ask.method == "DELETE" and not ask.dry_run):
        return empty_answer(headers)
    return body_answer(encode(content), headers, status)


def _document_left(gateway: Gateway, ask: Ask, result: Result) -> Document | None:
    """The document as the write left it, or would leave it; None where there is none, where it
    can't be told any more, and where whoever wrote it may not read it."""
    if result.replayed:
        return _document_then(gateway, ask, result)
    document = result.outcome.document
    if document is None or not document.exists:
        return None
    if document.attributes is None:
        return document
    sight = gateway.acls.sight(ask.by, ask.catalog)
    return document if sight is None or sight.sees(document) else None


def _document_then(gateway: Gateway, ask: Ask, result: Result) -> Document | None:
    if result.standing is None:
        return None
    try:
        revision = result.standing.revision
        document = gateway.read_at_revision(ask.catalog, ask.key, revision).document
        sight = gateway.acls.sight(ask.by, ask.catalog)
        if sight is not None and document is not None:
            sight.require_then(document)
        return document
    except CommitError:
        return None

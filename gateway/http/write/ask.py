"""What the headers and parameters of a write ask for, and the answer to what became of it.

Replays and dry runs: a replay is answered like the first time, whatever was written since. A dry
run under an idempotency key that was used tells what the request itself would be answered: a
replay, which changes nothing, or the refusal of another request under the same key. A dry run uses
up no key. Requests that were refused or changed nothing aren't remembered: sent again, they are
decided again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway.access import Principal
from gateway.decide.conditions import Conditions, written
from gateway.decide.rebase import REBASE_TOKENS_MAX
from gateway.decide.request import Applied, ContentEdit, EditAttributes, Unchanged, Unknown
from gateway.errors import CommitError, OutcomeUnknown
from gateway.http.context import Context, Decided, HeaderList
from gateway.http.door.authorization import author_of
from gateway.http.wire import query as names
from gateway.http.wire.answers import (
    Answer,
    body_answer,
    empty_answer,
    encode,
    etag,
    last_modified,
)
from gateway.http.wire.conditions import write_conditions
from gateway.http.wire.headers import (
    Preferences,
    commit_author,
    commit_message,
    idempotency_key,
    preferences,
)
from gateway.http.wire.problems import problem_answer
from gateway.http.wire.query import WriteParameters, parameters
from gateway.http.wire.refusals import RequestRefused
from gateway.http.write.explain import what_helps
from gateway.model import Attributes, Commit, Document, Idempotency, version_token
from gateway.service import Gateway
from patching import ABSENT, Absent, Json

_PARAMETERS = WriteParameters()

_canonical = msgspec.json.Encoder(order="deterministic").encode


Part = Literal["content", "attributes"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A write's target, who asks for it, and everything it says beside its body.

    ``part``: whether it edits the document's content or its attributes.
    """

    by: Principal
    method: str
    catalog: str
    key: str
    conditions: Conditions
    prefer: Preferences
    dry_run: bool
    resource_version: int | None
    idempotency_key: str | None
    message: str | None
    author: str
    part: Part = "content"

    def __post_init__(self) -> None:
        """Raises RequestRefused where it is to be rebased from more tokens than may be tried."""
        tags = self.conditions.if_match
        if self.prefer.rebase and tags is not None and len(tags) > REBASE_TOKENS_MAX:
            raise RequestRefused(
                "invalid_condition",
                f"If-Match: it has {len(tags)} tags, and a patch can be rebased from"
                f" {REBASE_TOKENS_MAX} at most",
                header="If-Match",
            )


@dataclass(frozen=True, slots=True)
class Sent:
    """A write's body: decoded, its media type, and its length as it was sent. ``attributes``: those
    that were sent with it, for the document that it is; None where they are kept."""

    body: Json | Absent
    media_type: str
    size_bytes: int
    attributes: Attributes | None = None


NOTHING_SENT = Sent(ABSENT, "", 0)


def read_ask(context: Context, catalog: str, key: str, part: Part = "content") -> Ask:
    """Raises RequestRefused for a header or parameter that isn't well formed, and Forbidden for an
    author that the principal can't name."""
    by, environ = context.by, context.environ
    asked: dict[str, Any] = {}
    if environ.get("QUERY_STRING"):
        asked = parameters(environ, _PARAMETERS)
    return Ask(
        by=by,
        method=environ["REQUEST_METHOD"],
        catalog=catalog,
        key=key,
        conditions=write_conditions(environ),
        prefer=preferences(environ),
        dry_run=asked.get("dry_run", False),
        resource_version=asked.get("resource_version"),
        idempotency_key=idempotency_key(environ),
        message=commit_message(environ),
        author=author_of(commit_author(environ), by, catalog),
        part=part,
    )


def answer_write(
    gateway: Gateway, context: Context, ask: Ask, edit: ContentEdit, sent: Sent
) -> Answer:
    """``write``, with what was not applied answered by a problem that helps."""
    try:
        return write(gateway, context, ask, edit, sent)
    except CommitError as error:
        context.helps = what_helps(gateway, ask.by, ask.catalog, error, ask.idempotency_key)
        return problem_answer(error, context)


def write(gateway: Gateway, context: Context, ask: Ask, edit: ContentEdit, sent: Sent) -> Answer:
    """Commit ``edit`` and answer. Raises the CommitError of a write that was not applied."""
    idempotency = None
    if ask.idempotency_key is not None:
        idempotency = Idempotency(ask.by.name, ask.idempotency_key, fingerprint(ask, sent))
    committed = gateway.write(
        ask.catalog,
        ask.key,
        EditAttributes(edit) if ask.part == "attributes" else edit,
        conditions=ask.conditions,
        resource_version=ask.resource_version,
        rebase=ask.prefer.rebase,
        size_bytes=sent.size_bytes,
        wait_s=ask.prefer.wait_s,
        by=ask.by,
        author=ask.author,
        message=ask.message,
        idempotency=idempotency,
        dry_run=ask.dry_run,
    )
    context.decided = Decided(ask.author, ask.dry_run, committed)
    outcome = committed.outcome
    if isinstance(outcome, Applied):
        return _applied(gateway, ask, outcome)
    if isinstance(outcome, Unchanged):
        return _unchanged(gateway, ask, outcome, committed.attempts)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknown(outcome.commit_id)
    raise outcome.error


def fingerprint(ask: Ask, sent: Sent) -> str:
    """A digest of what was asked: equal requests have equal ones, however they are written, and on
    whichever route they come. Of a write on a catalog the key is "".

    Not in it: what only changes how long is tried and how it is answered (wait, return, dry_run).
    """
    conditions = ask.conditions
    tokens = [
        None if each is None else sorted(map(written, each))
        for each in (conditions.if_match, conditions.if_none_match)
    ]
    asked: list[Any] = [
        ask.method,
        ask.catalog,
        ask.key,
        sent.media_type,
        tokens,
        conditions.if_unmodified_since,
        ask.resource_version,
        ask.prefer.rebase,
        ask.message,
        [] if sent.body is ABSENT else [sent.body],
    ]
    if ask.part != "content":
        asked.append(ask.part)
    if sent.attributes is not None:
        asked.append({"attributes": sent.attributes})
    if ask.author != ask.by.name:
        asked.append({"author": ask.author})
    return hashlib.sha256(_canonical(asked)).hexdigest()


class WriteAnswer(msgspec.Struct, frozen=True):
    """The body of a write's answer; ``etag`` is the version token, without the header's quotes.

    ``etag``, ``revision`` and ``create_revision`` are null where the write left no document, or
    (a dry run) would leave another one than there is.
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


def _applied(gateway: Gateway, ask: Ask, outcome: Applied) -> Answer:
    """Told from the commit alone, so that a replay is answered like the first time."""
    commit = outcome.commit
    change = commit.change_of(ask.key)
    exists = change.action != "delete"
    created = exists and change.create_revision == commit.revision
    headers: HeaderList = [
        ("Catalog-Revision", str(commit.revision)),
        ("Commit-Id", commit.id),
        ("Attempts", str(commit.attempts)),
    ]
    token = None
    if exists:
        token = version_token(commit.revision, commit.id)
        headers += (etag(token), last_modified(commit.time_us // 1_000_000))
    if created:
        headers.append(("Location", names.document_path(ask.catalog, ask.key)))
    if outcome.replayed:
        headers.append(("Idempotency-Replayed", "true"))
    answer = WriteAnswer(
        catalog=ask.catalog,
        key=ask.key,
        etag=token,
        revision=commit.revision if exists else None,
        create_revision=change.create_revision if exists else None,
        changed=not ask.dry_run,
        attempts=commit.attempts,
        rebased_from=commit.rebased_from,
        dry_run=ask.dry_run or msgspec.UNSET,
    )
    document = _seen(gateway, ask, outcome.document)
    if outcome.replayed and exists and ask.prefer.returns == "representation":
        document = _document_then(gateway, ask, commit)
    return _answer(ask, answer, headers, document, status=201 if created else 200)


def _unchanged(gateway: Gateway, ask: Ask, outcome: Unchanged, attempts: int) -> Answer:
    document = outcome.document
    headers: HeaderList = [
        ("Catalog-Revision", str(outcome.catalog_revision)),
        ("Attempts", str(attempts)),
    ]
    kept = None if outcome.would_change else document
    if kept is not None:
        headers += (
            etag(kept.token),
            last_modified(kept.time_us // 1_000_000),
            ("Commit-Id", kept.commit_id),
        )
    answer = WriteAnswer(
        catalog=ask.catalog,
        key=ask.key,
        etag=kept.token if kept else None,
        revision=kept.revision if kept else None,
        create_revision=kept.create_revision if kept else None,
        changed=outcome.would_change,
        attempts=attempts,
        rebased_from=outcome.rebased_from,
        dry_run=ask.dry_run or msgspec.UNSET,
    )
    return _answer(ask, answer, headers, _seen(gateway, ask, document), status=200)


def _answer(
    ask: Ask, answer: WriteAnswer, headers: HeaderList, document: Document | None, *, status: int
) -> Answer:
    """In the form that was preferred, where that form can say what there is to say."""
    returns, wait_s, _ = ask.prefer
    represented = document is not None and document.exists and returns == "representation"
    minimal = returns == "minimal" and not ask.dry_run
    applied = [f"return={returns}"] if represented or minimal else []
    if wait_s is not None:
        applied.append(f"wait={wait_s}")
    if answer.rebased_from is not None:
        applied.append("rebase")
    if applied:
        headers.append(("Preference-Applied", ", ".join(applied)))
    if document is not None and represented:
        shown = document.content if ask.part == "content" else document.attributes or {}
        return body_answer(encode(shown), headers, 200 if ask.dry_run else status)
    if minimal and status == 201:
        # What was created is told also where no body is wanted (RFC 9110, section 9.3.4).
        headers.append(("Content-Length", "0"))
        return empty_answer(headers, status)
    if minimal or (ask.method == "DELETE" and not ask.dry_run):
        return empty_answer(headers)
    return body_answer(encode(answer), headers, 200 if ask.dry_run else status)


def _document_then(gateway: Gateway, ask: Ask, commit: Commit) -> Document | None:
    """The document as the commit left it; None where that can't be told, or not any more."""
    try:
        document = gateway.read_at_revision(ask.catalog, ask.key, commit.revision).document
        sight = gateway.acls.sight(ask.by, ask.catalog)
        if sight is not None and document is not None:
            sight.require_then(document)
        return document
    except CommitError:
        return None


def _seen(gateway: Gateway, ask: Ask, document: Document | None) -> Document | None:
    """The document as the write left it; None where whoever wrote it may not read it."""
    if document is None or document.attributes is None:
        return document
    sight = gateway.acls.sight(ask.by, ask.catalog)
    return document if sight is None or sight.sees(document) else None

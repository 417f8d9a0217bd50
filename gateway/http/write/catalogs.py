"""Writes that concern a catalog as a whole: what they ask for, and the answer to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.decide.conditions import NO_CONDITIONS, CatalogTag
from gateway.decide.request import Applied, KeyEdit, Request, Unchanged, Unknown, Written
from gateway.errors import CommitError, OutcomeUnknown
from gateway.http.context import Context, Decided, HeaderList
from gateway.http.wire.answers import Answer, body_answer, empty_answer, encode
from gateway.http.wire.conditions import tag_header
from gateway.http.wire.problems import problem_answer
from gateway.http.write.ask import Ask, Sent, fingerprint, read_ask
from gateway.http.write.explain import what_helps
from gateway.model import SETTINGS_KEY, Idempotency, version_token
from gateway.service import Gateway

_canonical = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class CatalogAsk:
    """A write on ``ask.catalog``; its conditions are about the settings, or the revision."""

    ask: Ask

    @property
    def is_conditional(self) -> bool:
        return self.ask.conditions is not NO_CONDITIONS or self.ask.resource_version is not None


def read_catalog_ask(context: Context, catalog: str) -> CatalogAsk:
    return CatalogAsk(read_ask(context, catalog, SETTINGS_KEY))


def commit(
    gateway: Gateway,
    context: Context,
    asked: CatalogAsk,
    edits: Sequence[KeyEdit],
    sent: Sent,
    run: Callable[[Request], Written] | None = None,
) -> Written:
    """Commit; ``run`` does it in another way. Raises the CommitError of what wasn't applied."""
    ask = asked.ask
    idempotency = None
    if ask.idempotency_key is not None:
        idempotency = Idempotency(ask.by.name, ask.idempotency_key, fingerprint(ask, sent))
    request = gateway.request(
        ask.catalog,
        edits,
        wait_s=ask.prefer.wait_s,
        conditions=ask.conditions,
        resource_version=ask.resource_version,
        size_bytes=sent.size_bytes,
        by=ask.by,
        author=ask.author,
        message=ask.message,
        idempotency=idempotency,
        dry_run=ask.dry_run,
    )
    done = (run or gateway.commit)(request)
    context.decided = Decided(ask.author, ask.dry_run, done)
    if isinstance(done.outcome, Unknown):
        raise OutcomeUnknown(done.outcome.commit_id)
    if not isinstance(done.outcome, Applied | Unchanged):
        raise done.outcome.error
    return done


def refusal_answer(
    gateway: Gateway, context: Context, asked: CatalogAsk, error: CommitError
) -> Answer:
    """The answer to a write that was not applied, or of which nobody knows; with what helps."""
    ask = asked.ask
    context.helps = what_helps(gateway, ask.by, ask.catalog, error, ask.idempotency_key)
    return problem_answer(error, context)


def commit_answer(asked: CatalogAsk, done: Written, *, with_settings: bool = False) -> Answer:
    """The answer to a write that was applied or changed nothing."""
    ask, outcome = asked.ask, done.outcome
    content: dict[str, Any] = {"catalog": ask.catalog}
    headers: HeaderList = []
    status = 200
    if isinstance(outcome, Applied):
        commit = outcome.commit
        changed = not ask.dry_run
        content |= {"revision": commit.revision, "commit_id": commit.id}
        headers.append(("Commit-Id", commit.id))
        attempts = commit.attempts
        token: str | None = version_token(commit.revision, commit.id)
        created = with_settings and commit.changes[0].create_revision == commit.revision
        status = 201 if created else 200
        if outcome.replayed:
            headers.append(("Idempotency-Replayed", "true"))
        if commit.deletes_catalog:
            status = 204
    else:
        assert isinstance(outcome, Unchanged)
        changed, attempts = outcome.would_change, done.attempts
        content |= {"revision": outcome.catalog_revision, "commit_id": None}
        settings = None if outcome.would_change else outcome.document
        token = None if settings is None else settings.token
    content |= {"changed": changed, "attempts": attempts}
    if with_settings:
        content["settings_etag"] = token
    if ask.dry_run:
        content["dry_run"] = True
    revision = content["revision"]
    headers += [
        tag_header(CatalogTag(revision)),
        ("Catalog-Revision", str(revision)),
        ("Attempts", str(attempts)),
    ]
    minimal = ask.prefer.returns == "minimal" and status != 204
    applied = ["return=minimal"] if minimal else []
    if ask.prefer.wait_s is not None:
        applied.append(f"wait={ask.prefer.wait_s}")
    if applied:
        headers.append(("Preference-Applied", ", ".join(applied)))
    if minimal and status == 201:
        # What was created is told also where no body is wanted (RFC 9110, section 9.3.4).
        headers.append(("Content-Length", "0"))
        return empty_answer(headers, status)
    if status == 204 or minimal:
        return empty_answer(headers)
    return body_answer(encode(content), headers, status)

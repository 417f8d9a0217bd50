"""The answer to a request that is sent again: the outcome that its idempotency key decided.

An outcome without a commit is kept in a verdict, as JSON. This module makes that JSON, and reads it
back.

Of a document, only what its token is made of is kept, not its content. Of a refusal, what
``Rules.encode_refusal`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.decide.edits import Put
from gateway.decide.guards import refuse_forbidden
from gateway.decide.recording import RECORD_BYTES
from gateway.decide.request import Applied, Outcome, Refused, Request, Rules, Unchanged, is_for_now
from gateway.errors import CommitError, IdempotencyMismatch, ListsUnchecked, RefusedBefore
from gateway.model import (
    WITHHELD,
    CommitRecord,
    DocumentRecord,
    Idempotency,
    Reply,
    Skipped,
    Verdict,
)
from patching import Json

VerdictJson = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def encode_outcome(outcome: Unchanged | Refused, rules: Rules) -> VerdictJson:
    if isinstance(outcome, Refused):
        return {"refused": dict(rules.encode_refusal(outcome.error))}
    documents: dict[str, Json] = {
        key: _encode_document(document) for key, document in outcome.documents.items()
    }
    encoded: VerdictJson = {"documents": documents}
    if not outcome.succeeded:
        encoded["succeeded"] = False
    if outcome.rebased_from is not None:
        encoded["rebased_from"] = outcome.rebased_from
    if outcome.skipped:
        encoded["skipped"] = msgspec.to_builtins(outcome.skipped)
    if outcome.left_out:
        encoded["left_out"] = list(outcome.left_out)
    return encoded


def verdict_of(
    request: Request,
    outcome: Unchanged | Refused,
    attempt: int,
    number: int,
    revision: int,
    time_us: int,
    rules: Rules,
) -> Verdict:
    """The catalog's verdict of this ``number``: what the request's key decided, at ``revision``."""
    assert request.idempotency is not None
    encoded = encode_outcome(outcome, rules)
    if isinstance(outcome, Refused) and request.fence is not None and request.fence.run is not None:
        encoded["run"] = request.fence.run
    return Verdict(
        catalog=request.catalog,
        number=number,
        revision=revision,
        time_us=time_us,
        id=request.commit_id,
        idempotency=request.idempotency,
        attempts=attempt,
        outcome=encoded,
        size_bytes=verdict_bytes(encoded, request.idempotency),
    )


def verdict_bytes(encoded: VerdictJson, idempotency: Idempotency) -> int:
    """An estimate of the bytes that the verdict takes in a head."""
    texts = 4 * len(idempotency.principal) + len(idempotency.key)
    return RECORD_BYTES + texts + len(_encode(encoded))


def replayed(asked: Idempotency, reply: Reply) -> Outcome:
    """The outcome of a request whose key has decided already."""
    assert reply.idempotency is not None
    applied = isinstance(reply, CommitRecord)
    if reply.idempotency.fingerprint != asked.fingerprint:
        return Refused(IdempotencyMismatch(asked.key, reply.revision, applied=applied))
    return (
        Applied(reply, {}, replayed=True) if isinstance(reply, CommitRecord) else outcome_of(reply)
    )


def stands(request: Request, reply: Reply) -> bool:
    """Whether the earlier reply under the request's key answers it. A refusal that another run of
    its version got doesn't."""
    if not isinstance(reply, Verdict) or "refused" not in reply.outcome:
        return True
    run = request.fence.run if request.fence else None
    return run is None or reply.outcome.get("run") == run


def earlier_outcome(
    request: Request, reply: Reply, document_of: Callable[[str], DocumentRecord | None]
) -> Outcome:
    """What the request's key decided before, as far as its principal may see it: not every
    principal of an application may see why another was refused, or what it left to whom.

    ``document_of`` returns a document as the request finds it.
    """
    assert request.idempotency is not None
    outcome = replayed(request.idempotency, reply)
    if request.fence is None:
        return outcome
    try:
        refuse_forbidden(request, document_of)
    except CommitError as error:
        if isinstance(outcome, Applied):
            return replace(outcome, commit=replace(outcome.commit, skipped=()))
        return replace(outcome, skipped=()) if isinstance(outcome, Unchanged) else Refused(error)
    return outcome


def outcome_of(verdict: Verdict) -> Outcome:
    encoded: Mapping[str, Any] = verdict.outcome
    if "refused" in encoded:
        return Refused(RefusedBefore(**encoded["refused"]))
    documents = {key: _decode_document(key, fields) for key, fields in encoded["documents"].items()}
    return Unchanged(
        documents,
        verdict.revision,
        succeeded=encoded.get("succeeded", True),
        rebased_from=encoded.get("rebased_from"),
        replayed=True,
        skipped=msgspec.convert(encoded.get("skipped", ()), tuple[Skipped, ...]),
        left_out=tuple(encoded.get("left_out", ())),
    )


def is_remembered(request: Request, outcome: Outcome) -> bool:
    """Whether the outcome, which may be no commit, is to be remembered under the request's key."""
    if is_for_now(outcome):
        return False
    unchecked = isinstance(outcome, Refused) and isinstance(outcome.error, ListsUnchecked)
    if unchecked and isinstance(request.edits[0].edit, Put):
        return False  # ``CatalogWide.set_up`` checks the documents, and sends it again
    if request.idempotency is None or request.dry_run:
        return False
    return request.once or isinstance(outcome, Unchanged)


def _encode_document(document: DocumentRecord | None) -> Json:
    if document is None:
        return None
    return [document.revision, document.create_revision, document.commit_id, document.time_us]


def _decode_document(key: str, fields: Any) -> DocumentRecord | None:
    if fields is None:
        return None
    revision, create_revision, commit_id, time_us = fields
    return DocumentRecord(key, WITHHELD, revision, create_revision, commit_id, time_us)

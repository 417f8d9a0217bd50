"""The changes that a commit records, and an upper bound on their size in a head and in the history,
which is measured only if necessary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.decide.draft import Draft, DraftChange, same_attributes
from gateway.decide.edits import ApplyPatch, KeyEdit
from gateway.decide.request import DOCUMENTS_BYTES_MAX, Request, Rules
from gateway.errors import AboveLimit
from gateway.limits import ServiceLimits
from gateway.model import ChangeRecord, CommitRecord, DocumentRecord, Skipped
from patching import ABSENT, Patch
from patching.owners import OwnerTree, change_between

_encode = msgspec.json.Encoder().encode

# JSON that was sent may grow when it is written again: 1e15 becomes 1000000000000000.0. Up to
# _UNMEASURED_BYTES_MAX, it counts as the most possible, GROWTH_MAX times its size; beyond that, it
# is measured.
GROWTH_MAX = 5
_UNMEASURED_BYTES_MAX = 64 * 1024
# Up to this many bytes of JSON, no document is too large for the store. An array of one-digit
# numbers grows most from JSON to BSON: from 2 bytes each to at most 13.
CERTAINLY_STORABLE_BYTES = 1_200_000
# The bytes of a commit's record, and of a change, without the client's texts.
RECORD_BYTES = 660
_CHANGE_BYTES = 180


class CommitTerms(msgspec.Struct, frozen=True):
    """What a commit is made of: what the ``edits`` of the request have ``changed``, by key.

    ``edits`` are the request's own or, if ``succeeded`` is false, those of its ``otherwise``. For
    ``skipped`` and ``left_out`` see ``CommitRecord``.
    """

    request: Request
    edits: Sequence[KeyEdit]
    changed: Mapping[str, DraftChange]
    skipped: tuple[Skipped, ...]
    left_out: tuple[int, ...]
    attempt: int
    succeeded: bool
    rebased_from: str | None


def commit_of(
    terms: CommitTerms, revision: int, time_us: int, parent: str, limits: ServiceLimits
) -> tuple[CommitRecord, dict[str, DocumentRecord]]:
    """The commit, and the documents that it leaves, by key.

    Raises AboveLimit if it is larger than the history can hold.
    """
    request, stamp = terms.request, Stamp(revision, time_us, terms.request.commit_id)
    changes: dict[str, ChangeRecord] = {}
    after: dict[str, DocumentRecord] = {}
    for key, each in terms.changed.items():
        changes[key], after[key] = _change_and_document(each, key, stamp, with_value=False)
    for key in _values_due(terms, changes, after, limits):
        each = terms.changed[key]
        changes[key], after[key] = _change_and_document(each, key, stamp, with_value=True)
    size_bytes = record_bytes(terms, changes)
    _refuse_heavy(size_bytes, limits.stored_bytes_max)
    commit = CommitRecord(
        catalog=request.catalog,
        revision=revision,
        time_us=time_us,
        id=request.commit_id,
        author=request.author,
        message=request.message,
        idempotency=request.idempotency,
        attempts=terms.attempt,
        changes=tuple(changes.values()),
        succeeded=terms.succeeded,
        rebased_from=terms.rebased_from,
        deletes_catalog=request.deletes_catalog,
        skipped=terms.skipped,
        left_out=terms.left_out,
        size_bytes=size_bytes,
        parent=parent,
    )
    return commit, after


class Stamp(msgspec.Struct, frozen=True):
    """The identity of a commit, before its changes are known."""

    revision: int
    time_us: int
    commit_id: str


def _change_and_document(
    changed: DraftChange, key: str, stamp: Stamp, *, with_value: bool
) -> tuple[ChangeRecord, DocumentRecord]:
    """The change that the commit records for the draft of ``key``, and the document that it leaves.

    ``with_value``: a patch, or a change of attributes, also records the full value.
    """
    found, draft = changed.found, changed.draft
    base = _base(found, draft)
    create_revision, patches = stamp.revision, 0
    found_owners: OwnerTree | None = None
    if found is not None:
        found_owners = found.owners
        create_revision, patches = found.create_revision, found.patches + 1
    whole = draft.action in ("put", "delete") or with_value
    begins = whole or found is None
    attributes = draft.attributes
    if not begins and found is not None:
        same = found.attributes is draft.attributes or same_attributes(found, draft)
        attributes = None if same else draft.attributes or {}
    owners_change = None
    if draft.owners is not found_owners and draft.action != "delete":  # which may not read them
        owners_change = change_between(found_owners, draft.owners, revision=stamp.revision)
    change = ChangeRecord(
        key=key,
        action=draft.action or "put",
        create_revision=create_revision,
        patch=list(draft.patch) if draft.action == "patch" else None,
        value=draft.content if whole else ABSENT,
        size_bytes=draft.size_bytes,
        attributes=attributes,
        owners=draft.owners if begins else None,
        owners_change=owners_change,
        base_revision=base[0],
        base_id=base[1],
        managers=draft.managers,
    )
    document = DocumentRecord(
        key=key,
        content=draft.content,
        revision=stamp.revision,
        create_revision=create_revision,
        commit_id=stamp.commit_id,
        time_us=stamp.time_us,
        patches=0 if begins else patches,
        size_bytes=draft.size_bytes,
        attributes=draft.attributes,
        owners=draft.owners,
    )
    return change, document


def _base(found: DocumentRecord | None, draft: Draft) -> tuple[int, str]:
    """The revision and commit of the change's base; 0 and "" for a put, a delete or a creation. A
    patch that records the full value has a base, too: a reader that doubts the value replays it."""
    if found is None or draft.action in ("put", "delete"):
        return 0, ""
    return found.revision, found.commit_id


def record_bytes(terms: CommitTerms, changes: Mapping[str, ChangeRecord]) -> int:
    """An upper bound on the bytes of a commit of these ``changes`` in a head and in the history."""
    request, edits = terms.request, terms.edits
    texts = 4 * (len(request.message or "") + len(request.author)) + len(terms.rebased_from or "")
    if request.idempotency is not None:
        texts += 4 * len(request.idempotency.principal) + len(request.idempotency.key)
    if terms.skipped:
        texts += len(_encode(terms.skipped))
    texts += 16 * len(terms.left_out)
    if len(changes) == 1 and len(edits) == 1:
        (change,) = changes.values()
        return RECORD_BYTES + texts + _single_bytes(request, edits[0], change)
    return RECORD_BYTES + texts + sum(map(_change_bytes, changes.values()))


def _values_due(
    terms: CommitTerms,
    changes: Mapping[str, ChangeRecord],
    after: Mapping[str, DocumentRecord],
    limits: ServiceLimits,
) -> list[str]:
    """The keys whose changes are to record the full value, because each is a K-th one. If a value
    is too large for this commit, the next change has to record it."""
    candidates = [each for each in after.values() if each.patches >= limits.full_value_every]
    if not candidates:
        return []
    room_bytes = limits.stored_bytes_max - record_bytes(terms, changes)
    due = []
    for document in candidates:
        if _value_bytes(document) < room_bytes:
            room_bytes -= _value_bytes(document)
            due.append(document.key)
    return due


def _value_bytes(document: DocumentRecord) -> int:
    """An upper bound on the additional bytes of a commit that records the document's full value."""
    size_bytes = document.size_bytes
    if document.attributes:
        size_bytes += len(_encode(document.attributes))
    if document.owners is not None:
        size_bytes += document.owners.size_bytes()
    return size_bytes


def _refuse_heavy(size_bytes: int, bytes_max: int) -> None:
    """Raise AboveLimit if a commit is larger than the history can hold."""
    if size_bytes > bytes_max:
        raise AboveLimit(
            f"the change would take {size_bytes} bytes in the history; the limit is {bytes_max}",
            limit="stored_bytes_max",
            maximum=bytes_max,
            actual=size_bytes,
        )


def refuse_oversized(draft: Draft, rules: Rules) -> None:
    """Raise AboveLimit if the document is larger than the store can hold."""
    assert draft.content is not ABSENT
    bytes_max = rules.limits.stored_bytes_max
    actual = rules.stored_bytes(draft.content)
    if draft.attributes:
        actual += rules.stored_bytes(draft.attributes)
    if draft.owners is not None:
        actual += draft.owners.size_bytes()
    if actual > bytes_max:
        raise AboveLimit(
            f"the document would take {actual} bytes in the database; the limit is {bytes_max}",
            limit="stored_bytes_max",
            maximum=bytes_max,
            actual=actual,
        )


def _single_bytes(request: Request, each: KeyEdit, change: ChangeRecord) -> int:
    """Like ``_change_bytes``, without measuring a patch that is recorded as it was sent."""
    edit = each.edit
    sent = isinstance(edit, ApplyPatch) and isinstance(edit.patch, Patch)
    if change.patch is not None and sent and request.size_bytes <= _UNMEASURED_BYTES_MAX:
        return _beside_patch_bytes(change) + GROWTH_MAX * request.size_bytes
    return _change_bytes(change)


def _change_bytes(change: ChangeRecord) -> int:
    patch_bytes = 0 if change.patch is None else len(_encode(change.patch))
    return _beside_patch_bytes(change) + patch_bytes


def _beside_patch_bytes(change: ChangeRecord) -> int:
    # The record contains the key twice, and a character may take six bytes in JSON.
    size_bytes = _CHANGE_BYTES + 12 * len(change.key.encode())
    if change.value is not ABSENT:
        size_bytes += change.size_bytes
    if change.attributes:
        size_bytes += len(_encode(change.attributes))
    if change.owners is not None:
        size_bytes += change.owners.size_bytes()
    if change.owners_change is not None:
        size_bytes += len(_encode(change.owners_change))
    if change.managers:
        size_bytes += len(_encode(change.managers))
    return size_bytes


def refused_too_heavy(size_bytes: int) -> AboveLimit:
    """The refusal of a request whose documents are larger than what is read for one request."""
    return AboveLimit(
        f"the documents that the request is about take {size_bytes} bytes; the limit is"
        f" {DOCUMENTS_BYTES_MAX}",
        limit="documents_bytes_max",
        maximum=DOCUMENTS_BYTES_MAX,
        actual=size_bytes,
    )

"""What becomes of a batch of requests, given the state of their catalog: a pure function.

``decide`` is handed everything and does no I/O: no clock, no store, no ids. Each request sees the
state that the earlier ones of its batch left; one request's refusal changes nothing for its
neighbours. Nothing here is final: the decision holds only if the head is still at
``view.revision`` when it is moved, and is made again on fresh state otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

import patching
from gateway.commits.errors import (
    CommitError,
    DocumentNotFound,
    IdempotencyMismatch,
    OverLimit,
    PatchDoesNotFit,
)
from gateway.commits.requests import (
    Applied,
    ApplyPatch,
    Delete,
    Merge,
    Outcome,
    Put,
    Refused,
    Request,
    Unchanged,
)
from gateway.model import Action, Change, Commit, Document, Idempotency
from patching import ABSENT, Absent, Json, PatchError

_encode = msgspec.json.Encoder().encode

# Below this many bytes of JSON no document can exceed what the store holds: the worst growth from
# JSON to BSON is an array of one-digit numbers, 2 bytes each here and at most 13 there.
_CERTAINLY_STORABLE_BYTES = 1_200_000
# A batch ends when it has worked through documents of this size in all: it holds up everybody else.
_BATCH_WORK_BYTES_MAX = 32 * 1024 * 1024
# JSON that was sent grows when it is written again: 1e15 becomes 1000000000000000.0. Up to this
# length it is taken to have grown as far as it can, beyond it is measured.
_GROWTH_MAX = 5
_UNMEASURED_BYTES_MAX = 64 * 1024
# The members of a commit's record besides texts of the client's.
_RECORD_BYTES = 600


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a decision may produce. ``stored_bytes`` measures a content as the store will hold it.

    ``batch_bytes_max`` bounds the sum of what the commits record, unless there is only one;
    ``stored_bytes_max`` bounds a document, and what a single commit records.
    ``full_value_every`` is K: every K-th change of a document records its full value.
    """

    limits: patching.Limits
    full_value_every: int
    batch_bytes_max: int
    stored_bytes_max: int
    stored_bytes: Callable[[Json], int]


@dataclass(frozen=True, slots=True)
class View:
    """A catalog's state at ``revision``, as far as its batch needs it.

    ``documents`` has every key that the batch names: a document, a tombstone, or None where the
    key never existed. ``replies`` has the commits already made under the idempotency keys of the
    batch, by (principal, key); a key that isn't there was not used up to ``revision``.
    """

    catalog: str
    revision: int
    time_us: int
    documents: Mapping[str, Document | None]
    replies: Mapping[tuple[str, str], Commit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """``commits`` at revisions view.revision + 1, + 2, …; one outcome per request, in order.

    ``outcomes`` may be shorter than the batch: the requests behind its end did not fit any more
    and are decided in the next one. ``documents`` are the states the commits leave, by key.
    """

    commits: tuple[Commit, ...]
    outcomes: tuple[Outcome, ...]
    documents: Mapping[str, Document]


def decide(
    view: View,
    requests: Sequence[Request],
    attempts: Sequence[int],
    *,
    now_us: int,
    bounds: Bounds,
) -> Decision:
    """Decide ``requests`` in order on ``view``; ``attempts`` counts this one for each of them.

    ``now_us`` is the wall clock in microseconds; a commit's time is later than that of the commit
    before it even where the clock stands still or goes back.
    """
    deciding = _Deciding(view, now_us, bounds)
    outcomes: list[Outcome] = []
    for request, attempt in zip(requests, attempts, strict=True):
        outcome = None if deciding.tired else deciding.one(request, attempt)
        if outcome is None:
            break
        outcomes.append(outcome)
    return Decision(tuple(deciding.commits), tuple(outcomes), deciding.written)


class _Deciding:
    """The state as the batch has left it so far."""

    def __init__(self, view: View, now_us: int, bounds: Bounds) -> None:
        self._view = view
        self._now_us = now_us
        self._bounds = bounds
        self._replies = dict(view.replies)
        self._bytes = 0
        self._work_bytes = 0
        self.commits: list[Commit] = []
        self.written: dict[str, Document] = {}

    @property
    def tired(self) -> bool:
        """Whether the batch has taken long enough."""
        return self._work_bytes > _BATCH_WORK_BYTES_MAX

    def one(self, request: Request, attempt: int) -> Outcome | None:
        """The request's outcome; None where its commit doesn't fit into this batch any more."""
        if request.idempotency is not None:
            reply = self._replies.get((request.idempotency.principal, request.idempotency.key))
            if reply is not None:
                return _replay(request.idempotency, reply)
        document = self.written.get(request.key) or self._view.documents[request.key]
        self._work_bytes += request.size_bytes + (document.size_bytes if document else 0)
        try:
            request.conditions.check(request.key, document)
            return self._edit(request, document, attempt)
        except CommitError as error:
            return Refused(error)

    def _edit(self, request: Request, document: Document | None, attempt: int) -> Outcome | None:
        before = ABSENT if document is None else document.content
        edited = _edited(request, document, before, self._bounds)
        if _same(before, edited.content):
            live = document if document is not None and document.exists else None
            return Unchanged(live, self._revision)
        if edited.content is not ABSENT:
            self._refuse_oversized(edited.content, edited.size_bytes)
        commit, after = self._commit(request, document, edited, attempt)
        if request.dry_run:
            return Unchanged(after if after.exists else None, self._revision, would_change=True)
        size_bytes = _record_bytes(request, commit)
        if self.commits and self._bytes + size_bytes > self._bounds.batch_bytes_max:
            return None
        self._refuse_heavy(size_bytes)
        self._record(request, commit, after, size_bytes)
        return Applied(commit, after)

    @property
    def _revision(self) -> int:
        return self._view.revision + len(self.commits)

    def _commit(
        self, request: Request, document: Document | None, edited: _Edited, attempt: int
    ) -> tuple[Commit, Document]:
        """The next commit, and the document it leaves."""
        revision = self._revision + 1
        last_us = self.commits[-1].time_us if self.commits else self._view.time_us
        create_revision, patches = revision, 0
        if document is not None and document.exists:
            create_revision, patches = document.create_revision, document.patches + 1
        record_value = edited.action == "put" or self._is_value_due(request, edited, patches)
        commit = Commit(
            catalog=request.catalog,
            revision=revision,
            time_us=max(self._now_us, last_us + 1),
            id=request.commit_id,
            author=request.author,
            message=request.message,
            idempotency=request.idempotency,
            attempts=attempt,
            changes=(
                Change(
                    key=request.key,
                    action=edited.action,
                    create_revision=create_revision,
                    patch=edited.patch,
                    value=edited.content if record_value else ABSENT,
                    size_bytes=edited.size_bytes,
                ),
            ),
        )
        after = Document(
            key=request.key,
            content=edited.content,
            revision=revision,
            create_revision=create_revision,
            commit_id=commit.id,
            time_us=commit.time_us,
            patches=0 if record_value or edited.action == "delete" else patches,
            size_bytes=edited.size_bytes,
        )
        return commit, after

    def _is_value_due(self, request: Request, edited: _Edited, patches: int) -> bool:
        """Whether it is a K-th change; one that is too heavy leaves the value to the next."""
        if patches < self._bounds.full_value_every or edited.action != "patch":
            return False
        heaviest = _GROWTH_MAX * request.size_bytes + edited.size_bytes
        return heaviest < self._bounds.stored_bytes_max

    def _record(self, request: Request, commit: Commit, after: Document, size_bytes: int) -> None:
        self.commits.append(commit)
        self.written[request.key] = after
        self._bytes += size_bytes
        if request.idempotency is not None:
            self._replies[request.idempotency.principal, request.idempotency.key] = commit

    def _refuse_heavy(self, size_bytes: int) -> None:
        if size_bytes > self._bounds.stored_bytes_max:
            raise OverLimit(
                f"the change would take {size_bytes} bytes in the history, more than the "
                f"{self._bounds.stored_bytes_max} that fit",
                limit="stored_bytes_max",
                maximum=self._bounds.stored_bytes_max,
                actual=size_bytes,
            )

    def _refuse_oversized(self, content: Json, size_bytes: int) -> None:
        if size_bytes <= _CERTAINLY_STORABLE_BYTES:
            return
        actual = self._bounds.stored_bytes(content)
        if actual > self._bounds.stored_bytes_max:
            raise OverLimit(
                f"the document would take {actual} bytes in the database, more than the "
                f"{self._bounds.stored_bytes_max} it can hold",
                limit="stored_bytes_max",
                maximum=self._bounds.stored_bytes_max,
                actual=actual,
            )


@dataclass(frozen=True, slots=True)
class _Edited:
    action: Action
    content: Json | Absent
    size_bytes: int
    patch: list[dict[str, Json]] | None = None


def _edited(
    request: Request, document: Document | None, before: Json | Absent, bounds: Bounds
) -> _Edited:
    """What the request's edit makes of the content ``before``."""
    edit = request.edit
    size_bytes = 0 if document is None else document.size_bytes
    if isinstance(edit, Put):
        return _Edited("put", edit.value, edit.size_bytes)
    if isinstance(edit, Delete):
        return _Edited("delete", ABSENT, 0)
    try:
        if isinstance(edit, ApplyPatch):
            content, size_bytes = patching.apply_within(
                before, edit.patch, limits=bounds.limits, document_bytes=size_bytes
            )
            if content is ABSENT:
                return _Edited("delete", ABSENT, 0)
            return _Edited("patch", content, size_bytes, edit.patch.without_tests().to_json())
        if before is ABSENT:
            raise DocumentNotFound(request.catalog, request.key)
        return _merged(edit, before, size_bytes, bounds)
    except patching.DocumentAbsent:
        raise DocumentNotFound(request.catalog, request.key) from None
    except patching.LimitExceeded as error:
        raise OverLimit(
            error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
        ) from error
    except PatchError as error:
        current = (document.token, document.revision) if document and document.exists else None
        raise PatchDoesNotFit(error, request.key, current) from error


def _merged(edit: Merge, before: Json, size_bytes: int, bounds: Bounds) -> _Edited:
    content = patching.merge(before, edit.value, limits=bounds.limits)
    size_bytes += edit.size_bytes
    if size_bytes > bounds.limits.result_bytes_max:
        size_bytes = len(_encode(content))
    return _Edited("patch", content, size_bytes, patching.diff(before, content))


def _record_bytes(request: Request, commit: Commit) -> int:
    """An upper bound on what the commit takes in a head and in the history."""
    texts = 12 * len(request.key.encode()) + 4 * len(request.message or "")
    if request.idempotency is not None:
        texts += len(request.idempotency.principal) + len(request.idempotency.key)
    changes = 0
    for change in commit.changes:
        if change.value is not ABSENT:
            changes += change.size_bytes
        if change.patch is None:
            continue
        if isinstance(request.edit, ApplyPatch) and request.size_bytes <= _UNMEASURED_BYTES_MAX:
            changes += _GROWTH_MAX * request.size_bytes
        else:
            changes += len(_encode(change.patch))
    return _RECORD_BYTES + texts + changes


def _same(before: Json | Absent, after: Json | Absent) -> bool:
    if before is ABSENT or after is ABSENT:
        return before is after
    return before is after or patching.equal(before, after)


def _replay(asked: Idempotency, reply: Commit) -> Outcome:
    assert reply.idempotency is not None
    if reply.idempotency.fingerprint != asked.fingerprint:
        return Refused(IdempotencyMismatch(asked.key, reply.revision))
    return Applied(reply, None, replayed=True)

"""Why a request was not applied, as exceptions with fields.

::

    CommitError
    +-- DocumentNotFound       the key has no document
    +-- RevisionNotFound       above the head, or before the first commit
    +-- RevisionCompacted      below the history floor
    +-- PatchDoesNotFit        the patch is well formed but not for this state
    +-- PreconditionFailed     a condition of the request is false
    +-- Unstorable             the value can't be held by the store
    +-- OverLimit              larger than a setting allows
    +-- IdempotencyMismatch    the key was used before with another payload
    +-- QueueFull              admission refused, nothing was tried
    +-- DeadlineExceeded       the retry budget is spent, certainly not applied
    +-- StoreUnavailable       MongoDB is out of reach, certainly not applied
    +-- OutcomeUnknown         the connection broke around the commit

Each class fixes ``code`` (stable, part of the wire contract), ``applied`` (``"no"`` or
``"unknown"``) and ``retryable`` (sending the same request again may succeed). How a code becomes
an HTTP status is the business of ``gateway.http.problems``.
"""

from typing import ClassVar

from patching import PatchError


class CommitError(Exception):
    """Base of the tree. ``detail`` is for people, the other fields are for programs."""

    code: ClassVar[str] = "commit_error"
    applied: ClassVar[str] = "no"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class DocumentNotFound(CommitError):
    """The catalog has no live document under ``key``."""

    code = "document_not_found"

    def __init__(self, catalog: str, key: str) -> None:
        super().__init__(f"catalog {catalog!r} has no document {key!r}")
        self.catalog = catalog
        self.key = key


class RevisionNotFound(CommitError):
    """A revision above the head, or a time before the catalog's first commit."""

    code = "revision_not_found"

    def __init__(self, detail: str, head_revision: int) -> None:
        super().__init__(detail)
        self.head_revision = head_revision


class RevisionCompacted(CommitError):
    """The history at that revision was compacted away."""

    code = "revision_compacted"

    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(f"revision {revision} was compacted; the oldest retained one is {floor}")
        self.floor = floor


class PatchDoesNotFit(CommitError):
    """The patch does not fit the document as it is now (``error`` says which operation)."""

    code = "patch_does_not_fit"

    def __init__(self, error: PatchError, key: str, current: tuple[str, int] | None) -> None:
        super().__init__(error.detail)
        self.error = error
        self.key = key
        self.current = current


class PreconditionFailed(CommitError):
    """A condition of the request is false; never retried on the client's behalf.

    ``current`` is (version token, revision) of the live document, None where there is none.
    ``since_revision`` is the newest revision named by the tokens the client sent, if any.
    """

    code = "precondition_failed"

    def __init__(
        self,
        detail: str,
        *,
        key: str,
        expected: str,
        current: tuple[str, int] | None,
        since_revision: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.key = key
        self.expected = expected
        self.current = current
        self.since_revision = since_revision


class Unstorable(CommitError):
    """A value the store can't hold, at ``pointer`` of the value or (``operation``) of the patch."""

    code = "unstorable_value"

    def __init__(self, detail: str, pointer: str, operation: int | None = None) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.operation = operation


class OverLimit(CommitError):
    """Something is larger than a setting allows: ``limit`` names it."""

    code = "over_limit"

    def __init__(self, detail: str, *, limit: str, maximum: int, actual: int) -> None:
        super().__init__(detail)
        self.limit = limit
        self.maximum = maximum
        self.actual = actual


class IdempotencyMismatch(CommitError):
    """The idempotency key was used for another payload."""

    code = "idempotency_key_reused"

    def __init__(self, key: str, revision: int) -> None:
        super().__init__(
            f"idempotency key {key!r} was used for another request, applied as revision {revision}"
        )
        self.revision = revision


class QueueFull(CommitError):
    """Too much is waiting in this process; nothing was tried."""

    code = "queue_full"
    retryable = True


class DeadlineExceeded(CommitError):
    """The request's time ran out before it could be committed; certainly not applied."""

    code = "deadline_exceeded"
    retryable = True


class StoreUnavailable(CommitError):
    """The database can't be reached; certainly not applied."""

    code = "store_unavailable"
    retryable = True


class OutcomeUnknown(CommitError):
    """The connection broke around the commit and the truth could not be found out in time."""

    code = "outcome_unknown"
    applied = "unknown"

    def __init__(self, commit_id: str, detail: str = "") -> None:
        super().__init__(
            detail or f"the database did not say whether commit {commit_id} was applied"
        )
        self.commit_id = commit_id

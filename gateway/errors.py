"""Why a request wasn't applied, or wasn't let in: one tree of exceptions with fields.

::

    GatewayError
    +-- AccessError              the request isn't let in
    |   +-- Unauthenticated      it has no valid token
    |   +-- Forbidden            its principal may not do this
    |   +-- KeysUnavailable      its token can't be verified now
    +-- CommitError              the request can't be performed
        +-- CatalogNotFound      the catalog was never written, or was deleted
        +-- DocumentNotFound     the key has no document
        +-- RevisionNotFound     above the head, or before the first commit
        +-- RevisionCompacted    below the history floor
        +-- PatchDoesNotFit      the patch is well formed, but doesn't fit the state
        +-- ConditionFailed      a condition of the request is false: see ``conflict``
        |   +-- UploadConflict   it was true when the upload was opened
        +-- ConditionRequired    the catalog takes no write without a condition
        +-- TargetExists         the new key of a move has a document
        +-- ChangedSince         what a revert would undo was changed later
        +-- RevertForbidden      a revert takes more rights than the principal has
        +-- SchemaViolation      the document doesn't satisfy a schema of its catalog
        +-- ItemsCollide         a list would have two items with one key, or one without
        +-- SettingsInvalid      a catalog can't have these settings
        |   +-- ListsUnchecked   the documents must be checked before lists are declared
        +-- DocumentsBreakSettings  documents break the lists that the settings declare
        +-- AttributesInvalid    the attributes aren't an object, or their acl is malformed
        +-- DocumentForbidden    the document's acl doesn't let the principal do this
        +-- UploadNotFound       no such upload
        +-- UploadIncomplete     parts of the upload are missing
        +-- UploadCommitted      the upload takes no more parts
        +-- PinNotFound          no such pin
        +-- SubscriptionNotFound no such subscription
        +-- OfAnother            the pin, or the application, belongs to other principals
        +-- ApplicationConflict  the application's version is over, or wasn't begun
        +-- PinHolds             a pin keeps compaction below a revision
        +-- SnapshotExists       history is already compacted up to that revision
        +-- Unstorable           the store can't hold the value
        +-- AboveLimit           larger than a setting allows
        +-- IdempotencyMismatch  the key was used before with another payload
        +-- RefusedBefore        the request was refused before, under its key
        +-- QueueFull            admission refused, nothing was tried
        +-- MemoryFull           the process found no room in its memory
        +-- TooManyWatchers      the process has its maximum of watchers
        +-- TooManyUploads       the open uploads are too many, or too large
        +-- DeadlineExceeded     the write's time ran out; certainly not applied
        |   +-- OvertakenLook    the catalog has changed since it was read for the request
        +-- HeldBack             an earlier write of the document has to be sent again first
        +-- StoreUnavailable     MongoDB is out of reach, certainly not applied
        |   +-- CatalogRestored  MongoDB is there, but the catalog is being restored
        +-- UnknownOutcome       the connection broke around the commit, or another change

Each class defines ``code`` (see ``code_of``), ``applied`` (``"no"`` or ``"unknown"``) and
``retryable`` (the same request may succeed if it is sent again). TooMuchWork is in ``gateway.cpu``.
A ``Contradiction`` isn't a refusal: it says what is wrong with the database.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypeVar

from gateway.conflict import Disputed, StateConflict
from gateway.model import DocumentRecord, Right, living
from patching import DocumentAbsent, Json, LimitExceeded, PatchError
from patching.errors import ListViolation

_Error = TypeVar("_Error", bound=BaseException)


def untraced(error: _Error) -> _Error:
    """``error``, and the errors that led to it, without their tracebacks.

    For an error that is kept as a value, or that its handler keeps in a variable. Otherwise, error
    and frames hold each other, and all that the frames refer to, such as documents, until the
    garbage collector finds the cycle.
    """
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            waiting += (each.__cause__, each.__context__)
    return error


class GatewayError(Exception):
    """Base of the tree. ``detail`` is for people, the other fields are for programs."""

    code: ClassVar[str]
    applied: ClassVar[str] = "no"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields: the constructors of subclasses take other arguments."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[GatewayError], args: tuple[object, ...], fields: Mapping[str, object]
) -> GatewayError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class AccessError(GatewayError):
    """The request isn't let in. ``detail`` contains no part of a token."""


class Unauthenticated(AccessError):
    """The request has no valid token. ``presented``: whether it had a token at all."""

    code = "unauthenticated"

    def __init__(self, detail: str, *, presented: bool) -> None:
        super().__init__(detail)
        self.presented = presented


class Forbidden(AccessError):
    """The principal has no grant of ``role`` in ``catalog``."""

    code = "forbidden"

    def __init__(self, detail: str, role: str, catalog: str) -> None:
        super().__init__(detail)
        self.role = role
        self.catalog = catalog


class KeysUnavailable(AccessError):
    code = "keys_unavailable"
    retryable = True


class Contradiction(Exception):
    """What is stored can't be read or is inconsistent: somebody edited the database, or a part of
    it is gone. ``names_record``: its text says which record that is."""

    # The text for clients. It names no records, because these may be documents that the client may
    # not see.
    public_detail: Final = (
        "this catalog's records are damaged or inconsistent; perhaps somebody edited the database."
        " See the gateway's log, and run `gateway verify`"
    )
    names_record = False


def to_log(error: Exception) -> tuple[str, Exception | None]:
    """What a log line says about an unexpected error, after what failed; and the error itself, if
    its traceback is to be logged, too."""
    if isinstance(error, Contradiction) and error.names_record:
        return f": {error}; see `gateway verify`", None
    return "", error


class UnreachableLog:
    """Logs why the database can't be reached; no answer says it, as strangers might read it.

    At most once a second, because everything fails then.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._next_at = 0.0

    def note(self, why: BaseException, now: float) -> None:
        """``now`` is the monotonic time."""
        if now >= self._next_at:
            self._next_at = now + 1.0
            self._log.warning("the database can't be reached: %s", why)


class CommitError(GatewayError):
    """The request can't be performed. ``action`` is the index of the transaction's action that
    can't, or None; if ``otherwise`` is true, it is an action of ``else``."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.action: int | None = None
        self.otherwise = False


class CatalogNotFound(CommitError):  # ``head_revision`` is 0 if it was never written
    code = "catalog_not_found"

    def __init__(self, catalog: str, head_revision: int) -> None:
        super().__init__(f"there is no catalog {catalog!r}")
        self.head_revision = head_revision


class DocumentNotFound(CommitError):
    code = "document_not_found"

    def __init__(self, catalog: str, key: str) -> None:
        super().__init__(f"catalog {catalog!r} has no document {key!r}")
        self.catalog = catalog
        self.key = key

    def at(self, head_revision: int) -> Self:
        """The same error. If nothing was ever written to the catalog, its detail says that."""
        if head_revision == 0:
            self.detail = f"there is no catalog {self.catalog!r}, and so no document {self.key!r}"
        return self


class RevisionNotFound(CommitError):
    code = "revision_not_found"

    def __init__(self, detail: str, head_revision: int) -> None:
        super().__init__(detail)
        self.head_revision = head_revision


class RevisionCompacted(CommitError):
    code = "revision_compacted"

    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(f"revision {revision} was compacted; the oldest retained one is {floor}")
        self.floor = floor


class PatchDoesNotFit(CommitError):
    """``error`` names the operation; ``document`` is the live one that the decision saw."""

    code = "patch_does_not_fit"

    def __init__(self, error: PatchError, key: str, document: DocumentRecord | None) -> None:
        super().__init__(error.detail)
        self.error = error
        self.key = key
        self.document = document


class ConditionFailed(CommitError):
    code = "precondition_failed"

    def __init__(self, conflict: StateConflict) -> None:
        super().__init__(conflict.detail)
        self.conflict = conflict


class ConditionRequired(CommitError):
    code = "precondition_required"

    def __init__(self, catalog: str) -> None:
        super().__init__(
            f"catalog {catalog!r} requires a precondition on every write: If-Match,"
            " If-None-Match, If-Unmodified-Since, resource_version, a compare or a test"
        )


class TargetExists(CommitError):
    """``document`` is the one that the decision saw under ``key``, None if the request made it."""

    code = "target_exists"

    def __init__(self, key: str, document: DocumentRecord | None = None) -> None:
        super().__init__(f"document {key!r} already exists")
        self.key = key
        self.document = document


class RevertForbidden(CommitError):
    code = "forbidden"


class SchemaViolation(CommitError):
    """Each of ``errors`` has a ``pointer`` into the document and a ``message``."""

    code = "schema_violation"

    def __init__(self, key: str, pattern: str, errors: Sequence[dict[str, str]]) -> None:
        place, message = errors[0]["pointer"], errors[0]["message"]
        super().__init__(
            f"document {key!r} doesn't satisfy the schema for {pattern!r}: at '{place}': {message}"
        )
        self.key = key
        self.pattern = pattern
        self.errors = errors


class SettingsInvalid(CommitError):
    # ``errors``: like those of SchemaViolation, if several places may be wrong.
    code = "invalid_settings"

    def __init__(self, pointer: str, detail: str, errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(f"'{pointer}': {detail}")
        self.pointer = pointer
        self.errors = errors


class AttributesInvalid(CommitError):  # ``pointer``: the place that is wrong
    code = "invalid_attributes"

    def __init__(self, key: str, pointer: str = "", detail: str = "") -> None:
        detail = f": '{pointer}': {detail}" if detail else " must be a JSON object"
        super().__init__(f"the attributes of {key!r}{detail}")
        self.key = key
        self.pointer = pointer


class DocumentForbidden(CommitError):
    """The document's acl forbids it. ``of_range``: ``key`` is only the beginning of the document's
    key, which stays secret."""

    code = "forbidden"

    def __init__(self, name: str, right: Right, key: str, *, of_range: bool = False) -> None:
        which = f"a document under {key!r}" if of_range else f"document {key!r}"
        super().__init__(f"the acl of {which} doesn't let {name!r} {right} it")
        self.name = name
        self.key = key
        self.right: Right = right
        self.of_range = of_range

    def under(self, prefix: str) -> DocumentForbidden:
        """The same error without the document's key."""
        return DocumentForbidden(self.name, self.right, prefix, of_range=True)


class PinNotFound(CommitError):
    code = "pin_not_found"

    def __init__(self, pin_id: str) -> None:
        super().__init__(f"there is no pin {pin_id!r}; it may have expired")


class OfAnother(CommitError):
    code = "forbidden"


class ApplicationConflict(CommitError):
    code = "application_conflict"


class PinHolds(CommitError):
    code = "pin_holds"

    def __init__(self, revision: int, pinned: int) -> None:
        super().__init__(
            f"history can't be compacted to revision {revision}: a pin keeps it from {pinned} on"
        )
        self.pinned = pinned


class SnapshotExists(CommitError):
    code = "snapshot_exists"

    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(
            f"history is already compacted up to revision {floor}; {revision} isn't above that"
        )
        self.floor = floor


class Unstorable(CommitError):
    """``pointer`` is the place in the value or, for a patch, in the value of ``operation``."""

    code = "unstorable_value"

    def __init__(self, detail: str, pointer: str, operation: int | None = None) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.operation = operation


class AboveLimit(CommitError):
    """Something is larger than a setting allows: ``limit`` names it."""

    code = "over_limit"

    def __init__(self, detail: str, *, limit: str, maximum: int, actual: int) -> None:
        super().__init__(detail)
        self.limit = limit
        self.maximum = maximum
        self.actual = actual


class IdempotencyMismatch(CommitError):
    code = "idempotency_key_reused"

    def __init__(self, key: str, revision: int, *, applied: bool = True) -> None:
        what = "was applied as" if applied else "changed nothing at"
        used = f"was already used for another request, which {what} revision {revision}"
        super().__init__(f"idempotency key {key!r} {used}: use another key")
        self.revision = revision


class RefusedBefore(CommitError):
    """``before`` is the code of the first refusal, ``members`` the other members of its problem."""

    code = "refused_before"  # never sent: see ``code_of``

    def __init__(self, code: str, detail: str, members: Mapping[str, Json] | None = None) -> None:
        super().__init__(detail)
        self.before = code
        self.members = dict(members or {})


class QueueFull(CommitError):
    code = "queue_full"
    retryable = True


class MemoryFull(CommitError):
    code = "overloaded"
    retryable = True


class TooManyWatchers(CommitError):  # ``holder``: the principal whose share is used up
    code = "too_many_watchers"
    retryable = True

    def __init__(self, maximum: int, holder: str | None = None) -> None:
        detail = f"this worker has {maximum} watchers, the maximum"
        if holder is not None:
            detail = f"principal {holder!r} has as many watchers as its share allows"
        super().__init__(f"{detail} (watchers_max)")


class DeadlineExceeded(CommitError):
    code = "deadline_exceeded"
    retryable = True


class HeldBack(CommitError):
    code = "held_back"
    retryable = True


class StoreUnavailable(CommitError):
    code = "store_unavailable"
    retryable = True


class CatalogRestored(StoreUnavailable):
    code = "catalog_being_restored"

    def __init__(self, catalog: str) -> None:
        super().__init__(
            f"catalog {catalog!r} is being restored from a backup; nothing was applied. If the"
            " restore broke off, an operator has to run it again"
        )


class UnknownOutcome(CommitError):
    code = "outcome_unknown"
    applied = "unknown"

    def __init__(self, commit_id: str | None = None) -> None:
        """``commit_id`` is None for a change that makes no commit."""
        what = "the change" if commit_id is None else f"commit {commit_id}"
        super().__init__(f"the database did not say whether {what} was applied")
        self.commit_id = commit_id


_PATCH_CODES: Final = {
    "document_absent": "document_not_found",
    "patch_conflict": "patch_does_not_fit",
}


def code_of(error: GatewayError | PatchError) -> str:
    """The stable code of the error, on the wire, in the audit log and in metrics."""
    if isinstance(error, PatchDoesNotFit):
        error = error.error
    if isinstance(error, RefusedBefore):
        return error.before
    if isinstance(error, AboveLimit | LimitExceeded):
        return "nesting_too_deep" if error.limit == "depth_max" else AboveLimit.code
    return _PATCH_CODES.get(error.code, error.code) if isinstance(error, PatchError) else error.code


class UploadConflict(ConditionFailed):
    code = "upload_conflict"

    def __init__(self, conflict: StateConflict) -> None:
        super().__init__(conflict)
        self.detail = f"the document changed since the upload was opened: {self.detail}"


class UploadNotFound(CommitError):
    code = "upload_not_found"

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"there is no upload {upload_id!r}; it may have expired")


class SubscriptionNotFound(CommitError):
    code = "subscription_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no subscription {name!r}")


class UploadIncomplete(CommitError):  # ``part``: the first missing one; None if all are missing
    code = "upload_incomplete"

    def __init__(self, part: int | None) -> None:
        missing = "it has no parts" if part is None else f"part {part} is missing"
        super().__init__(f"the upload can't be committed: {missing}")
        self.part = part


class UploadCommitted(CommitError):
    code = "upload_committed"

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"upload {upload_id!r} was committed; it takes no more parts")


class TooManyUploads(CommitError):  # ``holder``: the principal whose share is used up
    code = "too_many_uploads"
    retryable = True

    def __init__(self, setting: str, maximum: int, holder: str | None = None) -> None:
        detail = f"open uploads are limited to {maximum} in all"
        if holder is not None:
            detail = f"principal {holder!r} has used its share of open uploads"
        super().__init__(f"{detail} ({setting}); commit or drop some, or wait until they expire")


class ItemsCollide(CommitError):
    """A declared list would have two items with one key, or an item without a key. ``pointer``
    points to the later item, or to the one without a key; ``other`` to the earlier item, or to the
    missing key member."""

    code = "list_violation"

    def __init__(self, key: str, error: ListViolation) -> None:
        super().__init__(f"document {key!r}: at '{error.pointer}': {error.detail}")
        self.key = key
        self.pointer = error.pointer or ""
        self.other = error.other


class ChangedSince(CommitError):
    """What a revert would undo was changed later. ``disputed`` has at least one place."""

    code = "changed_since"

    def __init__(self, disputed: Sequence[Disputed]) -> None:
        first = disputed[0]
        what = f"document {first.key!r}" if first.key else "the catalog's settings"
        what = f"the attributes of {what}" if first.of_attributes else what
        count = len(disputed) - 1
        more = f" and {count} more place{'s' * (count > 1)}" if count else ""
        super().__init__(f"'{first.pointer}' of {what}{more} changed after the commits to undo")
        self.disputed = disputed


class DocumentsBreakSettings(CommitError):
    """Documents break the lists that new settings declare. Each of ``documents`` has its ``key``
    and, for its first wrong place, ``pointer``, ``other`` and ``message``. ``complete``: these are
    all."""

    code = "documents_break_settings"

    def __init__(self, documents: Sequence[dict[str, str]], *, complete: bool) -> None:
        count = len(documents)
        some = f"{count} documents" if count > 1 else "a document"
        super().__init__(
            f"{some if complete else f'{count} documents or more'} would break the lists that these"
            " settings declare"
        )
        self.documents = documents
        self.complete = complete


class ListsUnchecked(SettingsInvalid):
    """The documents must be checked first: ``CatalogWide.set_up`` does that, and sends the request
    again."""

    def __init__(self) -> None:
        super().__init__("/arrays", "only a PUT of the catalog's settings can declare lists")


class OvertakenRead(DeadlineExceeded):
    """The catalog has changed since it was read for the request; it is read again while there is
    time."""

    def __init__(self, read_at: int | None, revision: int) -> None:
        since = "" if read_at is None else f"from revision {read_at} "
        super().__init__(
            f"the catalog changed {since}to revision {revision} while the request was prepared"
        )


def refusal_of(
    error: PatchError, catalog: str, key: str, document: DocumentRecord | None
) -> CommitError:
    """The refusal for ``error``, which an edit of ``document`` raised."""
    if isinstance(error, DocumentAbsent):
        return DocumentNotFound(catalog, key)
    if isinstance(error, LimitExceeded):
        return AboveLimit(
            error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
        )
    if isinstance(error, ListViolation):
        return ItemsCollide(key, error)
    return PatchDoesNotFit(error, key, living(document))

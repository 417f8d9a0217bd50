"""What a client asks for and what becomes of it. Immutable, no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.commits.conditions import Conditions
from gateway.commits.errors import CommitError
from gateway.model import Commit, Document, Idempotency
from patching import Json, Patch


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace the whole document."""

    value: Json
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Apply an RFC 6902 patch."""

    patch: Patch


@dataclass(frozen=True, slots=True)
class Merge:
    """Apply an RFC 7396 merge patch."""

    value: Json
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Leave a tombstone; of an absent document: nothing to do."""


Edit = Put | ApplyPatch | Merge | Delete


@dataclass(frozen=True, slots=True)
class Request:
    """A write as the client asked for it; the same through every attempt.

    ``commit_id`` is fixed here, before the first attempt, so that the outcome can be looked up.
    ``deadline`` is in seconds of the runtime's monotonic clock. ``size_bytes`` is the length of
    what was sent, for the bounds of queue and batch.
    """

    catalog: str
    key: str
    edit: Edit
    conditions: Conditions
    commit_id: str
    deadline: float
    author: str = "anonymous"
    message: str | None = None
    idempotency: Idempotency | None = None
    dry_run: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """The request is in the catalog's history as ``commit``, once.

    ``document`` is the state that it left; None for a replay (``replayed``), where the first
    result is told from the commit alone.
    """

    commit: Commit
    document: Document | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request holds already (or was a dry run): nothing was written, no revision spent.

    ``document`` is the state it would leave, None where there is none; for a dry run that would
    change something ``would_change`` is true and the document's token is not one to keep.
    """

    document: Document | None
    catalog_revision: int
    would_change: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly not applied, for the reason given, true at a moment between call and answer."""

    error: CommitError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection broke around the commit and MongoDB could not be asked in time."""

    commit_id: str


Outcome = Applied | Unchanged | Refused | Unknown

"""Why an edit of a document is refused: errors of the tree in ``gateway.errors``, those of
lists whose items have keys among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.conflict import Disputed
from gateway.errors import (
    CommitError,
    DeadlineExceeded,
    DocumentNotFound,
    OverLimit,
    PatchDoesNotFit,
    SettingsInvalid,
)
from gateway.model import Document, living
from patching import DocumentAbsent, LimitExceeded, ListViolation, PatchError


class ItemsCollide(CommitError):
    """``pointer`` is that of the later item, or of the one without a key; ``other`` that of the
    earlier item, or of the key member that is missing."""

    code = "list_violation"

    def __init__(self, key: str, error: ListViolation) -> None:
        super().__init__(f"document {key!r}: at '{error.pointer}': {error.detail}")
        self.key = key
        self.pointer = error.pointer or ""
        self.other = error.other


class ChangedSince(CommitError):
    """``disputed`` are the places, one at least."""

    code = "changed_since"

    def __init__(self, disputed: Sequence[Disputed]) -> None:
        first = disputed[0]
        what = "attributes of " if first.of_attributes else ""
        more = f", and {len(disputed) - 1} more" if len(disputed) > 1 else ""
        super().__init__(
            f"changed after the commits to undo: '{first.pointer}' of the {what}document"
            f" {first.key!r}{more}"
        )
        self.disputed = disputed


class DocumentsBreakSettings(CommitError):
    """``documents``: for each its ``key``, ``pointer``, ``other`` and ``message``, the first place
    that is wrong. ``complete``: there are no more than these."""

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
    """The documents have to be looked at before: ``Catalogs.set_up`` does, and sends it again."""

    def __init__(self) -> None:
        super().__init__("/arrays", "lists can be declared only by setting the catalog's settings")


class OvertakenLook(DeadlineExceeded):
    """The catalog has moved on since it was looked at: whoever looked looks again, in time."""

    def __init__(self, looked_at: int | None, revision: int) -> None:
        looked = "looked at" if looked_at is None else f"looked at revision {looked_at}"
        super().__init__(f"{looked}, the catalog is at {revision}")


def refusal_of(error: PatchError, catalog: str, key: str, document: Document | None) -> CommitError:
    """Why ``document``, as the request found it, can't be edited; an edit has raised ``error``."""
    if isinstance(error, DocumentAbsent):
        return DocumentNotFound(catalog, key)
    if isinstance(error, LimitExceeded):
        return OverLimit(
            error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
        )
    if isinstance(error, ListViolation):
        return ItemsCollide(key, error)
    return PatchDoesNotFit(error, key, living(document))

"""What a request requires of the state it meets, before any of its edits are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.commits.catalog_settings import CatalogSettings
from gateway.commits.conditions import NO_CONDITIONS, Look
from gateway.commits.errors import FailedCompare, PreconditionFailed, PreconditionRequired
from gateway.commits.rebase import require_rebased
from gateway.commits.requests import ApplyPatch, Get, KeyEdit, Request, Touch
from gateway.model import SETTINGS_KEY, Document
from patching import is_conditional


def require_precondition(request: Request, settings: CatalogSettings) -> None:
    """Raise PreconditionRequired where the catalog wants one and the request has none."""
    if (
        settings.require_precondition
        and request.key != SETTINGS_KEY
        and not request.compare
        and request.resource_version is None
        and request.conditions is NO_CONDITIONS
        and not all(map(_is_guarded, request.edits))
    ):
        raise PreconditionRequired(request.catalog)


def _is_guarded(each: KeyEdit) -> bool:
    """Whether an edit carries a precondition of its own, or writes no document."""
    if isinstance(each.edit, ApplyPatch):
        return is_conditional(each.edit.patch)
    return isinstance(each.edit, Get | Touch)


def require_revision(request: Request, revision: int) -> None:
    """Raise PreconditionFailed unless the catalog is where the request wants it."""
    wanted = request.resource_version
    if wanted is not None and wanted != revision:
        failed = PreconditionFailed(
            f"the catalog is at revision {revision}, not {wanted}",
            key=None,
            expected=f"resource_version={wanted}",
            current=None,
            since_revision=wanted,
        )
        failed.catalog_revision = revision
        raise failed


def checked_conditions(
    request: Request, look: Look, revision: int, base_of: Callable[[str, str], Document | None]
) -> str | None:
    """The token that the request is rebased from, None where it needn't be.

    ``base_of`` gives a document by key and token. Raises PreconditionFailed.
    """
    conditions = request.conditions
    if conditions is NO_CONDITIONS:
        return None
    try:
        conditions.check(request.key, look, revision)
    except PreconditionFailed as failed:
        if not request.rebase or conditions.if_match is None:
            raise
        return require_rebased(
            failed,
            request.edits[0].edit,
            conditions.if_match,
            look(request.key),
            lambda token: base_of(request.key, token),
        )
    return None


def compares_failed(failed: Sequence[FailedCompare]) -> PreconditionFailed:
    first = failed[0]
    about = "the catalog" if first.key is None else f"document {first.key!r}"
    live = first.document
    return PreconditionFailed(
        f"compare {first.index} is false for {about}: {first.reason}",
        key=first.key,
        expected=f"compare {first.index}",
        current=(live.token, live.revision) if live else None,
        compares=failed,
    )

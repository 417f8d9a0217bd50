"""What a request requires of the state it meets, before any of its edits are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.conflict import Conflict, FailedCompare, Required
from gateway.decide.compares import RevisionIs, TokenIs
from gateway.decide.conditions import NO_CONDITIONS, Look
from gateway.decide.rebase import require_rebased
from gateway.decide.request import ApplyPatch, EditAttributes, Get, KeyEdit, Request, Touch
from gateway.decide.settings import CatalogSettings
from gateway.errors import PreconditionFailed, PreconditionRequired
from gateway.model import SETTINGS_KEY, Document, token_revision
from patching import is_conditional


def require_precondition(request: Request, settings: CatalogSettings) -> None:
    """Raise PreconditionRequired where the catalog wants one and the request has none."""
    if (
        settings.require_precondition
        and not request.compare
        and request.resource_version is None
        and request.conditions is NO_CONDITIONS
        and not all(map(_is_guarded, request.edits))
    ):
        raise PreconditionRequired(request.catalog)


def _is_guarded(each: KeyEdit) -> bool:
    """Whether an edit carries a precondition of its own, or writes no document of a client's."""
    edit = each.edit.edit if isinstance(each.edit, EditAttributes) else each.edit
    if isinstance(edit, ApplyPatch) and is_conditional(edit.patch):
        return True
    return isinstance(edit, Get | Touch) or each.key == SETTINGS_KEY


def require_revision(request: Request, revision: int) -> None:
    """Raise PreconditionFailed unless the catalog is where the request wants it."""
    wanted = request.resource_version
    if wanted is not None and wanted != revision:
        raise PreconditionFailed(
            Conflict(
                Required.REVISION,
                (str(wanted),),
                since_revision=wanted,
                catalog_revision=revision,
            )
        )


def checked_conditions(
    request: Request,
    look: Look,
    revision: int,
    base_of: Callable[[str, str], Document | None],
    spend: Callable[[int], None] = lambda _: None,
) -> str | None:
    """The token that the request is rebased from, None where it needn't be.

    ``base_of`` gives a document by key and token; ``spend`` is told how many values are compared to
    find out. Raises PreconditionFailed.
    """
    conditions = request.conditions
    if conditions is NO_CONDITIONS:
        return None
    rebased_from = None
    try:
        conditions.check_unchanged(request.key, look, revision)
    except PreconditionFailed as failed:
        if not request.rebase or conditions.if_match is None:
            raise
        rebased_from = require_rebased(
            failed.conflict,
            request.edits[0].edit,
            conditions.if_match,
            look(request.key),
            lambda token: base_of(request.key, token),
            spend,
        )
    conditions.check_none_match(request.key, look, revision)
    return rebased_from


def compares_conflict(request: Request, failed: Sequence[FailedCompare]) -> Conflict:
    first = failed[0]
    compare = request.compare[first.index]
    since_revision = None
    if isinstance(compare, RevisionIs):
        since_revision = compare.revision
    elif isinstance(compare, TokenIs):
        since_revision = token_revision(compare.token)
    live = first.document
    return Conflict(
        Required.COMPARE,
        (str(first.index),),
        key=first.key,
        current=(live.token, live.revision) if live else None,
        since_revision=since_revision,
        compares=tuple(failed),
    )

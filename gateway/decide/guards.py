"""The guards of a request: everything that must be true of the state before its edits are done.

They are the acls of documents, the precondition that a catalog may require, and the request's own
conditions and compares. As part of a decision, they are checked on the very state that is written:
if an acl was changed a moment before, the move of the head is lost, and the request is decided
again.

To replace or delete a document or its attributes takes the right to write it. Edits that depend on
the content (a patch, a merge, a move) also take the right to read it, because whether they fit, and
their result, reveal it. So does everything that a request only reads: compares, the other documents
of a composite condition, and gets. For a range, an answer says how many documents there are and
when they changed. This is no secret, and takes no right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.access import Principal
from gateway.access.acl import ACL, may_read, may_write
from gateway.conflict import FailedCompare, Required, StateConflict
from gateway.decide.compares import (
    IsUnchanged,
    RevisionIs,
    State,
    TokenIs,
    compared_keys,
    why_changed,
)
from gateway.decide.conditions import NO_CONDITIONS, Find
from gateway.decide.edits import ApplyPatch, Edit, Get, KeyEdit, Touch, inner, kind_of
from gateway.decide.ranges import RangeEdit, RangeUnchanged, range_text
from gateway.decide.rebase import require_rebased
from gateway.decide.request import Request
from gateway.decide.settings import CatalogSettings
from gateway.errors import ConditionFailed, ConditionRequired, DocumentForbidden, OvertakenRead
from gateway.model import SETTINGS_KEY, DocumentRecord, living, token_revision
from patching import Json
from patching.extended import is_conditional
from patching.list_declarations import ListDeclarations

# To compare one value of two states takes as long as to read this many bytes of a document.
_COMPARED_BYTES = 50


def require_guards(
    request: Request, state: State, settings: CatalogSettings, *, deleted: bool
) -> str | None:
    """Raise the refusal of the first guard, in their order of precedence, that refuses the request
    on ``state``; compares aren't checked here. ``deleted``: the catalog is deleted.

    Returns the token that the request is rebased from; None if it needs no rebase.
    """
    refuse_forbidden(request, state.document)
    revision = state.revision
    _require_unovertaken(request, revision, deleted=deleted)
    _require_precondition(request, settings)
    if request.resource_version is not None:
        edited = living(state.document(request.key)) if len(request.edits) == 1 else None
        require_revision(request, revision, edited)
    if request.conditions is NO_CONDITIONS:
        return None
    return _checked_conditions(request, state, settings.lists)


def refuse_forbidden(request: Request, find: Find) -> None:
    """Raise DocumentForbidden as far as the acls forbid the request before its edits are done.

    This concerns all documents that it reads, and those that it edits unless that depends on
    compares. Acls that edits change are checked when later edits are performed.
    """
    for key in _keys_read(request):
        document = find(key)
        if document is not None and document.attributes is not None:
            require_readable(request.by, request.catalog, key, document.attributes)
    if request.compare:
        return
    for index, each in enumerate(request.edits):
        document = find(each.key)
        if each.when or document is None or document.attributes is None or _is_shown(each.edit):
            continue
        try:
            require_editable(request.by, request.catalog, each.key, document.attributes, each.edit)
        except DocumentForbidden as error:
            error.action = index if request.is_transaction or len(request.edits) > 1 else None
            raise


def _keys_read(request: Request) -> Iterator[str]:
    """The keys of the documents that the request's guards are about, but not its edits."""
    if request.compare:
        yield from compared_keys(request.compare)
    if request.conditions is NO_CONDITIONS:
        return
    edited = {each.key for each in request.edits if kind_of(each.edit).writes}
    edited |= {each.key for each in request.edits if each.edit == Get(to_write=True)}
    yield from request.conditions.keys - edited
    if request.key not in edited and not request.compare:
        yield request.key


def _is_shown(edit: Edit) -> bool:
    """Whether the edit is a get that answers the document as the whole request leaves it."""
    return isinstance(edit, Get) and not edit.to_write


def require_readable(
    by: Principal, catalog: str, key: str, attributes: Mapping[str, Json] | None
) -> None:
    """Raise DocumentForbidden if ``by`` may not read a document with these ``attributes``."""
    if not may_read(by, catalog, attributes):
        raise DocumentForbidden(by.name, "read", key)


def require_editable(
    by: Principal, catalog: str, key: str, attributes: Mapping[str, Json] | None, edit: Edit
) -> None:
    """Raise DocumentForbidden if ``by`` may not do ``edit`` to a document with these
    ``attributes``.

    A touch is always allowed: it edits no document, whatever its key.
    """
    if attributes is None or ACL not in attributes or isinstance(edit, Touch):
        return
    if not may_write(by, catalog, attributes):
        raise DocumentForbidden(by.name, "write", key)
    part = inner(edit)
    if kind_of(part).reads and part != Get(to_write=True):
        require_readable(by, catalog, key, attributes)


def _require_precondition(request: Request, settings: CatalogSettings) -> None:
    """Raise ConditionRequired if the catalog requires a precondition and the request has none."""
    if (
        settings.require_precondition
        and not request.compare
        and request.resource_version is None
        and request.conditions is NO_CONDITIONS
        and not request.deletes_catalog
        and not all(map(_is_guarded, request.edits))
    ):
        raise ConditionRequired(request.catalog)


def _is_guarded(each: KeyEdit) -> bool:
    """Whether an edit contains a precondition itself, or writes no document of a client."""
    edit = inner(each.edit)
    if each.when or kind_of(edit).is_guarded:
        return True
    if isinstance(edit, ApplyPatch) and is_conditional(edit.patch):
        return True
    return each.key == SETTINGS_KEY and not isinstance(edit, RangeEdit)


def _require_unovertaken(request: Request, revision: int, *, deleted: bool) -> None:
    """Raise OvertakenLook if the catalog isn't at the revision at which it was read for the
    request, and otherwise the refusal that was found there. ``deleted``: the catalog is deleted,
    which overtakes its deletion, too.
    """
    if request.as_of is not None and request.as_of != revision:
        raise OvertakenRead(request.as_of, revision)
    if request.deletes_catalog and (deleted or not revision):
        raise OvertakenRead(None, revision)
    if request.refusal is not None:
        raise request.refusal


def require_revision(
    request: Request, revision: int, document: DocumentRecord | None = None
) -> None:
    """Raise ConditionFailed unless the catalog is at the request's ``resource_version``.

    ``document`` is the live one that the request would edit, if it is about one.
    """
    wanted = request.resource_version
    if wanted is not None and wanted != revision:
        raise ConditionFailed(
            StateConflict(
                Required.REVISION,
                (str(wanted),),
                document=document,
                since_revision=wanted,
                catalog_revision=revision,
            )
        )


def _checked_conditions(request: Request, state: State, lists: ListDeclarations) -> str | None:
    """The token that the request is rebased from, None if it needn't be.

    Raises ConditionFailed, and RevisionCompacted if it isn't known what changed.
    """
    key, conditions = request.key, request.conditions
    for unchanged in conditions.unchanged_under:
        _require_unchanged(unchanged, state)
    rebased_from = None
    try:
        conditions.check_unchanged(key, state.document, state.revision)
    except ConditionFailed as failed:
        if not request.rebase or conditions.if_match is None:
            raise
        rebased_from = require_rebased(
            failed.conflict,
            request.edits[0].edit,
            conditions.if_match,
            state.document(key),
            lambda token: state.base(key, token),
            lambda values: state.spend(values * _COMPARED_BYTES),
            lists.lists_of(key),
        )
    conditions.check_none_match(key, state.document, state.revision)
    return rebased_from


def _require_unchanged(wanted: RangeUnchanged, state: State) -> None:
    reason, changed_at = why_changed(wanted, state)
    if reason:
        raise ConditionFailed(
            StateConflict(
                Required.IF_UNCHANGED_UNDER,
                (range_text(wanted),),
                since_revision=wanted.since,
                prefix=wanted.prefix,
                changed_at=changed_at,
            )
        )


def compares_conflict(request: Request, failed: Sequence[FailedCompare]) -> StateConflict:
    first = failed[0]
    compare = request.compare[first.index]
    since_revision = None
    match compare:
        case RevisionIs():
            since_revision = compare.revision
        case TokenIs():
            since_revision = token_revision(compare.token)
        case IsUnchanged() | RangeUnchanged():
            since_revision = compare.since
    return StateConflict(
        Required.COMPARE,
        (str(first.index),),
        key=first.key,
        document=first.document,
        since_revision=since_revision,
        prefix=first.prefix,
        compares=tuple(failed),
    )

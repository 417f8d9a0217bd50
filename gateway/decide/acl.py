"""What documents' acls forbid a request, on the state that it meets: pure, and part of a decision.

So it holds of the very state that is written: where an acl was changed a moment before, the move of
the head is lost, and the request is decided again.

To replace a document or its attributes, or to delete them, takes the right to write it. What
depends on what is there, a patch, a merge or a move, takes the right to read it as well: whether it
fits, and what it comes to, would tell. So does everything that a request only looks at: compares,
the other documents of a composite condition, and gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.access import Principal
from gateway.access.acl import ACL, may_read, may_write
from gateway.decide.compares import compared_keys
from gateway.decide.conditions import NO_CONDITIONS, Look
from gateway.decide.request import (
    ApplyPatch,
    Delete,
    Edit,
    EditAttributes,
    Get,
    Merge,
    Move,
    Put,
    Request,
    Touch,
)
from gateway.errors import DocumentForbidden
from patching import Json

Attributes = Mapping[str, Json] | None


def refuse_forbidden(request: Request, look: Look) -> None:
    """Raise DocumentForbidden for what can be told before anything else is.

    That is all that the request looks at, and what it edits unless that depends on its compares;
    what edits leave to later ones is checked as they are performed.
    """
    for key in _looked_at(request):
        document = look(key)
        if document is not None and document.attributes is not None:
            require_readable(request.by, request.catalog, key, document.attributes)
    if request.compare:
        return
    for index, each in enumerate(request.edits):
        document = look(each.key)
        if document is None or document.attributes is None or _is_shown(each.edit):
            continue
        try:
            require_editable(request.by, request.catalog, each.key, document.attributes, each.edit)
        except DocumentForbidden as error:
            error.action = index if len(request.edits) > 1 else None
            raise


def _looked_at(request: Request) -> Iterator[str]:
    """The keys of the documents that its guards are about and that it doesn't edit."""
    yield from compared_keys(request.compare)
    if request.conditions is NO_CONDITIONS:
        return
    edited = {each.key for each in request.edits if not isinstance(each.edit, Get | Touch)}
    edited |= {each.key for each in request.edits if each.edit == Get(to_write=True)}
    yield from request.conditions.keys - edited
    if request.key not in edited and not request.compare:
        yield request.key


def _is_shown(edit: Edit) -> bool:
    """Whether it is about the document as the whole request leaves it."""
    return isinstance(edit, Get) and not edit.to_write


def require_readable(by: Principal, catalog: str, key: str, attributes: Attributes) -> None:
    """Raise DocumentForbidden where ``by`` may not read a document with these ``attributes``."""
    if not may_read(by, catalog, attributes):
        raise DocumentForbidden(by.name, "read", key)


def require_editable(
    by: Principal, catalog: str, key: str, attributes: Attributes, edit: Edit
) -> None:
    """Raise DocumentForbidden where ``by`` may not do ``edit`` to a document that has them.

    A touch edits nothing, whatever its key.
    """
    if attributes is None or ACL not in attributes or isinstance(edit, Touch):
        return
    if not may_write(by, catalog, attributes):
        raise DocumentForbidden(by.name, "write", key)
    if not _replaces(edit):
        require_readable(by, catalog, key, attributes)


def _replaces(edit: Edit) -> bool:
    """Whether what is there plays no part in what comes of it."""
    part = edit.edit if isinstance(edit, EditAttributes) else edit
    assert isinstance(part, Put | Delete | Get | Move | ApplyPatch | Merge)
    return isinstance(part, Put | Delete) or (isinstance(part, Get) and part.to_write)

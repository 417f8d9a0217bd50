"""Lists whose items have keys, as a catalog's settings declare them: what a decision checks.

*Declaring lists.* A decision sees a few documents, but a declaration concerns all of them. So all
are checked before the request is decided: at revision r, none broke the declaration
(``lists_checked``). The documents written since are in the view, and the decision checks them. If
they are too many, or weren't read, the request goes back to be checked at a later revision. Once
the list is declared, each write is checked, on the very state that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.decide.compares import Compare, Equals, IsUnchanged, RevisionIs, TokenIs
from gateway.decide.conditions import ANY, CatalogTag, Composite, Preconditions
from gateway.decide.ranges import RangeUnchanged, is_under
from gateway.decide.request import Request
from gateway.errors import DocumentsBreakSettings, ListsUnchecked
from gateway.model import WITHHELD, DocumentRecord
from patching import ABSENT
from patching.errors import ListViolation
from patching.list_declarations import ListDeclarations

# An answer lists at most this many documents that break a declaration; then the search ends.
BROKEN_MAX: Final = 100


def is_pinned(request: Request, key: str, when: Sequence[Compare] = (), *, otherwise: bool) -> bool:
    """Whether the request names the exact state of the document that it edits, so that an index
    means what it meant to the client. A rebased request does: its footprint is compared.

    ``when`` are the conditions of the edit itself; ``otherwise``: it is an edit of ``else``."""
    if request.resource_version is not None:
        return True
    compares = when if otherwise else (*request.compare, *when)  # for ``else``, one was false
    for each in compares:
        if isinstance(each, RevisionIs):
            return True
        if isinstance(each, TokenIs | IsUnchanged | Equals) and each.key == key:
            return True
        if isinstance(each, RangeUnchanged) and is_under(key, each.prefix):
            return True
    if any(is_under(key, each.prefix) for each in request.conditions.unchanged_under):
        return True
    return _is_named(request.conditions, key, request.key)


def _is_named(conditions: Preconditions, key: str, own: str) -> bool:
    tags = conditions.if_match
    if not tags or ANY in tags:
        return False
    return all(
        isinstance(tag, CatalogTag)
        or (isinstance(tag, Composite) and any(name == key for name, _ in tag.tokens))
        or (isinstance(tag, str) and own == key)
        for tag in tags
    )


def broken(declarations: ListDeclarations, document: DocumentRecord) -> dict[str, str] | None:
    """The first place where the live document breaks ``declarations``, as an answer shows it, or
    None."""
    assert document.content is not ABSENT
    try:
        declarations.lists_of(document.key).require(document.content)
    except ListViolation as error:
        return {
            "key": document.key,
            "pointer": error.pointer or "",
            "other": error.other,
            "message": error.detail,
        }
    return None


def require_held(
    request: Request,
    before: ListDeclarations,
    declared: ListDeclarations,
    written: Callable[[int], list[DocumentRecord | None] | None],
) -> None:
    """Let new settings declare lists, ``declared``, only if no document breaks them.

    ``written`` returns the documents written after a revision, None if they aren't known. Raises
    ListsUnchecked if the documents have to be checked first, and DocumentsBreakSettings.
    """
    if not request.checks_lists or not declared.adds_to(before):
        return
    documents = None if request.lists_checked is None else written(request.lists_checked)
    if documents is None:
        raise ListsUnchecked
    found: list[dict[str, str]] = []
    for document in documents:
        if document is None or not document.exists:
            continue
        if document.content is WITHHELD:
            raise ListsUnchecked
        wrong = broken(declared, document)
        if wrong is not None:
            found.append(wrong)
    if found:
        raise DocumentsBreakSettings(found[:BROKEN_MAX], complete=len(found) <= BROKEN_MAX)

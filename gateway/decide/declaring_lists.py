"""Lists whose items have keys, as a catalog's settings declare them: what a decision asks of them.

*Declaring lists.* A decision sees a few documents, and a declaration speaks of all. So whoever
declares one has looked at them before: at revision r each had its lists right (``lists_checked``).
What was written since is among the view's documents, and a decision looks at that; where it is too
much, or wasn't read, the request goes back to be looked at from a later revision on. From then on
each write is checked, on the very state that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.decide.compares import Compare, Equals, IsUnchanged, RevisionIs, TokenIs
from gateway.decide.conditions import ANY, CatalogTag, Composite, Preconditions
from gateway.decide.ranges import RangeUnchanged, is_under
from gateway.decide.request import Request
from gateway.decide.settings import CatalogSettings
from gateway.errors import DocumentsBreakSettings, ListsUnchecked
from gateway.model import WITHHELD, DocumentRecord
from patching import ABSENT
from patching.errors import ListViolation
from patching.list_declarations import ListDeclarations

# The answer lists this many documents that break a declaration; then the search ends.
BROKEN_MAX: Final = 100


def is_pinned(request: Request, key: str, when: Sequence[Compare] = (), *, otherwise: bool) -> bool:
    """Whether the request names the very state of the document that it edits, so that an index
    means there what it meant to its sender. A rebased one does: what it rests on is compared.

    ``when`` are the conditions of the edit itself; ``otherwise``: it is one of the ``else``."""
    if request.resource_version is not None:
        return True
    compares = when if otherwise else (*request.compare, *when)  # there, a compare was false
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
    """The first place where the live document breaks them, as an answer shows it, or None."""
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
    before: CatalogSettings,
    after: CatalogSettings,
    revision: int,
    written: Callable[[int], list[DocumentRecord | None] | None],
) -> None:
    """Let new settings declare lists only where every document has them right.

    ``written`` gives the documents written after a revision, None where they aren't known. Raises
    ListsUnchecked where the documents have to be looked at first, and DocumentsBreakSettings.
    """
    declared = after.lists
    if not request.checks_lists or not declared.adds_to(before.lists) or revision == 0:
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

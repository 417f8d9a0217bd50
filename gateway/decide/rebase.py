"""Rebase: applying a patch although the document has changed since, if the changes don't affect it.

This is a three-way merge of footprints. The *base* is the document as the client saw it; its
difference to the document as it is now shows what changed since. If no place that the patch reads
or writes in the base overlaps a changed one, the patch means the same as then. Inserting or
removing items of an array counts as a change of the whole array. Items of declared lists count by
key; for a patch that uses indexes, their positions count, too. A document that was deleted
meanwhile is another one, even if it was created again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import cast

import patching
import patching.footprints
from gateway.conflict import NotRebased, StateConflict
from gateway.decide.conditions import Tags
from gateway.decide.edits import ApplyPatch, Edit, EditAttributes, Merge, inner, kind_of
from gateway.decide.owning import ApplyWanted, manager_pointers, pointers_gained
from gateway.errors import ConditionFailed
from gateway.model import DocumentRecord
from patching import ABSENT, NO_LISTS, InvalidPatch, Json, LimitExceeded, Limits, Lists
from patching.errors import IndexNeedsTest
from patching.footprints import Footprint
from patching.owners import OwnerTree

# The most members and items that are compared for one request: a few tenths of a second.
EXAMINED_MAX = 200_000
_CHANGES = Limits(operations_max=5_000)
# The most tokens that a request is rebased from: for each, a state of the document is rebuilt.
REBASE_TOKENS_MAX = 8

Rebased = ApplyPatch | Merge | ApplyWanted
Base = Callable[[str], DocumentRecord | None]


def require_rebased(
    conflict: StateConflict,
    edit: Edit,
    tags: Tags,
    document: DocumentRecord | None,
    base_of: Base,
    spend: Callable[[int], None] = lambda _: None,
    lists: Lists = NO_LISTS,
) -> str:
    """The token that ``edit`` is rebased from; ``base_of`` returns the document of an old token.

    Of several tokens, any one that the edit can be rebased from is enough. ``spend`` is called with
    the most values that may be compared. Raises ConditionFailed for ``conflict``, with the reason
    why it can't be rebased.
    """
    delta = inner(edit)
    if not kind_of(delta).is_rebased:
        raise _refusal(conflict, NotRebased.NO_PATCH)
    assert isinstance(delta, Rebased)
    if document is None or not document.exists:
        raise _refusal(conflict, NotRebased.DELETED)
    refusal = _refusal(conflict, NotRebased.BASE_UNKNOWN)
    tokens = sorted(tag for tag in tags if isinstance(tag, str))
    for token in tokens:
        base = base_of(token)
        if base is None:
            continue
        if base.create_revision != document.create_revision:
            refusal = _refusal(conflict, NotRebased.MADE_AGAIN)
            continue
        of_attributes = isinstance(edit, EditAttributes)
        spend(examined_max := EXAMINED_MAX // len(tokens))
        try:
            overlap = overlapping(
                delta,
                _edited(base, of_attributes),
                _edited(document, of_attributes),
                examined_max,
                base.owners,
                NO_LISTS if of_attributes else lists,
            )
        except LimitExceeded:
            refusal = _refusal(conflict, NotRebased.TOO_LARGE)
            continue
        if isinstance(delta, ApplyWanted):
            overlap += pointers_gained(delta, base.owners, document.owners, lists)
        if not overlap:
            return token
        refusal = _refusal(conflict, NotRebased.OVERLAPS, overlap)
    raise refusal


def _refusal(
    conflict: StateConflict, reason: NotRebased, overlap: Iterable[str] = ()
) -> ConditionFailed:
    return ConditionFailed(replace(conflict, not_rebased=reason, overlap=tuple(overlap)))


def overlapping(
    edit: Rebased,
    base: Json,
    now: Json,
    examined_max: int = EXAMINED_MAX,
    owners: OwnerTree | None = None,
    lists: Lists = NO_LISTS,
) -> list[str]:
    """The pointers that ``edit`` reads or writes and that differ between the two states.

    ``owners`` are those of the leaves of ``base``. Items of ``lists`` have their keys in the
    pointers. Raises LimitExceeded if too much would have to be compared.
    """
    # Not compact: a replaced object would seem to change everything in it.
    changes = patching.diff(base, now, compact=False, examined_max=examined_max, lists=lists)
    try:
        own = _footprint(edit, base, owners, lists)
    except (InvalidPatch, IndexNeedsTest):
        return []  # it can't be applied, whatever has changed
    if not lists:
        changed = patching.footprints.footprint(patching.parse(changes, limits=_CHANGES), base)
        return patching.footprints.overlap(own, changed)
    by_key = patching.parse_extended({"patch": changes}, limits=_CHANGES)
    met = patching.footprints.overlap(own, patching.footprints.footprint(by_key, base, lists))
    return sorted({*met, *patching.footprints.displaced(own, base, now, lists)})


def _edited(document: DocumentRecord, of_attributes: bool) -> Json:
    if of_attributes:
        return cast(Json, document.attributes or {})
    assert document.content is not ABSENT
    return document.content


def _footprint(edit: Rebased, base: Json, owners: OwnerTree | None, lists: Lists) -> Footprint:
    if isinstance(edit, ApplyPatch):
        return patching.footprints.footprint(edit.patch, base, lists)
    if isinstance(edit, ApplyWanted):
        return Footprint(writes=frozenset(manager_pointers(edit, base, owners)))
    return Footprint(writes=frozenset(_merged_pointers(edit.value, base)))


def _merged_pointers(value: Json, base: Json) -> Iterator[str]:
    """The pointers that a merge patch sets, even to the value that ``base`` has already."""
    waiting: list[tuple[tuple[str, ...], Json, Json]] = [((), value, base)]
    while waiting:
        tokens, part, below = waiting.pop()
        if not isinstance(part, dict) or not part or not isinstance(below, dict):
            yield patching.join_pointer(tokens)
            continue
        for name, member in part.items():
            waiting.append(((*tokens, name), member, below.get(name)))

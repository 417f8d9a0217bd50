"""Applying a patch all the same where what changed since its token doesn't concern it.

A three-way merge on footprints. The *base* is the document as the client saw it; what changed
since is the difference between it and the document as it is now. Where no pointer that the patch
reads or writes on the base meets one that changed, the patch means now what it meant then. A
structural change inside an array counts as one of the whole array; the items of lists that the
catalog declares count by key, and for a patch that goes by index by their places, too. A document
that was deleted meanwhile is another one, also where it was made again.
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
from gateway.decide.owning import ApplyWanted, manager_pointers
from gateway.errors import ConditionFailed
from gateway.model import DocumentRecord
from patching import ABSENT, NO_LISTS, InvalidPatch, Json, LimitExceeded, Limits, Lists
from patching.errors import IndexNeedsTest
from patching.footprints import Footprint
from patching.owners import OwnerTree

# Members and items that are compared for one request: a few tenths of a second.
EXAMINED_MAX = 200_000
_CHANGES = Limits(operations_max=5_000)
# Tokens that a request may be rebased from: for each a state of the document is rebuilt.
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
    """The token that ``edit`` is rebased from; ``base_of`` gives the document by an old token.

    Raises ConditionFailed for ``conflict``, telling what kept it from being rebased. Of several
    tokens that the document had, any one that the patch can be rebased from will do. ``spend`` is
    told how many values are compared at most.
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
        examined_max = EXAMINED_MAX // len(tokens)
        spend(examined_max)
        try:
            now = _edited(document, of_attributes)
            overlap = overlapping(
                delta,
                _edited(base, of_attributes),
                now,
                examined_max,
                base.owners,
                NO_LISTS if of_attributes else lists,
            )
        except LimitExceeded:
            refusal = _refusal(conflict, NotRebased.TOO_LARGE)
            continue
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
    pointers.

    Raises LimitExceeded where too much would have to be looked at to find out.
    """
    # Part by part: a replaced whole would seem to change all that is in it.
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

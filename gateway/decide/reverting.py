"""Reverts: undoing changes of a document, even if others have changed it since.

This is a three-way merge of content and attributes (``patching.three_way``): the difference between
the *base*, the document as the changes left it, and the *target*, the document before them, is
applied to the document as it is now. A place is disputed if it was changed since, and the target
has another value. If the whole document is to be deleted or restored, it counts as one place; but
the changes since in a document that is to be deleted are named one by one. Items of lists are
matched by key.

The owners of leaves are restored with their values (``patching.restoring``). They are never
disputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec.structs import replace

import patching
import patching.ownership
import patching.pointers
import patching.restoring
from gateway.conflict import Disputed
from gateway.decide.draft import DELETED, Draft, patched, size_bound
from gateway.model import Attributes, DocumentRecord, Skipped
from patching import ABSENT, NO_LISTS, Json, LimitExceeded, Limits, Lists
from patching.merging import Dispute
from patching.owners import OwnerTree
from patching.values import Absent

# The most members and items that are compared to name the places of a document to be deleted.
_EXAMINED_MAX = 100_000


class Undo(msgspec.Struct, frozen=True):
    """The live documents that a change, or several in a row, left (``base``) and found
    (``target``); None if there was none."""

    base: DocumentRecord | None
    target: DocumentRecord | None


class Forced(msgspec.Struct, frozen=True):
    """Pointers to places that are restored in any case, with everything below them."""

    content: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


class Revert(msgspec.Struct, frozen=True):
    """Undo changes of a document, the newest first.

    ``conflict`` says what happens if places were changed since and aren't ``forced``: the request
    is refused, they are skipped, or they are forced, too. A document that was changed since is
    deleted or restored as a whole only if all of these places are forced.
    """

    undos: tuple[Undo, ...]
    conflict: patching.ownership.OnConflict = "refuse"
    forced: Forced = Forced()

    @property
    def size_bytes(self) -> int:
        states = (each for undo in self.undos for each in (undo.base, undo.target))
        return sum(each.size_bytes for each in states if each is not None)


class _State(msgspec.Struct, frozen=True):
    """A document's two parts, ABSENT if there is no document, and the owners of its content."""

    content: Json | Absent
    attributes: Json | Absent
    owners: OwnerTree | None = None

    @property
    def owned(self) -> patching.restoring.Owned:
        return patching.restoring.Owned(self.content, self.owners)


class RevertContext(msgspec.Struct, frozen=True):
    """The terms of a revert that follow from the request and its catalog.

    ``author`` is that of the commit, at ``revision``; ``last`` is the revision of the document's
    last change. The items of its ``lists`` are matched by key.
    """

    author: str
    revision: int
    last: int
    limits: Limits
    lists: Lists


def reverted(
    edit: Revert, key: str, draft: Draft, terms: RevertContext
) -> tuple[Draft, list[Disputed], tuple[Skipped, ...]]:
    """The draft of ``key`` after ``edit``; the disputed places, if these refuse the edit; and those
    that it skips.

    The owners of ``draft`` are those of its content. Raises patching.LimitExceeded.
    """
    now = _state_of(draft)
    forced = Forced(("",), ("",)) if edit.conflict == "force" else edit.forced
    disputed: list[Disputed] = []
    size_bytes = draft.size_bytes
    for undo in edit.undos:
        before, after = map(_state_of, (undo.base, undo.target))
        merged, places = _merged(before, after, now, terms.lists, forced)
        merged = _with_owners(before, after, now, merged, places, terms)
        if merged.content is not now.content:
            size_bytes += undo.target.size_bytes if undo.target is not None else 0
        now = merged
        disputed += [
            Disputed(key, of_attributes, each.pointer, terms.last, each.now, each.wanted)
            for of_attributes, each in places
            if not each.forced
        ]
    skipped: tuple[Skipped, ...] = ()
    if edit.conflict == "skip":
        skipped = tuple(Skipped(key, each.pointer, (), each.of_attributes) for each in disputed)
    draft = _drafted(draft, now, size_bytes, terms.limits)
    return draft, disputed if edit.conflict == "refuse" else [], skipped


def _state_of(each: DocumentRecord | Draft | None) -> _State:
    if each is None or each.content is ABSENT:
        return _State(ABSENT, ABSENT)
    return _State(each.content, cast(Json, each.attributes or {}), each.owners)


def _with_owners(
    base: _State,
    target: _State,
    now: _State,
    merged: _State,
    places: list[tuple[bool, Dispute]],
    terms: RevertContext,
) -> _State:
    """``merged`` with the owners of its content; ``places`` are the disputed ones."""
    kept = [each.pointer for of_attributes, each in places if not (of_attributes or each.forced)]
    if ABSENT in (base.content, target.content, now.content) and places:
        kept = [""]
    owners = patching.restoring.restored(
        base.owned,
        target.owned,
        now.owned,
        merged.content,
        author=terms.author,
        revision=terms.revision,
        kept=kept,
        lists=terms.lists,
        limits=terms.limits,
    )
    return replace(merged, owners=owners)


def _merged(
    base: _State, target: _State, now: _State, lists: Lists, forced: Forced
) -> tuple[_State, list[tuple[bool, Dispute]]]:
    """The merged state, and the disputes, each with whether it is about attributes."""
    if ABSENT not in (base.content, target.content, now.content):
        content = patching.three_way(
            base.content, target.content, now.content, force_at=forced.content, lists=lists
        )
        attributes = patching.three_way(
            base.attributes, target.attributes, now.attributes, force_at=forced.attributes
        )
        places = [(False, each) for each in content.disputes]
        places += [(True, each) for each in attributes.disputes]
        return _State(content.content, attributes.content), places
    if _same(base, now):
        return target, []
    if _same(base, target) or _same(target, now):
        return now, []
    contents, others = (
        frozenset(map(patching.split_pointer, each)) for each in (forced.content, forced.attributes)
    )
    left = [
        (of_attributes, each)
        for of_attributes, each in _changed_since(base, target, now, lists)
        if not patching.pointers.is_within(
            patching.split_pointer(each.pointer), others if of_attributes else contents
        )
    ]
    return now if left else target, left


def _changed_since(
    base: _State, target: _State, now: _State, lists: Lists
) -> Iterator[tuple[bool, Dispute]]:
    if ABSENT in (base.content, now.content):
        yield False, Dispute("", now.content, target.content)
        return
    for of_attributes, before, after, rules in (
        (False, base.content, now.content, lists),
        (True, base.attributes, now.attributes, NO_LISTS),
    ):
        try:
            changes = patching.diff(
                before, after, compact=False, examined_max=_EXAMINED_MAX, lists=rules
            )
        except LimitExceeded:
            changes = [{"op": "replace", "path": "", "value": cast(Json, after)}]
        for each in changes:
            yield of_attributes, _dispute(each, rules)


def _dispute(change: dict[str, Json], lists: Lists) -> Dispute:
    """The dispute about a place that ``change`` made, in a document that is to be deleted."""
    pointer, now = str(change["path"]), change.get("value", ABSENT)
    if change["op"] in ("add_to_set", "pull"):
        array = patching.split_pointer(pointer)
        rule = lists.at(array)
        assert rule is not None
        pointer = patching.join_pointer((*array, rule.address_of(change["value"]) or ""))
        now = ABSENT if change["op"] == "pull" else now
    return Dispute(pointer, now, ABSENT)


def _same(one: _State, other: _State) -> bool:
    if one.content is ABSENT or other.content is ABSENT:
        return one.content is other.content
    same = patching.equal(cast(Json, one.attributes), cast(Json, other.attributes))
    return same and patching.equal(one.content, other.content)


def _drafted(draft: Draft, after: _State, size_bytes: int, limits: Limits) -> Draft:
    content = after.content
    if content is ABSENT:
        return draft if draft.content is ABSENT else DELETED
    attributes = cast(Attributes | None, after.attributes or None)
    owning = replace(draft, owners=after.owners, owned=content)
    changes = patching.diff(draft.content, content)
    if not changes:
        gave_back = after.owners != draft.owners
        action = draft.action or ("patch" if gave_back else "attributes")
        return replace(owning, attributes=attributes, action=action, owned=draft.content)
    size_bytes = size_bound(size_bytes, content, limits)
    if size_bytes > limits.result_bytes_max:
        raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size_bytes)
    if draft.content is ABSENT:
        return replace(
            owning, content=content, attributes=attributes, size_bytes=size_bytes, action="put"
        )
    return replace(patched(owning, content, size_bytes, changes), attributes=attributes)

"""Edits that deal with owners: applies, letting go and giving back. See ``patching.ownership``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

import patching
import patching.ownership
from gateway.decide.draft import DELETED, Draft, patched, size_bound
from patching import ABSENT, Json, Limits, Lists
from patching.list_rules import Rules, kind, members, within
from patching.owners import OwnerTree, Tree, tokens_of, tree_of
from patching.ownership import Contested
from patching.pointers import Tokens, is_within


class ApplyWanted(msgspec.Struct, frozen=True):
    """Apply the values that ``manager`` wants in the document; it then owns them.

    ``conflict`` and the pointers in ``force`` say what happens to contested places. An absent
    document is created.
    """

    wanted: Json
    size_bytes: int
    manager: str
    conflict: patching.ownership.OnConflict = "refuse"
    force: tuple[str, ...] = ()


class LetGo(msgspec.Struct, frozen=True):
    """Have ``manager`` let go of all leaves of the document; those that nobody else owns are
    removed.

    ``prune``: if this leaves the document empty, and nobody owns that, it is deleted; it stays if
    something was written into it without an owner. Nothing to do if the document is absent, or the
    manager owns nothing of it; but it is refused if plain writes under that name own something.
    """

    manager: str
    prune: bool = False


class GiveBack(msgspec.Struct, frozen=True):
    """Have the author give back what plain writes took over at and below ``pointers``; for an
    admin, also what those of others took over. No value changes.

    Nothing to do if the document is absent, or plain writes own nothing there; but a pointer is
    refused if only plain writes of others own something there.
    """

    pointers: tuple[str, ...]


def given_back(edit: GiveBack, draft: Draft, author: str | None, lists: Lists) -> Draft:
    """A draft after ``edit`` by ``author``, None for an admin. The owners of ``draft`` are those of
    its content. Raises patching.PatchError."""
    if draft.owners is None:
        return draft
    after = patching.ownership.give_back(
        draft.content, draft.owners, edit.pointers, author=author, lists=lists
    )
    return replace(draft, owners=after.owners, action=draft.action or "patch")


def owning(
    edit: ApplyWanted | LetGo, draft: Draft, revision: int, limits: Limits, lists: Lists
) -> tuple[Draft, tuple[Contested, ...]]:
    """The draft after ``edit``, to be committed at ``revision``, and what the edit left to others.

    The owners of ``draft`` are those of its content. Raises patching.PatchError.
    """
    after = _applied(edit, draft, revision, limits, lists)
    before, content = draft.content, after.content
    managers = draft.managers
    if edit.manager not in managers:
        managers = (*managers, edit.manager)
    if content is ABSENT:
        deleted = draft if before is ABSENT else replace(DELETED, managers=managers)
        return deleted, after.skipped
    draft = replace(draft, owners=after.owners, owned=content, managers=managers)
    if content is before:
        return replace(draft, action=draft.action or "patch"), after.skipped
    sent_bytes = edit.size_bytes if isinstance(edit, ApplyWanted) else 0
    size_bytes = size_bound(draft.size_bytes + sent_bytes, content, limits)
    if before is ABSENT:
        draft = replace(draft, content=content, size_bytes=size_bytes, action="put")
    else:
        draft = patched(draft, content, size_bytes, patching.diff(before, content))
    return draft, after.skipped


def _applied(
    edit: ApplyWanted | LetGo, draft: Draft, revision: int, limits: Limits, lists: Lists
) -> patching.ownership.ApplyResult:
    if isinstance(edit, ApplyWanted):
        return patching.ownership.apply_wanted(
            draft.content,
            draft.owners,
            edit.wanted,
            manager=edit.manager,
            revision=revision,
            conflict=edit.conflict,
            force=edit.force,
            lists=lists,
            limits=limits,
        )
    if draft.owners is None:
        return patching.ownership.ApplyResult(draft.content, None)
    done = patching.ownership.let_go(draft.content, draft.owners, edit.manager, lists=lists)
    is_left = done.content != {} or done.owners is not None  # others may own the empty object
    return done if is_left or not edit.prune else patching.ownership.ApplyResult(ABSENT, None)


def with_owners_taken_over(
    draft: Draft, author: str, revision: int, limits: Limits, lists: Lists
) -> Draft:
    """The draft with the owners of its content, after plain edits by ``author``.

    Raises patching.PatchError.
    """
    owners = patching.ownership.taken_over(
        draft.owners,
        draft.owned,
        draft.content,
        author=author,
        revision=revision,
        lists=lists,
        limits=limits,
    )
    return replace(draft, owners=owners, owned=draft.content)


def manager_pointers(edit: ApplyWanted, base: Json, owners: OwnerTree | None) -> Iterator[str]:
    """The pointers of the leaves that the manager wants, or owned in ``base``; arrays count as a
    whole."""
    waiting: list[tuple[tuple[str, ...], Json]] = [((), edit.wanted)]
    while waiting:
        tokens, part = waiting.pop()
        if isinstance(part, dict) and part:
            waiting += [((*tokens, name), member) for name, member in part.items()]
        else:
            yield patching.join_pointer(tokens)
    for tokens in _owned_by(edit.manager, owners):
        yield patching.join_pointer(_above_lists(tokens, base))


def pointers_gained(
    edit: ApplyWanted, base: OwnerTree | None, now: OwnerTree | None, lists: Lists
) -> Iterator[str]:
    """The pointers of the leaves that the manager doesn't want, and came to own since ``base``: the
    client didn't know that the apply would let go of them."""
    known = frozenset(_owned_by(edit.manager, base))
    gained = [each for each in _owned_by(edit.manager, now) if not is_within(each, known)]
    for tokens in _unwanted(tree_of((each, 0) for each in gained), edit.wanted, lists):
        yield patching.join_pointer(tokens)


def _owned_by(manager: str, owners: OwnerTree | None) -> Iterator[Tokens]:
    for tokens, by in owners.leaves() if owners else ():
        if any(each.name == (manager, False) for each in by):
            yield tokens


def _unwanted(tree: Tree, wanted: Json, rules: Rules) -> Iterator[Tokens]:
    """The leaves of ``tree`` that aren't in ``wanted``, unless it has a leaf in their place."""
    inside = members(wanted, rules) or {}
    if isinstance(tree, int) or not (inside or kind(wanted, rules)):
        return
    for name, below in tree.items():
        if name in inside:
            found = _unwanted(below, inside[name], within(wanted, rules, name))
        else:
            found = tokens_of(below)
        for tokens in found:
            yield (name, *tokens)


def _above_lists(tokens: tuple[str, ...], base: Json) -> tuple[str, ...]:
    """The first of the tokens, as far as they name members; an item's address may follow."""
    node: Json = base
    for length, token in enumerate(tokens):
        if not isinstance(node, dict):
            return tokens[:length]
        node = node.get(token)
    return tokens

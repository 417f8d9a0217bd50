"""Parts of owning and of reverts, each with a mistake in it; see ``breakages``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

import patching
import patching.ownership
from gateway.decide.decide import BatchDecider, RequestDecision
from gateway.decide.draft import DELETED, Draft
from gateway.decide.edits import KeyEdit
from gateway.decide.owning import (
    ApplyWanted,
    GiveBack,
    LetGo,
    given_back,
    owning,
    with_owners_taken_over,
)
from gateway.decide.performing import reverted
from gateway.decide.request import Request
from gateway.model import ChangeRecord, CommitRecord, DocumentRecord
from patching import ABSENT
from patching.owners import OwnerTree, owners_of


def owned_by_nobody(draft: Draft, *given: Any) -> Draft:  # noqa: ARG001
    return replace(draft, owners=None, owned=draft.content)


def kept_as_they_were(draft: Draft, *given: Any) -> Draft:
    """The owners of what is still there, whoever wrote it."""
    before = dict(draft.owners.leaves()) if draft.owners else {}
    after = with_owners_taken_over(draft, *given).owners
    left = {tokens: before.get(tokens, by) for tokens, by in (after.leaves() if after else ())}
    return replace(draft, owners=owners_of(left), owned=draft.content)


def owners_before(
    document: DocumentRecord | None,
    commit: CommitRecord,  # noqa: ARG001
    change: ChangeRecord,
) -> OwnerTree | None:
    """Of a tail's changes the content is laid over what is stored, and not the owners."""
    return change.owners if document is None else document.owners


_edit = RequestDecision._edit


def edit_with_owners_of_the_base(
    self: RequestDecision, edits: Sequence[KeyEdit], **named: Any
) -> Any:
    request = self.request
    base = self.state.base(request.key, named.get("rebased_from") or "")
    if base is None:
        return _edit(self, edits, **named)
    document = self.state.document

    def stale(key: str) -> DocumentRecord | None:
        found = document(key)
        return replace(found, owners=base.owners) if found and key == request.key else found

    self.state.document = stale
    try:
        return _edit(self, edits, **named)
    finally:
        self.state.document = document


_one = BatchDecider.one
_first_owners: dict[tuple[str, str], OwnerTree | None] = {}


def decide_on_the_first_owners(self: BatchDecider, request: Request, attempt: int) -> Any:
    """Of a decision that is made again, because the move was lost, or was only a guess."""
    document = self.state.document

    def as_first(key: str) -> DocumentRecord | None:
        found = document(key)
        if found is None or found.content is ABSENT:
            return found
        owners = _first_owners.setdefault((request.commit_id, key), found.owners)
        return replace(found, owners=owners)

    self.state.document = as_first
    try:
        return _one(self, request, attempt)
    finally:
        self.state.document = document


_let_go = patching.ownership.let_go


def let_all_go(document: Any, owners: OwnerTree, manager: str, **named: Any) -> Any:
    """What the manager owns together with others is removed, too."""
    alone = {
        tokens: tuple(each for each in by if each.name == (manager, False)) or by
        for tokens, by in owners.leaves()
    }
    return _let_go(document, owners_of(alone) or owners, manager, **named)


def let_nothing_go(document: Any, owners: OwnerTree, manager: str, **named: Any) -> Any:
    """What nobody owns any more stays."""
    done = _let_go(document, owners, manager, **named)
    return patching.ownership.ApplyResult(document, done.owners)


def give_all_back(edit: GiveBack, draft: Draft, *given: Any) -> Draft:
    """What applies own is given back, too."""
    places = [patching.split_pointer(each) for each in edit.pointers]
    left = {
        tokens: () if any(tokens[: len(each)] == each for each in places) else by
        for tokens, by in (draft.owners.leaves() if draft.owners else ())
    }
    return replace(given_back(edit, draft, *given), owners=owners_of(left))


def force_always(edit: ApplyWanted | LetGo, *given: Any) -> Any:
    if isinstance(edit, ApplyWanted) and edit.conflict == "refuse":
        edit = replace(edit, conflict="force")
    return owning(edit, *given)


def prune_what_is_empty(edit: ApplyWanted | LetGo, *given: Any) -> Any:
    after, skipped = owning(edit, *given)
    prunes = isinstance(edit, LetGo) and edit.prune and after.content == {}
    return (DELETED if prunes else after), skipped


def own_since_now(edit: ApplyWanted | LetGo, draft: Draft, revision: int, *given: Any) -> Any:
    """Applied once more, what was sent is owned since then."""
    after, skipped = owning(edit, draft, revision, *given)
    if isinstance(edit, LetGo) or after.owners is None:
        return after, skipped
    leaves = {
        tokens: tuple(
            replace(each, since=revision) if each.name == (edit.manager, False) else each
            for each in by
        )
        for tokens, by in after.owners.leaves()
    }
    after = replace(after, owners=owners_of(leaves), action=after.action or "patch")
    return after, skipped


def revert_what_was_read(edit: Any, key: str, draft: Draft, *given: Any) -> Any:
    """On the document as the changes left it, whatever came since."""
    base = edit.undos[0].base
    if base is not None and draft.content is not ABSENT:
        draft = replace(draft, content=base.content, attributes=base.attributes)
    after, *others = reverted(edit, key, draft, *given)
    if after.content is not ABSENT:
        after = replace(after, action="put", patch=())
    return after, *others


def dispute_nothing(*given: Any) -> Any:
    after, _, skipped = reverted(*given)
    return after, [], skipped


def give_nothing_back(edit: Any, key: str, draft: Draft, *given: Any) -> Any:
    """As if a revert were a plain write."""
    after, *others = reverted(edit, key, draft, *given)
    return replace(after, owners=draft.owners, owned=draft.content), *others

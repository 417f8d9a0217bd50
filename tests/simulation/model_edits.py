"""The model's edits: what a list of actions makes of documents, in the simplest way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .asks import SETTINGS, Action
from .gone import GONE
from .misfit import Misfit
from .model_lists import NO_LISTS, Lists, wrong
from .model_owners import (
    NOBODY,
    Owners,
    Place,
    applied,
    fitted,
    given_back,
    released,
    restored,
    written,
)
from .model_patches import merged, operated, operated_by_key
from .model_repeatables import Stamps
from .model_reverts import undone


class RefusedEdit(Exception):
    """``places``: those that others have otherwise, if that is why."""

    def __init__(self, code: str, places: frozenset[Place] = frozenset()) -> None:
        super().__init__(code)
        self.code = code
        self.places = places


@dataclass(frozen=True)
class After:
    """What a document is. ``anew``: it was deleted and made again on the way. ``kept``: nothing
    but its attributes was edited. ``owners`` are those of ``owned``, an earlier content where plain
    edits followed."""

    content: Any
    attributes: dict[str, Any] | None
    anew: bool = False
    kept: bool = False
    owners: Owners = field(default_factory=dict)
    owned: Any = GONE

    @property
    def parts(self) -> tuple[Any, Any, Owners]:
        return self.content, self.attributes, self.owners


_NOTHING = After(GONE, None)


class Drafts:
    """Documents, worked on one action after the other, for the commit that ``stamps`` tell of.

    ``is_pinned``: whether indexes into ``lists`` mean what they meant to the author. ``skipped`` is
    left to others; ``disputed`` is what a revert may neither skip nor force."""

    def __init__(
        self,
        found: Mapping[str, After],
        stamps: Stamps,
        lists: Lists,
        is_pinned: Callable[[Action], bool],
    ) -> None:
        self._found = found
        self._stamps = stamps
        self._lists = lists
        self._is_pinned = is_pinned
        self._now: dict[str, After] = {}
        self.forced = False
        self.left_out: tuple[int, ...] = ()
        self.skipped: frozenset[Place] = frozenset()
        self.disputed: frozenset[Place] = frozenset()

    def changed(self) -> dict[str, After]:
        settled = {key: self._settled(after) for key, after in self._now.items()}
        return {
            key: after
            for key, after in settled.items()
            if after.parts != self._found.get(key, _NOTHING).parts
        }

    def _settled(self, after: After) -> After:
        """With the owners of its content, after plain edits that know none."""
        if not after.owners or after.content == after.owned:
            return after
        owners = written(
            after.owners,
            after.owned,
            after.content,
            self._stamps.author,
            self._stamps.revision,
            self._lists,
        )
        return replace(after, owners=owners, owned=after.content)

    def perform(self, action: Action) -> None:
        """Raises RefusedEdit."""
        if action.deed == "touch":
            self.forced = True
        elif action.deed == "move":
            self._move(action.key, action.value)
        elif action.deed == "delete-range":
            self._replace(action.value, {})
        elif action.deed == "replace-range":
            self._replace(*action.value)
        elif action.deed in ("apply", "let-go", "give-back"):
            self._own(action)
        elif action.deed == "undo":
            self._undo(action)
        elif action.deed != "get":
            before = self._before(action.key)
            if action.deed.startswith("attributes-"):
                self._put(action.key, *_with_attributes(action, before), kept=True)
            else:
                self._put(action.key, *self._edited(action, before))

    def _before(self, key: str) -> After:
        return self._now.get(key) or self._found.get(key, _NOTHING)

    def _put(self, key: str, content: Any, attributes: Any, *, kept: bool = False) -> None:
        last = self._now.get(key, After(None, None, kept=True))
        anew = last.anew or content is GONE
        after = After(content, attributes or None, anew, kept and last.kept)
        before = self._before(key)
        if content is not GONE:
            after = replace(after, owners=before.owners, owned=before.owned)
        self._now[key] = after

    def _own(self, action: Action) -> None:
        before = self._settled(self._before(action.key))
        content, owners = before.content, before.owners
        if action.deed == "apply":
            if wrong(action.value.content, self._lists):
                raise RefusedEdit("list_violation")
            there = None if content is GONE else content
            owners = fitted(owners, content, self._lists)
            content, owners, places = applied(
                action.key, there, owners, action.value, self._stamps.revision, self._lists
            )
            if content is None:
                raise RefusedEdit("patch_does_not_fit", places)
            self.skipped |= places
        elif action.deed == "give-back":
            after = given_back(fitted(owners, content, self._lists), action.value)
            owners = owners if after == fitted(owners, content, self._lists) else after
        elif any((action.value[0], False) in names for names in owners.values()):
            manager, prune = action.value
            owners = fitted(owners, content, self._lists)
            content, owners = released(content, owners, manager, self._lists)
            if prune and content == {} and not owners:
                content = GONE
        self._put(action.key, content, None if content is GONE else before.attributes)
        if content is not GONE:
            self._now[action.key] = replace(self._now[action.key], owners=owners, owned=content)

    def _undo(self, action: Action) -> None:
        before = self._settled(self._before(action.key))
        undos, conflict, forced = action.value
        now = state_of(before)
        for base, target in undos:
            parts, places = undone(action.key, base, target, now, forced, self._lists)
            now = (*parts, self._restored(base, target, now, parts, places))
            if conflict == "refuse":
                self.disputed |= places
            elif conflict == "skip":
                self.skipped |= places
        content, attributes, owners = now
        kept = content == before.content
        if kept and owners == fitted(before.owners, content, self._lists):
            owners = before.owners  # as the lists were that there were then
        self._put(action.key, content, None if content is GONE else attributes, kept=kept)
        if content is not GONE:
            self._now[action.key] = replace(self._now[action.key], owners=owners, owned=content)

    def _restored(
        self, base: Any, target: Any, now: Any, parts: Any, places: Collection[Place]
    ) -> Owners:
        """The owners after a revert step that left ``places`` as they were changed since."""
        if parts[0] is GONE:
            return NOBODY
        kept = {tuple(each.pointer.split("/")[1:]) for each in places if not each.of_attributes}
        if places and GONE in (base[0], target[0], now[0]):
            kept = {()}
        told = self._stamps.author, self._stamps.revision
        return restored(base, target, now, parts[0], *told, kept, self._lists)

    def _edited(self, action: Action, before: After) -> tuple[Any, Any]:
        if action.deed == "put":
            attributes = before.attributes if action.attributes is None else action.attributes
            return copy.deepcopy(action.value), attributes
        if action.deed == "delete":
            return GONE, None
        gone = before.content is GONE
        if action.deed == "merge":
            if gone:
                raise RefusedEdit("document_not_found")
            return merged(before.content, action.value), before.attributes
        makes = action.value[0].get("create_parents") or action.value[0]["path"] == ""
        if gone and not makes:
            tests = action.deed == "edit" and action.value[0]["op"] == "test"
            raise RefusedEdit("patch_does_not_fit" if tests else "document_not_found")
        try:
            if action.deed == "edit":
                content = operated_by_key(before.content, action.value, self._lists, self._stamps)
            else:
                lists = NO_LISTS if self._is_pinned(action) else self._lists
                content = operated(before.content, action.value, lists)
        except Misfit as misfit:
            removed = gone and action.value[0]["op"] == "remove"
            raise RefusedEdit("document_not_found" if removed else misfit.code) from None
        return content, None if content is GONE else before.attributes

    def _replace(self, prefix: str, documents: Mapping[str, Any]) -> None:
        for key in {**self._found, **self._now}:
            goes = key != SETTINGS and key.startswith(prefix) and key not in documents
            if goes and self._before(key).content is not GONE:
                self._put(key, GONE, None)
        for key, value in documents.items():
            self._put(key, copy.deepcopy(value), self._before(key).attributes)

    def _move(self, key: str, to: str) -> None:
        moved, target = self._before(key), self._before(to)
        if moved.content is GONE:
            raise RefusedEdit("document_not_found")
        if target.content is not GONE:
            raise RefusedEdit("target_exists")
        self._put(key, GONE, None)
        self._put(to, moved.content, moved.attributes)
        self._now[to] = replace(self._now[to], owners=moved.owners, owned=moved.owned)


def state_of(each: After | None) -> tuple[Any, Any, Owners]:
    """Content, attributes and owners, as a revert sees them."""
    if each is None or each.content is GONE:
        return GONE, GONE, NOBODY
    return each.content, each.attributes or {}, each.owners


def _with_attributes(action: Action, before: After) -> tuple[Any, Any]:
    if before.content is GONE:
        if action.deed == "attributes-delete":
            return before.content, before.attributes
        raise RefusedEdit("document_not_found")
    if action.deed == "attributes-put":
        return before.content, action.value
    if action.deed == "attributes-delete":
        return before.content, None
    try:
        return before.content, operated(before.attributes or {}, action.value)
    except Misfit:
        raise RefusedEdit("patch_does_not_fit") from None

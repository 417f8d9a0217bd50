"""The model's edits: what a list of actions makes of documents, in the simplest way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .asks import SETTINGS, Action


class Gone:
    """There is no document."""

    def __repr__(self) -> str:
        return "GONE"

    def __deepcopy__(self, memo: object) -> Gone:
        return self


GONE = Gone()


class Misfit(Exception):
    """A patch doesn't fit."""


class RefusedEdit(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class After:
    """What a document is. ``anew``: it was deleted and made again on the way. ``kept``: nothing
    but its attributes was edited."""

    content: Any
    attributes: dict[str, Any] | None
    anew: bool = False
    kept: bool = False


_NOTHING = After(GONE, None)


class Drafts:
    """Documents, worked on one action after the other."""

    def __init__(self, found: Mapping[str, After]) -> None:
        self._found = found
        self._now: dict[str, After] = {}
        self.forced = False
        self.left_out: tuple[int, ...] = ()

    def changed(self) -> dict[str, After]:
        return {
            key: after
            for key, after in self._now.items()
            if (after.content, after.attributes) != self._before(key)
        }

    def _before(self, key: str) -> tuple[Any, Any]:
        before = self._found.get(key, _NOTHING)
        return before.content, before.attributes

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
        elif action.deed != "get":
            before = self._now.get(action.key) or self._found.get(action.key, _NOTHING)
            if action.deed.startswith("attributes-"):
                self._put(action.key, *_with_attributes(action, before), kept=True)
            else:
                self._put(action.key, *_edited(action, before))

    def _put(self, key: str, content: Any, attributes: Any, *, kept: bool = False) -> None:
        last = self._now.get(key, After(None, None, kept=True))
        anew = last.anew or content is GONE
        self._now[key] = After(content, attributes or None, anew, kept and last.kept)

    def _replace(self, prefix: str, documents: Mapping[str, Any]) -> None:
        for key in {**self._found, **self._now}:
            if key != SETTINGS and key.startswith(prefix) and key not in documents:
                before = self._now.get(key) or self._found[key]
                if before.content is not GONE:
                    self._put(key, GONE, None)
        for key, value in documents.items():
            before = self._now.get(key) or self._found.get(key, _NOTHING)
            self._put(key, copy.deepcopy(value), before.attributes)

    def _move(self, key: str, to: str) -> None:
        moved = self._now.get(key) or self._found.get(key, _NOTHING)
        target = self._now.get(to) or self._found.get(to, _NOTHING)
        if moved.content is GONE:
            raise RefusedEdit("document_not_found")
        if target.content is not GONE:
            raise RefusedEdit("target_exists")
        self._put(key, GONE, None)
        self._put(to, moved.content, moved.attributes)


def _edited(action: Action, before: After) -> tuple[Any, Any]:
    if action.deed == "put":
        attributes = before.attributes if action.attributes is None else action.attributes
        return copy.deepcopy(action.value), attributes
    if action.deed == "delete":
        return GONE, None
    if action.deed == "merge":
        if before.content is GONE:
            raise RefusedEdit("document_not_found")
        return merged(before.content, action.value), before.attributes
    if before.content is GONE and action.value[0]["path"] != "":
        raise RefusedEdit("document_not_found")
    try:
        content = operated(before.content, action.value)
    except Misfit:
        gone = before.content is GONE
        raise RefusedEdit("document_not_found" if gone else "patch_does_not_fit") from None
    return content, None if content is GONE else before.attributes


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


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def operated(before: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """What a patch makes of a value. Raises Misfit."""
    after = copy.deepcopy(before)
    for operation in operations:
        after = _operated(after, operation)
    return after


def _operated(document: Any, operation: Mapping[str, Any]) -> Any:
    """RFC 6902, section 4, as far as the simulation and its merges use it."""
    op, path = operation["op"], operation["path"]
    if path == "":
        if document is GONE and op != "add":
            raise Misfit
        if op == "test":
            return _tested(document, operation["value"], document)
        return GONE if op == "remove" else copy.deepcopy(operation["value"])
    *parents, name = path.split("/")[1:]
    target = document
    for parent in parents:
        if not isinstance(target, dict) or parent not in target:
            raise Misfit
        target = target[parent]
    if isinstance(target, list):
        if (op, name) != ("add", "-"):
            raise Misfit
        target.append(copy.deepcopy(operation["value"]))
        return document
    if not isinstance(target, dict) or (op != "add" and name not in target):
        raise Misfit
    if op == "test":
        return _tested(document, operation["value"], target[name])
    if op == "remove":
        del target[name]
    else:
        target[name] = copy.deepcopy(operation["value"])
    return document


def _tested(document: Any, expected: Any, found: Any) -> Any:
    if found != expected:
        raise Misfit
    return document

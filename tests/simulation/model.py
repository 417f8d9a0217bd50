"""What a catalog does, told once more and in the simplest way: one request after the other.

Shares nothing with the gateway but the vocabulary. Values are copied whole; nothing is cached,
nothing runs at the same time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .asks import Ask


class Gone:
    """There is no document."""

    def __repr__(self) -> str:
        return "GONE"


GONE = Gone()


@dataclass(frozen=True)
class Doc:
    """A document or (GONE) its tombstone. ``patches``: changes since the last whole value."""

    content: Any
    revision: int
    create_revision: int
    commit_id: str
    time_us: int
    patches: int

    @property
    def token(self) -> str:
        return f"{self.revision:x}-{self.commit_id[:8]}"


@dataclass(frozen=True)
class Verdict:
    """``would`` is a dry run's answer; ``code`` is a refusal's."""

    kind: Literal["applied", "unchanged", "would", "refused", "replay"]
    content: Any = GONE
    code: str = ""


class Misfit(Exception):
    """A patch doesn't fit."""


def content_of(doc: Doc | None) -> Any:
    return GONE if doc is None else doc.content


def judge(ask: Ask, doc: Doc | None, fingerprints: Mapping[str, str]) -> Verdict:
    """What becomes of a write when ``doc`` is current and these idempotency keys were used."""
    if ask.idempotency_key is not None and ask.idempotency_key in fingerprints:
        if fingerprints[ask.idempotency_key] == ask.fingerprint:
            return Verdict("replay")
        return Verdict("refused", code="idempotency_key_reused")
    before = content_of(doc)
    if ask.if_match is not None:
        token = None if doc is None or before is GONE else doc.token
        if token is None or not (token in ask.if_match or "*" in ask.if_match):
            return Verdict("refused", code="precondition_failed")
    if ask.create_only and before is not GONE:
        return Verdict("refused", code="precondition_failed")
    creates = ask.kind != "merge" and (ask.kind != "patch" or ask.value[0]["path"] == "")
    if before is GONE and not creates:
        return Verdict("refused", code="document_not_found")
    try:
        after = edited(ask.kind, ask.value, before)
    except Misfit:
        code = "document_not_found" if before is GONE else "patch_does_not_fit"
        return Verdict("refused", code=code)
    if after is before or after == before:
        return Verdict("unchanged", before)
    return Verdict("would" if ask.dry_run else "applied", after)


def edited(kind: str, value: Any, before: Any) -> Any:
    """Raises Misfit."""
    if kind == "put":
        return copy.deepcopy(value)
    if kind == "delete":
        return GONE
    if kind == "merge":
        return merged(before, value)
    after = copy.deepcopy(before) if before is not GONE else GONE
    for operation in value:
        after = _operated(after, operation)
    return after


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

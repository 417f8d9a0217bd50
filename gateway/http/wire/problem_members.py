"""What a refusal tells beside its detail: the members of its problem, by its kind.

Texts are shortened, values shown where they are small, and lists cut after so many entries, so that
a refusal is never much longer than what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway import errors
from gateway.conflict import Conflict, Disputed, FailedCompare, Stale
from gateway.decide.refusals import ChangedSince, DocumentsBreakSettings, ItemsCollide
from gateway.errors import GatewayError
from gateway.http.wire.answers import encode
from gateway.http.wire.owner_shapes import owner_shapes
from gateway.model import WITHHELD, Document
from patching import (
    ABSENT,
    Absent,
    Contested,
    IndexNeedsTest,
    Json,
    OwnedByOthers,
    PatchError,
    TestFailed,
)

Members = dict[str, Any]

_POINTER_CHARACTERS_MAX = 1000
_VALUE_BYTES_MAX = 1000
_COMPARED_BYTES_MAX = 1024 * 1024
_OVERLAP_MAX = 100
_STALE_MAX = 100
_CONTESTED_MAX = 100


def members_of(error: GatewayError) -> Members:
    """Those that tell of ``error`` what programs need; {} for most kinds."""
    for kind in type(error).__mro__:
        if kind in _MEMBERS:
            return _MEMBERS[kind](error)
    return {}


def members_of_patch_error(error: PatchError) -> Members:
    """The place of what can't be done, and what was met there."""
    members = _place(error.operation, error.pointer)
    if isinstance(error, IndexNeedsTest):
        members["tests"] = [shortened(each, _POINTER_CHARACTERS_MAX) for each in error.tests]
    if isinstance(error, OwnedByOthers):
        members |= _contested(error.contested)
    if isinstance(error, TestFailed):
        members |= _small(expected=error.expected, actual=error.actual)
    return members


def _shortened_members(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: shortened(text, _POINTER_CHARACTERS_MAX) for name, text in texts.items()}


def _conflict(failed: Conflict) -> dict[str, Any]:
    members: dict[str, Any] = {"expected": shortened(failed.expected, _VALUE_BYTES_MAX)}
    members |= _current(failed.document)
    if failed.catalog_revision is not None:
        members["resource_version"] = failed.catalog_revision
    if failed.overlap:
        members["overlap"] = [
            shortened(pointer, _POINTER_CHARACTERS_MAX) for pointer in failed.overlap[:_OVERLAP_MAX]
        ]
    if failed.not_rebased is not None:
        members["not_rebased"] = failed.not_rebased.value
    if failed.key:
        members["key"] = failed.key
    if failed.prefix is not None and not failed.compares:
        members["prefix"] = failed.prefix
        if failed.changed_at is not None:
            members["changed_at"] = failed.changed_at
    if failed.stale:
        members["stale"] = [_stale(each) for each in failed.stale[:_STALE_MAX]]
    if failed.compares:
        members["failed_compares"] = _failed_compares(failed.compares)
    return members


def _disputed(disputed: Sequence[Disputed]) -> dict[str, Any]:
    """With both values, where they are small."""
    shown = []
    for each in disputed[:_CONTESTED_MAX]:
        entry: dict[str, Any] = {
            "key": each.key or None,
            "part": "attributes" if each.of_attributes else "content",
            "pointer": shortened(each.pointer, _POINTER_CHARACTERS_MAX),
            "revision": each.revision,
        }
        shown.append(entry | _small(value=each.now, wanted=each.wanted))
    return {"contested": shown, "contested_count": len(disputed)}


def _stale(each: Stale) -> dict[str, Any]:
    current = _current(each.document)
    return {"key": each.key, "expected": each.token, "current": None, **current}


def _failed_compares(failed: Sequence[FailedCompare]) -> list[dict[str, Any]]:
    """With the current values, as long as they aren't too large to be repeated in an error."""
    shown = []
    left_bytes = _COMPARED_BYTES_MAX
    for each in failed:
        found: dict[str, Any] = {"index": each.index, "key": each.key, "detail": each.reason}
        if each.prefix is not None:
            found["prefix"] = each.prefix
            if each.changed_at is not None:
                found["changed_at"] = each.changed_at
        found["current"] = None
        document = each.document
        if document is not None:
            found["current"] = {"etag": document.token, "revision": document.revision}
            left_bytes -= document.size_bytes
            if left_bytes >= 0 and document.content is not WITHHELD:
                found["current"]["value"] = document.content
        shown.append(found)
    return shown


def _contested(contested: Sequence[Contested]) -> dict[str, Any]:
    """With both values, where they are small."""
    shown = []
    for each in contested[:_CONTESTED_MAX]:
        entry: dict[str, Any] = {
            "pointer": shortened(each.pointer, _POINTER_CHARACTERS_MAX),
            "owners": owner_shapes(each.owners),
        }
        entry |= _small(value=each.value, wanted=each.wanted)
        if each.wanted_at != each.pointer:
            entry["wanted_at"] = shortened(each.wanted_at, _POINTER_CHARACTERS_MAX)
        shown.append(entry)
    return {"contested": shown, "contested_count": len(contested)}


def _place(operation: int | None, pointer: str | None) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if operation is not None:
        place["operation"] = operation
    if pointer is not None:
        place["pointer"] = shortened(pointer, _POINTER_CHARACTERS_MAX)
    return place


def _current(live: Document | None) -> dict[str, Any]:
    return {} if live is None else {"current": {"etag": live.token, "revision": live.revision}}


def _small(**values: Json | Absent) -> Members:
    """Those of ``values`` that are there and small."""
    return {
        name: value for name, value in values.items() if value is not ABSENT and _is_small(value)
    }


def _is_small(value: Json) -> bool:
    """Whether ``value`` is short as JSON. No more of it is looked at than that takes.

    Documents are nested no deeper than their limit, but a patch that moves values into each other
    may meet its failing test while they are nested too deep to be encoded.
    """
    least_bytes = 0  # what was met so far takes this or more
    waiting = [value]
    while waiting:
        item = waiting.pop()
        least_bytes += 1
        if isinstance(item, str | list | dict):
            least_bytes += len(item)
        if least_bytes > _VALUE_BYTES_MAX:
            return False
        if isinstance(item, list | dict):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    try:
        return len(encode(value)) <= _VALUE_BYTES_MAX
    except RecursionError:
        return False


def shortened(text: str, characters_max: int) -> str:
    """``text`` in what UTF-8 can hold, and not longer than that."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _collision(error: ItemsCollide) -> Members:
    places = {"pointer": error.pointer, "other": error.other}
    return {"key": error.key, **_shortened_members(places)}


def _settings(error: errors.SettingsInvalid) -> Members:
    members: Members = {"pointer": shortened(error.pointer, _POINTER_CHARACTERS_MAX)}
    return members | ({"errors": list(error.errors)} if error.errors else {})


def _broken(error: DocumentsBreakSettings) -> Members:
    documents = [_shortened_members(each) for each in error.documents]
    return {"documents": documents, "complete": error.complete}


_MEMBERS: Final[Mapping[type, Callable[[Any], Members]]] = {
    errors.PatchDoesNotFit: lambda error: {"key": error.key, **_current(error.document)},
    errors.PreconditionFailed: lambda error: _conflict(error.conflict),
    errors.SchemaViolation: lambda error: {"key": error.key, "errors": list(error.errors)},
    ItemsCollide: _collision,
    DocumentsBreakSettings: _broken,
    errors.SettingsInvalid: _settings,
    errors.TargetExists: lambda error: {"key": error.key, **_current(error.document)},
    ChangedSince: lambda error: _disputed(error.disputed),
    errors.DocumentNotFound: lambda error: {"key": error.key},
    errors.AttributesInvalid: lambda error: _place(None, error.pointer),
    errors.DocumentForbidden: lambda error: {
        "prefix" if error.of_range else "key": error.key,
        "right": error.right,
    },
    errors.PinHolds: lambda error: {"pinned_revision": error.pinned},
    errors.SnapshotExists: lambda error: {"oldest_revision": error.floor},
    errors.Unstorable: lambda error: _place(error.operation, error.pointer),
    errors.RevisionNotFound: lambda error: {"head_revision": error.head_revision},
    errors.RevisionCompacted: lambda error: {"oldest_revision": error.floor},
    errors.IdempotencyMismatch: lambda error: {"revision": error.revision},
    errors.RefusedBefore: lambda error: dict(error.members),
    errors.OutcomeUnknown: lambda error: {"commit_id": error.commit_id},
}

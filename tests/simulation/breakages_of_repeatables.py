"""Parts of operations that may be sent twice, each with a mistake in it; see ``breakages``."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import patching
from patching import Extended, ExtendedPatch
from patching.extended import AppendText, CommitStamp, SetValue, StampCommit, Watermark
from patching.footprints import _ByAddress

_apply_extended = patching.apply_extended
_note_change = _ByAddress.note_change
_first: dict[int, tuple[object, Any]] = {}


def marks_as_first_met(document: Any, patch: Any, **named: Any) -> Extended:
    """A watermark does later what it came to when it was first tried."""
    done = _apply_extended(document, patch, **named)
    kinds = {type(each) for each in patch}
    if Watermark not in kinds or StampCommit in kinds:
        return done
    _, effective = _first.setdefault(id(patch), (patch, done.effective))
    try:
        first = patching.parse_extended({"patch": effective})
        return _apply_extended(document, first, **named)
    except patching.PatchError:
        return done


def stamps_as_first_tried(document: Any, patch: Any, *, commit: CommitStamp, **named: Any) -> Any:
    """A stamp tells of the commit that its patch was first to be part of."""
    _, first = _first.setdefault(id(patch), (patch, commit))
    return _apply_extended(document, patch, commit=first, **named)


def stamp_always(document: Any, patch: Any, *, commit: CommitStamp, **named: Any) -> Extended:
    """A stamp is put where nothing else changes, too."""
    done = _apply_extended(document, patch, commit=commit, **named)
    if done.effective:
        return done
    sets = [
        {**each.to_json(), "op": "set", "value": commit.of(each.value)}
        for each in patch
        if isinstance(each, StampCommit)
    ]
    try:
        return _apply_extended(document, patching.parse_extended({"patch": sets}), **named)
    except patching.PatchError:
        return done


def append_again(document: Any, patch: Any, **named: Any) -> Extended:
    """A text is appended once more."""
    operations = tuple(
        replace(each, once=False) if isinstance(each, AppendText) else each for each in patch
    )
    return _apply_extended(document, ExtendedPatch(operations, patch.keyed), **named)


def no_places_of_repeatables(self: Any, operation: Any) -> None:
    """What may be sent twice is taken for meaning the same on any document."""
    if not isinstance(operation, SetValue | Watermark | AppendText):
        _note_change(self, operation)

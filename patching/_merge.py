"""JSON Merge Patch (RFC 7396)."""

from __future__ import annotations

from typing import Any

from patching._errors import DEFAULT_LIMITS, LimitExceeded, Limits
from patching._json import ABSENT, Document, Json, depth, encoded_bytes, equal


def merge(document: Document, merge_patch: Json, *, limits: Limits = DEFAULT_LIMITS) -> Document:
    """The document that `merge_patch` makes of `document` (RFC 7396 section 2).

    Neither is modified. What doesn't change keeps its identity, where "change" is that of `equal`:
    a member 1 that is patched with 1.0 stays the object it was. So the result *is* `document` if
    and only if nothing changes. Any JSON value is a merge patch, and an absent document is merged
    as any other value that is no object: `merge(ABSENT, {"a": 1, "b": None})` is `{"a": 1}`.

    LimitExceeded where `merge_patch` is nested deeper than `depth_max`, or where the result is
    larger than both `result_bytes_max` and `document`. The result is measured if it changed."""
    nested = depth(merge_patch)
    if nested > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, nested)
    merged = _merged(document, merge_patch)
    if merged is document or merged is ABSENT:
        return document
    size = encoded_bytes(merged)
    if size > limits.result_bytes_max and (document is ABSENT or size > encoded_bytes(document)):
        raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size)
    return merged


def _merged(target: Document, patch: Json) -> Document:
    if not isinstance(patch, dict):
        return target if equal(target, patch) else patch
    before: dict[str, Any] = target if isinstance(target, dict) else {}
    after: dict[str, Any] | None = None  # made when the first member changes
    for name, value in patch.items():
        old = before.get(name, ABSENT)
        new = ABSENT if value is None else _merged(old, value)
        if new is old:
            continue
        if after is None:
            after = before.copy()
        if new is ABSENT:
            del after[name]
        else:
            after[name] = new
    if after is not None:
        return after
    return target if isinstance(target, dict) else {}

"""How much a commit takes in a head and in the history: bounds, measured only where needed."""

from __future__ import annotations

import msgspec

from gateway.commits.requests import ApplyPatch, Request
from gateway.model import Change, Commit
from patching import ABSENT, Patch

_encode = msgspec.json.Encoder().encode

# JSON that was sent grows when it is written again: 1e15 becomes 1000000000000000.0. Up to this
# length it is taken to have grown as far as it can, beyond it is measured.
GROWTH_MAX = 5
_UNMEASURED_BYTES_MAX = 64 * 1024
# The members of a commit's record besides texts of the client's, and those of a change.
_RECORD_BYTES = 600
_CHANGE_BYTES = 120


def record_bytes(request: Request, commit: Commit) -> int:
    """An upper bound on what the commit takes in a head and in the history."""
    texts = 4 * len(request.message or "") + len(commit.rebased_from or "")
    if request.idempotency is not None:
        texts += len(request.idempotency.principal) + len(request.idempotency.key)
    changes = commit.changes
    if len(changes) == 1 and len(request.edits) == 1:
        return _RECORD_BYTES + texts + _single_bytes(request, changes[0])
    return _RECORD_BYTES + texts + sum(map(_change_bytes, changes))


def _single_bytes(request: Request, change: Change) -> int:
    """As ``_change_bytes``, without measuring a patch that was sent as it is recorded."""
    edit = request.edits[0].edit
    sent = isinstance(edit, ApplyPatch) and isinstance(edit.patch, Patch)
    if change.patch is not None and sent and request.size_bytes <= _UNMEASURED_BYTES_MAX:
        return _beside_patch_bytes(change) + GROWTH_MAX * request.size_bytes
    return _change_bytes(change)


def _change_bytes(change: Change) -> int:
    patch_bytes = 0 if change.patch is None else len(_encode(change.patch))
    return _beside_patch_bytes(change) + patch_bytes


def _beside_patch_bytes(change: Change) -> int:
    # The key is there twice, and in JSON text a character may take six bytes.
    size_bytes = _CHANGE_BYTES + 12 * len(change.key.encode())
    if change.value is not ABSENT:
        size_bytes += change.size_bytes
    if change.attributes:
        size_bytes += len(_encode(change.attributes))
    return size_bytes

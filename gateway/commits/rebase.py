"""Applying a patch all the same where what changed since its token doesn't concern it.

A three-way merge on footprints. The *base* is the document as the client saw it; what changed
since is the difference between it and the document as it is now. Where no pointer that the patch
reads or writes on the base meets one that changed, the patch means now what it meant then. A
structural change inside an array counts as one of the whole array. A document that was deleted
meanwhile is another one, also where it was made again.
"""

from __future__ import annotations

from collections.abc import Callable

import patching
from gateway.commits.conditions import Tags
from gateway.commits.errors import PreconditionFailed
from gateway.commits.requests import ApplyPatch, Edit, Merge
from gateway.model import Document
from patching import ABSENT, Footprint

Base = Callable[[str], Document | None]


def require_rebased(
    failed: PreconditionFailed, edit: Edit, tags: Tags, document: Document | None, base_of: Base
) -> str:
    """The token that ``edit`` is rebased from; ``base_of`` gives the document by an old token.

    Raises ``failed``, telling what kept it from being rebased.
    """
    if document is None or not document.exists or not isinstance(edit, ApplyPatch | Merge):
        raise failed
    for token in sorted(tag for tag in tags if isinstance(tag, str)):
        base = base_of(token)
        if base is None or base.create_revision != document.create_revision:
            continue
        overlap = overlapping(edit, base, document)
        if not overlap:
            return token
        failed.overlap = overlap
    raise failed


def overlapping(edit: ApplyPatch | Merge, base: Document, document: Document) -> list[str]:
    """The pointers that ``edit`` reads or writes and that differ between the two states."""
    assert base.content is not ABSENT
    assert document.content is not ABSENT
    changed = patching.footprint(patching.diff(base.content, document.content), base.content)
    return patching.overlap(_footprint(edit, base), changed)


def _footprint(edit: ApplyPatch | Merge, base: Document) -> Footprint:
    if isinstance(edit, ApplyPatch):
        return patching.footprint(edit.patch, base.content)
    assert base.content is not ABSENT
    merged = patching.merge(base.content, edit.value)
    return patching.footprint(patching.diff(base.content, merged), base.content)

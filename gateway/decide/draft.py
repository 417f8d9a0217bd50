"""A draft: one document on which a request's edits are done before any commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

import patching
from gateway.model import Action, Attributes, DocumentRecord
from patching import ABSENT, Json, Limits
from patching.owners import OwnerTree
from patching.values import Absent

_encode = msgspec.json.Encoder().encode


class Draft(msgspec.Struct, frozen=True):
    """A document as a request's edits so far leave it. ``action`` is what they did, None: nothing.

    ``patch`` is what they did to the content since the request began, where that is an RFC 6902
    patch (action ``patch``). ``owners`` are those of the leaves of ``owned``, an earlier content
    where edits that know no managers followed.
    """

    content: Json | Absent
    attributes: Attributes | None
    size_bytes: int
    action: Action | None = None
    patch: tuple[dict[str, Json], ...] = ()
    owners: OwnerTree | None = None
    owned: Json | Absent = ABSENT


DELETED: Final = Draft(ABSENT, None, 0, "delete")


def size_bound(size_bytes: int, content: Json | Absent, limits: Limits) -> int:
    """``size_bytes``, a bound of the content's size, or its size where that is over the limit."""
    return size_bytes if size_bytes <= limits.result_bytes_max else len(_encode(content))


def patched(
    draft: Draft, content: Json | Absent, size_bytes: int, patch: Iterable[dict[str, Json]]
) -> Draft:
    """The draft after ``patch``, which made ``content``, of at most ``size_bytes``, of it."""
    if content is ABSENT:
        return DELETED
    if draft.action in ("put", "delete"):
        # The whole value is recorded, so that the change can be told without a patch to a state
        # that no revision had.
        return Draft(content, draft.attributes, size_bytes, "put", (), draft.owners, draft.owned)
    return Draft(
        content,
        draft.attributes,
        size_bytes,
        "patch",
        (*draft.patch, *patch),
        draft.owners,
        draft.owned,
    )


def merged(
    before: Json, size_bytes: int, value: Json, value_bytes: int, limits: Limits
) -> tuple[Json | Absent, int, list[dict[str, Json]]]:
    """What the RFC 7396 merge patch ``value`` makes of a content, a bound of its size, and the
    RFC 6902 patch that does the same.

    Raises patching.PatchError.
    """
    content = patching.merge(before, value, limits=limits)
    size_bytes = size_bound(size_bytes + value_bytes, content, limits)
    return content, size_bytes, patching.diff(before, content)


def same_attributes(document: DocumentRecord, draft: Draft) -> bool:
    return patching.equal(document.attributes or {}, draft.attributes or {})


def equal_content(before: Json | Absent, after: Json | Absent) -> bool:
    if before is ABSENT or after is ABSENT:
        return before is after
    return before is after or patching.equal(before, after)

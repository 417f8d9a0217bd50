"""A draft: one document on which a request's edits are done before any commit. And the work of
patches, counted in bytes of documents before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

import patching
from gateway.access.acl import AclMalformed, acl_of, require_few_names
from gateway.errors import AboveLimit, AttributesInvalid
from gateway.limits import MIB
from gateway.model import Action, Attributes, DocumentRecord
from patching import ABSENT, Json, Limits, Patch, PatchError
from patching.errors import LimitExceeded
from patching.owners import OwnerTree
from patching.values import Absent

_encode = msgspec.json.Encoder().encode


class Draft(msgspec.Struct, frozen=True):
    """A document as a request's edits so far leave it. ``action`` is what they did, None: nothing.

    ``patch`` is what they did to the content since the request began, if that is an RFC 6902 patch
    (action ``patch``). ``owners`` are those of the leaves of ``owned``: the content, or an earlier
    one if plain edits followed. ``managers`` are those whose edits were done.
    """

    content: Json | Absent
    attributes: Attributes | None
    size_bytes: int
    action: Action | None = None
    patch: tuple[dict[str, Json], ...] = ()
    owners: OwnerTree | None = None
    owned: Json | Absent = ABSENT
    managers: tuple[str, ...] = ()


class DraftChange(msgspec.Struct, frozen=True):
    """A ``draft`` that differs from the live document that was ``found``, None for a new one."""

    found: DocumentRecord | None
    draft: Draft


DELETED: Final = Draft(ABSENT, None, 0, "delete")


def size_bound(size_bytes: int, content: Json | Absent, limits: Limits) -> int:
    """``size_bytes``, a bound on the content's size; the real size if that exceeds the limit."""
    return size_bytes if size_bytes <= limits.result_bytes_max else len(_encode(content))


def patched(
    draft: Draft, content: Json | Absent, size_bytes: int, patch: Iterable[dict[str, Json]]
) -> Draft:
    """The draft after ``patch``, with the ``content`` that resulted, of at most ``size_bytes``."""
    if content is ABSENT:
        return DELETED
    if draft.action in ("put", "delete"):
        # The commit records the whole value: a patch would be made for a state that no revision
        # has.
        owned = draft.owners, draft.owned, draft.managers
        return Draft(content, draft.attributes, size_bytes, "put", (), *owned)
    return Draft(
        content,
        draft.attributes,
        size_bytes,
        "patch",
        (*draft.patch, *patch),
        draft.owners,
        draft.owned,
        draft.managers,
    )


def same_attributes(document: DocumentRecord, draft: Draft) -> bool:
    return patching.equal(document.attributes or {}, draft.attributes or {})


# The most bytes of documents that one request's patches work through; each counts its document.
_PATCHED_BYTES_MAX: Final = 128 * MIB
# An RFC 6902 patch copies only the containers on its paths, so it counts a share of the document; a
# merge visits everything several times.
PATH_SHARE: Final = 8
MERGE_TIMES: Final = 4
# Inserting or removing an array item shifts the items after it: each counts a share of the bytes.
_SHIFT_SHARE: Final = 80
UNCOUNTED_BYTES_MAX: Final = 64 * 1024
_IN_PLACE: Final = ("replace", "test")


class Items(msgspec.Struct):
    """Bounds the array items that one request's patches and tests examine together.

    ``asked`` are the limits of the request, ``limits`` those of the next patch or test.
    """

    asked: Limits
    limits: Limits

    def count(self, examined: int) -> None:
        """Count examined items: ``limits`` then allow the next patch or test only the rest."""
        if examined:
            left = max(0, self.limits.items_examined_max - examined)
            self.limits = replace(self.limits, items_examined_max=left)

    def as_of_request(self, error: PatchError) -> PatchError:
        """``error`` of a patch or test under ``limits``, with the numbers of the whole request."""
        if not isinstance(error, LimitExceeded) or error.limit != "items_examined_max":
            return error
        maximum = self.asked.items_examined_max
        before = maximum - self.limits.items_examined_max
        return LimitExceeded(
            error.limit,
            maximum,
            before + error.actual,
            operation=error.operation,
            pointer=error.pointer,
        )


def require_room(patched_bytes: int) -> None:
    """Raise AboveLimit if a request's patches so far are more work than one may cause."""
    if patched_bytes > _PATCHED_BYTES_MAX:
        raise AboveLimit(
            f"the patches would process {patched_bytes} bytes of documents; the limit for a"
            f" transaction is {_PATCHED_BYTES_MAX}",
            limit="patched_bytes_max",
            maximum=_PATCHED_BYTES_MAX,
            actual=patched_bytes,
        )


def shifts(patch: Patch, size_bytes: int) -> int:
    """The work of operations that shift items, in bytes, if one array has all ``size_bytes``."""
    operations = patch.to_json()
    places = [str(each["path"]) for each in operations if each["op"] not in _IN_PLACE]
    places += [str(each["from"]) for each in operations if each["op"] == "move"]
    shifting = sum(place.rpartition("/")[2].isdigit() for place in places)
    return size_bytes * shifting // _SHIFT_SHARE


def checked_attributes(value: Json | Absent, key: str, bytes_max: int) -> Attributes:
    """``value``, if it may be written as attributes. Raises AttributesInvalid and AboveLimit."""
    if not isinstance(value, dict):
        raise AttributesInvalid(key)
    try:
        acl = acl_of(value)
        if acl is not None:
            require_few_names(acl)
    except AclMalformed as error:
        raise AttributesInvalid(key, error.pointer, error.detail) from error
    size_bytes = len(_encode(value))
    if size_bytes > bytes_max:
        raise AboveLimit(
            f"the attributes take {size_bytes} bytes as JSON; the limit is {bytes_max}",
            limit="attributes_bytes_max",
            maximum=bytes_max,
            actual=size_bytes,
        )
    return value

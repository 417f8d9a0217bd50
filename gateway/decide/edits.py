"""What one edit makes of one document: pure, and the same for a single write and a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import msgspec

import patching
from gateway.access.acl import AclMalformed, acl_of
from gateway.decide.request import ApplyPatch, ContentEdit, Delete, EditAttributes, Merge, Put
from gateway.errors import AttributesInvalid, DocumentNotFound, OverLimit, PatchDoesNotFit
from gateway.model import Action, Attributes, Document
from patching import ABSENT, Absent, Json, PatchError

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EditLimits:
    """``spend`` is told how many array items a patch looked at, also one that fails."""

    patch: patching.Limits
    attributes_bytes_max: int
    spend: Callable[[int], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as a request's edits so far leave it. ``action`` is what they did, None: nothing.

    ``patch`` is what they did to the content since the request began, where that is an RFC 6902
    patch (action ``patch``).
    """

    content: Json | Absent
    attributes: Attributes | None
    size_bytes: int
    action: Action | None = None
    patch: tuple[dict[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose draft it is, for errors: ``document`` is the state the request found."""

    catalog: str
    key: str
    document: Document | None


def draft_of(document: Document | None) -> Draft:
    if document is None:
        return Draft(ABSENT, None, 0)
    return Draft(document.content, document.attributes, document.size_bytes)


def edited(
    draft: Draft, edit: ContentEdit | EditAttributes, subject: Subject, limits: EditLimits
) -> Draft:
    """The draft after ``edit``.

    Raises DocumentNotFound, PatchDoesNotFit, OverLimit, AttributesInvalid.
    """
    if isinstance(edit, EditAttributes):
        return _with_attributes(draft, edit.edit, subject, limits)
    if isinstance(edit, Put):
        attributes = draft.attributes
        if edit.attributes is not None:
            bytes_max = limits.attributes_bytes_max
            attributes = checked_attributes(edit.attributes, subject.key, bytes_max) or None
        return Draft(edit.value, attributes, edit.size_bytes, "put")
    if isinstance(edit, Delete):
        return Draft(ABSENT, None, 0, "delete")
    content, size_bytes, patch = _patched(draft.content, draft.size_bytes, edit, subject, limits)
    if content is ABSENT:
        return Draft(ABSENT, None, 0, "delete")
    if draft.action in ("put", "delete"):
        # The whole value is recorded, so that the change can be told without a patch to a state
        # that no revision had.
        return Draft(content, draft.attributes, size_bytes, "put")
    return Draft(content, draft.attributes, size_bytes, "patch", (*draft.patch, *patch))


def _patched(
    before: Json | Absent,
    size_bytes: int,
    edit: ApplyPatch | Merge,
    subject: Subject,
    limits: EditLimits,
) -> tuple[Json | Absent, int, list[dict[str, Json]]]:
    """The content after the edit, a bound of its size, and the effective RFC 6902 patch."""
    try:
        if isinstance(edit, Merge):
            if before is ABSENT:
                raise DocumentNotFound(subject.catalog, subject.key)
            return _merged(before, size_bytes, edit, limits.patch)
        if isinstance(edit.patch, patching.ExtendedPatch):
            after = patching.apply_extended(
                before, edit.patch, limits=limits.patch, document_bytes=size_bytes
            )
            limits.spend(after.examined)
            return after.content, after.size_bytes, after.effective
        content, size_bytes = patching.apply_within(
            before, edit.patch, limits=limits.patch, document_bytes=size_bytes
        )
        return content, size_bytes, edit.patch.without_tests().to_json()
    except patching.DocumentAbsent:
        raise DocumentNotFound(subject.catalog, subject.key) from None
    except patching.LimitExceeded as error:
        limits.spend(error.examined)
        raise OverLimit(
            error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
        ) from error
    except PatchError as error:
        limits.spend(error.examined)
        document = subject.document
        current = (document.token, document.revision) if document and document.exists else None
        raise PatchDoesNotFit(error, subject.key, current) from error


def _merged(
    before: Json, size_bytes: int, edit: Merge, limits: patching.Limits
) -> tuple[Json | Absent, int, list[dict[str, Json]]]:
    content = patching.merge(before, edit.value, limits=limits)
    size_bytes += edit.size_bytes
    if size_bytes > limits.result_bytes_max:
        size_bytes = len(_encode(content))
    return content, size_bytes, patching.diff(before, content)


def _with_attributes(
    draft: Draft, edit: ContentEdit, subject: Subject, limits: EditLimits
) -> Draft:
    """Of an absent document nothing can be kept; to delete its attributes is to do nothing."""
    if draft.content is ABSENT:
        if isinstance(edit, Delete):
            return draft
        raise DocumentNotFound(subject.catalog, subject.key)
    before: Json = cast(Json, draft.attributes or {})
    after: Json | Absent
    if isinstance(edit, Put):
        after = edit.value
    elif isinstance(edit, Delete):
        after = {}
    else:
        after, _, _ = _patched(before, len(_encode(before)), edit, subject, limits)
        after = {} if after is ABSENT else after
    attributes = checked_attributes(after, subject.key, limits.attributes_bytes_max)
    return replace(draft, attributes=attributes or None, action=draft.action or "attributes")


def checked_attributes(value: Json | Absent, key: str, bytes_max: int) -> Attributes:
    """``value`` as attributes. Raises AttributesInvalid unless they are, and OverLimit."""
    if not isinstance(value, dict):
        raise AttributesInvalid(key)
    try:
        acl_of(value)
    except AclMalformed as error:
        raise AttributesInvalid(key, error.pointer, error.detail) from error
    size_bytes = len(_encode(value))
    if size_bytes > bytes_max:
        raise OverLimit(
            f"the attributes take {size_bytes} bytes as JSON, {bytes_max} are allowed",
            limit="attributes_bytes_max",
            maximum=bytes_max,
            actual=size_bytes,
        )
    return value

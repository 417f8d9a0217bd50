"""Applying an extended patch to a document; how each operation is lowered is in `_lowering`."""

from __future__ import annotations

from dataclasses import dataclass

from patching._errors import DEFAULT_LIMITS, DocumentAbsent, Limits, PatchError
from patching._json import ABSENT, Document, Json
from patching._lists import NO_LISTS, Lists
from patching._lowering import LOWER, Lowering

from ._extended import (
    AddToSet,
    AddWithParents,
    ExtendedOperation,
    ExtendedPatch,
    Increment,
    RemoveIfExists,
)
from ._operations import Add
from ._predicates import Predicate


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of an extended patch on a document."""

    content: Document

    size_bytes: int
    """A bound of its size as compact JSON, for the next `apply_within` or `apply_extended`."""

    examined: int
    """The array items that were looked at, as `items_examined_max` counts them."""

    effective: list[dict[str, Json]]
    """The RFC 6902 patch that makes `content` of the document: no tests, indexes for keys. [] if no
    operation changed anything; `content` is then the document itself. It shares values with
    `content`; neither may be modified."""


def apply_extended(
    document: Document,
    patch: ExtendedPatch,
    *,
    limits: Limits = DEFAULT_LIMITS,
    document_bytes: int,
    lists: Lists = NO_LISTS,
) -> Extended:
    """The document that `patch` makes of `document`, known to take at most `document_bytes` as
    compact JSON; all of the patch or none of it.

    Items of `lists` are addressed by key as those of the patch's own `array_primary_keys`;
    InvalidPatch where these contradict them. `Lists.require` says whether the result has them
    right; ListViolation here where an address leads through one that hasn't.

    Sharing, limits and the bound are those of `apply_within`; `items_examined_max` bounds the work.
    Writing a value that equals the one that is there changes nothing and isn't recorded. The
    effective patch has at most `operations_max` operations: it replaces the whole where more would
    be needed.

    No document (`ABSENT`): predicates find nothing there, so that all but `undefined` (and `not`)
    fail; `create_parents` makes the root; `if_exists` finds nothing to remove; the rest is
    DocumentAbsent.

    TestFailed where a predicate is false: `expected` is the value of a `test`, of others the
    predicate as JSON without its path; `actual` is what is at its path. PathMissing; PatchConflict
    where a set operation finds no array, `increment` no number or a sum beyond 64 bits, or where a
    keyed array has two items with one key, also if it is this patch that makes the second.
    LimitExceeded. Pointers in errors are as the patch has them."""
    if lists:
        patch = patch.under(lists)
    lowering = Lowering(document, patch.keyed, limits, document_bytes, lists)
    try:
        for operation in patch.operations:
            step(lowering, operation)
        size_bytes = lowering.application.checked_bytes(document)
    except PatchError as error:
        error.examined = lowering.locator.examined
        raise
    effective = lowering.effective
    content = lowering.root if effective else document
    if len(effective) > limits.operations_max:
        effective = [{"op": "remove", "path": ""}]
        if content is not ABSENT:
            effective = [{"op": "add", "path": "", "value": content}]
    return Extended(content, size_bytes, lowering.locator.examined, effective)


def step(lowering: Lowering, operation: ExtendedOperation) -> None:
    """Applies the next operation of a patch. After an error `lowering` is of no more use."""
    lowering.position += 1
    lowering.said.clear()
    before = len(lowering.effective)
    try:
        if lowering.root is ABSENT and not _can_do_without(operation):
            raise DocumentAbsent("there is no document; only 'add' at \"\" makes one")
        LOWER[type(operation)](lowering, operation)
        if lowering.keyed and len(lowering.effective) > before:
            lowering.require_distinct(operation.tokens)
    except PatchError as error:
        error.operation = lowering.position
        pointer = error.pointer
        error.pointer = operation.path if pointer is None else lowering.said.get(pointer, pointer)
        raise


def _can_do_without(operation: ExtendedOperation) -> bool:
    """Whether `operation` makes sense where there is no document."""
    if isinstance(operation, AddToSet | Increment):
        return operation.create_parents
    if isinstance(operation, Add) and not operation.tokens:
        return True
    return isinstance(operation, Predicate | AddWithParents | RemoveIfExists)

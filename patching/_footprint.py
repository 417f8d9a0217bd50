"""What a patch reads and writes."""

from __future__ import annotations

from typing import Any

from ._apply import Application
from ._errors import PatchError
from ._extended import ExtendedPatch
from ._footprint_extended import extended_footprint
from ._json import ABSENT, Document
from ._limits import DEFAULT_LIMITS
from ._operations import Copy, Move, Operation, Patch, Replace, Test, parse
from ._overlap import Footprint, written


def footprint(patch: Patch | ExtendedPatch | list[Any], document: Document = ABSENT) -> Footprint:
    """What `patch` reads and writes.

    Read are the paths of `test` and the sources of `copy` and `move`; written are the paths of all
    operations but `test`, and the sources of `move`. Adding or removing an array item shifts its
    neighbours, so it counts as writing the whole array.

    The patch alone doesn't tell arrays from objects with members like "0". Given the `document` it
    is meant for, the footprint is exact: each operation is looked up in the state that the ones
    before it leave. Without one, and from an operation on that doesn't fit `document`, a last
    token that could be an array index (or "-") is taken for one; that only ever names more.

    Applied to any document that has arrays and objects where `document` has them (any at all, if
    none was given), the patch changes nothing outside `writes`; and two patches that both apply to
    it and don't `overlap` give the same result in either order.

    Of an extended patch, predicates read their paths, set operations and `increment` read and write
    theirs, and `if_exists` reads its path. An address with keys reads the key members of the array
    it leads through, and writes the item it leads to, or the array where it adds or removes one;
    without a document it reads and writes the first keyed array on its way. What holds for any
    document of the same shape then holds for those that are equal where the patch reads.

    Errors as `parse`, where `patch` is no `Patch` yet."""
    if isinstance(patch, ExtendedPatch):
        return extended_footprint(patch, document)
    if not isinstance(patch, Patch):
        patch = parse(patch)
    reads: set[str] = set()
    writes: set[str] = set()
    application: Application | None = Application(document, DEFAULT_LIMITS, 0)
    for operation in patch.operations:
        root = application.root if application else ABSENT
        _record(operation, root, reads, writes)
        if application:
            try:
                application.perform(operation)
            except PatchError:
                application = None
    return Footprint(frozenset(reads), frozenset(writes))


def _record(operation: Operation, root: Document, reads: set[str], writes: set[str]) -> None:
    if isinstance(operation, Test):
        reads.add(operation.path)
        return
    if isinstance(operation, Replace):
        writes.add(operation.path)
        return
    if isinstance(operation, Move | Copy):
        reads.add(operation.source)
        if operation.source_tokens == operation.tokens and isinstance(operation, Move):
            return
    if isinstance(operation, Move):
        writes.add(written(operation.source, operation.source_tokens, root))
    # A move out of an array may shift the array that holds its target, so that `root` shows
    # another container there; but then the array, and all below it, is written by its source.
    writes.add(written(operation.path, operation.tokens, root))

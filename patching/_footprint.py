"""What a patch reads and writes, and whether two patches get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any, Final

from ._apply import Application
from ._errors import PatchError
from ._json import ABSENT, Document
from ._limits import DEFAULT_LIMITS
from ._operations import Copy, Move, Operation, Patch, Replace, Test, parse
from ._pointer import Tokens, find, index_of

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of JSON Pointers. A pointer stands for the whole value below it; "" for everything.

    `a | b` is the footprint of both, so that of many commits is one."""

    reads: frozenset[str] = _NOTHING
    writes: frozenset[str] = _NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(self.reads | other.reads, self.writes | other.writes)


def footprint(patch: Patch | list[Any], document: Document = ABSENT) -> Footprint:
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

    Errors as `parse`, where `patch` is no `Patch` yet."""
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
        writes.add(_written(operation.source, operation.source_tokens, root))
    # A move out of an array may shift the array that holds its target, so that `root` shows
    # another container there; but then the array, and all below it, is written by its source.
    writes.add(_written(operation.path, operation.tokens, root))


def _written(path: str, tokens: Tokens, root: Document) -> str:
    """What an operation writes that adds or removes at `path`: the array around it, if any."""
    if not tokens:
        return path
    holder = find(root, tokens[:-1])
    if isinstance(holder, list):
        return _parent(path)
    if isinstance(holder, dict):
        return path
    return _parent(path) if tokens[-1] == "-" or _could_be_index(tokens[-1]) else path


def _could_be_index(token: str) -> bool:
    return index_of(token, 10**18) >= 0


def overlap(a: Footprint, b: Footprint) -> list[str]:
    """The pointers of `a` that `b` gets in the way of, sorted; [] if the two are independent.

    Two pointers meet if they are equal or one lies below the other; reads don't meet reads. The
    cost is proportional to the text of the pointers times their depth, not to the product of the
    two sets."""
    touched = b.reads | b.writes
    met = set(_meeting(a.writes, touched))
    met.update(_meeting(a.reads, b.writes))
    return sorted(met)


def _meeting(pointers: Set[str], others: Set[str]) -> Iterator[str]:
    if not pointers or not others:
        return
    above_others = {above for other in others for above in _ancestors(other)}
    for pointer in pointers:
        if (
            pointer in others
            or pointer in above_others
            or any(above in others for above in _ancestors(pointer))
        ):
            yield pointer


def _ancestors(pointer: str) -> Iterator[str]:
    while pointer:
        pointer = _parent(pointer)
        yield pointer


def _parent(pointer: str) -> str:
    return pointer[: pointer.rindex("/")]

"""Footprints: the pointers that a patch, plain or extended, reads and writes, and whether two
patches overlap."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from patching._apply import Application
from patching._apply_extended import step
from patching._errors import DEFAULT_LIMITS, PatchError
from patching._extended import (
    AddToSet,
    AddWithParents,
    Change,
    ExtendedOperation,
    ExtendedPatch,
    Increment,
    Pull,
    RemoveIfExists,
)
from patching._json import ABSENT, Document
from patching._keyed import Locator, Place
from patching._lowering import Lowering
from patching._operations import Add, Copy, Move, Operation, Operations, Patch, Replace, Test, parse
from patching._pointer import Tokens, find, index_of, join_pointer
from patching._predicates import Predicate

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of JSON Pointers. A pointer stands for the whole value below it; "" for everything.

    `a | b` is the footprint of both, so that of many commits is one."""

    reads: frozenset[str] = _NOTHING
    writes: frozenset[str] = _NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(self.reads | other.reads, self.writes | other.writes)


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


def written(path: str, tokens: Tokens, root: Document) -> str:
    """The pointer that adding or removing at `path` writes: the array around it, if any."""
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


_KEYED_ITEMS_MAX = 256  # of a larger array an address reads all, rather than each item's keys


def extended_footprint(patch: ExtendedPatch, document: Document) -> Footprint:
    """Like `footprint`, for an extended patch."""
    lowering: Lowering | None = Lowering(document, patch.keyed, DEFAULT_LIMITS, 0)
    recorder = _Recorder(Locator(patch.keyed, DEFAULT_LIMITS))
    for operation in patch.operations:
        if lowering:
            recorder.locator, recorder.root = lowering.locator, lowering.root
        try:
            recorder.record(operation)
        except PatchError:  # two items with one key, or too much to look at
            lowering, recorder.root = None, ABSENT
            recorder.record(operation)
        if lowering:
            try:
                step(lowering, operation)
            except PatchError:
                lowering, recorder.root = None, ABSENT
    return Footprint(frozenset(recorder.reads), frozenset(recorder.writes))


class _Recorder:
    """The pointers so far. `root` is the state the next operation meets; `ABSENT` if unknown."""

    def __init__(self, locator: Locator) -> None:
        self.locator = locator
        self.root: Document = ABSENT
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        # per array, of how many items the keys are among the reads already
        self.noted: dict[Tokens, int] = {}

    def record(self, operation: ExtendedOperation) -> None:
        if isinstance(operation, Predicate):
            for each in _leaves(operation):
                self.reads.add(self.value_at(each.tokens))
        elif isinstance(operation, Move | Copy):
            self.reads.add(self.value_at(operation.source_tokens))
            if isinstance(operation, Move):
                if operation.source_tokens == operation.tokens:
                    return
                self.writes.add(self.added_or_removed(operation.source_tokens, replaces=False))
            self.writes.add(self.added_or_removed(operation.tokens, replaces=True))
        else:
            self.record_change(operation)

    def record_change(self, operation: Change) -> None:
        address = operation.tokens
        if isinstance(operation, Replace | Pull):
            pointer = self.value_at(address)
        elif isinstance(operation, AddToSet | Increment):
            creates = operation.create_parents
            pointer = self.created(address) if creates else self.value_at(address)
        elif isinstance(operation, AddWithParents):
            pointer = self.created(address)
        else:
            pointer = self.added_or_removed(address, replaces=isinstance(operation, Add))
        self.writes.add(pointer)
        if isinstance(operation, AddToSet | Increment | Pull | AddWithParents):
            self.reads.add(pointer)
        elif isinstance(operation, RemoveIfExists):
            self.reads.add(self.value_at(address))

    def value_at(self, address: Tokens) -> str:
        """The pointer of what is at `address`, or of the first location that is missing."""
        if self.root is ABSENT:
            return self.unknown(address)
        place = self.locate(address)
        if place.known == len(address) or place.keys:
            return join_pointer(place.tokens)
        return join_pointer((*place.tokens, address[place.known]))

    def added_or_removed(self, address: Tokens, *, replaces: bool) -> str:
        """The pointer that an addition or removal at `address` writes: an array as a whole.
        `replaces`: the item with that key is replaced, not removed."""
        if self.root is ABSENT:
            pointer = self.unknown(address)
            known = self.keyed_position(address)
            return written(pointer, address[:known], ABSENT) if known == len(address) else pointer
        place = self.locate(address)
        if place.keys:
            there = place.known == len(address)
            return join_pointer(place.tokens[:-1] if there and not replaces else place.tokens)
        tokens = place.tokens
        if place.known < len(address):
            tokens += (address[place.known],)
        return written(join_pointer(tokens), tokens, self.root)

    def created(self, address: Tokens) -> str:
        """The pointer that an addition at `address` writes, missing parents included."""
        if self.root is ABSENT:
            first = address[: min(1, self.keyed_position(address))]
            return written(join_pointer(first), first, ABSENT)
        return self.added_or_removed(address, replaces=True)

    def locate(self, address: Tokens) -> Place:
        """The place of `address` in the known state; notes the keys that it was found by."""
        place = self.locator.locate(self.root, address)
        for position in range(min(place.known + 1, len(address))):
            keys = self.locator.keyed.keys_at(address[:position])
            if not keys:
                continue
            array = place.tokens[:position]
            items = self.locator.find(self.root, address[:position])
            if not isinstance(items, list) or len(items) > _KEYED_ITEMS_MAX:
                self.reads.add(join_pointer(array))
                continue
            for index in range(self.noted.get(array, 0), len(items)):
                self.reads.update(join_pointer((*array, str(index), *path)) for path in keys.paths)
            self.noted[array] = max(len(items), self.noted.get(array, 0))
        return place

    def unknown(self, address: Tokens) -> str:
        """The pointer of `address` in an unknown document: at its widest, the first keyed array on
        the way, which is then read too."""
        position = self.keyed_position(address)
        pointer = join_pointer(address[:position])
        if position < len(address):
            self.reads.add(pointer)
        return pointer

    def keyed_position(self, address: Tokens) -> int:
        """How many tokens of `address` lead to its first keyed array; all where there is none."""
        for position in range(len(address)):
            if self.locator.keyed.keys_at(address[:position]):
                return position
        return len(address)


def _leaves(predicate: Predicate) -> Iterator[Predicate]:
    if not predicate.apply:
        yield predicate
    for each in predicate.apply:
        yield from _leaves(each)


def footprint(patch: Patch | ExtendedPatch | Operations, document: Document = ABSENT) -> Footprint:
    """The pointers that `patch` reads and writes.

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

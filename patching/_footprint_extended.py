"""What an extended patch reads and writes: `footprint` of `_footprint`, which states the rules."""

from __future__ import annotations

from collections.abc import Iterator

from ._apply_extended import step
from ._errors import PatchError
from ._extended import (
    AddToSet,
    AddWithParents,
    Change,
    ExtendedOperation,
    ExtendedPatch,
    Increment,
    Pull,
    RemoveIfExists,
)
from ._json import ABSENT, Document
from ._limits import DEFAULT_LIMITS
from ._locate import Locator, Place
from ._lowering import Lowering
from ._operations import Add, Copy, Move, Replace
from ._overlap import Footprint, written
from ._pointer import Tokens, join_pointer
from ._predicates import Predicate

_KEYED_ITEMS_MAX = 256  # of a larger array an address reads all, rather than each item's keys


def extended_footprint(patch: ExtendedPatch, document: Document) -> Footprint:
    """As `footprint`."""
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
        """What changes when something is added or removed at `address`: an array as a whole.
        `replaces`: what is there by its key is replaced, not removed."""
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
        """What changes when something is added at `address` with its missing parents."""
        if self.root is ABSENT:
            first = address[: min(1, self.keyed_position(address))]
            return written(join_pointer(first), first, ABSENT)
        return self.added_or_removed(address, replaces=True)

    def locate(self, address: Tokens) -> Place:
        """The place of `address` in the known state; notes the keys that it was found by."""
        place = self.locator.locate(self.root, address)
        for position in range(min(place.known + 1, len(address))):
            keys = self.locator.keyed.at(address[:position])
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
        """What `address` leads to in a document that isn't known: at its widest, the first keyed
        array on the way, which is then read too."""
        position = self.keyed_position(address)
        pointer = join_pointer(address[:position])
        if position < len(address):
            self.reads.add(pointer)
        return pointer

    def keyed_position(self, address: Tokens) -> int:
        """How many tokens of `address` lead to its first keyed array; all where there is none."""
        for position in range(len(address)):
            if self.locator.keyed.at(address[:position]):
                return position
        return len(address)


def _leaves(predicate: Predicate) -> Iterator[Predicate]:
    if not predicate.apply:
        yield predicate
    for each in predicate.apply:
        yield from _leaves(each)

"""Footprints: the pointers that a patch, plain or extended, reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from patching._apply import PatchRun
from patching._apply_extended import Lowering, step
from patching._keyed import Place
from patching._predicates import Predicate
from patching.errors import DEFAULT_LIMITS, PatchError
from patching.extended import (
    AddToSet,
    AddWithParents,
    AppendText,
    Change,
    CommitStamp,
    ExtendedOperation,
    ExtendedPatch,
    Increment,
    Pull,
    RemoveIfExists,
    SetValue,
    StampCommit,
    Watermark,
)
from patching.list_rules import NO_LISTS, ArrayKeys, ArraySet, ListRule, Lists
from patching.operations import (
    Add,
    Copy,
    Move,
    Operation,
    Operations,
    Patch,
    Remove,
    Replace,
    Test,
    parse,
)
from patching.pointers import Tokens, find, index_of, join_pointer, split_pointer
from patching.values import ABSENT, Document, Json

_NOTHING: Final[frozenset[str]] = frozenset()


class LocationNames:
    """Names for locations in the successive states of one document that don't depend on the order
    of lists: pointers that name items of lists by key or, in sets, by value."""

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        # By id, for encoding a large member of a set takes long. The references keep the ids taken.
        self._members: dict[int, tuple[Json, str]] = {}
        # By a list's id, its items by name; the document must outlive this object: see `order`.
        self._items: dict[int, dict[str | None, Json]] = {}

    def of(self, root: Document, tokens: Tokens, *, written: bool = False) -> Tokens:
        """The name of the location that `tokens`, a pointer, lead to in `root`.

        The name ends at a set if they lead into a member, inside which nothing has a name; and at a
        list if they name no item of it, or one without a key. Elsewhere, what doesn't exist keeps
        its tokens. `written`: a place that decides the key of an item gets the item's name."""
        if not self.lists:
            return tokens
        node: Any = root
        lists = self.lists
        name: list[str] = []
        for at, token in enumerate(tokens):
            rule = lists.rule if isinstance(node, list) else None
            own: str | None = token
            if rule is not None:
                index = index_of(token, len(node))
                if index < 0:
                    return tuple(name)
                if isinstance(rule, ArraySet) and at < len(tokens) - 1:
                    self._members.clear()  # the member may be about to change
                    return tuple(name)
                own = self.item(rule, node[index])
            if own is None:
                return tuple(name)
            name.append(own)
            below = tokens[at + 1 :]
            if written and below and isinstance(rule, ArrayKeys) and rule.decided_by(below):
                return tuple(name)
            node = find(node, (token,))
            if node is ABSENT:
                return (*name, *tokens[at + 1 :])
            lists = lists.below(token)
        return tuple(name)

    def item(self, rule: ListRule, item: Json) -> str | None:
        """The name of `item` in a list with this rule; None if it has no key."""
        if not isinstance(rule, ArraySet):
            return rule.address_of(item)
        known = self._members.get(id(item))
        if known is None:
            known = self._members[id(item)] = item, rule.address_of(item)
        return known[1]

    def indexed(self, root: Document, tokens: Tokens) -> list[Tokens]:
        """The names of the lists that `tokens` lead through by index."""
        found: list[Tokens] = []
        for at in range(len(tokens)):
            if self.lists.at(tokens[:at]) and isinstance(find(root, tokens[:at]), list):
                found.append(self.of(root, tokens[:at]))
        return found

    def order(self, document: Document, name: Tokens) -> list[str | None]:
        """The names of the items of the list with this name, in order; [] if there is none.

        It caches by id what it finds: don't use it for documents that are being patched."""
        node: Any = document
        lists = self.lists
        for token in name:
            rule = lists.rule if isinstance(node, list) else None
            if rule is not None:
                items = self._items.get(id(node))
                if items is None:
                    items = self._items[id(node)] = {rule.address_of(each): each for each in node}
                node = items.get(token, ABSENT)
            else:
                node = find(node, (token,))
            lists = lists.below(token)
        rule = lists.rule
        if rule is None or not isinstance(node, list):
            return []
        return [self.item(rule, each) for each in node]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a patch reads and writes, as JSON Pointers. A pointer stands for the whole value at it,
    "" for everything.

    Items of lists are named by key or value (see `LocationNames`). `indexed` are the lists that
    the patch leads through by index. `a | b` is that of both, and so of many."""

    reads: frozenset[str] = _NOTHING
    writes: frozenset[str] = _NOTHING
    indexed: frozenset[str] = _NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.reads | other.reads, self.writes | other.writes, self.indexed | other.indexed
        )


def overlap(a: Footprint, b: Footprint) -> list[str]:
    """The pointers of `a` that meet with some of `b`, sorted; [] if the two are independent.

    Two pointers meet if they are equal or one lies below the other, unless both are only read. The
    cost is proportional to the text of the pointers times their depth, not to the product of the
    two sets."""
    touched = b.reads | b.writes
    met = set(_meeting(a.writes, touched))
    met.update(_meeting(a.reads, b.writes))
    return sorted(met)


def displaced(footprint: Footprint, base: Document, now: Document, lists: Lists) -> list[str]:
    """Of the lists that a patch with this footprint on `base` leads through by index, sorted: those
    in which an item of `base` has another index `now`. Items after those of `base` don't count."""
    names = LocationNames(lists)
    found = []
    for pointer in sorted(footprint.indexed):
        tokens = split_pointer(pointer)
        before, after = names.order(base, tokens), names.order(now, tokens)
        if after[: len(before)] != before:
            found.append(pointer)
    return found


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
    could_be_index = tokens[-1] == "-" or index_of(tokens[-1], 10**18) >= 0
    return _parent(path) if could_be_index else path


_KEYED_ITEMS_MAX = 256  # an address into a larger array reads all of it, not each item's keys


# They change what is there or, with `create_parents`, create it.
_UPSERTS: Final = (AddToSet, Increment, SetValue, Watermark, AppendText, StampCommit)
_ANY_COMMIT: Final = CommitStamp(0, 0, "")


class _Recorder:
    """The pointers that the operations so far read and write. A subclass knows how operations name
    their locations. `root` is the state that the next one meets; `ABSENT` if unknown."""

    def __init__(self, document: Document, lists: Lists) -> None:
        self.root = document
        self.lists = lists
        self.names = LocationNames(lists)
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.indexed: set[str] = set()

    def footprint(self) -> Footprint:
        return Footprint(frozenset(self.reads), frozenset(self.writes), frozenset(self.indexed))

    def pointer(self, tokens: Tokens) -> str:
        return join_pointer(self.names.of(self.root, tokens))


class _ByAddress(_Recorder):
    """Records an extended patch, whose addresses may lead through arrays by key."""

    def __init__(self, keyed: Lists, document: Document, lists: Lists) -> None:
        super().__init__(document, lists)
        self.lowering: Lowering | None = Lowering(
            document, keyed, DEFAULT_LIMITS, 0, lists, _ANY_COMMIT
        )
        self.locator = self.lowering.locator
        # by array: of how many items the keys are among the reads already
        self.noted: dict[Tokens, int] = {}

    def record(self, operation: ExtendedOperation) -> None:
        try:
            self.note(operation)
        except PatchError:  # two items with one key, or too much to look at
            self.lose_root()
            self.note(operation)
        if self.lowering:
            try:
                step(self.lowering, operation)
                self.root = self.lowering.root
            except PatchError:
                self.lose_root()

    def lose_root(self) -> None:
        self.lowering, self.root = None, ABSENT

    def note(self, operation: ExtendedOperation) -> None:
        if isinstance(operation, Predicate):
            for each in _leaves(operation):
                self.reads.add(self.value_at(each.tokens))
        elif isinstance(operation, Move | Copy):
            self.reads.add(self.value_at(operation.source_tokens))
            if isinstance(operation, Move):
                if operation.source_tokens == operation.tokens:
                    return
                source = self.to_item(operation.source_tokens)
                self.writes.add(self.added_or_removed(source, replaces=False))
            self.writes.add(self.added_or_removed(self.to_item(operation.tokens), replaces=True))
        else:
            self.note_change(operation)

    def note_change(self, operation: Change) -> None:
        address = self.to_item(operation.tokens)
        if isinstance(operation, Pull) or type(operation) is Replace:
            pointer = self.value_at(address)
        elif isinstance(operation, _UPSERTS):
            creates = operation.create_parents
            pointer = self.created(address) if creates else self.value_at(address)
        elif isinstance(operation, AddWithParents):
            pointer = self.created(address)
        else:
            pointer = self.added_or_removed(address, replaces=isinstance(operation, Add))
        member = self.member(operation)
        if member is not None:
            pointer = member
        self.writes.add(pointer)
        if isinstance(operation, (*_UPSERTS, Pull, AddWithParents)):
            self.reads.add(pointer)
        elif isinstance(operation, RemoveIfExists):
            self.reads.add(self.value_at(address))

    def to_item(self, address: Tokens) -> Tokens:
        """`address`, or the item's if it leads to the key of a list's item: with another key, it is
        another item."""
        for position in range(len(address) - 1) if self.lists else ():
            rule = self.lists.at(address[:position])
            if isinstance(rule, ArrayKeys) and rule.decided_by(address[position + 1 :]):
                return address[: position + 1]
        return address

    def member(self, operation: Change) -> str | None:
        """The pointer of the member that `operation` adds to or removes from a set, by value."""
        if isinstance(operation, AddToSet | Pull):
            address = operation.tokens
        elif isinstance(operation, Add | Replace) and operation.tokens:
            address = operation.tokens[:-1]
        else:
            return None
        rule = self.lists.at(address)
        if not isinstance(rule, ArraySet):
            return None
        if self.root is not ABSENT:
            place = self.locate(address)
            if place.known < len(address) or not isinstance(place.value, list):
                return None  # the operation creates the set
            address = self.names.of(self.root, place.tokens)
        if isinstance(operation, Replace):
            self.writes.add(self.value_at(operation.tokens))
        return join_pointer((*address, rule.address_of(operation.value)))

    def value_at(self, address: Tokens) -> str:
        """The pointer of the value at `address`, or of the first location that is missing."""
        if self.root is ABSENT:
            return self.unknown(address)
        place = self.locate(address)
        if place.known == len(address):
            return self.pointer(place.tokens)
        declared = self.lists.at(place.tokens)
        if isinstance(declared, ArraySet) or (place.keys and not declared):
            return self.pointer(place.tokens)
        name = self.names.of(self.root, place.tokens)
        return join_pointer((*name, address[place.known]))

    def added_or_removed(self, address: Tokens, *, replaces: bool) -> str:
        """The pointer that an addition or removal at `address` writes: an array as a whole.
        `replaces`: the item with that key is replaced, not removed."""
        if self.root is ABSENT:
            pointer = self.unknown(address)
            known = self.keyed_position(address)
            return written(pointer, address[:known], ABSENT) if known == len(address) else pointer
        place = self.locate(address)
        there = place.known == len(address)
        if self.lists and self.lists.at(place.tokens[:-1] if there else place.tokens):
            return self.value_at(address)  # the item alone: the others keep their names
        if place.keys:
            return self.pointer(place.tokens[:-1] if there and not replaces else place.tokens)
        tokens = place.tokens
        if not there:
            tokens += (address[place.known],)
        return written(self.pointer(tokens), tokens, self.root)

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
            declared = self.lists.at(address[:position]) if self.lists else None
            if isinstance(declared, ArraySet):
                self.indexed.add(self.pointer(place.tokens[:position]))
            if not keys or declared:
                continue
            array = place.tokens[:position]
            items = self.locator.find(self.root, address[:position])
            if not isinstance(items, list) or len(items) > _KEYED_ITEMS_MAX:
                self.reads.add(self.pointer(array))
                continue
            name = self.names.of(self.root, array)
            for index in range(self.noted.get(array, 0), len(items)):
                self.reads.update(join_pointer((*name, str(index), *path)) for path in keys.paths)
            self.noted[array] = max(len(items), self.noted.get(array, 0))
        return place

    def unknown(self, address: Tokens) -> str:
        """The pointer of `address` in an unknown document: it leads no further than the first keyed
        array on the way, which then counts as read, too."""
        position = self.keyed_position(address)
        pointer = join_pointer(address[:position])
        if position < len(address):
            self.reads.add(pointer)
        return pointer

    def keyed_position(self, address: Tokens) -> int:
        """How many tokens of `address` lead to the first array whose items have no names here: one
        that only the patch declares as keyed, or a set; all if there is none."""
        for position in range(len(address)):
            declared = self.lists.at(address[:position])
            own = self.locator.keyed.keys_at(address[:position]) and not declared
            if own or isinstance(declared, ArraySet):
                return position
        return len(address)


def _leaves(predicate: Predicate) -> Iterator[Predicate]:
    if not predicate.apply:
        yield predicate
    for each in predicate.apply:
        yield from _leaves(each)


def footprint(
    patch: Patch | ExtendedPatch | Operations, document: Document = ABSENT, lists: Lists = NO_LISTS
) -> Footprint:
    """Returns the pointers that `patch` reads and writes.

    It reads the paths of `test` and the sources of `copy` and `move`; it writes the paths of all
    operations but `test`, and the sources of `move`. Adding or removing an array item shifts its
    neighbours, so it counts as writing the whole array.

    The patch alone doesn't tell arrays from objects with members like "0". With the `document` that
    it is meant for, the footprint is exact: each operation is looked up in the state that the
    earlier ones leave. Without it, and after an operation that doesn't fit it, a last token that
    could be an array index (or "-") counts as one; that only ever names more.

    Applied to any document that has arrays and objects where `document` has them (any at all, if
    none was given), the patch changes nothing outside `writes`; and two patches that both apply to
    it and don't `overlap` give the same result in either order.

    In an extended patch, predicates read their paths, operations that depend on what is there read
    and write theirs, and `if_exists` reads its path. An address with keys reads the key members of
    the array it leads through, and writes its item, or the array if it adds or removes one; without
    a document it reads and writes the first keyed array on its way. What holds for any document of
    the same shape then holds for those that are equal wherever the patch reads.

    In `lists`, only the item itself is read or written, whatever is added or removed next to it,
    and "the same result" ignores the order of items. A patch that leads through one by index
    (`indexed`) keeps its meaning only if the items have kept their indexes: see `displaced`.

    Errors as `parse`, if `patch` isn't a `Patch` yet, and as `ExtendedPatch.under`."""
    if isinstance(patch, ExtendedPatch):
        if lists:
            patch = patch.under(lists)
        by_address = _ByAddress(patch.keyed, document, lists)
        for extended in patch.operations:
            by_address.record(extended)
        return by_address.footprint()
    by_index = _ByIndex(document, lists)
    for plain in (patch if isinstance(patch, Patch) else parse(patch)).operations:
        by_index.record(plain)
    return by_index.footprint()


class _Touch(NamedTuple):
    """A location that an operation reads or writes; `shifts`: it adds or removes a value there."""

    tokens: Tokens
    reads: bool
    writes: bool
    shifts: bool
    inserts: bool


def _touches(operation: Operation) -> list[_Touch]:
    tokens = operation.tokens
    if isinstance(operation, Test):
        return [_Touch(tokens, True, False, False, False)]
    if isinstance(operation, Replace):
        return [_Touch(tokens, False, True, False, False)]
    if isinstance(operation, Remove):
        return [_Touch(tokens, False, True, True, False)]
    target = _Touch(tokens, False, True, True, True)
    if isinstance(operation, Add):
        return [target]
    moves = isinstance(operation, Move)
    source = _Touch(operation.source_tokens, True, moves, moves, False)
    if moves and operation.source_tokens == tokens:
        return [source._replace(writes=False)]
    return [source, target]


class _ByIndex(_Recorder):
    """Records a plain patch, whose pointers lead through arrays by index."""

    def __init__(self, document: Document, lists: Lists) -> None:
        super().__init__(document, lists)
        self.run: PatchRun | None = PatchRun(document, DEFAULT_LIMITS, 0)
        self.appended: set[str] = set()  # lists that the patch has appended an item to

    def record(self, operation: Operation) -> None:
        for touch in _touches(operation):
            self.before(touch)
        if not self.run:
            return
        try:
            self.run.perform(operation)
        except PatchError:
            self.run, self.root = None, ABSENT
            return
        self.root = self.run.root
        if self.lists and not isinstance(operation, Test | Remove) and operation.tokens:
            self.after(operation.tokens)

    def before(self, touch: _Touch) -> None:
        tokens, root = touch.tokens, self.root
        if root is ABSENT:  # unknown: up to the first list, whose items can't be named
            at = next((n for n in range(len(tokens)) if self.lists.at(tokens[:n])), None)
            if at is not None:
                for each in (self.reads, self.writes, self.indexed):
                    each.add(join_pointer(tokens[:at]))
                return
        in_list = bool(tokens and self.lists.at(tokens[:-1]))
        self.lead_through(tokens, inserts=touch.inserts and in_list)
        if touch.reads:
            self.reads.add(self.pointer(tokens))
        if touch.inserts and in_list and root is not ABSENT:
            return  # what is inserted has a name only afterwards: see `after`
        if touch.writes:
            name = self.names.of(root, tokens, written=True)
            pointer = join_pointer(name)
            # A move out of an array may shift the array that holds its target, so that `root` shows
            # another container there; but then that array is written as a whole by its source.
            shifts = touch.shifts and not in_list and len(name) == len(tokens)
            self.writes.add(written(pointer, tokens, root) if shifts else pointer)

    def lead_through(self, tokens: Tokens, *, inserts: bool) -> None:
        """Notes the lists that `tokens` lead through by index, without the one it `inserts` in."""
        through = [join_pointer(name) for name in self.names.indexed(self.root, tokens)]
        if inserts and through:
            into = through.pop()
            if tokens[-1] == "-":
                self.appended.add(into)
        self.indexed.update(through)
        # Whether an index means an item that the patch appended depends on the list's length.
        self.reads.update(self.appended.intersection(through))

    def after(self, tokens: Tokens) -> None:
        root = self.root
        holder = find(root, tokens[:-1])
        if tokens[-1] == "-" and isinstance(holder, list):
            tokens = (*tokens[:-1], str(len(holder) - 1))
        if self.lists.at(tokens[:-1]) or not isinstance(holder, list):
            self.writes.add(join_pointer(self.names.of(root, tokens, written=True)))

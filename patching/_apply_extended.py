"""Applying an extended patch: each operation is *lowered* to RFC 6902 operations, in the state that
the earlier ones left, and these are performed.

Worked example. The document D is {"fields": [{"path": "a", "n": 1}], "tags": ["x"]}, /fields is
keyed by `path`. `increment /fields/a/n` becomes `replace /fields/0/n 2`; `add /fields/b {}` becomes
`add /fields/1 {"path": "b"}`; `add_to_set /tags "x"` and predicates become nothing. The performed
operations are the *effective* patch: plain, unconditional, and with the same result on D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from patching._apply import PatchRun
from patching._keyed import Locator, Place
from patching._predicates import Predicate, holds, is_number
from patching.errors import (
    DEFAULT_LIMITS,
    DocumentAbsent,
    Limits,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
)
from patching.extended import (
    AddToSet,
    AddWithParents,
    AppendText,
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
from patching.list_rules import NO_LISTS, ArrayKeys, Lists
from patching.operations import Add, Copy, Move, Operation, Remove, Replace, name_bytes
from patching.pointers import Tokens, find, join_pointer
from patching.values import (
    ABSENT,
    Document,
    Json,
    depth,
    described,
    encoded_bytes,
    equal,
    exceeds_bytes,
    shown,
)

Measured: TypeAlias = Add | Replace | AddToSet


class Lowering:
    """One extended patch being applied."""

    def __init__(
        self,
        document: Document,
        keyed: Lists,
        limits: Limits,
        document_bytes: int,
        declared: Lists = NO_LISTS,
        commit: CommitStamp | None = None,
    ) -> None:
        self.document = document
        self.commit = commit
        self.stamps: bool | None = None  # whether stamps take effect: decided at the first one
        self.application = PatchRun(document, limits, document_bytes)
        self.locator = Locator(keyed, limits, declared)
        self.keyed = keyed
        self.effective: list[dict[str, Json]] = []
        self.position = -1
        self.said: dict[str, str] = {}  # by resolved pointer: the pointer in the client's patch

    @property
    def root(self) -> Document:
        return self.application.root

    def find(self, address: Tokens) -> Document:
        return self.locator.find(self.root, address)

    def locate(self, address: Tokens) -> Place:
        return self.locator.locate(self.root, address)

    def lacks(self, place: Place, address: Tokens) -> bool:
        """Whether there is nothing at `address`, which leads to `place`."""
        return self.root is ABSENT or place.known < len(address)

    def existing(self, address: Tokens, path: str) -> Place:
        """Returns the place of a value that exists; otherwise raises what `missing` returns."""
        place = self.locate(address)
        if place.known < len(address):
            raise self.missing(place, address, path)
        return place

    def missing(self, place: Place, address: Tokens, path: str) -> PatchConflict:
        if place.keys and not isinstance(place.value, list):
            at = join_pointer(place.tokens)
            return PatchConflict(
                f"'{at[-200:]}' must be a keyed array, not {described(place.value)}"
            )
        return self.application.missing(place.tokens + address[place.known :], path)

    def perform(self, operation: Operation, said: str) -> None:
        """Performs and records a lowered operation; `said` is its path in the client's patch."""
        self.said[operation.path] = said
        tokens = operation.tokens
        shifts = bool(tokens) and isinstance(find(self.root, tokens[:-1]), list)
        self.application.check_depth(operation.depth, operation)
        self.application.position = self.position - 1  # `perform` adds 1
        self.application.perform(operation)
        self.effective.append(operation.to_json())
        self.locator.changed(operation, shifts=shifts and not isinstance(operation, Replace))

    def insert(self, tokens: Tokens, value: Json, said: str, given: Measured | None = None) -> None:
        """Adds `value` at resolved `tokens`. If it is the value of the operation `given`, it was
        measured when that was parsed."""
        if given is not None and given.value is value:
            growth_bytes, levels = given.growth_bytes, given.depth
        else:
            growth_bytes = encoded_bytes(value) + name_bytes(tokens)
            levels = len(tokens) + depth(value)
        self.perform(Add(join_pointer(tokens), tokens, value, growth_bytes, levels), said)

    def replace(self, place: Place, value: Json, said: str, given: Measured | None = None) -> None:
        """Puts `value` in the place of the present one, unless equal. `given` as in `insert`."""
        if equal(place.value, value):
            return
        tokens = place.tokens
        if given is not None and given.value is value:
            growth_bytes, levels = given.growth_bytes, given.depth
        else:
            growth_bytes, levels = encoded_bytes(value), len(tokens) + depth(value)
        self.perform(Replace(join_pointer(tokens), tokens, value, growth_bytes, levels), said)

    def remove(self, tokens: Tokens, said: str) -> None:
        self.perform(Remove(join_pointer(tokens), tokens), said)

    def take(self, place: Place, said: str) -> Json:
        """Removes and returns the value at `place`, for `put_moved`; doesn't record it."""
        tokens = place.tokens
        path = join_pointer(tokens)
        self.said[path] = said
        shifts = isinstance(find(self.root, tokens[:-1]), list)
        value = self.application.take(tokens, path)
        self.locator.changed(Remove(path, tokens), shifts=shifts)
        return value

    def put_moved(self, value: Json, operation: Move, said: str) -> None:
        """Adds the value that `take` removed at the target of `operation`; records both as one."""
        self.said[operation.path] = said
        tokens = operation.tokens
        shifts = bool(tokens) and isinstance(find(self.root, tokens[:-1]), list)
        self.application.position = self.position
        self.application.bytes_bound += operation.growth_bytes
        self.application.place_moved(value, operation)
        self.locator.changed(operation, shifts=shifts)
        if operation.source_tokens != tokens:
            self.effective.append(operation.to_json())

    def create(self, place: Place, address: Tokens, value: Json, said: str) -> None:
        """Adds `value` at `address`, with all missing parents: objects, or arrays with an item if
        the address has a key. Makes one operation, at the first missing location."""
        if self.root is ABSENT:
            self.insert((), self.nest(value, address, -1), said)
            return
        holder = place.value
        token = address[place.known]
        if isinstance(holder, list) and place.keys:
            token = str(len(holder))
        elif not isinstance(holder, dict) or place.keys:
            raise self.missing(place, address, said)
        whole = self.nest(value, address, place.known)
        self.insert((*place.tokens, token), whole, said)

    def nest(self, value: Json, address: Tokens, known: int) -> Json:
        """Wraps `value` in parents, one per token of `address` after the one at index `known`."""
        for position in range(len(address) - 1, known, -1):
            token = address[position]
            keys = self.keyed.keys_at(address[:position])
            if token == "-" and not keys:
                raise PatchConflict("the array to append to doesn't exist; '-' doesn't create it")
            value = [keys.filled(value, token)] if keys else {token: value}
        keys = self.keyed.keys_at(address[:known]) if known >= 0 else None
        return keys.filled(value, address[known]) if keys else value

    def recorded(self) -> list[dict[str, Json]]:
        """The effective patch; above `operations_max`, one that replaces the whole document."""
        if len(self.effective) <= self.application.limits.operations_max:
            return self.effective
        if self.root is ABSENT:
            return [{"op": "remove", "path": ""}]
        return [{"op": "add", "path": "", "value": self.root}]

    def require_found(self, address: Tokens) -> None:
        """Refuses an operation that has changed a key by which `address` names an item: sent again,
        it would write another item."""
        if self.locate(address).known < len(address):
            raise PatchConflict("this would change the key by which the path finds its item")

    def require_distinct(self, address: Tokens) -> None:
        """Refuses a write at `address` that has given two items one key."""
        for position, keys in enumerate(self.keyed.keys_along(address)):
            below = address[position + 1 :]
            if keys and (position == len(address) or (below and keys.decided_by(below))):
                self.locator.require_distinct(self.root, address[:position])


_INTEGER_MAX = 2**63 - 1
_INTEGER_MIN = -(2**63)

_BYTES_PER_ITEM = 64  # comparing this many bytes costs as much as examining one item
_CHARACTERS_PER_ITEM = 16  # likewise of a text that grows: it is copied, measured and recorded
_REMOVAL_BYTES = 30  # the size of a `remove` without its path


def _predicate(lowering: Lowering, predicate: Predicate) -> None:
    if holds(predicate, lowering.find, lowering.locator.charge):
        return
    expected = predicate.value if predicate.op == "test" else predicate.condition()
    actual = lowering.find(predicate.tokens)
    raise TestFailed(expected, actual, operation=lowering.position, pointer=predicate.path)


def _add(lowering: Lowering, add: Add) -> None:
    address = add.tokens
    place = lowering.locate(address)
    if address and (lowering.root is ABSENT or place.known < len(address) - 1):
        if not isinstance(add, AddWithParents):
            raise lowering.missing(place, address, add.path)
        lowering.create(place, address, add.value, add.path)
        return
    value = add.value
    present = place.value if place.known == len(address) else ABSENT
    if place.keys:
        value = place.keys.filled(value, address[-1], present)
    if present is not ABSENT and (place.keys or not _in_array(lowering, place.tokens)):
        lowering.replace(place, value, add.path, add)
    else:
        tokens, _, _ = _target(lowering, address, add.path)
        lowering.insert(tokens, value, add.path, add)


def _remove(lowering: Lowering, remove: Remove) -> None:
    place = lowering.locate(remove.tokens)
    missing = lowering.lacks(place, remove.tokens)
    if missing and isinstance(remove, RemoveIfExists):
        return
    if missing:
        raise lowering.missing(place, remove.tokens, remove.path)
    lowering.remove(place.tokens, remove.path)


def _replace(lowering: Lowering, replace: Replace) -> None:
    place = lowering.existing(replace.tokens, replace.path)
    value = replace.value
    if place.keys:
        value = place.keys.filled(value, replace.tokens[-1], place.value)
    lowering.replace(place, value, replace.path, replace)


def _move(lowering: Lowering, move: Move) -> None:
    source = lowering.existing(move.source_tokens, move.source)
    if move.source_tokens == move.tokens:  # changes nothing, but the source must exist
        return
    if source.keys and move.source_tokens[:-1] == move.tokens[:-1]:
        target = lowering.locate(move.tokens)
        if target.known < len(move.tokens):  # another key for the item: it stays where it is
            _rekey(lowering, source.tokens, source.keys, move.tokens[-1], move.path)
            return
    value = lowering.take(source, move.source)
    # only now: the target is looked up in the document that lacks the source (section 4.4)
    tokens, keys, replaces = _target(lowering, move.tokens, move.path)
    path = join_pointer(tokens)
    source_path = join_pointer(source.tokens)
    lowered = Move(source_path, source.tokens, path, tokens, name_bytes(tokens))
    lowering.put_moved(value, lowered, move.path)
    _settle(lowering, tokens, keys if replaces else None, move.path)
    if keys:
        _rekey(lowering, tokens, keys, move.tokens[-1], move.path)


def _copy(lowering: Lowering, copy: Copy) -> None:
    source = lowering.existing(copy.source_tokens, copy.source)
    tokens, keys, replaces = _target(lowering, copy.tokens, copy.path)
    if tokens == source.tokens and (replaces or not _in_array(lowering, tokens)):
        return
    source_path = join_pointer(source.tokens)
    path = join_pointer(tokens)
    lowering.said[source_path] = copy.source
    lowered = Copy(source_path, source.tokens, path, tokens, name_bytes(tokens))
    lowering.perform(lowered, copy.path)
    _settle(lowering, tokens, keys if replaces else None, copy.path)
    if keys:
        _rekey(lowering, tokens, keys, copy.tokens[-1], copy.path)


def _add_to_set(lowering: Lowering, add: AddToSet) -> None:
    place = lowering.locate(add.tokens)
    if lowering.lacks(place, add.tokens):
        _create_missing(lowering, place, add, [add.value])
        return
    items = _array(place.value, "add_to_set")
    lowering.locator.charge(_comparing(items, add.value, add.growth_bytes))
    if not any(equal(item, add.value) for item in items):
        lowering.insert((*place.tokens, str(len(items))), add.value, add.path, add)


def _pull(lowering: Lowering, pull: Pull) -> None:
    place = lowering.existing(pull.tokens, pull.path)
    items = _array(place.value, "pull")
    lowering.locator.charge(_comparing(items, pull.value, pull.size_bytes))
    kept = [item for item in items if not equal(item, pull.value)]
    count = len(items) - len(kept)
    if count == 0:
        return
    path = join_pointer(place.tokens)
    many = count > lowering.application.limits.operations_max
    if many or (count > 100 and not exceeds_bytes(kept, count * (len(path) + _REMOVAL_BYTES))):
        lowering.perform(Replace(path, place.tokens, kept, 0, 0), pull.path)
        return
    pulled = [index for index, item in enumerate(items) if equal(item, pull.value)]
    for index in reversed(pulled):
        lowering.remove((*place.tokens, str(index)), pull.path)


def _increment(lowering: Lowering, increment: Increment) -> None:
    place = lowering.locate(increment.tokens)
    if lowering.lacks(place, increment.tokens):
        if not increment.create_parents:
            raise lowering.missing(place, increment.tokens, increment.path)
        lowering.create(place, increment.tokens, _summed(0, increment.value), increment.path)
        return
    if not is_number(place.value):
        raise PatchConflict(f"only a number can be incremented, not {described(place.value)}")
    lowering.replace(place, _summed(place.value, increment.value), increment.path)


def _set(lowering: Lowering, operation: SetValue) -> None:
    _put(lowering, operation, operation.value, operation)


def _put(
    lowering: Lowering,
    operation: SetValue | StampCommit,
    value: Json,
    given: Measured | None = None,
) -> None:
    """Puts `value` at the address of `operation`, whether something is there or not."""
    address, path = operation.tokens, operation.path
    place = lowering.locate(address)
    if place.known == len(address) and lowering.root is not ABSENT:
        if place.keys:
            value = place.keys.filled(value, address[-1], place.value)
        lowering.replace(place, value, path, given)
    elif address and (lowering.root is ABSENT or place.known < len(address) - 1):
        if not operation.create_parents:
            raise lowering.missing(place, address, path)
        lowering.create(place, address, value, path)
    elif isinstance(place.value, list) and not place.keys:
        raise PathMissing(
            f"the array has no item {shown(address[-1])}; 'set' replaces items, 'add' inserts them"
        )
    else:
        lowering.create(place, address, value, path)


def _watermark(lowering: Lowering, mark: Watermark) -> None:
    place = lowering.locate(mark.tokens)
    if lowering.lacks(place, mark.tokens):
        _create_missing(lowering, place, mark, mark.value)
        return
    number: Any = place.value
    if not is_number(number):
        raise PatchConflict(f"'{mark.op}' needs a number, not {described(place.value)}")
    if mark.value > number if mark.op == "max" else mark.value < number:
        lowering.replace(place, mark.value, mark.path)


def _append_text(lowering: Lowering, append: AppendText) -> None:
    place = lowering.locate(append.tokens)
    missing = lowering.lacks(place, append.tokens)
    text = "" if missing else place.value
    if not isinstance(text, str):
        raise PatchConflict(f"'append_text' needs a string, not {described(text)}")
    lowering.locator.charge((len(text) + len(append.value)) // _CHARACTERS_PER_ITEM)
    if append.once and append.value in text and not missing:
        return
    whole = text + append.value
    if append.max_length is not None and len(whole) > append.max_length:
        raise PatchConflict(
            f"the text would have {len(whole)} characters, but 'max_length' is {append.max_length}"
        )
    if missing:
        _create_missing(lowering, place, append, whole)
    else:
        lowering.replace(place, whole, append.path)


def _create_missing(
    lowering: Lowering, place: Place, operation: AddToSet | Watermark | AppendText, value: Json
) -> None:
    if not operation.create_parents:
        raise lowering.missing(place, operation.tokens, operation.path)
    lowering.create(place, operation.tokens, value, operation.path)


def _stamp(lowering: Lowering, stamp: StampCommit) -> None:
    if lowering.stamps is None:
        lowering.stamps = not equal(lowering.document, lowering.root)
    if not lowering.stamps:
        return
    if lowering.commit is None:
        raise PatchConflict("'stamp' works only in a commit, and this patch isn't part of one")
    _put(lowering, stamp, lowering.commit.of(stamp.value))


def _summed(number: Any, value: int | float) -> int | float:
    try:
        total: int | float = number + value
    except OverflowError:  # an integer beyond all floats
        total = float("inf")
    fits = _INTEGER_MIN <= total <= _INTEGER_MAX if isinstance(total, int) else is_number(total)
    if not fits:
        raise PatchConflict(
            f"the sum of {shown(number)} and {shown(value)} doesn't fit into 64 bits"
        )
    return total


def _array(value: Document, op: str) -> list[Json]:
    if not isinstance(value, list):
        raise PatchConflict(f"'{op}' needs an array, not {described(value)}")
    return value


def _comparing(items: list[Any], value: Json, size_bytes: int) -> int:
    """The cost, in items, of comparing all `items` with `value`: low for other kinds and sizes."""
    alike = 0
    if isinstance(value, dict | list):
        kind, size = type(value), len(value)
        alike = sum(isinstance(item, kind) and len(item) == size for item in items)
    return len(items) + alike * (size_bytes // _BYTES_PER_ITEM)


def _in_array(lowering: Lowering, tokens: Tokens) -> bool:
    return bool(tokens) and isinstance(find(lowering.root, tokens[:-1]), list)


def _target(
    lowering: Lowering, address: Tokens, path: str
) -> tuple[Tokens, ArrayKeys | None, bool]:
    """Returns where a value added at `address` goes: the resolved tokens; the keys, if that is in a
    keyed array; and whether an item has this key already. Raises PathMissing without a parent."""
    place = lowering.locate(address)
    if place.known == len(address):
        return place.tokens, place.keys, place.keys is not None
    holder, token = place.value, address[-1]
    if isinstance(holder, list) and (place.keys or token in ("-", str(len(holder)))):
        token = str(len(holder))
    elif not isinstance(holder, dict) or place.keys:
        raise lowering.missing(place, address, path)
    if place.known < len(address) - 1:
        raise lowering.missing(place, address, path)
    return (*place.tokens, token), place.keys, False


def _settle(lowering: Lowering, tokens: Tokens, keys: ArrayKeys | None, said: str) -> None:
    """Removes the item that the one inserted at `tokens` replaces and has shifted by one."""
    if keys:
        lowering.remove((*tokens[:-1], str(int(tokens[-1]) + 1)), said)


def _rekey(lowering: Lowering, tokens: Tokens, keys: ArrayKeys, token: str, said: str) -> None:
    """Sets the key members of the item at `tokens` to the values in its new address `token`."""
    for path, part in zip(keys.paths, keys.parts(token), strict=True):
        node: Any = find(lowering.root, tokens)
        if keys.text_at(node, path) == part:
            continue
        known = 0
        while isinstance(node, dict) and known < len(path) - 1 and path[known] in node:
            node = node[path[known]]
            known += 1
        if not isinstance(node, dict):
            raise PatchConflict(
                f"an item of a keyed array must be an object, not {described(node)}"
            )
        value: Json = part
        for name in reversed(path[known + 1 :]):
            value = {name: value}
        lowering.insert((*tokens, *path[: known + 1]), value, said)


LOWER: Final[dict[type, Callable[[Lowering, Any], None]]] = {
    Predicate: _predicate,
    Add: _add,
    AddWithParents: _add,
    Remove: _remove,
    RemoveIfExists: _remove,
    Replace: _replace,
    Move: _move,
    Copy: _copy,
    AddToSet: _add_to_set,
    Pull: _pull,
    Increment: _increment,
    SetValue: _set,
    Watermark: _watermark,
    AppendText: _append_text,
    StampCommit: _stamp,
}


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of an extended patch on a document."""

    content: Document

    size_bytes: int
    """An upper bound of the size of `content` as compact JSON, for the next patch to it."""

    examined: int
    """How many array items were examined, as `items_examined_max` counts them."""

    effective: list[dict[str, Json]]
    """The RFC 6902 patch that makes `content` of the document, without tests and with indexes for
    keys. [] if no operation changed anything; `content` is then the document itself. The patch
    shares values with `content`; modify neither."""


def apply_extended(
    document: Document,
    patch: ExtendedPatch,
    *,
    limits: Limits = DEFAULT_LIMITS,
    document_bytes: int,
    lists: Lists = NO_LISTS,
    commit: CommitStamp | None = None,
) -> Extended:
    """Returns the document that `patch` makes of `document`, and the effective patch: all of the
    patch is applied, or none. `document` has at most `document_bytes` bytes as compact JSON.

    Items of `lists` are addressed by key, like those of the patch's own `array_primary_keys`;
    InvalidPatch if the two contradict each other. An address through a list that has two items with
    one key is a ListViolation; otherwise `Lists.require` has to check the result.

    Sharing, limits and the bound are those of `apply_within`; `items_examined_max` bounds the work.
    Writing a value equal to the present one changes nothing and isn't recorded. The effective patch
    has at most `operations_max` operations: if it needed more, it replaces the whole document.

    If there is no document (`ABSENT`), `add` and `set` at "" and `create_parents` make one.
    Predicates find nothing, so all but `undefined` (and `not`) fail; `if_exists` finds nothing to
    remove; stamps do nothing; any other operation raises DocumentAbsent.

    `commit` is what a `stamp` writes if the rest of the patch changes the document; PatchConflict
    if there is none.

    Raises TestFailed if a predicate is false: `expected` is the value of a `test`, or any other
    predicate as JSON without its path; `actual` is the value at its path. PathMissing.
    PatchConflict if a set operation finds no array, `increment`, `max` or `min` no number, or
    `append_text` no text; if a sum exceeds 64 bits or a text its `max_length`; and if a keyed array
    has two items with one key, even if this patch made the second. LimitExceeded. Pointers in
    errors are those of the patch."""
    if lists:
        patch = patch.under(lists)
    lowering = Lowering(document, patch.keyed, limits, document_bytes, lists, commit)
    try:
        for operation in patch.operations:
            step(lowering, operation)
        size_bytes = lowering.application.checked_bytes(document)
    except PatchError as error:
        error.examined = lowering.locator.examined
        raise
    return Extended(
        lowering.root if lowering.effective else document,
        size_bytes,
        lowering.locator.examined,
        lowering.recorded(),
    )


def step(lowering: Lowering, operation: ExtendedOperation) -> None:
    """Applies the next operation of a patch. Don't use `lowering` after an error."""
    lowering.position += 1
    lowering.said.clear()
    before = len(lowering.effective)
    try:
        if lowering.root is ABSENT and not _can_do_without(operation):
            raise DocumentAbsent(
                "there is no document; create it with 'add' or 'set' at \"\", or by create_parents"
            )
        LOWER[type(operation)](lowering, operation)
        if lowering.keyed and len(lowering.effective) > before:
            lowering.require_distinct(operation.tokens)
            if isinstance(operation, SetValue | Watermark | AppendText | StampCommit):
                lowering.require_found(operation.tokens)
    except PatchError as error:
        error.operation = lowering.position
        pointer = error.pointer
        error.pointer = operation.path if pointer is None else lowering.said.get(pointer, pointer)
        raise


def _can_do_without(operation: ExtendedOperation) -> bool:
    """Whether `operation` makes sense if there is no document."""
    if isinstance(operation, SetValue) and not operation.tokens:
        return True
    if isinstance(operation, AddToSet | Increment | SetValue | Watermark | AppendText):
        return operation.create_parents
    if isinstance(operation, Add) and not operation.tokens:
        return True
    return isinstance(operation, Predicate | AddWithParents | RemoveIfExists | StampCommit)

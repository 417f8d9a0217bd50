"""JSON Patch (RFC 6902) as data: parsing a decoded JSON value into operations.

Each member is checked as it is read, and each error names the member at fault. The parsers of
extended patches use the same functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from patching.errors import DEFAULT_LIMITS, InvalidPatch, LimitExceeded, Limits
from patching.pointers import Tokens, split_pointer
from patching.values import Json, depth, encoded_bytes, shown

if TYPE_CHECKING:
    from jsonpatch import JsonPatch

# Comparison by identity (eq=False): Python would take Test("/a", 1) for Test("/a", True).


class _Operation(msgspec.Struct, frozen=True, eq=False):
    op: ClassVar[str]

    path: str
    tokens: Tokens


class _WithValue(_Operation, frozen=True, eq=False):
    """`growth_bytes` bounds what the operation adds to the document as compact JSON; `depth` is
    the nesting, counted from the root, of what it inserts."""

    value: Json
    growth_bytes: int = 0
    depth: int = 0

    def to_json(self) -> dict[str, Json]:
        return {"op": self.op, "path": self.path, "value": self.value}


class Add(_WithValue, frozen=True, eq=False):
    op = "add"


class Replace(_WithValue, frozen=True, eq=False):
    op = "replace"


class Test(_WithValue, frozen=True, eq=False):
    __test__ = False  # no test class, whatever pytest thinks of the name
    op = "test"


class Remove(_Operation, frozen=True, eq=False):
    op = "remove"

    growth_bytes: int = 0
    depth: int = 0

    def to_json(self) -> dict[str, Json]:
        return {"op": self.op, "path": self.path}


class _FromSource(msgspec.Struct, frozen=True, eq=False):
    """`source` is the member `from`, a keyword in Python. `growth_bytes` leaves out the copied
    value, whose size depends on the document."""

    op: ClassVar[str]

    source: str
    source_tokens: Tokens
    path: str
    tokens: Tokens
    growth_bytes: int
    depth: int = 0

    def to_json(self) -> dict[str, Json]:
        return {"op": self.op, "from": self.source, "path": self.path}


class Move(_FromSource, frozen=True, eq=False):
    op = "move"


class Copy(_FromSource, frozen=True, eq=False):
    op = "copy"


Operation: TypeAlias = Add | Remove | Replace | Move | Copy | Test
Operations: TypeAlias = "list[Any] | JsonPatch"
"""A patch that isn't parsed yet."""


class Patch(msgspec.Struct, frozen=True, eq=False):
    """A well-formed patch: operations in the order they apply. Made by `parse`.

    It shares the values of the JSON it was parsed from; neither may be modified afterwards."""

    operations: tuple[Operation, ...]

    growth_bytes: int
    """An upper bound of the bytes that the operations add to a document as compact JSON, without
    what `copy` copies. 0: the patch can't make a document larger, unless it copies."""

    depth: int
    """The nesting of the deepest value that `add` and `replace` insert, counted from the root."""

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def to_json(self) -> list[dict[str, Json]]:
        """The patch as decoded JSON, without members that RFC 6902 doesn't define. The values are
        the patch's own, not copies."""
        return [operation.to_json() for operation in self.operations]

    def without_tests(self) -> Patch:
        """The patch without its tests: what is recorded once they have passed."""
        if Test not in map(type, self.operations):
            return self
        effective = tuple(each for each in self.operations if not isinstance(each, Test))
        return Patch(effective, self.growth_bytes, self.depth)


def as_operations(patch: object) -> Any:
    """The operations of a `jsonpatch.JsonPatch`; anything else unchanged."""
    # Not imported here: a caller that has such a patch has imported it.
    jsonpatch = sys.modules.get("jsonpatch")
    if jsonpatch is None or not isinstance(patch, jsonpatch.JsonPatch):
        return patch
    operations: list[Any] = patch.patch
    return operations


def parse(patch: object, *, limits: Limits = DEFAULT_LIMITS) -> Patch:
    """Parses `patch`, a decoded JSON value or a `jsonpatch.JsonPatch`, as RFC 6902 defines it.

    Members that an operation doesn't define are ignored (section 4); missing ones are never filled
    in. A `move` into its own child is refused here: it fits no document (section 4.4).

    Raises InvalidPatch with code `invalid_patch`, `unknown_operation` or `invalid_pointer`, the
    index of the operation and the member at fault. LimitExceeded over `operations_max`, or if a
    pointer, or a value at its pointer, reaches deeper into the document than `depth_max`."""
    if not isinstance(patch, list):
        patch = as_operations(patch)
    if not isinstance(patch, list):
        raise InvalidPatch(f"a patch must be an array of operations, not {shown(as_json(patch))}")
    if len(patch) > limits.operations_max:
        raise LimitExceeded("operations_max", limits.operations_max, len(patch))
    operations = []
    growth_bytes = deepest = 0
    for position, members in enumerate(patch):
        if not isinstance(members, dict):
            raise InvalidPatch(
                f"an operation must be an object, not {shown(as_json(members))}", operation=position
            )
        name = members.get("op")
        parser = PARSERS.get(name) if isinstance(name, str) else None
        if parser is None:
            raise unknown_operation(members, position, PARSERS)
        operation = parser(members, position, limits)
        growth_bytes += operation.growth_bytes
        deepest = max(deepest, operation.depth)
        operations.append(operation)
    return Patch(tuple(operations), growth_bytes, deepest)


def _add(members: dict[str, Any], position: int, limits: Limits) -> Add:
    path, tokens = pointer_of(members, "path", position, limits)
    value = value_of(members, position)
    levels = nested(value, path, tokens, position, limits)
    return Add(path, tokens, value, encoded_bytes(value) + name_bytes(tokens), levels)


def _remove(members: dict[str, Any], position: int, limits: Limits) -> Remove:
    return Remove(*pointer_of(members, "path", position, limits))


def _replace(members: dict[str, Any], position: int, limits: Limits) -> Replace:
    path, tokens = pointer_of(members, "path", position, limits)
    value = value_of(members, position)
    levels = nested(value, path, tokens, position, limits)
    return Replace(path, tokens, value, encoded_bytes(value), levels)


def _move(members: dict[str, Any], position: int, limits: Limits) -> Move:
    path, tokens = pointer_of(members, "path", position, limits)
    source, source_tokens = pointer_of(members, "from", position, limits)
    if len(source_tokens) < len(tokens) and tokens[: len(source_tokens)] == source_tokens:
        raise InvalidPatch(
            f"{shown(source)} can't be moved into itself, to {shown(path)}",
            operation=position,
            pointer=path,
            member="path",
        )
    return Move(source, source_tokens, path, tokens, name_bytes(tokens))


def _copy(members: dict[str, Any], position: int, limits: Limits) -> Copy:
    path, tokens = pointer_of(members, "path", position, limits)
    source, source_tokens = pointer_of(members, "from", position, limits)
    return Copy(source, source_tokens, path, tokens, name_bytes(tokens))


def _test(members: dict[str, Any], position: int, limits: Limits) -> Test:
    path, tokens = pointer_of(members, "path", position, limits)
    value = value_of(members, position)
    nested(value, path, tokens, position, limits)
    return Test(path, tokens, value)


PARSERS: Final[dict[str, Callable[[dict[str, Any], int, Limits], Operation]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def pointer_of(
    members: dict[str, Any], member: str, position: int, limits: Limits
) -> tuple[str, Tokens]:
    """The pointer under `member`, and its tokens. Raises InvalidPatch if it is none, LimitExceeded
    if it is too deep."""
    pointer = members.get(member)
    if not isinstance(pointer, str):
        said = f"must be a string, not {shown(as_json(pointer))}"
        raise InvalidPatch(
            f"the member '{member}' {said if member in members else 'is missing'}",
            operation=position,
            member=member,
        )
    try:
        tokens = split_pointer(pointer)
    except InvalidPatch as error:
        error.operation = position
        error.member = member
        raise
    if len(tokens) > limits.depth_max:
        raise LimitExceeded(
            "depth_max", limits.depth_max, len(tokens), operation=position, pointer=pointer
        )
    return pointer, tokens


def value_of(members: dict[str, Any], position: int) -> Json:
    """The member 'value'. Raises InvalidPatch if it is missing."""
    try:
        value: Json = members["value"]
    except KeyError:
        raise InvalidPatch(
            "the member 'value' is missing",
            operation=position,
            pointer=members["path"],
            member="value",
        ) from None
    return value


def nested(value: Json, path: str, tokens: Tokens, position: int, limits: Limits) -> int:
    """How deep `value` reaches at `tokens`, from the root. LimitExceeded over `depth_max`."""
    levels = len(tokens)
    if isinstance(value, (dict, list)):
        levels += depth(value)
    if levels > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, levels, operation=position, pointer=path)
    return levels


def name_bytes(tokens: Tokens) -> int:
    """The bytes of a new member besides its value: name, colon and comma."""
    return encoded_bytes(tokens[-1]) + 2 if tokens else 0


def flag(members: dict[str, Any], member: str, position: int) -> bool:
    """The boolean option `member`, false if left out. Raises InvalidPatch if it isn't a boolean."""
    given = members.get(member, False)
    if not isinstance(given, bool):
        raise InvalidPatch(
            f"the member '{member}' must be true or false, not {shown(as_json(given))}",
            operation=position,
            pointer=members.get("path"),
            member=member,
        )
    return given


def unknown_operation(members: dict[str, Any], position: int, known: Iterable[str]) -> InvalidPatch:
    """The error for an operation whose 'op' is missing, no text, or none of the `known` ones."""
    if "op" not in members:
        return InvalidPatch("the member 'op' is missing", operation=position, member="op")
    name = members["op"]
    if not isinstance(name, str):
        return InvalidPatch(
            f"the member 'op' must be a string, not {shown(as_json(name))}",
            operation=position,
            member="op",
        )
    return InvalidPatch(
        f"unknown operation {shown(name)}; known operations: {', '.join(known)}",
        code="unknown_operation",
        operation=position,
        member="op",
    )


def as_json(value: object) -> Json:
    """`value` if its type is one of JSON's, else the name of its type; for messages."""
    if value is None or isinstance(value, dict | list | str | int | float):
        return value
    return type(value).__name__

"""Arrays whose items are addressed by the values of their key members instead of their index, and
finding in a document, at a bounded cost, what such an address points at.

Worked example. With {"/fields": ["path"], "/fields/*/tags": ["scheme", "tag"]} the address
"/fields/user.name/tags/pii␟high/by" means: of the array at /fields the item whose `path` is
"user.name"; in it, of the array `tags` the item whose `scheme` is "pii" and whose `tag` is "high";
and there the member `by`. "*" stands for any one token. Which tokens of an address are keys depends
on the address alone, not on the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from patching._errors import InvalidPatch, LimitExceeded, Limits, PatchConflict
from patching._json import ABSENT, Document, Json, described, encoded_bytes, shown
from patching._operations import Add, Operation, Remove, Replace, as_json
from patching._pointer import Tokens, find, index_of, join_pointer, split_pointer

SEPARATOR: Final = "␟"  # U+241F, between the values of a composite key

_ARRAYS_MAX = 100  # each is compared with each prefix of each address
_INTEGRAL_MAX = 2.0**63  # floats up to here are taken for the integers they are equal to

_MEMBER: Final = "array_primary_keys"


class ArrayKeys(msgspec.Struct, frozen=True, eq=False):
    """The key members of one array's items, as given ("a/b" is `b` in `a`) and as tokens."""

    members: tuple[str, ...]
    paths: tuple[Tokens, ...]

    def address_of(self, item: Json) -> str | None:
        """The token that addresses `item`; None where a key member is missing or a container."""
        texts = [_text(find(item, path)) for path in self.paths]
        return None if None in texts else SEPARATOR.join(texts)  # type: ignore[arg-type]

    def text_at(self, item: Document, path: Tokens) -> str | None:
        """How the key at `path` of `item` is written in an address; None where it can't be."""
        return _text(find(item, path))

    def parts(self, token: str) -> list[str]:
        """The text of each key in the address `token`.

        InvalidPatch where a composite key has another number of parts than there are members."""
        if len(self.paths) == 1:
            return [token]
        parts = token.split(SEPARATOR)
        if len(parts) != len(self.paths):
            raise InvalidPatch(
                f"the address {shown(token)} has {len(parts)} of the {len(self.paths)} key values "
                f"{', '.join(self.members)}, joined by '{SEPARATOR}'"
            )
        return parts

    def check(self, value: Json, token: str) -> None:
        """InvalidPatch where `value` can't be the item at `token`: it is no object, or it has a key
        of another value."""
        if not isinstance(value, dict):
            raise InvalidPatch(
                f"an item of a keyed array is an object, not {shown(value)}", member="value"
            )
        for member, path, part in zip(self.members, self.paths, self.parts(token), strict=True):
            own = _nearest(value, path)
            if own is not ABSENT and _text(own) != part:
                raise InvalidPatch(
                    f"the address says that '{member}' is {shown(part)}, the value says "
                    f"{shown(own)}",
                    member="value",
                )

    def filled(self, value: Json, token: str, present: Document = ABSENT) -> dict[str, Any]:
        """`value` with the key members that it lacks: those of the item that is there now
        (`present`), else the text of the address. A value that needs nothing is returned itself.

        PatchConflict where `value` is no object."""
        if not isinstance(value, dict):
            raise PatchConflict(f"an item of a keyed array is an object, not {described(value)}")
        for path, part in zip(self.paths, self.parts(token), strict=True):
            if find(value, path) is ABSENT:
                own = find(present, path)
                value = _with(value, path, part if own is ABSENT else own)
        return value

    def decided_by(self, below: Tokens) -> bool:
        """Whether writing at `below`, tokens from an item on, can change the item's address."""
        return any(path[: len(below)] == below[: len(path)] for path in self.paths)


class KeyedArrays(msgspec.Struct, frozen=True, eq=False):
    """`array_primary_keys`, parsed: by number of tokens, literal tokens before "*"."""

    by_length: dict[int, tuple[tuple[Tokens, ArrayKeys], ...]]
    given: dict[str, list[str]]

    def at(self, address: Tokens) -> ArrayKeys | None:
        """The keys of the array at `address`, if it is a keyed one."""
        for pattern, keys in self.by_length.get(len(address), ()):
            if all(own in ("*", token) for own, token in zip(pattern, address, strict=True)):
                return keys
        return None

    def check(self, address: Tokens) -> None:
        """InvalidPatch where a composite key in `address` lacks parts."""
        for position, token in enumerate(address) if self.by_length else ():
            keys = self.at(address[:position])
            if keys:
                keys.parts(token)


UNKEYED: Final = KeyedArrays({}, {})


def parse_keyed(value: object, limits: Limits) -> KeyedArrays:
    """Parses `array_primary_keys`: pointers to arrays, each with the key members of its items.

    InvalidPatch, with the pointer, for all that is not of this form; LimitExceeded where a pointer
    is deeper than `depth_max`."""
    if not isinstance(value, dict):
        raise _refused(f"an object of pointers is needed, not {shown(as_json(value))}", None)
    if len(value) > _ARRAYS_MAX:
        raise _refused(f"{len(value)} keyed arrays are more than {_ARRAYS_MAX}", None)
    by_length: dict[int, list[tuple[Tokens, ArrayKeys]]] = {}
    for pointer, members in value.items():
        try:
            tokens = split_pointer(pointer)
        except InvalidPatch as error:
            error.member = _MEMBER
            raise
        if len(tokens) >= limits.depth_max:
            raise _refused(f"the pointer has over {limits.depth_max} tokens", pointer)
        by_length.setdefault(len(tokens), []).append((tokens, _keys(members, pointer)))
    for rules in by_length.values():
        rules.sort(key=lambda rule: [token == "*" for token in rule[0]])
    return KeyedArrays({length: tuple(rules) for length, rules in by_length.items()}, value)


def _keys(members: object, pointer: str) -> ArrayKeys:
    if not isinstance(members, list) or not members:
        raise _refused(
            f"an array of member names is needed, not {shown(as_json(members))}", pointer
        )
    paths: list[Tokens] = []
    for member in members:
        if not isinstance(member, str) or not member or member.startswith("/"):
            raise _refused(
                f"a key is a member name or a pointer without leading '/', not "
                f"{shown(as_json(member))}",
                pointer,
            )
        try:
            path = split_pointer("/" + member)
        except InvalidPatch as error:
            raise _refused(error.detail, pointer) from None
        if any(path[: len(other)] == other[: len(path)] for other in paths):
            raise _refused(f"the key {shown(member)} is, or lies in, another key", pointer)
        paths.append(path)
    return ArrayKeys(tuple(members), tuple(paths))


def _refused(detail: str, pointer: str | None) -> InvalidPatch:
    return InvalidPatch(f"'{_MEMBER}': {detail}", pointer=pointer, member=_MEMBER)


def _text(key: Document) -> str | None:
    """How a key value is written in an address: strings as they are, other scalars as compact JSON,
    numbers that are equal alike. None for what can't be a key."""
    if isinstance(key, str):
        return key
    if isinstance(key, float) and key.is_integer() and abs(key) <= _INTEGRAL_MAX:
        return str(int(key))
    if key is None or isinstance(key, int | float):
        return msgspec.json.encode(key).decode() if encoded_bytes(key) < 32 else None
    return None


def _nearest(value: Json, path: Tokens) -> Document:
    """The value at `path`, or the first value on the way that isn't an object."""
    node: Document = value
    for token in path:
        if not isinstance(node, dict):
            return [node] if node is not ABSENT else ABSENT
        node = node.get(token, ABSENT)
    return node


def _with(value: dict[str, Any], path: Tokens, leaf: Json) -> dict[str, Any]:
    """A copy of `value` with `leaf` at `path`, whose missing parents are made; new members first,
    as people write keys."""
    inner = _with(value.get(path[0], {}), path[1:], leaf) if len(path) > 1 else leaf
    return {path[0]: inner} | value | {path[0]: inner}


@dataclass(frozen=True, slots=True)
class Place:
    """How far an address leads. Its first `known` tokens exist: with indexes for keys they are
    `tokens`, and `value` is what is there. `keys` are those of the array that the first missing
    token, or else the last one, is an item of; None where it is no item of a keyed array."""

    tokens: Tokens
    known: int
    value: Document
    keys: ArrayKeys | None


class Locator:
    """Looks up addresses in the successive states of one document.

    Where the items of a keyed array are is worked out once and kept up to date by `changed`."""

    def __init__(self, keyed: KeyedArrays, limits: Limits) -> None:
        self.keyed = keyed
        self.limits = limits
        self.examined = 0
        # per keyed array looked into: the index of each key, and the number of items
        self.indexes: dict[Tokens, tuple[dict[str, int], int, ArrayKeys]] = {}

    def charge(self, items: int) -> None:
        """Counts `items` as examined; LimitExceeded over `items_examined_max`."""
        self.examined += items
        if self.examined > self.limits.items_examined_max:
            raise LimitExceeded("items_examined_max", self.limits.items_examined_max, self.examined)

    def find(self, root: Document, address: Tokens) -> Document:
        """The value at `address`, or `ABSENT`. Raises as `locate`."""
        if not self.keyed.by_length:
            return find(root, address)
        place = self.locate(root, address)
        return place.value if place.known == len(address) else ABSENT

    def locate(self, root: Document, address: Tokens) -> Place:
        """Follows `address` as far as it exists.

        PatchConflict where two items of a keyed array on the way have one key; LimitExceeded."""
        node: Any = root
        tokens: list[str] = []
        keys = None
        for known, token in enumerate(address):
            keys = self.keyed.at(address[:known])
            key: Any = token
            if keys:
                key = self._index(node, tuple(tokens), keys).get(token, -1)
                child = node[key] if key >= 0 else ABSENT
            elif isinstance(node, dict):
                child = node.get(token, ABSENT)
            else:
                key = index_of(token, len(node)) if isinstance(node, list) else -1
                child = node[key] if key >= 0 else ABSENT
            if child is ABSENT:
                return Place(tuple(tokens), known, node, keys)
            tokens.append(str(key))
            node = child
        return Place(tuple(tokens), len(address), node, keys)

    def require_distinct(self, root: Document, address: Tokens) -> None:
        """PatchConflict where the keyed array at `address` has two items with one key."""
        keys = self.keyed.at(address)
        place = self.locate(root, address)
        if keys and place.known == len(address):
            self._index(place.value, place.tokens, keys)

    def _index(self, array: Document, tokens: Tokens, keys: ArrayKeys) -> dict[str, int]:
        if not isinstance(array, list):
            return {}  # nothing can be addressed in it
        present = self.indexes.get(tokens)
        if present:
            return present[0]
        self.charge(len(array) * len(keys.paths))
        positions: dict[str, int] = {}
        for index, item in enumerate(array):
            key = keys.address_of(item)
            if key is None:
                continue
            if key in positions:
                raise PatchConflict(
                    f"items {positions[key]} and {index} of the keyed array "
                    f"{shown(join_pointer(tokens))} have the same key {shown(key)}"
                )
            positions[key] = index
        self.indexes[tokens] = positions, len(array), keys
        return positions

    def changed(self, operation: Operation, *, shifts: bool) -> None:
        """Brings the indexes up to date after `operation`, whose paths hold indexes for keys.
        `shifts`: it added or removed an array item."""
        tokens = operation.tokens
        array = tokens[:-1]
        for own in list(self.indexes):
            if shifts and tokens and array == own:
                self._shifted(own, operation)
            elif tokens == own[: len(tokens)] or (shifts and array == own[: len(array)]):
                del self.indexes[own]
            elif own == tokens[: len(own)]:
                keys = self.indexes[own][2]
                below = tokens[len(own) + 1 :]
                if below and keys.decided_by(below):
                    del self.indexes[own]
                elif not below:
                    self._replaced(own, operation)

    def _shifted(self, array: Tokens, operation: Operation) -> None:
        positions, size, keys = self.indexes.pop(array)
        index = int(operation.tokens[-1])
        if isinstance(operation, Remove):
            self.charge(1 + size // 8)
            kept = {key: at - (at > index) for key, at in positions.items() if at != index}
            self.indexes[array] = kept, size - 1, keys
        elif isinstance(operation, Add) and index == size:
            key = keys.address_of(operation.value)
            if key is None or positions.setdefault(key, index) == index:
                self.indexes[array] = positions, size + 1, keys

    def _replaced(self, array: Tokens, operation: Operation) -> None:
        positions, _, keys = self.indexes[array]
        key = keys.address_of(operation.value) if isinstance(operation, Replace) else None
        if key is None or positions.get(key) != int(operation.tokens[-1]):
            del self.indexes[array]

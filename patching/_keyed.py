"""Finding, at a bounded cost, the value at an address, in which items of lists are named by key
instead of by index.

Worked example. With {"/fields": ["path"], "/fields/*/tags": ["scheme", "tag"]} the address
"/fields/user.name/tags/pii␟high/by" means: of the array at /fields the item whose `path` is
"user.name"; in it, of the array `tags` the item whose `scheme` is "pii" and whose `tag` is "high";
and there the member `by`. "*" stands for any one token. Which tokens of an address are keys depends
on the address alone, not on the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patching.errors import LimitExceeded, Limits, PatchConflict
from patching.list_rules import NO_LISTS, ArrayKeys, Lists, require_distinct
from patching.operations import Add, Operation, Remove, Replace
from patching.pointers import Tokens, find, index_of, join_pointer
from patching.values import ABSENT, Document, shown


@dataclass(frozen=True, slots=True)
class Place:
    """How far an address leads. Its first `known` tokens exist; `tokens` are these with indexes for
    keys, and `value` is the value there. `keys` are the key members of the array to which the first
    missing token belongs, or else the last token; None if it isn't an item of a keyed array."""

    tokens: Tokens
    known: int
    value: Document
    keys: ArrayKeys | None


class Locator:
    """Looks up addresses in the successive states of one document.

    It indexes the items of a keyed array once, and `changed` keeps the index up to date."""

    def __init__(self, keyed: Lists, limits: Limits, declared: Lists = NO_LISTS) -> None:
        """`declared`: the rules of `keyed` that the catalog declares, not the patch alone."""
        self.keyed = keyed
        self.declared = declared
        self.limits = limits
        self.examined = 0
        # by keyed array: the index of each key, the number of items, the key members
        self.indexes: dict[Tokens, tuple[dict[str, int], int, ArrayKeys]] = {}

    def charge(self, items: int) -> None:
        """Counts `items` as examined. Raises LimitExceeded over `items_examined_max`."""
        self.examined += items
        if self.examined > self.limits.items_examined_max:
            raise LimitExceeded("items_examined_max", self.limits.items_examined_max, self.examined)

    def find(self, root: Document, address: Tokens) -> Document:
        """The value at `address`, or `ABSENT`. Raises as `locate`."""
        if not self.keyed:
            return find(root, address)
        place = self.locate(root, address)
        return place.value if place.known == len(address) else ABSENT

    def locate(self, root: Document, address: Tokens) -> Place:
        """Follows `address` as far as it exists.

        Raises PatchConflict if two items of a keyed array on the way have one key (ListViolation if
        it is a declared list); LimitExceeded."""
        node: Any = root
        tokens: list[str] = []
        keys = None
        steps = zip(self.keyed.keys_along(address), address, strict=False)
        for known, (keys, token) in enumerate(steps):
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
        """Raises PatchConflict if the keyed array at `address` has two items with one key. A
        declared list may have them until the patch ends."""
        keys = None if self.declared.at(address) else self.keyed.keys_at(address)
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
            if key in positions and self.declared.at(tokens):
                require_distinct(array, tokens, keys)
            if key in positions:
                raise PatchConflict(
                    f"items {positions[key]} and {index} of the keyed array "
                    f"{shown(join_pointer(tokens))} have the same key {shown(key)}"
                )
            positions[key] = index
        self.indexes[tokens] = positions, len(array), keys
        return positions

    def changed(self, operation: Operation, *, shifts: bool) -> None:
        """Brings the indexes up to date after `operation`, whose paths have indexes instead of
        keys. `shifts`: it added or removed an array item."""
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

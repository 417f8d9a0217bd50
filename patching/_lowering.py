"""Applying an extended patch: each operation is lowered, in the state that those before it left, to
RFC 6902 operations, and these are performed.

Worked example. The document D is {"fields": [{"path": "a", "n": 1}], "tags": ["x"]}, /fields is
keyed by `path`. `increment /fields/a/n` becomes `replace /fields/0/n 2`; `add /fields/b {}` becomes
`add /fields/1 {"path": "b"}`; `add_to_set /tags "x"` and predicates become nothing. What was
performed is the *effective* patch: plain, unconditional, and on D it makes the same document.
"""

from __future__ import annotations

from typing import TypeAlias

from ._apply import Application
from ._equality import equal
from ._errors import PatchConflict
from ._extended import AddToSet
from ._json import ABSENT, Document, Json, depth, described, encoded_bytes
from ._keyed import KeyedArrays
from ._limits import Limits
from ._locate import Locator, Place
from ._members import name_bytes
from ._operations import Add, Move, Operation, Remove, Replace
from ._pointer import Tokens, find, join_pointer

Measured: TypeAlias = Add | Replace | AddToSet


class Lowering:
    """One extended patch being applied."""

    def __init__(
        self, document: Document, keyed: KeyedArrays, limits: Limits, document_bytes: int
    ) -> None:
        self.application = Application(document, limits, document_bytes)
        self.locator = Locator(keyed, limits)
        self.keyed = keyed
        self.effective: list[dict[str, Json]] = []
        self.position = -1
        self.said: dict[str, str] = {}  # resolved pointers, as the client's

    @property
    def root(self) -> Document:
        return self.application.root

    def find(self, address: Tokens) -> Document:
        return self.locator.find(self.root, address)

    def locate(self, address: Tokens) -> Place:
        return self.locator.locate(self.root, address)

    def existing(self, address: Tokens, path: str) -> Place:
        """The place of something that exists; else PathMissing."""
        place = self.locate(address)
        if place.known < len(address):
            raise self.missing(place, address, path)
        return place

    def missing(self, place: Place, address: Tokens, path: str) -> PatchConflict:
        if place.keys and not isinstance(place.value, list):
            at = join_pointer(place.tokens)
            return PatchConflict(
                f"'{at[-200:]}' is a keyed array to this patch, but {described(place.value)}"
            )
        return self.application.missing(place.tokens + address[place.known :], path)

    def perform(self, operation: Operation, said: str) -> None:
        """Performs and records a lowered operation; `said` is its path in the client's patch."""
        self.said[operation.path] = said
        tokens = operation.tokens
        shifts = bool(tokens) and isinstance(find(self.root, tokens[:-1]), list)
        self.application.check_depth(operation.depth, operation)
        self.application.position = self.position - 1  # it counts what it performs
        self.application.perform(operation)
        self.effective.append(operation.to_json())
        self.locator.changed(operation, shifts=shifts and not isinstance(operation, Replace))

    def insert(self, tokens: Tokens, value: Json, said: str, given: Measured | None = None) -> None:
        """Adds `value` at resolved `tokens`. `given`: the operation whose value it may be, which
        then needs no measuring."""
        if given is not None and given.value is value:
            growth_bytes, levels = given.growth_bytes, given.depth
        else:
            growth_bytes = encoded_bytes(value) + name_bytes(tokens)
            levels = len(tokens) + depth(value)
        self.perform(Add(join_pointer(tokens), tokens, value, growth_bytes, levels), said)

    def replace(self, place: Place, value: Json, said: str, given: Measured | None = None) -> None:
        """Puts `value` in the place of what is there, unless it is equal. `given` as `insert`."""
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
        """Takes what is at `place` out, to be put back by `put_moved`; unrecorded."""
        tokens = place.tokens
        path = join_pointer(tokens)
        self.said[path] = said
        shifts = isinstance(find(self.root, tokens[:-1]), list)
        value = self.application.take(tokens, path)
        self.locator.changed(Remove(path, tokens), shifts=shifts)
        return value

    def put_moved(self, value: Json, operation: Move, said: str) -> None:
        """Adds what `take` took out at the target of `operation`, and records the two as one."""
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
        """Adds `value` at `address` with all parents that are missing: objects, or arrays and items
        where the address has keys. One operation, at the first location that is missing."""
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
        """What has `value` at the tokens of `address` after the one at `known`."""
        for position in range(len(address) - 1, known, -1):
            token = address[position]
            keys = self.keyed.at(address[:position])
            if token == "-" and not keys:
                raise PatchConflict("the array to append to doesn't exist; '-' makes none")
            value = [keys.filled(value, token)] if keys else {token: value}
        keys = self.keyed.at(address[:known]) if known >= 0 else None
        return keys.filled(value, address[known]) if keys else value

    def require_distinct(self, address: Tokens) -> None:
        """Refuses what a write at `address` may have done: made two items with one key."""
        for position in range(len(address) + 1):
            keys = self.keyed.at(address[:position])
            below = address[position + 1 :]
            if keys and (position == len(address) or (below and keys.decided_by(below))):
                self.locator.require_distinct(self.root, address[:position])

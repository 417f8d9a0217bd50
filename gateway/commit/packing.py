"""Values as what msgpack holds, and back, by the types that their classes declare.

A value of a class becomes the list of its fields, and one of several classes a list that begins
with the place of its class in the declared union. So what is read back can be nothing but what was
declared: no message names a class or calls anything. JSON goes through as it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from patching.owners import Ownership
from patching.values import Absent

Pack = Callable[[Any], Any]
_JSON: Final = frozenset((dict, list, str, int, float, bool, type(None)))
JSON: Final = dict[str, Any] | list[Any] | str | int | float | bool | None
# ``patching`` has them as text, which no type can be made a union with.
_ALIASES: Final = {
    "Any": Any,
    "Json": JSON,
    "Absent": Absent,
    "Ownership": Ownership,
    "Set": tuple[Ownership, ...],
}


class Unreadable(ValueError):
    """What was received is no such value."""


class Packer(NamedTuple):
    """``pack`` makes of a value what msgpack holds, and ``unpack`` a value of that.

    ``pack`` is None where a value is packed as it is. ``unpack`` raises Unreadable, TypeError or
    ValueError.
    """

    pack: Pack | None
    unpack: Pack


class PackerTable:
    """The packers of types, made when they are first needed.

    ``given`` are those of types that aren't packed by their fields, and ``derived`` the fields, by
    class, that follow from the others.
    """

    def __init__(
        self,
        given: Mapping[Any, Packer] | None = None,
        derived: Mapping[type, frozenset[str]] | None = None,
    ) -> None:
        self._known: dict[Any, Packer] = dict(given or {})
        self._derived = derived or {}

    def of(self, hint: Any) -> Packer:
        """Raises TypeError for a type that can't be packed."""
        known = self._known.get(hint)
        if known is None:
            known = self._known[hint] = self._made(hint)
        return known

    def _made(self, hint: Any) -> Packer:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Any:
            return Packer(None, lambda packed: packed)
        if hint in _JSON or origin is dict:
            return _as_it_is(frozenset((origin or hint,)))
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin is Literal:
            return Packer(None, _one_of(arguments))
        if origin is tuple and arguments[-1] is not ...:
            return _row([self.of(each) for each in arguments], _same, tuple)
        if origin in (tuple, frozenset, list, Sequence):
            return _items(self.of(arguments[0]), tuple if origin is Sequence else origin)
        if origin is Mapping:
            return _members(self.of(arguments[1]))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return Packer(lambda value: value.value, hint)
        if isinstance(hint, type) and (names := _field_names(hint)) is not None:
            return self._class(hint, names)
        raise TypeError(f"{hint} can't be packed")

    def _class(self, kind: type, names: Sequence[str]) -> Packer:
        hints = get_type_hints(kind, localns=_ALIASES)
        names = [name for name in names if name not in self._derived.get(kind, ())]
        # Derived fields come last.
        return _row([self.of(hints[name]) for name in names], _getter(names), _maker(kind))

    def _union(self, arguments: Sequence[Any]) -> Packer:
        """Of plain JSON, or of classes; where both are possible, JSON has the place 0."""
        plain = frozenset(get_origin(each) or each for each in arguments) & _JSON
        kinds = [each for each in arguments if (get_origin(each) or each) not in _JSON]
        if not kinds:
            return _as_it_is(plain)
        if plain <= {type(None)} and len(kinds) == 1:
            return _optional(self.of(kinds[0]))
        packers = [_as_it_is(plain), *map(self.of, kinds)]
        places = {get_origin(kind) or kind: place for place, kind in enumerate(kinds, 1)}

        def pack(value: Any) -> Any:
            place = places.get(type(value), 0)
            inner = packers[place].pack
            return [place, value if inner is None else inner(value)]

        def unpack(packed: Any) -> Any:
            place, inner = packed
            return packers[place].unpack(inner)

        return Packer(pack, unpack)


def _field_names(kind: type) -> Sequence[str] | None:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if is_dataclass(kind):
        return [each.name for each in dataclass_fields(kind) if each.init]
    names: Sequence[str] | None = getattr(kind, "_fields", None)  # of a named tuple
    return names


def _getter(names: Sequence[str]) -> Pack:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _maker(kind: type) -> Pack:
    return lambda values: kind(*values)


def _same(value: Any) -> Any:
    return value


def _row(packers: Sequence[Packer], values_of: Pack, made_of: Pack) -> Packer:
    """Of a fixed number of values, each with a packer of its own."""
    packs = [each.pack for each in packers]
    unpacks = [each.unpack for each in packers]

    def pack(value: Any) -> Any:
        values = values_of(value)
        return [
            each if inner is None else inner(each)
            for inner, each in zip(packs, values, strict=True)
        ]

    def unpack(packed: Any) -> Any:
        return made_of([inner(each) for inner, each in zip(unpacks, packed, strict=True)])

    return Packer(pack, unpack)


def _items(item: Packer, collection: Callable[[list[Any]], Any]) -> Packer:
    pack, unpack = item

    def unpack_all(packed: Any) -> Any:
        if type(packed) is not list:
            raise Unreadable
        return collection([unpack(each) for each in packed])

    def pack_all(value: Any) -> Any:
        packed = list(value) if pack is None else [*map(pack, value)]
        # A set that is equal may come in another order: the same message all the same.
        return sorted(packed, key=repr) if collection is frozenset else packed

    return Packer(pack_all, unpack_all)


def _members(member: Packer) -> Packer:
    """Of a mapping whose names are text."""
    pack, unpack = member

    def pack_all(value: Any) -> Any:
        return {name: each if pack is None else pack(each) for name, each in value.items()}

    return Packer(pack_all, lambda packed: {name: unpack(each) for name, each in packed.items()})


def _optional(inner: Packer) -> Packer:
    pack, unpack = inner
    if pack is not None:
        packed_by = pack
        pack = lambda value: None if value is None else packed_by(value)  # noqa: E731
    return Packer(pack, lambda packed: None if packed is None else unpack(packed))


def _as_it_is(kinds: frozenset[Any]) -> Packer:
    """Of values of these JSON types; an integer is a number like another."""
    allowed = kinds | {int} if float in kinds else kinds

    def unpack(packed: Any) -> Any:
        if type(packed) not in allowed:
            raise Unreadable
        return packed

    return Packer(None, unpack)


def _one_of(values: Sequence[Any]) -> Pack:
    def unpack(packed: Any) -> Any:
        if packed not in values:
            raise Unreadable
        return packed

    return unpack

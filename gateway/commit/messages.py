"""Messages between the workers of one machine, as bytes: a request, and its outcome.

Workers that read each other's messages have the same version and settings. A patch is sent as the
JSON that clients send, and is parsed again. An error is sent as the name of its class, which must
be in one of two trees, and its fields.

A value of a class becomes the list of its fields. A value of a union becomes a list that begins
with the index of its class in that union. So only declared types can be read back: a message can't
name any other class, or call anything. JSON is sent as it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from operator import attrgetter
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import msgpack

import patching
from gateway.conflict import Disputed, StateConflict
from gateway.decide.conditions import NO_CONDITIONS, Preconditions
from gateway.decide.request import Outcome, Request
from gateway.errors import CommitError, QueueFull
from gateway.model import WITHHELD, DocumentRecord
from patching import ABSENT, ExtendedPatch, Limits, Patch, PatchError
from patching.owners import Ownership
from patching.ownership import Contested
from patching.values import Absent

Pack = Callable[[Any], Any]
_JSON: Final = frozenset((dict, list, str, int, float, bool, type(None)))
JSON: Final = dict[str, Any] | list[Any] | str | int | float | bool | None
# In ``patching``, these are text, which can't be part of a union of types.
_ALIASES: Final = {
    "Any": Any,
    "Json": JSON,
    "Absent": Absent,
    "Ownership": Ownership,
    "Set": tuple[Ownership, ...],
}


class Unreadable(ValueError):
    """The received bytes aren't a value of the declared type."""


class Packer(NamedTuple):
    """``pack`` turns a value into one that msgpack can encode, ``unpack`` turns it back.

    ``pack`` is None if values are packed as they are. ``unpack`` raises Unreadable, TypeError or
    ValueError.
    """

    pack: Pack | None
    unpack: Pack


class PackerTable:
    """The packers of types, made when they are first needed.

    ``given`` has the packers of types that aren't packed by their fields, and ``derived``, by
    class, the fields that follow from the others and aren't packed.
    """

    def __init__(
        self,
        given: Mapping[Any, Packer] | None = None,
        derived: Mapping[type, frozenset[str]] | None = None,
    ) -> None:
        self._known: dict[Any, Packer] = dict(given or {})
        self._derived = derived or {}

    def of(self, hint: Any) -> Packer:
        """The packer of a type. Raises TypeError if the type can't be packed."""
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
        # ``_maker`` passes the fields by position: derived ones come last in their class.
        return _row([self.of(hints[name]) for name in names], _getter(names), _maker(kind))

    def _union(self, arguments: Sequence[Any]) -> Packer:
        """The packer of a union of JSON types, or of classes, or of both: JSON has the index 0."""
        plain = frozenset(get_origin(each) or each for each in arguments) & _JSON
        kinds = [each for each in arguments if (get_origin(each) or each) not in _JSON]
        if not kinds:
            return _as_it_is(plain)
        if plain <= {type(None)} and len(kinds) == 1:
            return _optional(self.of(kinds[0]))
        packers = [_as_it_is(plain), *map(self.of, kinds)]
        indexes = {get_origin(kind) or kind: index for index, kind in enumerate(kinds, 1)}

        def pack(value: Any) -> Any:
            index = indexes.get(type(value), 0)
            inner = packers[index].pack
            return [index, value if inner is None else inner(value)]

        def unpack(packed: Any) -> Any:
            index, inner = packed
            return packers[index].unpack(inner)

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
    """The packer of a fixed number of values, each with its own packer."""
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
        # Equal sets may have different orders; their messages must be equal.
        return sorted(packed, key=repr) if collection is frozenset else packed

    return Packer(pack_all, unpack_all)


def _members(member: Packer) -> Packer:
    """The packer of a mapping whose names are text."""
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
    """The packer of values of these JSON types; integers count as numbers."""
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


# The sender has parsed the patch within the limits that hold for it.
_LIMITS: Final = Limits(operations_max=1 << 30, depth_max=300)
_Error = CommitError | PatchError


class PeerAnswer(msgspec.Struct, frozen=True):
    """The outcome of a request that was handed over, or the ``error`` instead.

    ``attempts`` is the number that it took. ``goes_on``: the next request for its catalog is to be
    handed over, too.
    """

    outcome: Outcome | None
    attempts: int
    goes_on: bool
    error: QueueFull | None = None


class Messengers(Protocol):
    """The workers of this machine, to which bytes can be sent: for the methods see
    ``gateway.commit.handover.Peers``."""

    @property
    def own(self) -> int: ...

    def others(self) -> Collection[int]: ...

    def ask(self, worker: int, question: bytes, until: float) -> bytes | None: ...


class ByMessages:
    """``gateway.commit.handover.Peers`` by messages."""

    def __init__(self, workers: Messengers) -> None:
        self._workers = workers
        self.own = workers.own
        self.others = workers.others

    def ask(self, worker: int, request: Request, until: float) -> PeerAnswer | None:
        try:
            message = request_bytes(request)
        except Unsendable:
            return None
        answer = self._workers.ask(worker, message, until)
        try:
            return None if answer is None else answer_of(answer)
        except Unreadable as error:
            raise OSError(str(error)) from error


def message_handler(commit: Callable[[Request, int], PeerAnswer]) -> Callable[[bytes, int], bytes]:
    """A function that answers the messages of other workers; it raises Unreadable and
    Unsendable."""
    return lambda message, worker: answer_bytes(commit(request_of(message), worker))


class Unsendable(Exception):
    """The value fits into no message, because of a text that isn't valid in UTF-8, a number of more
    than 64 bits, or its depth."""


def request_bytes(request: Request) -> bytes:
    """The message for a request. Raises Unsendable."""
    return _encoded(_REQUEST, request)


def request_of(message: bytes) -> Request:
    """The request in a message. Raises Unreadable."""
    request: Request = _decoded(_REQUEST, message)
    return request


def answer_bytes(answer: PeerAnswer) -> bytes:
    """The message for an outcome. Raises Unsendable."""
    return _encoded(_ANSWER, answer)


def answer_of(message: bytes) -> PeerAnswer:
    """The outcome in a message. Raises Unreadable."""
    answer: PeerAnswer = _decoded(_ANSWER, message)
    return answer


def _encoded(packer: Packer, value: Any) -> bytes:
    assert packer.pack is not None
    try:
        return msgpack.encode(packer.pack(value), enc_hook=_plain)
    except (OverflowError, ValueError, RecursionError) as error:  # UnicodeEncodeError is one
        raise Unsendable(str(error)) from error


def _plain(value: Any) -> Any:
    """A ``str`` of a subclass as plain text; TypeError for anything else."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value)} isn't JSON")


def _decoded(packer: Packer, message: bytes) -> Any:
    try:
        return packer.unpack(msgpack.decode(message))
    except (LookupError, TypeError, ValueError, AttributeError, PatchError) as error:
        raise Unreadable(f"no message of this version: {error!r}") from error


def _conditions() -> Packer:
    """The packer of Preconditions. Most requests have NO_CONDITIONS, which is compared by ``is``,
    so it must be read back as the same object."""
    by_fields = PackerTable().of(Preconditions)
    assert by_fields.pack is not None
    pack = by_fields.pack
    return Packer(
        lambda value: None if value is NO_CONDITIONS else pack(value),
        lambda packed: NO_CONDITIONS if packed is None else by_fields.unpack(packed),
    )


def _content() -> Packer:
    """The packer of ``Json | Absent``, or WITHHELD."""

    def pack(value: Any) -> Any:
        if value is ABSENT or value is WITHHELD:
            return [value is ABSENT]
        return [None, value]

    def unpack(packed: Any) -> Any:
        if len(packed) == 1:
            return ABSENT if packed[0] else WITHHELD
        return packed[1]

    return Packer(pack, unpack)


def _error_packer() -> Packer:
    def pack(error: _Error) -> Any:
        members = {name: _pack_any(value) for name, value in vars(error).items()}
        return [type(error).__name__, list(error.args), members]

    def unpack(packed: Any) -> Any:
        name, args, members = packed
        kind = _error_class(name)
        error = kind.__new__(kind, *args)
        error.args = tuple(args)
        vars(error).update({name: _unpack_any(value) for name, value in members.items()})
        return error

    return Packer(pack, unpack)


def _error_class(name: str) -> type[_Error]:
    if name not in _ERROR_CLASSES:  # of a module that was imported since
        for root in (CommitError, PatchError):
            _ERROR_CLASSES.update((each.__name__, each) for each in _tree(root))
    return _ERROR_CLASSES[name]


def _tree(root: type[_Error]) -> Iterator[type[_Error]]:
    yield root
    for each in root.__subclasses__():
        yield from _tree(each)


def _pack_any(value: Any) -> Any:
    """Pack a field of an error: JSON, a value of a class in ``_FIELDS``, an error, or a list or
    tuple of these."""
    if isinstance(value, list | tuple):
        return [type(value).__name__, [_pack_any(each) for each in value]]
    name = "error" if isinstance(value, _Error) else type(value).__name__
    packer = _FIELDS.get(name)
    if packer is None or packer.pack is None:
        return ["", value]
    return [name, packer.pack(value)]


def _unpack_any(packed: Any) -> Any:
    name, value = packed
    if name in ("list", "tuple"):
        several = [_unpack_any(each) for each in value]
        return several if name == "list" else tuple(several)
    return _FIELDS[name].unpack(value) if name else value


_ERROR_CLASSES: Final[dict[str, type[_Error]]] = {}
_ERROR: Final = _error_packer()
_GIVEN: Final = {
    Preconditions: _conditions(),
    JSON | Absent: _content(),
    CommitError: _ERROR,
    QueueFull: _ERROR,
    Patch: Packer(lambda patch: patch.to_json(), lambda sent: patching.parse(sent, limits=_LIMITS)),
    ExtendedPatch: Packer(
        lambda patch: patch.to_json(), lambda sent: patching.parse_extended(sent, limits=_LIMITS)
    ),
}
_MADE_THERE: Final = frozenset(("keys", "token_keys", "ranges", "read_ahead"))
_PACKERS: Final = PackerTable(_GIVEN, {Request: _MADE_THERE})
_FIELDS: Final = {
    **{
        kind.__name__: _PACKERS.of(kind)
        for kind in (StateConflict, Contested, Disputed, DocumentRecord)
    },
    "Absent": _PACKERS.of(Absent),
    "error": _ERROR,
}
_REQUEST: Final = _PACKERS.of(Request)
_ANSWER: Final = _PACKERS.of(PeerAnswer)

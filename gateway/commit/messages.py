"""What workers of one machine send each other, as bytes: a request, and what became of it.

Workers that read each other's messages are of one version and have the same settings. Patches go
as the JSON that clients send, and are parsed once more. Errors go by the names of their classes,
which have to be in one of two trees, and by their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol

import msgspec
from msgspec import msgpack

import patching
from gateway.commit.packing import JSON, Packer, PackerTable, Unreadable
from gateway.conflict import Disputed, StateConflict
from gateway.decide.conditions import NO_CONDITIONS, Preconditions
from gateway.decide.request import Outcome, Request
from gateway.errors import CommitError, QueueFull
from gateway.model import WITHHELD, DocumentRecord
from patching import ABSENT, ExtendedPatch, Limits, Patch, PatchError
from patching.ownership import Contested
from patching.values import Absent

# Whoever sends a patch has parsed it within its own limits.
_LIMITS: Final = Limits(operations_max=1 << 30, depth_max=300)
_Error = CommitError | PatchError


class Handed(msgspec.Struct, frozen=True):
    """What became of a request that was handed over; ``error`` in the place of an outcome.

    ``attempts`` as ``Written`` has them. ``goes_on``: the next request for its catalog is to be
    handed over, too.
    """

    outcome: Outcome | None
    attempts: int
    goes_on: bool
    error: QueueFull | None = None


class Messengers(Protocol):
    """The workers of this machine, who are sent bytes: see ``gateway.commit.handover.Peers``
    for the methods."""

    @property
    def own(self) -> int: ...

    def others(self) -> Collection[int]: ...

    def ask(self, worker: int, question: bytes, until: float) -> bytes | None: ...


class ByMessages:
    """``gateway.commit.handover.Peers`` that are sent messages."""

    def __init__(self, workers: Messengers) -> None:
        self._workers = workers
        self.own = workers.own
        self.others = workers.others

    def ask(self, worker: int, request: Request, until: float) -> Handed | None:
        try:
            message = request_bytes(request)
        except Unsendable:
            return None
        answer = self._workers.ask(worker, message, until)
        try:
            return None if answer is None else handed_of(answer)
        except Unreadable as error:
            raise OSError(str(error)) from error


def message_handler(commit_for: Callable[[Request, int], Handed]) -> Callable[[bytes, int], bytes]:
    """What answers the messages of other workers: it raises Unreadable, or Unsendable."""
    return lambda message, worker: handed_bytes(commit_for(request_of(message), worker))


class Unsendable(Exception):
    """No message can hold the value: it has text, or a number, that UTF-8 or 64 bits can't."""


def request_bytes(request: Request) -> bytes:
    """Raises Unsendable."""
    return _encoded(_REQUEST, request)


def request_of(message: bytes) -> Request:
    """Raises Unreadable."""
    request: Request = _decoded(_REQUEST, message)
    return request


def handed_bytes(handed: Handed) -> bytes:
    """Raises Unsendable."""
    return _encoded(_HANDED, handed)


def handed_of(message: bytes) -> Handed:
    """Raises Unreadable."""
    handed: Handed = _decoded(_HANDED, message)
    return handed


def _encoded(packer: Packer, value: Any) -> bytes:
    assert packer.pack is not None
    try:
        return msgpack.encode(packer.pack(value), enc_hook=_plain)
    except (OverflowError, ValueError, RecursionError) as error:  # UnicodeEncodeError is one
        raise Unsendable(str(error)) from error


def _plain(value: Any) -> Any:
    """Of a class of its own, text is text."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value)} is no JSON")


def _decoded(packer: Packer, message: bytes) -> Any:
    try:
        return packer.unpack(msgpack.decode(message))
    except (LookupError, TypeError, ValueError, AttributeError, PatchError) as error:
        raise Unreadable(f"no message of this version: {error!r}") from error


def _conditions() -> Packer:
    """Most requests have none, which are compared by ``is``."""
    by_fields = PackerTable().of(Preconditions)
    assert by_fields.pack is not None
    pack = by_fields.pack
    return Packer(
        lambda value: None if value is NO_CONDITIONS else pack(value),
        lambda packed: NO_CONDITIONS if packed is None else by_fields.unpack(packed),
    )


def _content() -> Packer:
    """Of ``Json | Absent``, or WITHHELD."""

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
    """Of a field of an error: JSON, one of ``_FIELDS``, an error, or several of these."""
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
_PACKERS: Final = PackerTable(_GIVEN, {Request: frozenset(("keys", "token_keys", "ranges"))})
_FIELDS: Final = {
    **{
        kind.__name__: _PACKERS.of(kind)
        for kind in (StateConflict, Contested, Disputed, DocumentRecord)
    },
    "Absent": _PACKERS.of(Absent),
    "error": _ERROR,
}
_REQUEST: Final = _PACKERS.of(Request)
_HANDED: Final = _PACKERS.of(Handed)

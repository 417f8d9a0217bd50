"""A transaction as it is sent, checked by hand: each refusal names the place in the body.

::

    {"compare": [{"key", "etag"} | {"key", "absent": true} | {"key", "equals": value}
                 | {"key", "test": [operations]} | {"resource_version": N}],
     "then": [action…], "else": [action…], "message", "author", "dry_run"}

An action is ``{"action": "put", "key", "value", "attributes"?: {"mode": "keep" | "clear" |
"replace", "value"?}}``, or one of ``patch`` (``key``, ``patch``, ``array_primary_keys``?),
``merge`` (``key``, ``value``), ``delete`` (``key``), ``move`` (``from``, ``to``), ``attributes``
(``key``, ``value`` or ``patch``), ``touch``, ``get`` (``key``). Patches are extended ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar, cast

import patching
from gateway.decide.request import (
    ApplyPatch,
    Compare,
    Delete,
    Edit,
    EditAttributes,
    Equals,
    Get,
    IsAbsent,
    KeyEdit,
    Merge,
    Move,
    Put,
    RevisionIs,
    Satisfies,
    TokenIs,
    Touch,
)
from gateway.decide.strict import SWITCH, Exact, load, strict
from gateway.errors import Unstorable
from gateway.http.wire.body import check_operations, decode_members, document_bytes
from gateway.http.wire.headers import require_key
from gateway.http.wire.members import (
    AUTHOR,
    MESSAGE,
    REVISION,
    attributes_asked,
    invalid_body,
    member,
    refuse_member,
    require_known,
    require_object,
)
from gateway.http.wire.problems import problem_of
from gateway.http.wire.refusals import RequestRefused
from gateway.limits import RequestLimits
from gateway.model import SETTINGS_KEY
from patching import Json, Limits, PatchError, join_pointer

_Item = TypeVar("_Item")

_LIST: Final = Exact(list, "it must be a list")
TRANSACTION: Final = strict(
    compare=_LIST, then=_LIST, message=MESSAGE, author=AUTHOR, dry_run=SWITCH, **{"else": _LIST}
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """``body`` is what was sent, but for what changes only how it is told (message, dry_run)."""

    compare: tuple[Compare, ...]
    then: tuple[KeyEdit, ...]
    otherwise: tuple[KeyEdit, ...] | None
    message: str | None
    author: str | None
    dry_run: bool
    body: dict[str, Json]


def read_transaction(raw: bytes, limits: RequestLimits, patch_limits: Limits) -> Transaction:
    """Raises RequestRefused, Unstorable, and OverLimit."""
    body: Any = decode_members(raw)
    asked = load(TRANSACTION, body, invalid_body)
    lists = {name: asked[name] for name in ("compare", "then", "else") if name in body}
    count = sum(map(len, lists.values()))
    if count > limits.transaction_actions_max:
        raise RequestRefused(
            "over_limit",
            f"the transaction has {count} compares and actions,"
            f" {limits.transaction_actions_max} are allowed",
            limit="transaction_actions_max",
            maximum=limits.transaction_actions_max,
            actual=count,
        )
    reader = Reader(limits, patch_limits)
    return Transaction(
        compare=_each(lists, "compare", reader, read_compare),
        then=_each(lists, "then", reader, read_action),
        otherwise=_each(lists, "else", reader, read_action) if "else" in lists else None,
        message=asked["message"] or None,
        author=asked["author"],
        dry_run=asked["dry_run"],
        body=lists,
    )


def _each(
    lists: dict[str, Any], name: str, reader: Reader, read: Callable[[Any, str, Reader], _Item]
) -> tuple[_Item, ...]:
    return tuple(read(each, f"/{name}/{at}", reader) for at, each in enumerate(lists.get(name, ())))


_COMPARES: Final = ("etag", "absent", "equals", "test")
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class Reader:
    """The rules for the items of a body."""

    limits: RequestLimits
    patch_limits: Limits


def read_compare(item: Any, at: str, reader: Reader) -> Compare:
    """The compare at ``at`` of the body. Raises RequestRefused, Unstorable."""
    members = require_object(item, ("key", *_COMPARES, "resource_version"), at)
    if "resource_version" in members:
        require_known(members, ("resource_version",), at)
        return RevisionIs(member(members, "resource_version", REVISION, at))
    key = _key(members, "key", at, reader)
    given = [name for name in _COMPARES if name in members]
    if len(given) != 1:
        refuse_member(at, f"it must have exactly one of: {', '.join(_COMPARES)}")
    (name,) = given
    value, place = members[name], f"{at}/{name}"
    if name == "etag":
        if not isinstance(value, str) or not value or '"' in value:
            refuse_member(place, "it must be a version token, without a header's quotes")
        return TokenIs(key, value)
    if name == "absent":
        if value is not True:
            refuse_member(place, "it must be true; what exists is told by a 'test' of \"\"")
        return IsAbsent(key)
    if name == "equals":
        document_bytes(value, reader.limits, place)
        return Equals(key, value)
    return Satisfies(
        key,
        _patch(
            value, place, reader, lambda: patching.parse_tests(value, limits=reader.patch_limits)
        ),
    )


def read_action(item: Any, at: str, reader: Reader) -> KeyEdit:
    """The action at ``at`` of the body. Raises RequestRefused, Unstorable."""
    if not isinstance(item, dict):
        refuse_member(at, "it must be an object")
    name = item.get("action")
    if not isinstance(name, str) or name not in _ACTIONS:
        place = f"{at}/action" if "action" in item else at
        refuse_member(place, f"an action is one of: {', '.join(_ACTIONS)}")
    known, read = _ACTIONS[name]
    require_known(item, ("action", *known), at)
    if name == "move":
        return KeyEdit(_key(item, "from", at, reader), Move(_key(item, "to", at, reader)))
    if name == "touch":
        return KeyEdit(SETTINGS_KEY, Touch())
    return KeyEdit(_key(item, "key", at, reader), read(item, at, reader))


def _put(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    value, size_bytes = _value(item, at, reader)
    attributes = attributes_asked(item, at)
    if attributes:
        document_bytes(attributes, reader.limits, f"{at}/attributes/value")
    return Put(value, size_bytes, attributes)


def _merge(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    return Merge(*_value(item, at, reader))


def _attributes(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    if ("value" in item) == ("patch" in item):
        refuse_member(at, "it must have exactly one of: value, patch")
    if "patch" in item:
        return EditAttributes(_patched(item, at, reader))
    if "array_primary_keys" in item:
        refuse_member(f"{at}/array_primary_keys", "it goes with a patch")
    value, size_bytes = _value(item, at, reader)
    return EditAttributes(Put(value, size_bytes))


def _patched(item: dict[str, Any], at: str, reader: Reader) -> ApplyPatch:
    if "patch" not in item:
        refuse_member(at, "'patch' is missing")
    operations, limits = item["patch"], reader.patch_limits

    def parse() -> patching.Patch | patching.ExtendedPatch:
        if "array_primary_keys" not in item and not patching.is_extended(operations):
            return patching.parse(operations, limits=limits)
        whole = {name: item[name] for name in ("patch", "array_primary_keys") if name in item}
        return patching.parse_extended(whole, limits=limits)

    return ApplyPatch(_patch(operations, f"{at}/patch", reader, parse))


def _patch(operations: Any, place: str, reader: Reader, parse: Callable[[], _Parsed]) -> _Parsed:
    """The result of ``parse`` for ``operations`` at ``place``; its errors name the place."""
    try:
        check_operations(operations, reader.limits.depth_max)
        return parse()
    except Unstorable as error:
        error.pointer = f"{place}/{error.operation}"
        raise
    except PatchError as error:
        _refuse_patch(error, place)


def _refuse_patch(error: PatchError, place: str) -> NoReturn:
    problem = problem_of(error)
    assert problem is not None
    member = getattr(error, "member", None)
    if member == "array_primary_keys":
        place = place.rpartition("/")[0] + "/array_primary_keys"
    elif error.operation is not None:
        inside = [str(error.operation), *([member] if member else [])]
        place += join_pointer(inside)
    members = {**problem.members, "pointer": place}
    raise RequestRefused(problem.code, problem.detail, **cast(Any, members)) from error


def _value(item: dict[str, Any], at: str, reader: Reader) -> tuple[Json, int]:
    if "value" not in item:
        refuse_member(at, "'value' is missing")
    value = item["value"]
    return value, document_bytes(value, reader.limits, f"{at}/value")


def _key(members: dict[str, Any], name: str, at: str, reader: Reader) -> str:
    key = members.get(name)
    if not isinstance(key, str):
        place = f"{at}/{name}" if name in members else at
        refuse_member(place, f"'{name}' must be a document's key")
    try:
        require_key(key, reader.limits)
    except RequestRefused as error:
        error.members["pointer"] = f"{at}/{name}"
        raise
    return key


def _nothing(*_: Any) -> Edit:
    raise AssertionError("it has no key of its own")


_PATCH_MEMBERS: Final = ("key", "patch", "array_primary_keys")
# By action: the members it may have beside its name, and what makes an edit of them.
_ACTIONS: Final[
    dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any], str, Reader], Edit]]]
] = {
    "put": (("key", "value", "attributes"), _put),
    "patch": (_PATCH_MEMBERS, _patched),
    "merge": (("key", "value"), _merge),
    "delete": (("key",), lambda *_: Delete()),
    "move": (("from", "to"), _nothing),
    "attributes": ((*_PATCH_MEMBERS, "value"), _attributes),
    "touch": ((), _nothing),
    "get": (("key",), lambda *_: Get()),
}

"""A transaction as it is sent, checked by hand: each refusal names the place in the body.

::

    {"compare": [{"key", "etag"} | {"key", "absent": true} | {"key", "unchanged_since": N}
                 | {"key", "equals": value} | {"key", "test": [operations]}
                 | {"prefix", "unchanged_since": N} | {"prefix", "absent": true}
                 | {"prefix", "count": {"less" | "equal" | "greater": n}}
                 | {"resource_version": N}],
     "then": [action…], "else": [action…], "message", "author", "dry_run"}

An action is ``{"action": "put", "key", "value", "attributes"?: {"mode": "keep" | "clear" |
"replace", "value"?}}``, or one of ``patch`` (``key``, ``patch``, ``array_primary_keys``?),
``merge`` (``key``, ``value``), ``apply`` (``key``, ``value``, ``manager``?, ``conflict``?,
``force``?), ``let_go`` (``key``, ``manager``?, ``prune``?), ``give_back`` (``key``,
``pointers``), ``delete`` (``key``, or ``prefix``), ``move`` (``from``, ``to``), ``attributes``
(``key``, ``value`` or ``patch``), ``touch``, ``get`` (``key``), ``replace`` (``prefix``,
``documents``: by key). Patches are extended ones. Any may have ``if``, compares of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

import patching
import patching.extended
from gateway.cpu import computed
from gateway.decide.compares import Compare, compared_ranges
from gateway.decide.edits import (
    ApplyPatch,
    Delete,
    Edit,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    MoveKey,
    Put,
    Touch,
)
from gateway.decide.ranges import (
    DOCUMENTS_MAX,
    RANGES_MAX,
    RangeDeletion,
    RangeEdit,
    RangeReplacement,
)
from gateway.decide.strict import SWITCH, Exact, load, strict
from gateway.http.wire.apply_terms import (
    apply_members,
    give_back_members,
    let_go_members,
    require_wanted,
)
from gateway.http.wire.body import decode_members, document_bytes
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.members import (
    AUTHOR,
    MESSAGE,
    attributes_asked,
    invalid_body,
    refuse_member,
    require_known,
)
from gateway.http.write.ask import VERBS
from gateway.http.write.compare_parsing import (
    Reader,
    key_of,
    patch_of,
    prefix_of,
    read_compare,
    require_key_at,
)
from gateway.limits import RequestLimits
from gateway.model import SETTINGS_KEY
from patching import Json, Limits, join_pointer

_Item = TypeVar("_Item")

_LIST: Final = Exact(list, "it must be a list")
TRANSACTION: Final = strict(
    compare=_LIST, then=_LIST, message=MESSAGE, author=AUTHOR, dry_run=SWITCH, **{"else": _LIST}
)


@dataclass(frozen=True, slots=True)
class TransactionBody:
    """``body`` is what was sent, but for what changes only how it is told (message, dry_run)."""

    compare: tuple[Compare, ...]
    then: tuple[KeyEdit, ...]
    otherwise: tuple[KeyEdit, ...] | None
    message: str | None
    author: str | None
    dry_run: bool
    body: dict[str, Json]


@computed
def read_transaction(
    raw: bytes, limits: RequestLimits, patch_limits: Limits, principal: str
) -> TransactionBody:
    """Raises RequestRefused, Unstorable, and AboveLimit."""
    body: Any = decode_members(raw)
    asked = load(TRANSACTION, body, invalid_body)
    lists = {name: asked[name] for name in ("compare", "then", "else") if name in body}
    count = sum(map(len, lists.values())) + _conditions_in(lists)
    _refuse_many(
        count, "compares and actions", "transaction_actions_max", limits.transaction_actions_max
    )
    reader = Reader(limits, patch_limits, principal)
    compare = _each(lists, "compare", reader, read_compare)
    then = _each(lists, "then", reader, read_action)
    otherwise = _each(lists, "else", reader, read_action) if "else" in lists else None
    _refuse_many_ranges(compare, (*then, *(otherwise or ())))
    return TransactionBody(
        compare=compare,
        then=then,
        otherwise=otherwise,
        message=asked["message"] or None,
        author=asked["author"],
        dry_run=asked["dry_run"],
        body=lists,
    )


def _conditions_in(lists: dict[str, Any]) -> int:
    """The compares in the ``if`` of actions."""
    actions = (*lists.get("then", ()), *lists.get("else", ()))
    conditions = (each.get("if") for each in actions if isinstance(each, dict))
    return sum(len(each) for each in conditions if isinstance(each, list))


def _refuse_many_ranges(compare: Iterable[Compare], actions: Sequence[KeyEdit]) -> None:
    compared = compared_ranges((*compare, *chain.from_iterable(each.when for each in actions)))
    edited = [each.edit for each in actions if isinstance(each.edit, RangeEdit)]
    count = len(compared) + len(edited)
    _refuse_many(count, "compares and actions on ranges", "ranges_max", RANGES_MAX)
    put = sum(len(each.documents) for each in edited if isinstance(each, RangeReplacement))
    _refuse_many(put, "documents to replace others", "range_documents_max", DOCUMENTS_MAX)


def _refuse_many(count: int, what: str, limit: str, maximum: int) -> None:
    if count > maximum:
        raise RequestRefused(
            "over_limit",
            f"the transaction has {count} {what}, {maximum} are allowed",
            limit=limit,
            maximum=maximum,
            actual=count,
        )


def _each(
    lists: dict[str, Any], name: str, reader: Reader, read: Callable[[Any, str, Reader], _Item]
) -> tuple[_Item, ...]:
    return tuple(read(each, f"/{name}/{at}", reader) for at, each in enumerate(lists.get(name, ())))


def read_action(item: Any, at: str, reader: Reader) -> KeyEdit:
    """The action at ``at`` of the body. Raises RequestRefused, Unstorable."""
    if not isinstance(item, dict):
        refuse_member(at, "it must be an object")
    name = item.get("action")
    if not isinstance(name, str) or name not in VERBS:
        place = f"{at}/action" if "action" in item else at
        refuse_member(place, f"an action is one of: {', '.join(VERBS)}")
    verb = VERBS[name]
    require_known(item, ("action", "if", *verb.place, *verb.members), at)
    when = _when(item, at, reader)
    if name == "move":
        to = key_of(item, "to", at, reader)
        return KeyEdit(key_of(item, "from", at, reader), MoveKey(to), when)
    if name == "touch":
        return KeyEdit(SETTINGS_KEY, Touch(), when)
    if "prefix" in item or name == "replace":
        return KeyEdit(SETTINGS_KEY, _range_edit(item, at, reader), when)
    return KeyEdit(key_of(item, "key", at, reader), _READ[name](item, at, reader), when)


def _when(item: dict[str, Any], at: str, reader: Reader) -> tuple[Compare, ...]:
    if "if" not in item:
        return ()
    listed, place = item["if"], f"{at}/if"
    if not isinstance(listed, list) or not listed:
        refuse_member(place, "it must be a list of compares that isn't empty")
    return tuple(read_compare(each, f"{place}/{n}", reader) for n, each in enumerate(listed))


def _range_edit(item: dict[str, Any], at: str, reader: Reader) -> RangeEdit:
    if "key" in item:
        refuse_member(f"{at}/key", "it is about a prefix, or about a key")
    prefix = prefix_of(item, at, reader)
    if item["action"] == "delete":
        return RangeDeletion(prefix)
    documents = item.get("documents")
    if not isinstance(documents, dict):
        place = f"{at}/documents" if "documents" in item else at
        refuse_member(place, "'documents' must be an object: documents by key")
    return RangeReplacement(
        prefix, tuple(_replacing(prefix, *each, at, reader) for each in documents.items())
    )


def _replacing(
    prefix: str, key: str, value: Json, at: str, reader: Reader
) -> tuple[str, Json, int]:
    place = f"{at}/documents{join_pointer([key])}"
    if not key.startswith(prefix):
        refuse_member(place, f"the key doesn't begin with {prefix!r}")
    require_key_at(key, place, reader)
    return key, value, document_bytes(value, reader.limits, place)


def _put(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    value, size_bytes = _value(item, at, reader)
    attributes = attributes_asked(item, at)
    if attributes:
        document_bytes(attributes, reader.limits, f"{at}/attributes/value")
    return Put(value, size_bytes, attributes)


def _merge(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    return Merge(*_value(item, at, reader))


def _apply(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    wanted, size_bytes = _value(item, at, reader)
    require_wanted(wanted, f"{at}/value")
    return apply_members(item, reader.principal, at).edit(wanted, size_bytes)


def _let_go(item: dict[str, Any], at: str, reader: Reader) -> Edit:
    return let_go_members(item, reader.principal, at)


def _give_back(item: dict[str, Any], at: str, _: Reader) -> Edit:
    return give_back_members(item, at)


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
        if "array_primary_keys" not in item and not patching.extended.is_extended(operations):
            return patching.parse(operations, limits=limits)
        whole = {name: item[name] for name in ("patch", "array_primary_keys") if name in item}
        return patching.parse_extended(whole, limits=limits)

    return ApplyPatch(patch_of(operations, f"{at}/patch", reader, parse))


def _value(item: dict[str, Any], at: str, reader: Reader) -> tuple[Json, int]:
    if "value" not in item:
        refuse_member(at, "'value' is missing")
    value = item["value"]
    return value, document_bytes(value, reader.limits, f"{at}/value")


# What makes the edit of an action on one document; the others are made of their places.
_READ: Final[Mapping[str, Callable[[dict[str, Any], str, Reader], Edit]]] = {
    "put": _put,
    "patch": _patched,
    "merge": _merge,
    "apply": _apply,
    "let_go": _let_go,
    "give_back": _give_back,
    "delete": lambda *_: Delete(),
    "attributes": _attributes,
    "get": lambda *_: Get(),
}

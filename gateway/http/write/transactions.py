"""A transaction's body, checked by hand, so that each refusal names the place in the body.

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
``documents``: by key). Patches may be extended ones. Any action may have ``if``: compares of its
own.

A compare is about a document (``key``), about all whose keys begin with a ``prefix``, or about the
catalog (``resource_version``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar, cast

import patching
import patching.extended
from gateway.cpu import in_section
from gateway.decide import compares, edits, ranges
from gateway.decide.conditions import ANY
from gateway.decide.strict import SWITCH, Exact, integer, load, strict
from gateway.errors import Unstorable
from gateway.http.wire.apply_terms import (
    apply_members,
    give_back_members,
    let_go_members,
    require_wanted,
)
from gateway.http.wire.body import (
    AUTHOR,
    MESSAGE,
    REVISION,
    attributes_of,
    decode_value,
    document_bytes,
    invalid_body,
    member,
    refuse_member,
    require_known,
    require_object,
    require_storable_operations,
)
from gateway.http.wire.codes import RequestRefused, over_limit
from gateway.http.wire.headers import require_key, require_prefix
from gateway.http.wire.problems import problem_of
from gateway.http.write.ask import VERBS
from gateway.limits import RequestLimits
from gateway.model import SETTINGS_KEY
from patching import Json, Limits, PatchError, join_pointer

_Item = TypeVar("_Item")
_Name = TypeVar("_Name", bound=str)
_Parsed = TypeVar("_Parsed")

_LIST: Final = Exact(list, "it must be a list")
TRANSACTION: Final = strict(
    compare=_LIST, then=_LIST, message=MESSAGE, author=AUTHOR, dry_run=SWITCH, **{"else": _LIST}
)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The rules for the items of a body that ``principal`` sent."""

    limits: RequestLimits
    patch_limits: Limits
    principal: str


@dataclass(frozen=True, slots=True)
class TransactionBody:
    """``body`` is what was sent, without the members that don't change its effect: message, author
    and dry_run."""

    compare: tuple[compares.Compare, ...]
    then: tuple[edits.KeyEdit, ...]
    otherwise: tuple[edits.KeyEdit, ...] | None
    message: str | None
    author: str | None
    dry_run: bool
    body: dict[str, Json]


@in_section
def read_transaction(
    raw: bytes, limits: RequestLimits, patch_limits: Limits, principal: str
) -> TransactionBody:
    """The transaction that ``raw`` asks for. Raises RequestRefused, Unstorable, and AboveLimit."""
    body: Any = decode_value(raw, None)
    members = load(TRANSACTION, body, invalid_body)
    lists = {name: members[name] for name in ("compare", "then", "else") if name in body}
    count = sum(map(len, lists.values())) + _conditions_in(lists)
    _refuse_many(
        count, "compares and actions", "transaction_actions_max", limits.transaction_actions_max
    )
    reader = _Reader(limits, patch_limits, principal)
    compare = _each(lists, "compare", reader, _read_compare)
    then = _each(lists, "then", reader, _read_action)
    otherwise = _each(lists, "else", reader, _read_action) if "else" in lists else None
    _refuse_many_ranges(compare, (*then, *(otherwise or ())))
    return TransactionBody(
        compare=compare,
        then=then,
        otherwise=otherwise,
        message=members["message"] or None,
        author=members["author"],
        dry_run=members["dry_run"],
        body=lists,
    )


def _conditions_in(lists: dict[str, Any]) -> int:
    """The number of compares in the ``if`` of actions."""
    actions = (*lists.get("then", ()), *lists.get("else", ()))
    conditions = (each.get("if") for each in actions if isinstance(each, dict))
    return sum(len(each) for each in conditions if isinstance(each, list))


def _refuse_many_ranges(
    compare: Iterable[compares.Compare], actions: Sequence[edits.KeyEdit]
) -> None:
    compared = compares.compared_ranges(
        (*compare, *chain.from_iterable(each.when for each in actions))
    )
    edited = [each.edit for each in actions if isinstance(each.edit, ranges.RangeEdit)]
    count = len(compared) + len(edited)
    _refuse_many(count, "compares and actions on ranges", "ranges_max", ranges.RANGES_MAX)
    put = sum(len(each.documents) for each in edited if isinstance(each, ranges.RangeReplacement))
    _refuse_many(put, "replacement documents", "range_documents_max", ranges.DOCUMENTS_MAX)


def _refuse_many(count: int, what: str, limit: str, maximum: int) -> None:
    if count > maximum:
        raise over_limit(f"the transaction has {count} {what}", limit, maximum, count)


def _each(
    lists: dict[str, Any], name: str, reader: _Reader, read: Callable[[Any, str, _Reader], _Item]
) -> tuple[_Item, ...]:
    return tuple(read(each, f"/{name}/{at}", reader) for at, each in enumerate(lists.get(name, ())))


def _read_action(item: Any, at: str, reader: _Reader) -> edits.KeyEdit:
    """The action at ``at`` of the body. Raises RequestRefused, Unstorable."""
    if not isinstance(item, dict):
        refuse_member(at, "it must be an object")
    name = item.get("action")
    if not isinstance(name, str) or name not in VERBS:
        reason = f"'action' must be one of: {', '.join(VERBS)}"
        refuse_member(_place(item, "action", at), reason)
    verb = VERBS[name]
    require_known(item, ("action", "if", *verb.place, *verb.members), at)
    when = _when(item, at, reader)
    if name == "move":
        to = _key_of(item, "to", at, reader)
        return edits.KeyEdit(_key_of(item, "from", at, reader), edits.MoveKey(to), when)
    if name == "touch":
        return edits.KeyEdit(SETTINGS_KEY, edits.Touch(), when)
    if "prefix" in item or name == "replace":
        return edits.KeyEdit(SETTINGS_KEY, _range_edit(item, at, reader), when)
    return edits.KeyEdit(_key_of(item, "key", at, reader), _READ[name](item, at, reader), when)


def _when(item: dict[str, Any], at: str, reader: _Reader) -> tuple[compares.Compare, ...]:
    if "if" not in item:
        return ()
    listed, place = item["if"], f"{at}/if"
    if not isinstance(listed, list) or not listed:
        refuse_member(place, "it must be a non-empty list of compares")
    return tuple(_read_compare(each, f"{place}/{n}", reader) for n, each in enumerate(listed))


def _range_edit(item: dict[str, Any], at: str, reader: _Reader) -> ranges.RangeEdit:
    if "key" in item:
        refuse_member(f"{at}/key", "it must have either 'prefix' or 'key'")
    prefix = _prefix_of(item, at, reader)
    if item["action"] == "delete":
        return ranges.RangeDeletion(prefix)
    documents = item.get("documents")
    if not isinstance(documents, dict):
        reason = "'documents' must be an object: documents by key"
        refuse_member(_place(item, "documents", at), reason)
    return ranges.RangeReplacement(
        prefix, tuple(_replacing(prefix, *each, at, reader) for each in documents.items())
    )


def _replacing(
    prefix: str, key: str, value: Json, at: str, reader: _Reader
) -> tuple[str, Json, int]:
    place = f"{at}/documents{join_pointer([key])}"
    if not key.startswith(prefix):
        refuse_member(place, f"the key doesn't begin with {prefix!r}")
    _require_at(place, require_key, key, reader)
    return key, value, document_bytes(value, reader.limits, place)


def _put(item: dict[str, Any], at: str, reader: _Reader) -> edits.Edit:
    value, size_bytes = _value(item, at, reader)
    attributes = attributes_of(item, at)
    if attributes:
        document_bytes(attributes, reader.limits, f"{at}/attributes/value")
    return edits.Put(value, size_bytes, attributes)


def _apply(item: dict[str, Any], at: str, reader: _Reader) -> edits.Edit:
    wanted, size_bytes = _value(item, at, reader)
    require_wanted(wanted, f"{at}/value")
    return apply_members(item, reader.principal, at).edit(wanted, size_bytes)


def _attributes(item: dict[str, Any], at: str, reader: _Reader) -> edits.Edit:
    if _only_one(item, ("value", "patch"), at) == "patch":
        return edits.EditAttributes(_patched(item, at, reader))
    if "array_primary_keys" in item:
        refuse_member(f"{at}/array_primary_keys", "it needs a patch")
    value, size_bytes = _value(item, at, reader)
    return edits.EditAttributes(edits.Put(value, size_bytes))


def _patched(item: dict[str, Any], at: str, reader: _Reader) -> edits.ApplyPatch:
    if "patch" not in item:
        refuse_member(at, "'patch' is missing")
    operations, limits = item["patch"], reader.patch_limits

    def parse() -> patching.Patch | patching.ExtendedPatch:
        if "array_primary_keys" not in item and not patching.extended.is_extended(operations):
            return patching.parse(operations, limits=limits)
        integer = {name: item[name] for name in ("patch", "array_primary_keys") if name in item}
        return patching.parse_extended(integer, limits=limits)

    return edits.ApplyPatch(_patch_of(operations, f"{at}/patch", reader, parse))


def _value(item: dict[str, Any], at: str, reader: _Reader) -> tuple[Json, int]:
    if "value" not in item:
        refuse_member(at, "'value' is missing")
    value = item["value"]
    return value, document_bytes(value, reader.limits, f"{at}/value")


# By action on one document: what reads its edit. The others need no more than their place.
_READ: Final[Mapping[str, Callable[[dict[str, Any], str, _Reader], edits.Edit]]] = {
    "put": _put,
    "patch": _patched,
    "merge": lambda item, at, reader: edits.Merge(*_value(item, at, reader)),
    "apply": _apply,
    "let_go": lambda item, at, reader: let_go_members(item, reader.principal, at),
    "give_back": lambda item, at, _: give_back_members(item, at),
    "delete": lambda *_: edits.Delete(),
    "attributes": _attributes,
    "get": lambda *_: edits.Get(),
}


_OF_KEYS: Final = ("etag", "absent", "unchanged_since", "equals", "test")
_OF_RANGES: Final = ("unchanged_since", "absent", "count")
_COMPARE_MEMBERS: Final = ("key", "prefix", *_OF_KEYS, "count", "resource_version")
_RELATIONS: Final[tuple[ranges.Relation, ...]] = ("less", "equal", "greater")
_COUNT: Final = integer(0, ranges.COUNT_MAX)
_EXISTS: Final = patching.extended.parse_tests([{"op": "defined", "path": ""}])


def _read_compare(item: Any, at: str, reader: _Reader) -> compares.Compare:
    """The compare at ``at`` of the body. Raises RequestRefused, Unstorable."""
    members = require_object(item, _COMPARE_MEMBERS, at)
    if "resource_version" in members:
        require_known(members, ("resource_version",), at)
        return compares.RevisionIs(member(members, "resource_version", REVISION, at))
    if "prefix" in members:
        require_known(members, ("prefix", *_OF_RANGES), at)
        return _range_compare(members, at, reader)
    require_known(members, ("key", *_OF_KEYS), at)
    key = _key_of(members, "key", at, reader)
    name = _only_one(members, _OF_KEYS, at)
    value, place = members[name], f"{at}/{name}"
    match name:
        case "etag":
            if not isinstance(value, str) or not value or '"' in value:
                refuse_member(place, "it must be a version token, without a header's quotes")
            if value == ANY:
                return compares.Satisfies(key, _EXISTS)
            return compares.TokenIs(key, value)
        case "absent":
            _require_true(value, place)
            return compares.IsAbsent(key)
        case "unchanged_since":
            return compares.IsUnchanged(key, member(members, name, REVISION, at))
        case "equals":
            document_bytes(value, reader.limits, place)
            return compares.Equals(key, value)
    tests = _patch_of(
        value,
        place,
        reader,
        lambda: patching.extended.parse_tests(value, limits=reader.patch_limits),
    )
    return compares.Satisfies(key, tests)


def _range_compare(
    members: dict[str, Any], at: str, reader: _Reader
) -> ranges.RangeUnchanged | ranges.RangeAbsent | ranges.RangeCount:
    prefix = _prefix_of(members, at, reader)
    name = _only_one(members, _OF_RANGES, at)
    if name == "unchanged_since":
        return ranges.RangeUnchanged(prefix, member(members, name, REVISION, at))
    if name == "absent":
        _require_true(members[name], f"{at}/{name}")
        return ranges.RangeAbsent(prefix)
    place = f"{at}/{name}"
    count = require_object(members[name], _RELATIONS, place)
    relation = _only_one(count, _RELATIONS, place)
    return ranges.RangeCount(prefix, relation, member(count, relation, _COUNT, place))


def _only_one(members: dict[str, Any], names: tuple[_Name, ...], at: str) -> _Name:
    given = [name for name in names if name in members]
    if len(given) != 1:
        refuse_member(at, f"it must have exactly one of: {', '.join(names)}")
    return given[0]


def _require_true(value: Any, place: str) -> None:
    if value is not True:
        refuse_member(place, "it must be true; if a document must exist, use a 'test' of \"\"")


def _patch_of(
    operations: Any, place: str, reader: _Reader, parse: Callable[[], _Parsed]
) -> _Parsed:
    """The result of ``parse``, which reads ``operations`` at ``place``; errors name the place."""
    try:
        require_storable_operations(operations, reader.limits.depth_max)
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


def _key_of(members: dict[str, Any], name: str, at: str, reader: _Reader) -> str:
    """The member ``name``, which is required: a document's key."""
    key = _text_of(members, name, at, "a document's key")
    _require_at(f"{at}/{name}", require_key, key, reader)
    return key


def _prefix_of(members: dict[str, Any], at: str, reader: _Reader) -> str:
    """The member ``prefix``, which is required; all keys begin with ""."""
    prefix = _text_of(members, "prefix", at, "a prefix of documents' keys")
    _require_at(f"{at}/prefix", require_prefix, prefix, reader)
    return prefix


def _text_of(members: dict[str, Any], name: str, at: str, what: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        refuse_member(_place(members, name, at), f"'{name}' must be {what}")
    return value


def _place(members: dict[str, Any], name: str, at: str) -> str:
    """Where a member is, or is missing."""
    return f"{at}/{name}" if name in members else at


def _require_at(
    place: str, require: Callable[[str, RequestLimits], object], text: str, reader: _Reader
) -> None:
    """Call ``require`` for the text at ``place`` of the body; its refusal names the place."""
    try:
        require(text, reader.limits)
    except RequestRefused as error:
        error.members["pointer"] = place
        raise

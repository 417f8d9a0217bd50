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
from typing import Any, Final, TypeVar

from gateway.commits.compares import Compare
from gateway.commits.requests import KeyEdit
from gateway.http.authors import RULE as AUTHOR_RULE
from gateway.http.authors import is_author
from gateway.http.bodies import decode_members
from gateway.http.json_members import refuse_member, require_object
from gateway.http.limits import RequestLimits
from gateway.http.preferences import MESSAGE_CHARACTERS_MAX
from gateway.http.refusals import RequestRefused
from gateway.http.transaction_items import Reader, read_action, read_compare
from patching import Json, Limits

_MEMBERS: Final = ("compare", "then", "else", "message", "author", "dry_run")
_Item = TypeVar("_Item")


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
    members = require_object(decode_members(raw), _MEMBERS)
    lists = {name: _list(members, name) for name in ("compare", "then", "else")}
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
        compare=_each(lists["compare"], "/compare", reader, read_compare),
        then=_each(lists["then"], "/then", reader, read_action),
        otherwise=_each(lists["else"], "/else", reader, read_action) if "else" in members else None,
        message=_message(members),
        author=_author(members),
        dry_run=_dry_run(members),
        body={name: value for name, value in members.items() if name in lists},
    )


def _each(
    items: list[Any], at: str, reader: Reader, read: Callable[[Any, str, Reader], _Item]
) -> tuple[_Item, ...]:
    return tuple(read(item, f"{at}/{index}", reader) for index, item in enumerate(items))


def _list(members: dict[str, Any], name: str) -> list[Any]:
    value = members.get(name, [])
    if not isinstance(value, list):
        refuse_member(f"/{name}", "it must be an array")
    return value


def _message(members: dict[str, Any]) -> str | None:
    value = members.get("message", "")
    if not isinstance(value, str) or len(value) > MESSAGE_CHARACTERS_MAX:
        refuse_member(
            "/message", f"it must be a text of at most {MESSAGE_CHARACTERS_MAX} characters"
        )
    return value or None


def _author(members: dict[str, Any]) -> str | None:
    if "author" not in members:
        return None
    value = members["author"]
    if not isinstance(value, str) or not is_author(value):
        refuse_member("/author", f"it must be {AUTHOR_RULE}")
    return value


def _dry_run(members: dict[str, Any]) -> bool:
    value = members.get("dry_run", False)
    if not isinstance(value, bool):
        refuse_member("/dry_run", "it must be true or false")
    return value

"""The model's patches: RFC 6902 and RFC 7396, and patches that name the items of lists by key."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from .gone import GONE
from .misfit import Misfit
from .model_lists import ITEMS, NO_LISTS, Lists, item_at, key_of, named
from .model_repeatables import REPEATABLES, Stamps, repeated


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def operated(before: Any, operations: Sequence[Mapping[str, Any]], lists: Lists = NO_LISTS) -> Any:
    """What a patch makes of a value. Raises Misfit, also where it goes to an item of ``lists`` by
    index and hasn't told which one it means."""
    after = copy.deepcopy(before)
    told: set[tuple[str, str] | None] = set()
    for operation in operations:
        tokens = tokens_of(operation)
        inserts = operation["op"] == "add" and len(tokens) == 2
        goes_to = item_at(after, tokens, lists)
        if goes_to and not (operation["op"] == "test" or inserts or goes_to in told):
            raise Misfit("index_needs_test")
        after = _operated(after, operation)
        if operation["op"] != "remove" and tokens[2:] in ((), ("id",)):
            told.add(item_at(after, tokens, lists))
    return after


def operated_by_key(
    before: Any,
    operations: Sequence[Mapping[str, Any]],
    lists: Lists,
    stamps: Stamps | None = None,
) -> Any:
    """What a patch makes of a value that names the items of ``lists`` by key. Raises Misfit."""
    after = copy.deepcopy(before)
    changes: bool | None = None  # what the operations before the stamps come to
    for operation in operations:
        if operation["op"] == "stamp" and changes is None:
            changes = after != before
        if operation["op"] in ("add_to_set", "pull"):
            _operate_on_set(after, operation)
        elif operation["op"] not in REPEATABLES:
            after = _operated(after, _by_index(after, operation, lists))
        elif changes or operation["op"] != "stamp":
            after = repeated(after, operation, lists, stamps)
    return after


def tokens_of(operation: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(operation["path"].split("/")[1:])


def _operate_on_set(document: Any, operation: Mapping[str, Any]) -> None:
    (name,) = tokens_of(operation)
    array = document.get(name) if isinstance(document, dict) else None
    if not isinstance(array, list):
        raise Misfit
    value = operation["value"]
    if operation["op"] == "pull":
        array[:] = [item for item in array if item != value]
    elif value not in array:
        array.append(copy.deepcopy(value))


def _by_index(document: Any, operation: Mapping[str, Any], lists: Lists) -> Mapping[str, Any]:
    """The same of an item by its index."""
    tokens = tokens_of(operation)
    if len(tokens) < 2 or tokens[0] != ITEMS:
        return operation
    array = document.get(ITEMS) if isinstance(document, dict) else None
    if ITEMS not in lists and isinstance(array, dict):
        return operation
    if ITEMS not in lists or not isinstance(array, list):
        raise Misfit
    if named(ITEMS, array) is None:
        raise Misfit("list_violation")
    keys = [key_of(ITEMS, item) for item in array]
    index = str(keys.index(tokens[1])) if tokens[1] in keys else "-"
    whole = len(tokens) == 2
    if index == "-" and not (whole and operation["op"] == "add"):
        raise Misfit
    lowered = {**operation, "path": "/".join(("", ITEMS, index, *tokens[2:]))}
    if whole and operation["op"] in ("add", "replace"):
        lowered["op"] = "add" if index == "-" else "replace"
        lowered["value"] = {"id": tokens[1], **operation["value"]}
    return lowered


def _operated(document: Any, operation: Mapping[str, Any]) -> Any:
    """RFC 6902, section 4, as far as the simulation and its merges use it."""
    op, path = operation["op"], operation["path"]
    if path == "":
        if document is GONE and op != "add":
            raise Misfit
        if op == "test":
            return _tested(document, operation["value"], document)
        return GONE if op == "remove" else copy.deepcopy(operation["value"])
    *parents, name = tokens_of(operation)
    target = document
    for parent in parents:
        if isinstance(target, list):
            target = target[_index(parent, len(target))]
        elif isinstance(target, dict) and parent in target:
            target = target[parent]
        else:
            raise Misfit
    if isinstance(target, list):
        _operate_on_list(target, op, name, operation.get("value"))
        return document
    if not isinstance(target, dict) or (op != "add" and name not in target):
        raise Misfit
    if op == "test":
        return _tested(document, operation["value"], target[name])
    if op == "remove":
        del target[name]
    else:
        target[name] = copy.deepcopy(operation["value"])
    return document


def _operate_on_list(target: list[Any], op: str, name: str, value: Any) -> None:
    inserts = op == "add"
    index = len(target) if inserts and name == "-" else _index(name, len(target) + inserts)
    if op == "test":
        _tested(target, value, target[index])
        return
    if not inserts:
        del target[index]
    if op != "remove":
        target.insert(index, copy.deepcopy(value))


def _index(token: str, count: int) -> int:
    if not token.isdigit() or int(token) >= count:
        raise Misfit
    return int(token)


def _tested(document: Any, expected: Any, found: Any) -> Any:
    if found != expected:
        raise Misfit
    return document

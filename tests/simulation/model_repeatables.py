"""The model's operations that may be sent twice: set, max, min, append_text and stamp."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .gone import GONE
from .misfit import Misfit
from .model_lists import ITEMS, Lists, Tokens, key_of, named

REPEATABLES = frozenset({"set", "max", "min", "append_text", "stamp"})


class SomeTime:
    """The time of a commit that isn't made, as text: equal to any that is later than ``last_us``,
    which is that of the newest one."""

    def __init__(self, last_us: int) -> None:
        self._last = written_time(last_us)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and _is_time(other) and other > self._last)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"SomeTime(after {self._last})"


@dataclass(frozen=True)
class Stamps:
    """What a stamp tells of its commit."""

    time: str | SomeTime
    revision: int
    author: str


def written_time(time_us: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _is_time(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.tzinfo is not None and len(text) == len(written_time(0))


def repeated(
    document: Any, operation: Mapping[str, Any], lists: Lists, stamps: Stamps | None
) -> Any:
    """What an operation makes of a document, which it may change. Raises Misfit."""
    tokens: Tokens = tuple(operation["path"].split("/")[1:])
    parents, there = _found(document, tokens, lists)
    after = _after(there, operation, stamps)
    if there is not GONE and there == after:
        return document
    puts = operation["op"] in ("set", "stamp") and len(parents) == len(tokens)
    if there is GONE and not (puts or operation.get("create_parents")):
        raise Misfit
    if not tokens or document is GONE:
        document = _nested(after, tokens, 0, lists)
    else:
        known = len(parents) - 1
        _put(parents[-1], tokens, known, _nested(after, tokens, known + 1, lists), lists)
    if _found(document, tokens, lists)[1] is GONE:
        raise Misfit  # it goes by the key that it changes
    return document


def _after(there: Any, operation: Mapping[str, Any], stamps: Stamps | None) -> Any:
    op, value = operation["op"], operation["value"]
    if op == "stamp":
        return getattr(stamps, value)
    if op == "set":
        return copy.deepcopy(value)
    if op == "append_text":
        text = "" if there is GONE else there
        if not isinstance(text, str):
            raise Misfit
        if operation.get("once") and there is not GONE and value in text:
            return text
        if len(text + value) > operation.get("max_length", 1 << 62):
            raise Misfit
        return text + value
    if there is GONE:
        return value
    if not isinstance(there, int | float):
        raise Misfit
    return max(there, value) if op == "max" else min(there, value)


def _found(document: Any, tokens: Tokens, lists: Lists) -> tuple[list[Any], Any]:
    """The containers on the way, as far as they exist, and what is there; GONE: nothing."""
    parents: list[Any] = []
    node = document
    for at, token in enumerate(tokens):
        if node is GONE:
            break
        parents.append(node)
        node = _member(node, tokens[:at], token, lists)
    return parents, node


def _member(node: Any, above: Tokens, token: str, lists: Lists) -> Any:
    if above == (ITEMS,) and ITEMS in lists:
        if not isinstance(node, list):
            return GONE
        items = named(ITEMS, node)
        if items is None:
            raise Misfit("list_violation")
        return items.get(token, GONE)
    if isinstance(node, list):
        return node[int(token)] if token.isdigit() and int(token) < len(node) else GONE
    return node.get(token, GONE) if isinstance(node, dict) else GONE


def _put(holder: Any, tokens: Tokens, at: int, value: Any, lists: Lists) -> None:
    if tokens[:at] == (ITEMS,) and ITEMS in lists:
        if not isinstance(holder, list):
            raise Misfit
        keys = [key_of(ITEMS, item) for item in holder]
        value = _keyed(value, tokens[at])
        if tokens[at] in keys:
            holder[keys.index(tokens[at])] = value
        else:
            holder.append(value)
    elif isinstance(holder, list):
        if not tokens[at].isdigit() or int(tokens[at]) >= len(holder):
            raise Misfit
        holder[int(tokens[at])] = value
    elif isinstance(holder, dict):
        holder[tokens[at]] = value
    else:
        raise Misfit


def _nested(value: Any, tokens: Tokens, known: int, lists: Lists) -> Any:
    """With the containers of all tokens from ``known`` on around it."""
    for at in range(len(tokens) - 1, known - 1, -1):
        if tokens[:at] == (ITEMS,) and ITEMS in lists:
            value = [_keyed(value, tokens[at])]
        else:
            value = {tokens[at]: value}
    return value


def _keyed(value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        raise Misfit
    return {"id": key, **value}

"""What simulated clients do with lists whose items have keys, declared or not.

The indexes are those of the document as the client has seen it, which may be an old one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from .asks import SETTINGS, Action, Name
from .gone import GONE

_ITEMS = {"keys": "*", "pointer": "/items", "item_key": ["id"]}
_MARKS = {"keys": "*", "pointer": "/marks", "set": True}
_IDS = ("a", "b", "c")
_VALUES = ("x", "y", "z")
_LIKE = 0.04  # how often two items of a list are alike

_Operations = list[dict[str, Any]]


def settings(rng: random.Random) -> Action:
    """Mostly such as declare lists."""
    if rng.random() < 0.08:
        return Action("delete", SETTINGS)
    arrays = rng.choice(([_ITEMS, _MARKS], [_ITEMS, _MARKS], [_MARKS, _ITEMS], [_ITEMS], []))
    value: dict[str, Any] = {"arrays": arrays}
    if rng.random() < 0.1:
        value["require_precondition"] = True
    return Action("put", SETTINGS, value)


def items(rng: random.Random, label: str) -> Any:
    ids = rng.sample(_IDS, rng.choice((0, 1, 2, 2, 3)))
    found = [{"id": each, **_members(rng, label)} for each in ids]
    return found if rng.random() > _LIKE else [*found, {"id": "a"}, {"id": "a"}]


def marks(rng: random.Random) -> Any:
    found = rng.sample(_VALUES, rng.randrange(4))
    return found if rng.random() > _LIKE else [*found, "x", "x"]


def action(rng: random.Random, key: Name, content: Any, label: str) -> Action:
    """An edit of a list of the document, which was seen with this content."""
    there = content if isinstance(content, dict) else {}
    has = {name: there.get(name) for name in ("items", "marks")}
    is_there = all(isinstance(each, list) for each in has.values())
    if not is_there or rng.random() < 0.08:
        whole = {"items": items(rng, label), "marks": marks(rng)}
        if content is GONE or rng.random() < 0.2:
            return Action("put", key, {"log": [label], "n": rng.randrange(4), **whole})
        return Action("merge", key, whole)
    if rng.random() < 0.1:
        return Action("merge", key, {"items": has["items"][::-1]})
    if rng.random() < 0.5:
        return Action("edit", key, _by_key(rng, has["items"], label))
    return Action("patch", key, _by_index(rng, has["items"], has["marks"], label))


def _members(rng: random.Random, label: str) -> dict[str, Any]:
    members = {"n": rng.randrange(3), "by": label}
    return {name: value for name, value in members.items() if rng.random() < 0.6}


def _by_key(rng: random.Random, seen: Sequence[Any], label: str) -> _Operations:
    item = rng.choice(seen) if seen and rng.random() < 0.7 else {"id": rng.choice(_IDS)}
    path, number = f"/items/{item['id']}", rng.randrange(3)
    mark = rng.choice(_VALUES)
    choices: list[tuple[int, _Operations]] = [
        (4, [_op("add", f"{path}/n", number)]),
        (2, [_op("replace", f"{path}/n", number)]),
        (2, [_op("add", f"{path}/by", label)]),
        (3, [_op("test", f"{path}/n", item.get("n", 0)), _op("add", f"{path}/n", number)]),
        (3, [_op("add", path, _members(rng, label))]),
        (1, [_op("replace", path, _members(rng, label))]),
        (3, [{"op": "remove", "path": path}]),
        (2, [_op("add_to_set", "/marks", mark)]),
        (2, [_op("pull", "/marks", mark)]),
        (1, [_op("add_to_set", "/marks", label), {"op": "remove", "path": path}]),
    ]
    return _chosen(rng, choices)


def _by_index(
    rng: random.Random, seen: Sequence[Any], marked: Sequence[Any], label: str
) -> _Operations:
    index = rng.randrange(len(seen)) if seen else 0
    item = seen[index] if seen else {"id": "a"}
    path, number = f"/items/{index}", rng.randrange(3)
    tells = rng.choice((_op("test", f"{path}/id", item["id"]), _op("test", path, item)))
    fresh = {"id": rng.choice(_IDS), **_members(rng, label)}
    own = {"id": item["id"], **_members(rng, label)}
    choices: list[tuple[int, _Operations]] = [
        (4, [tells, _op("add", f"{path}/n", number)]),
        (3, [_op("add", f"{path}/n", number)]),
        (1, [_op("test", f"{path}/n", item.get("n", 0)), _op("add", f"{path}/by", label)]),
        (1, [tells, _op("replace", path, own)]),
        (3, [tells, {"op": "remove", "path": path}]),
        (2, [{"op": "remove", "path": path}]),
        (4, [_op("add", rng.choice(("/items/0", "/items/-")), fresh)]),
        (1, [_op("add", "/items/0", fresh), _op("add", "/items/0/by", label)]),
        (1, [_op("add", "/marks/-", rng.choice(_VALUES))]),
        (1, [{"op": "remove", "path": "/marks/0"}]),
        (2, [_op("test", "/marks/0", (*marked, "x")[0]), {"op": "remove", "path": "/marks/0"}]),
    ]
    return _chosen(rng, choices)


def _op(op: str, path: str, value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def _chosen(rng: random.Random, choices: list[tuple[int, _Operations]]) -> _Operations:
    return rng.choices([each for _, each in choices], [weight for weight, _ in choices])[0]

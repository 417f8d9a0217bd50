"""Programs: what is there beforehand, and the requests whose cost is measured.

A program is made of choices alone. Its parts know the routes and bodies of the HTTP interface, not
what makes any of them expensive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, urlencode

from benchmarks.cost.choices import Choices
from benchmarks.cost.features import FEATURES
from benchmarks.cost.values import NAMES, Json, Room, pattern, pointers, value
from benchmarks.cost.world import (
    APPLY,
    EXTENDED,
    JSON,
    LINES,
    MERGE,
    PATCH,
    Program,
    Request,
    World,
    request,
)

# What a body may hold.
_BODY_BYTES, _BODY_VALUES = 6_000_000, 400_000
_DOCUMENT_BYTES, _DOCUMENT_VALUES = 3_500_000, 400_000


def program(choices: Choices, catalog: str) -> Program:
    world = World(f"/v1/catalogs/{catalog}", choices)
    for part in (_documents, _history, _managers, _settings):
        if part is _documents or choices.chance(0.5):
            part(world)
    if choices.chance(0.2):  # settings that come first hold for all that is written
        world.requests.insert(0, world.requests.pop())
    made = Program(setup=world.requests)
    attack = choices.pick(_ATTACKS)
    made.attack = list(attack(world))
    made.at_once = choices.pick((1, 1, 1, 40))
    return made


# What is there beforehand.


def _documents(world: World) -> None:
    choices = world.choices
    shape = value(choices, Room(_DOCUMENT_VALUES, _DOCUMENT_BYTES))
    world.document = shape if choices.chance(0.3) else {choices.pick(NAMES): shape, "n": 0}
    names = choices.number(1, 12_000) if choices.chance(0.3) else 0
    acl = {choices.pick(("read", "write")): [choices.pick(("*b", "reader", "x*y*z"))] * names}
    count = world.room.times(choices.number(1, 3_000), [world.document, "x" * names * 6])
    world.keys = [f"k{index}" for index in range(max(count, 1))]
    held: dict[str, Json] = {"op": "put", "value": world.document}
    if names:
        held["attributes"] = {"mode": "replace", "value": {"acl": acl}}
    world.send_lines({"key": key, **held} for key in world.keys)
    world.commits += len(world.keys)


def _history(world: World) -> None:
    choices = world.choices
    count = choices.number(1, 400)
    pointer = "/n" if isinstance(world.document, dict) and "n" in world.document else "/h"
    key = world.key()
    patches = ([{"op": "add", "path": pointer, "value": index}] for index in range(count))
    world.send_lines({"key": key, "op": "patch", "patch": each} for each in patches)
    world.commits += count


def _managers(world: World) -> None:
    choices = world.choices
    part = value(choices, Room(60_000, 500_000), depth=1)
    wanted = part if isinstance(part, dict) else {choices.pick(NAMES): part}
    world.managers = world.room.times(choices.number(1, 1_500), wanted)
    key = choices.pick(("owned", world.key()))
    world.keys.append(key)
    world.send_lines(
        {"key": key, "op": "apply", "manager": f"m{index}", "value": wanted, "conflict": "skip"}
        for index in range(world.managers)
    )
    if world.document is None:
        world.document = wanted


def _settings(world: World) -> None:
    world.lists = _declared(world.choices)
    held: dict[str, Json] = {}
    if world.choices.chance(0.6):
        held["arrays"] = world.lists
    if world.choices.chance(0.4):
        held["schemas"] = _schemas(world.choices)
    world.send("PUT", "?check_documents=false", held)


def _declared(choices: Choices) -> list[dict[str, Json]]:
    lists: list[dict[str, Json]] = []
    for name in dict.fromkeys(choices.pick(NAMES) for _ in range(choices.number(1, 4))):
        one: dict[str, Json] = {"keys": choices.pick(("*", "k*")), "pointer": f"/{name}"}
        if choices.chance(0.5):
            one["set"] = True
        else:
            one["item_key"] = [choices.pick((*NAMES, "v"))]
        lists.append(one)
    if choices.chance(0.2):
        for depth in range(choices.number(1, 98)):
            lists.append({"keys": "*", "pointer": "/*" * (depth + 1), "item_key": ["id"]})
    return lists


def _schemas(choices: Choices) -> Json:
    """Schemas of a few parts, repeated."""
    count = choices.number(1, 2_000)
    text = pattern(choices, 60)
    part: Json = choices.pick(
        (
            {"pattern": text},
            {"enum": list(range(choices.number(1, 1_000)))},
            {"uniqueItems": True, "type": "array"},
            {"$ref": "#"},
            {"anyOf": [{"required": [f"a{index}"]} for index in range(choices.number(1, 100))]},
            {"items": {"items": {"type": "number"}}, "minItems": 1},
        )
    )
    named = choices.pick(("properties", "patternProperties", "allOf", "dependentSchemas"))
    if named == "allOf":
        return {"*": {"allOf": [part] * min(count, 500)}}
    if named == "patternProperties":
        return {"*": {named: {f"{text}{index}": part for index in range(count)}}}
    kept = part if "pattern" not in part else None
    return {
        "*": {
            named: {f"m{index}": kept or {"pattern": f"{text}{index}"} for index in range(count)},
            "additionalProperties": part,
        }
    }


# What is measured.


def _operations(world: World, room: Room) -> list[Json]:
    """A few operations, repeated; of items by their places where the pattern says so."""
    choices = world.choices
    found = pointers(world.document, choices)
    made: list[Json] = []
    for _ in range(choices.number(1, 3)):
        name = choices.pick(_OPERATIONS)
        path, other = choices.pick(found), choices.pick(found)
        one: dict[str, Json] = {"op": name, "path": path}
        if name in ("add", "replace", "test", "add_to_set", "pull", "contains", "in", "less"):
            small = Room(50_000, 400_000)
            one["value"] = value(choices, small, depth=1)
            if name == "in":
                one["value"] = [one["value"]] * choices.number(1, 1_000)
        elif name in ("move", "copy"):
            one["from"] = other
        elif name == "matches":
            one |= {"value": pattern(choices), "ignore_case": choices.chance(0.3)}
        elif name in ("starts", "ends"):
            one |= {"value": "x" * choices.number(1, 10_000), "ignore_case": choices.chance(0.5)}
        elif name == "increment":
            one["value"] = choices.pick((1, 1e300, 10**18))
        elif name in ("and", "or", "not"):
            inner = {"op": "matches", "path": path, "value": pattern(choices, 50)}
            one["apply"] = [inner] * choices.number(1, 900)
        elif name == "remove":
            one["if_exists"] = True
        if choices.chance(0.2):
            one["create_parents"] = True
        made += [one] * room.times(choices.number(1, 1_000), one)
    return _distinct(made, choices) if choices.chance(0.3) else made[:1_000]


def _distinct(operations: list[Json], choices: Choices) -> list[Json]:
    """The same at places that differ by a number."""
    stem = choices.pick(("same", "m", ""))
    return [
        {**one, "path": f"{one['path'].rpartition('/')[0]}/{stem}{index}"}
        for index, one in enumerate(operations[:1_000])
    ]


_OPERATIONS: Final = (
    *("add", "remove", "replace", "move", "copy", "test"),
    *("add_to_set", "pull", "increment", "matches", "contains", "in", "less", "starts", "ends"),
    *("defined", "undefined", "type", "and", "or", "not"),
)


def _rules(choices: Choices) -> Json:
    """Of lists that a patch itself declares."""
    count = choices.number(1, 98)
    if choices.chance(0.5):
        return {"/*" * (depth + 1): ["id"] for depth in range(count)}
    return {f"/{name}": [choices.pick(NAMES), "v"][: choices.number(1, 2)] for name in NAMES}


def _extended(world: World, room: Room) -> Json:
    body: dict[str, Json] = {"patch": _operations(world, room)}
    if world.choices.chance(0.5):
        body["array_primary_keys"] = _rules(world.choices)
    return body


def _patch(world: World) -> Iterator[Request]:
    choices = world.choices
    room = Room(_BODY_VALUES, _BODY_BYTES)
    kind = choices.pick((PATCH, EXTENDED, EXTENDED, MERGE, APPLY))
    if kind == EXTENDED:
        body = _extended(world, room)
    elif kind == PATCH:
        body = _operations(world, room)
    else:
        body = value(choices, Room(_DOCUMENT_VALUES, _DOCUMENT_BYTES))
        body = body if isinstance(body, dict) else {choices.pick(NAMES): body}
    query: dict[str, str] = {"dry_run": "true"} if choices.chance(0.5) else {}
    if kind == APPLY:
        query |= {"manager": "mine", "conflict": choices.pick(("skip", "force", "refuse"))}
    part = "documents" if choices.chance(0.9) else "attributes"
    yield request("PATCH", f"{world.path}/{part}/{world.key()}", query, body, kind)


def _put(world: World) -> Iterator[Request]:
    made = value(world.choices, Room(_DOCUMENT_VALUES, _DOCUMENT_BYTES))
    if world.choices.chance(0.5):
        made = {world.choices.pick(NAMES): made}
    part = world.choices.pick(("documents", "documents", "attributes"))
    path = f"{world.path}/{part}/{world.choices.pick(('new', world.key()))}"
    for _ in range(world.choices.number(1, 2)):
        yield request("PUT", path, {}, made, JSON)


def _set_settings(world: World) -> Iterator[Request]:
    held: dict[str, Json] = {"schemas": _schemas(world.choices)}
    if world.choices.chance(0.3):
        held["arrays"] = _declared(world.choices)
    yield request("PUT", world.path, {}, held, JSON)
    yield request("PUT", f"{world.path}/documents/after", {}, world.document, JSON)


def _transaction(world: World) -> Iterator[Request]:
    choices = world.choices
    room = Room(_BODY_VALUES, _BODY_BYTES)
    actions: list[Json] = []
    for _ in range(choices.number(1, 3)):
        one = _action(world, room)
        times = room.times(choices.number(1, 4_000), one)
        if choices.chance(0.5) and "manager" in one:
            actions += [{**one, "manager": f"m{index}"} for index in range(times)]
        elif choices.chance(0.5) and one["action"] == "apply":
            actions += [{**one, "value": {"n": index}} for index in range(times)]
        else:
            actions += [one] * times
    body: dict[str, Json] = {"then": actions[:4_000]}
    if choices.chance(0.3):
        tests = _operations(world, room)
        body["compare"] = [{"key": world.key(), "test": tests}]
    query = {"dry_run": "true"} if choices.chance(0.6) else {}
    yield request("POST", f"{world.path}/transactions", query, body, JSON)


def _action(world: World, room: Room) -> dict[str, Json]:
    choices = world.choices
    key = world.key()
    name = choices.pick(
        ("patch", "patch", "apply", "let_go", "put", "merge", "delete", "move", "replace", "get")
    )
    if name == "patch":
        return {"action": name, "key": key, **_extended(world, room)}
    if name in ("put", "merge"):
        made = value(choices, Room(50_000, 500_000), depth=1)
        return {"action": name, "key": key, "value": made if name == "put" else {"a": made}}
    if name == "apply":
        wanted = {"n": choices.pick((1, 2))}
        return {"action": name, "key": key, "manager": "mine", "value": wanted}
    if name == "let_go":
        return {"action": name, "key": key, "manager": f"m{choices.number(1, 1_500)}"}
    if name == "move":
        return {"action": name, "from": key, "to": f"{key}-moved"}
    if name == "replace":
        return {"action": name, "prefix": "k", "documents": {"k1": {"a": 1}}}
    if name == "delete" and choices.chance(0.5):
        return {"action": name, "prefix": "k"}
    return {"action": name, "key": key}


def _revert(world: World) -> Iterator[Request]:
    choices = world.choices
    last = max(world.commits, 1)
    body: dict[str, Json] = {"conflict": choices.pick(("skip", "refuse", "force"))}
    if choices.chance(0.5):
        count = min(choices.number(1, 200), last)
        step = choices.pick((1, 2))
        body["revisions"] = sorted({last - index * step for index in range(count)} - {0})[-100:]
        body["revisions"] = [each for each in body["revisions"] if each > 0]
    else:
        body["to"] = max(last - choices.number(1, 400), 1)
    query = {"dry_run": "true"} if choices.chance(0.7) else {}
    yield request("POST", f"{world.path}/reverts", query, body, JSON)


def _bulk(world: World) -> Iterator[Request]:
    choices = world.choices
    catalog = world.path.split("/")[3]
    room = Room(_BODY_VALUES * 4, 40_000_000)
    pieces: list[bytes] = []
    for _ in range(choices.number(1, 3)):
        kind = choices.pick(("blank", "spaces", "junk", "small", "patch", "extended", "scalar"))
        if kind in ("blank", "spaces", "junk", "scalar"):
            text = {"blank": b"\n", "spaces": b" \r\n", "junk": b"x\n", "scalar": b"1\n"}[kind]
            pieces.append(text * choices.number(1, 20_000_000))
            continue
        line: dict[str, Json] = {"catalog": catalog, "key": world.key()}
        if kind == "small":
            line |= {"op": "put", "value": 1}
        else:
            small = Room(100_000, 1_000_000)
            extended = kind == "extended"
            body = _extended(world, small) if extended else {"patch": _operations(world, small)}
            line |= {"op": "patch", **body}
        text = json.dumps(line).encode() + b"\n"
        pieces.append(text * room.times(choices.number(1, 10_000), "x" * len(text)))
    yield Request("POST", "/v1/bulk", b"".join(pieces)[:50_000_000], LINES)


_READS: Final[tuple[tuple[str, dict[str, tuple[str, ...]]], ...]] = (
    (
        "documents",
        {
            "select": ("digest", ""),
            "limit": ("10000", "1000", "1"),
            "contains": ("k", "", "zz"),
            "delimiter": ("/", "", "k"),
            "revision": ("last", "middle", ""),
            "manager": ("m1", ""),
        },
    ),
    ("partitions", {"count": ("100", "2"), "prefix": ("k", "")}),
    ("differences", {"from": ("middle", "0"), "limit": ("1000", "1")}),
    ("commits", {"limit": ("1000", "1"), "key": ("key", ""), "newest_first": ("true", "")}),
    ("export", {"revision": ("last", "middle", "")}),
    ("changes", {"after": ("0", "middle"), "limit": ("1000", ""), "timeout": ("1", "0")}),
    ("documents/key", {"revision": ("last", "middle", "")}),
    ("owners/key", {"revision": ("last", "")}),
    ("applications", {}),
)


def _read(world: World) -> Iterator[Request]:
    choices = world.choices
    about, parameters = choices.pick(_READS)
    named = {"last": world.commits, "middle": world.commits // 2, "key": world.key()}
    query = {name: choices.pick(options) for name, options in parameters.items()}
    query = {name: str(named.get(each, each)) for name, each in query.items() if each}
    path = f"{world.path}/{about.replace('/key', '/' + quote(world.key()))}"
    as_reader, unread = choices.chance(0.5), choices.chance(0.3)
    for _ in range(choices.number(1, 10)):
        yield Request("GET", f"{path}?{urlencode(query)}", as_reader=as_reader, unread=unread)


_ATTACKS: Final[tuple[Callable[[World], Iterator[Request]], ...]] = (
    *(_patch, _put, _set_settings, _transaction, _revert, _bulk, _read),
    *(_transaction, _read, *FEATURES),
)

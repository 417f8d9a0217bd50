"""Attacks by any operation of ``openapi.yaml``, with any of the parameters that it has there.

What the contract names is asked by its name, so that an operation, or a parameter, that is new
belongs to the search as soon as it has values here; ``tests/cost`` tells which have none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from benchmarks.cost.choices import Choices
from benchmarks.cost.values import NAMES, Json, Room, value
from benchmarks.cost.world import (
    APPLY,
    EXTENDED,
    JSON,
    LINES,
    MERGE,
    PATCH,
    Request,
    World,
    request,
)

_CONTRACT: Final = Path(__file__).resolve().parent.parent.parent / "openapi.yaml"
_METHODS: Final = ("get", "head", "put", "patch", "delete", "post", "options")
# What a field, and all parameters of a query together, may have.
_FIELD_CHARACTERS, _QUERY_CHARACTERS = 8_000, 7_000
_SMALL: Final = (20_000, 200_000)


@dataclass(frozen=True)
class Operation:
    """``parameters`` are of the path, the query and the header: where, and the name."""

    name: str
    method: str
    path: str
    parameters: tuple[tuple[str, str], ...]
    has_body: bool


@cache
def operations() -> tuple[Operation, ...]:
    """Those of the contract, in its order."""
    contract = yaml.load(_CONTRACT.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def found(at: Any) -> Any:
        while "$ref" in at:
            names, at = at["$ref"].split("/")[1:], contract
            for name in names:
                at = at[name]
        return at

    made = []
    for path, item in contract["paths"].items():
        for method in filter(item.__contains__, _METHODS):
            asked = item[method]
            listed = map(found, (*item.get("parameters", ()), *asked.get("parameters", ())))
            names = dict.fromkeys((each["in"], each["name"]) for each in listed)
            made.append(
                Operation(
                    asked["operationId"], method.upper(), path, tuple(names), "requestBody" in asked
                )
            )
    return tuple(made)


# What stands in the braces of a path, and of a query or header below: see ``_named``. What is kept
# of an answer is filled in when the request is sent.
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "catalog": ("<catalog>",),
    "key": ("<key>", "<key>", "absent"),
    "token_id": ("absent",),
    "revision": ("<last>", "1", "<middle>"),
    "idempotency_key": ("i0", "absent"),
    "upload": ("{upload}",),
    "number": ("1", "2", "10000"),
    "application": ("a0", "a1"),
    "subscription": ("s0", "s1"),
    "pin": ("{pin}",),
}
_TIMES: Final = ("2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "<now>")
_DATES: Final = ("Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT")
_SWITCH: Final = ("true", "false")
_REVISIONS: Final = ("<last>", "<middle>", "1", "0")
_TAGS: Final = ('"<key>=7-5b1f0c7e"', '"@<middle>"', '"7-5b1f0c7e"', "*", "{etag}")
PARAMETERS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("header", "X-Request-Id"): ("r1",),
    ("header", "If-Match"): _TAGS,
    ("header", "If-None-Match"): _TAGS,
    ("header", "If-Unchanged-Under"): ('"k";revision=<middle>', '"";revision=1'),
    ("header", "If-Modified-Since"): _DATES,
    ("header", "If-Unmodified-Since"): _DATES,
    ("header", "Prefer"): (
        *("return=representation", "refusal=representation", "return=minimal", "rebase"),
        *("wait=1", "respond-async", "return=changes"),
    ),
    ("header", "Idempotency-Key"): ("i0", "<seed>"),
    ("header", "Commit-Message"): ("m", "%C3%A4"),
    ("header", "Commit-Author"): ("ann",),
    ("header", "Last-Event-ID"): ("0", "<middle>", "<middle>:k1"),
    ("query", "after"): ("", "<key>", "0", "<middle>", "k1"),
    ("query", "after_key"): ("", "<key>"),
    ("query", "commit_id"): ("", "5b1f0c7e"),
    ("query", "prefix"): ("", "k", "k1", "zz"),
    ("query", "limit"): ("1", "10", "1000"),
    ("query", "resource_version"): _REVISIONS,
    ("query", "check_documents"): _SWITCH,
    ("query", "examine"): ("1", "10000"),
    ("query", "dry_run"): _SWITCH,
    ("query", "select"): ("digest", "key"),
    ("query", "manager"): ("m1", "mine"),
    ("query", "contains"): ("k", "zz", "K"),
    ("query", "delimiter"): ("/", "k", "1"),
    ("query", "key"): ("<key>", "absent"),
    ("query", "revision"): _REVISIONS,
    ("query", "at"): _TIMES,
    ("query", "count"): ("2", "100", "1000"),
    ("query", "conflict"): ("refuse", "skip", "force"),
    ("query", "force"): ("/a", "/m1"),
    ("query", "pointer"): ("/a", "/m1"),
    ("query", "prune"): _SWITCH,
    ("query", "before"): _REVISIONS,
    ("query", "newest_first"): _SWITCH,
    ("query", "author"): ("writer", "ann"),
    ("query", "since"): _TIMES,
    ("query", "until"): (*_TIMES, "k5"),
    ("query", "from"): ("0", "1", "<middle>"),
    ("query", "to"): ("<last>", "<middle>", "0"),
    ("query", "lost_by"): ("m1", "mine"),
    ("query", "timeout"): ("0", "1"),
    ("query", "initial"): _SWITCH,
    ("query", "include"): ("value", "before", "settings"),
}
# Without these there is no answer but a refusal.
_NEEDED: Final = {"from", "lost_by"}


def _patch(world: World) -> tuple[Json, str]:
    small = value(world.choices, Room(*_SMALL), depth=1)
    count = world.choices.number(1, 1_000)
    name = world.choices.pick(NAMES)
    kind = world.choices.pick((PATCH, EXTENDED, MERGE, APPLY))
    if kind in (MERGE, APPLY):
        return {f"{name}{index}": index for index in range(count)} | {"v": small}, kind
    changes = [{"op": "add", "path": f"/{name}{index}", "value": index} for index in range(count)]
    changes[-1] |= {"value": small}
    return (changes if kind == PATCH else {"patch": changes}), kind


def _value(world: World) -> tuple[Json, str]:
    return value(world.choices, Room(*_SMALL)), JSON


def _attributes(world: World) -> tuple[Json, str]:
    names = [f"p*{index}" for index in range(world.choices.number(1, 100))]
    return {"acl": {world.choices.pick(("read", "write")): names}, "labels": {}}, JSON


def _attributes_patch(world: World) -> tuple[Json, str]:
    attributes, _ = _attributes(world)
    if world.choices.chance(0.5):
        return attributes, MERGE
    return [{"op": "add", "path": "", "value": attributes}], PATCH


def _settings(world: World) -> tuple[Json, str]:
    count = world.choices.number(1, 300)
    arrays = [{"keys": f"{index}*", "pointer": "/a", "set": True} for index in range(count)]
    properties = {f"m{index}": {"type": "string"} for index in range(count)}
    return {"arrays": arrays, "schemas": {"k*": {"properties": properties}}}, JSON


def _transaction(world: World) -> tuple[Json, str]:
    choices = world.choices
    key, count = world.key(), choices.number(1, 500)
    action: Json = choices.pick(
        (
            {"action": "get", "key": key},
            {"action": "get", "prefix": "k"},
            {"action": "put", "key": key, "value": 1},
            {"action": "merge", "key": key, "value": {"a": 1}},
        )
    )
    compare: Json = choices.pick(
        ({"key": key, "etag": "7-5b1f0c7e"}, {"key": key, "absent": False}, {"prefix": "k"})
    )
    return {"compare": [compare] * min(count, 64), "then": [action] * count, "else": [action]}, JSON


def _revert(world: World) -> tuple[Json, str]:
    if world.choices.chance(0.5):
        return {"to": max(world.commits // 2, 1), "conflict": "skip"}, JSON
    first = max(world.commits - world.choices.number(1, 100), 1)
    return {"revisions": list(range(first, max(world.commits, first) + 1))[:100]}, JSON


def _lines(world: World) -> tuple[Json, str]:
    key, catalog = world.key(), world.path.split("/")[3]
    patch = {"op": "patch", "patch": [{"op": "add", "path": "/z", "value": 1}]}
    verb = world.choices.pick((patch, {"op": "put", "value": 1}, {"op": "get"}, {"op": "delete"}))
    line = json.dumps({"catalog": catalog, "key": key, **verb}).encode() + b"\n"
    return line * world.choices.number(1, 3_000), LINES


def _token(world: World) -> tuple[Json, str]:
    pattern = world.choices.pick(("*", "a*b*c*d*", "c" * 200))
    grants = [f"read:{pattern}"] * world.choices.number(1, 100)
    return {"name": "n" * world.choices.number(1, 200), "grants": grants, "expires_in_s": 60}, JSON


def _subscription(world: World) -> tuple[Json, str]:
    address = "https://receiver.invalid/" + "x" * world.choices.number(1, 2_000)
    formatted = world.choices.pick(("cloudevents", "cloudevents-batch"))
    return {"to": address, "prefix": "k", "format": formatted, "initial": True}, JSON


def _application(world: World) -> tuple[Json, str]:
    principals = ["writer", *(f"p{index}" for index in range(world.choices.number(1, 19)))]
    return {"version": world.choices.number(1, 5), "principals": principals}, JSON


_BodyOf = Callable[[World], tuple[Json, str]]
BODIES: Final[Mapping[str, _BodyOf]] = {
    "create_token": _token,
    "put_catalog": _settings,
    "put_document": _value,
    "patch_document": _patch,
    "put_attributes": _attributes,
    "patch_attributes": _attributes_patch,
    "run_transaction": _transaction,
    "revert": _revert,
    "open_upload": lambda world: ({"key": world.key()}, JSON),
    "put_part": lambda world: (b"1" * world.choices.number(1, 500_000), "application/octet-stream"),
    "commit_upload": lambda world: (
        {"parts": list(range(1, world.choices.number(1, 10_000) + 1))},
        JSON,
    ),
    "put_application": _application,
    "put_subscription": _subscription,
    "replay_subscription": lambda world: ({"from": world.commits // 2}, JSON),
    "create_pin": lambda world: ({"seconds": 60, "note": "n" * world.choices.number(1, 255)}, JSON),
    "renew_pin": lambda _: ({"seconds": 60}, JSON),
    "compact_catalog": lambda world: ({"revision": max(world.commits // 2, 1)}, JSON),
    "run_bulk": _lines,
}
# What makes there be something to ask for: an operation of the contract, with its path.
_THERE: Final = (
    ("put_subscription", "subscriptions/s0", ""),
    ("create_pin", "pins", "pin"),
    ("open_upload", "uploads", "upload"),
    ("put_application", "applications/a0", ""),
)


def any_operation(world: World) -> Iterator[Request]:
    """One or two of them, again and again."""
    choices = world.choices
    by_name = {each.name: each for each in operations()}
    for name, about, keeps in _THERE:
        body, kind = BODIES[name](world)
        made = request(by_name[name].method, f"{world.path}/{about}", {}, body, kind)
        world.requests.append(replace(made, keeps=keeps))
    tag = Request("GET", f"{world.path}/documents/{quote(world.key())}", keeps="etag")
    world.requests.append(tag)
    for _ in range(choices.number(1, 2)):
        made = asked(world, choices.pick(operations()))
        yield from [made] * choices.number(1, 40)


def asked(world: World, operation: Operation) -> Request:
    """A request of that operation, with some of its parameters."""
    choices = world.choices
    path, query, headers = operation.path, [], []
    often = choices.pick((0.0, 0.1, 0.3))  # many conditions at once leave little but refusals
    for where, name in operation.parameters:
        if where == "path":
            place = _named(choices.pick(PLACES[name]), world)
            path = path.replace(f"{{{name}}}", place if place[:1] == "{" else quote(place))
        elif name in _NEEDED or choices.chance(often):
            some = _named(choices.pick(PARAMETERS[where, name]), world)
            if where == "query":
                query += [f"{name}={quote(each)}" for each in _often(some, choices)]
            else:
                headers.append((name, ", ".join(_often(some, choices))))
    if query:
        path += f"?{_cut('&'.join(query))}"
    made = Request(operation.method, path, as_reader=choices.chance(0.3), headers=tuple(headers))
    if not operation.has_body:
        return made
    body, kind = BODIES[operation.name](world)
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return replace(made, body=text, content_type=kind)


def _often(some: str, choices: Choices) -> list[str]:
    """Once as a rule; otherwise many times, or a long one."""
    if not choices.chance(0.2):
        return [some]
    count = choices.number(1, _FIELD_CHARACTERS // (len(some) + 12))
    return [some] * count if choices.chance(0.5) else [some * count]


def _cut(query: str) -> str:
    """Whole parameters of it."""
    if len(query) <= _QUERY_CHARACTERS:
        return query
    whole = query[:_QUERY_CHARACTERS].rpartition("&")[0]
    return whole or query[: _QUERY_CHARACTERS - 2].rpartition("%")[0]


def _named(text: str, world: World) -> str:
    named = {
        "<catalog>": world.path.split("/")[3],
        "<last>": str(world.commits),
        "<middle>": str(world.commits // 2),
        "<now>": "2026-01-01T00:00:00Z",
        "<seed>": f"i{len(world.requests)}",
    }
    if "<key>" in text:
        named["<key>"] = world.key()
    for name, each in named.items():
        text = text.replace(name, each)
    return text

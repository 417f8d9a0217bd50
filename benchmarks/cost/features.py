"""Attacks by what the interface has beside documents and patches: uploads, applications, pins,
feeds, conditions, and the heads of requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, urlencode

from benchmarks.cost.choices import Choices
from benchmarks.cost.contract import any_operation
from benchmarks.cost.values import NAMES, Json, Room, value
from benchmarks.cost.world import JSON, PATCH, Request, World, request

_PART_BYTES, _PART_VALUES = 3_900_000, 450_000
# What the first line, and a field, of a head may hold.
_LINE_BYTES, _FIELD_BYTES = 8_000, 32_000


def _upload(world: World) -> Iterator[Request]:
    """Parts, the last of which may be missing, and their commit; or the same again and again."""
    choices = world.choices
    made = value(choices, Room(_PART_VALUES * 3, _PART_BYTES * 3))
    text = json.dumps(made).encode()
    parts = choices.number(1, 40)
    size = max(len(text) // parts, 1)
    asked = {"key": choices.pick(("new", world.key()))}
    opened = request("POST", f"{world.path}/uploads", {}, asked, JSON)
    world.requests.append(Request(**{**vars(opened), "keeps": "upload"}))
    at = f"{world.path}/uploads/{{upload}}"
    kind = "application/octet-stream"
    put = [
        Request("PUT", f"{at}/parts/{number + 1}", text[start : start + size], kind)
        for number, start in enumerate(range(0, len(text), size))
    ]
    if choices.chance(0.5):
        world.requests += put
    else:
        yield from put
    for _ in range(choices.number(1, 3)):
        yield request("POST", f"{at}/commit", {}, {"parts": len(put)}, JSON)
    yield Request("GET", at)


def _attributes(world: World) -> Iterator[Request]:
    """An acl of many names or of costly ones, for documents that are then read."""
    choices = world.choices
    name = choices.pick(("*b", "reader", "x*y*z", "*" * 20, "\u00e9" * 40))
    names = [name] * choices.number(1, 200_000 // (len(name) + 4))
    if choices.chance(0.5):
        names = [f"{name}{index}" for index in range(len(names))]
    held: dict[str, Json] = {"acl": {choices.pick(("read", "write")): names}}
    if choices.chance(0.3):
        held = {"labels": value(choices, Room(50_000, 200_000))}
    path = f"{world.path}/attributes/{world.key()}"
    method, kind = choices.pick((("PUT", JSON), ("PATCH", "application/merge-patch+json")))
    for _ in range(choices.number(1, 3)):
        yield request(method, path, {}, held, kind)
    yield Request("GET", path, as_reader=choices.chance(0.5))


def _applications(world: World) -> Iterator[Request]:
    """Versions of many applications, whose lists of principals are long."""
    choices = world.choices
    principals = [f"p{index}" for index in range(choices.number(1, 30))]
    for index in range(choices.number(1, 300)):
        name = f"a{index if choices.chance(0.9) else 0}" + "x" * choices.pick((0, 400))
        step: Json = {"version": index + 1, "principals": ["writer", *principals]}
        yield request("PUT", f"{world.path}/applications/{name}", {}, step, JSON)
    yield Request("GET", f"{world.path}/applications")


def _pins(world: World) -> Iterator[Request]:
    choices = world.choices
    for _ in range(choices.number(1, 120)):
        note = "n" * choices.number(1, 1_000)
        yield request("POST", f"{world.path}/pins", {}, {"seconds": 60, "note": note}, JSON)
    yield Request("GET", f"{world.path}/pins")


def _feed(world: World) -> Iterator[Request]:
    """Feeds that nobody reads, or reads to the end, and writes that go into them."""
    choices = world.choices
    about = {"after": choices.pick(("0", str(world.commits // 2)))}
    if choices.chance(0.5):
        about["key"] = world.key()
    path, stream = f"{world.path}/changes", (("Accept", "text/event-stream"),)
    as_reader = choices.chance(0.5)
    for _ in range(choices.number(1, 10)):
        yield Request(
            "GET", f"{path}?{urlencode(about)}", as_reader=as_reader, unread=True, headers=stream
        )
    body = value(choices, Room(100_000, 1_000_000))
    for _ in range(choices.number(1, 10)):
        yield request("PUT", f"{world.path}/documents/{world.key()}", {}, body, JSON)


def _rebase(world: World) -> Iterator[Request]:
    """A patch on an old state of a document that has changed since."""
    choices = world.choices
    key = world.key()
    path = f"{world.path}/documents/{key}"
    tag = Request("GET", path, keeps="etag")
    world.requests.append(tag)
    name = choices.pick(NAMES)
    count = choices.number(1, 400)
    wide = value(choices, Room(20_000, 200_000), depth=1)
    world.send_lines(
        {"key": key, "op": "patch", "patch": [{"op": "add", "path": f"/c{n}", "value": wide}]}
        for n in range(min(count, world.room.times(count, wide)))
    )
    operations = [{"op": "add", "path": f"/{name}{n}", "value": n} for n in range(count)]
    headers = (("If-Match", "{etag}"), ("Prefer", "rebase"))
    for _ in range(choices.number(1, 4)):
        made = request("PATCH", path, {"dry_run": "true"}, operations, PATCH)
        yield Request(**{**vars(made), "headers": headers})


def _ranges(world: World) -> Iterator[Request]:
    """Compares and actions by ranges of many documents."""
    choices = world.choices
    prefix = choices.pick(("k", "", "k1"))
    compare: Json = choices.pick(
        (
            {"prefix": prefix, "unchanged_since": world.commits // 2},
            {"prefix": prefix, "count": {"less": 100}},
            {"prefix": prefix, "absent": False},
        )
    )
    documents = {f"{prefix}{index}": {"n": index} for index in range(choices.number(1, 20_000))}
    action: Json = choices.pick(
        (
            {"action": "delete", "prefix": prefix},
            {"action": "replace", "prefix": prefix, "documents": documents},
        )
    )
    body = {
        "compare": [compare] * choices.number(1, 70),
        "then": [action] * choices.number(1, 60 if action["action"] == "delete" else 2),
    }
    query = {"dry_run": "true"} if choices.chance(0.6) else {}
    yield request("POST", f"{world.path}/transactions", query, body, JSON)


def _repeated(part: str, choices: Choices, size: int) -> str:
    count = choices.number(1, max(size // (len(part) + 8), 1))
    return ", ".join(part.replace("#", str(index)) for index in range(count))


def _heads(world: World) -> Iterator[Request]:
    """Long first lines and long fields: of conditions, preferences, and what is ignored."""
    choices = world.choices
    key = world.key()
    fields = (
        ("If-Match", f'"{key}#=7-5b1f0c7e"'),
        ("If-Match", '"@#"'),
        ("If-None-Match", '"7-5b1f0c7#"'),
        ("If-Unchanged-Under", '"k#";revision=1'),
        ("If-Unchanged-Under", '%"m%c3%a4#";revision=1'),
        ("Prefer", "x#=1"),
        ("Accept", "text/x#;q=0.1"),
        ("Accept-Encoding", "x#;q=0.5"),
        ("Commit-Message", "%C3%A4#"),
        ("Idempotency-Key", "#"),
        ("X-Request-Id", "#"),
        ("traceparent", "00-#"),
        ("Cookie", "a#=b"),
    )
    headers = []
    for _ in range(choices.number(1, 4)):
        name, part = choices.pick(fields)
        headers.append((name, _repeated(part, choices, _FIELD_BYTES)))
    query = choices.pick(("", "force", "key", "limit", "x"))
    given = "&".join(
        f"{query}={quote(f'/a{index}')}" for index in range(choices.number(1, _LINE_BYTES // 12))
    )
    method = choices.pick(("GET", "GET", "PUT", "PATCH"))
    about = choices.pick(("documents", f"documents/{key}", f"attributes/{key}", "commits"))
    if method != "GET":
        about = f"documents/{key}"
    path = f"{world.path}/{about}" + (f"?{given[: _LINE_BYTES - 300]}" if query else "")
    body, kind = (b"", "") if method == "GET" else (b"[]", PATCH if method == "PATCH" else JSON)
    made = Request(method, path, body, kind, headers=tuple(dict(headers).items()))
    yield from [made] * choices.number(1, 100)


def _small(world: World) -> Iterator[Request]:
    """Many requests that take little each."""
    choices = world.choices
    key = world.key()
    options = (
        Request("GET", f"{world.path}/documents/{key}?select=digest", as_reader=True),
        Request("GET", f"{world.path}/documents?limit=1"),
        Request("GET", f"{world.path}/attributes/{key}"),
        Request("GET", world.path),
        Request("GET", "/v1/catalogs"),
        Request("GET", "/v1/principal"),
        Request("GET", "/metrics"),
        Request("GET", "/openapi.yaml"),
        Request("GET", "/docs"),
        Request("GET", "/v1/absent"),
        Request("OPTIONS", f"{world.path}/documents/{key}"),
        request("PUT", f"{world.path}/documents/small", {}, {"n": 1}, JSON),
        request("PATCH", f"{world.path}/documents/small", {}, [], PATCH),
        request("POST", f"{world.path}/compactions", {}, {"revision": 1}, JSON),
        request("POST", f"{world.path}/touch", {}, {}, JSON),
    )
    yield from [choices.pick(options)] * choices.number(1, 30)


FEATURES: Final[tuple[Callable[[World], Iterator[Request]], ...]] = (
    *(_upload, _attributes, _applications, _pins, _feed, _rebase, _ranges, _heads, _small),
    *(any_operation, any_operation, any_operation),
)

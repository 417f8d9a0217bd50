"""Programs that once stopped or filled a worker, with sizes that are choices.

The search begins with them, as a fuzzer does with its corpus, and draws its own beside them. A test
holds each of them, as large as it was, to the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from benchmarks.cost.choices import Choices
from benchmarks.cost.values import Json
from benchmarks.cost.world import APPLY, EXTENDED, JSON, LINES, Program, Request

_LINES_BYTES = 4_000_000


def _lines(catalog: str, lines: Iterable[Json]) -> list[Request]:
    """Bulk requests of some megabytes."""
    made: list[Request] = []
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(json.dumps({"catalog": catalog, **line}).encode() + b"\n")
        size += len(piece[-1])
        if size > _LINES_BYTES:
            made.append(Request("POST", "/v1/bulk", b"".join(piece), LINES))
            piece, size = [], 0
    return [*made, Request("POST", "/v1/bulk", b"".join(piece), LINES)]


def _json(method: str, path: str, body: Json, kind: str = JSON) -> Request:
    return Request(method, path, json.dumps(body).encode(), kind)


def _at(catalog: str, part: str) -> str:
    return f"/v1/catalogs/{catalog}{part}"


def blank_lines(choices: Choices, _catalog: str) -> Program:
    """A bulk request of line ends."""
    ends = choices.pick((b"\n", b" \r\n")) * choices.number(100_000, 25_000_000)
    return Program(attack=[Request("POST", "/v1/bulk", ends[:50_000_000], LINES)])


def many_owners(choices: Choices, catalog: str) -> Program:
    """Many managers own the same leaves, then a transaction applies or lets go again and again."""
    leaves, managers = choices.number(100, 9_900), choices.number(5, 55)
    wanted = {f"m{index}": 0 for index in range(leaves)}
    setup = _lines(
        catalog,
        ({"key": "k", "op": "apply", "manager": f"m{n}", "value": wanted} for n in range(managers)),
    )
    times = choices.number(20, 300)
    if choices.chance(0.3):
        then: list[Json] = [
            {"action": "let_go", "key": "k", "manager": f"m{index}"} for index in range(managers)
        ]
    else:
        then = [
            {"action": "apply", "key": "k", "manager": "mine", "value": {"n": index}}
            for index in range(times)
        ]
    attack = _json("POST", _at(catalog, "/transactions?dry_run=true"), {"then": then})
    return Program(setup, [attack])


def owners_that_fan_out(choices: Choices, catalog: str) -> Program:
    """Many managers of one list, which is moved to where each of its items is a leaf."""
    managers, items = choices.number(20, 400), choices.number(100, 3_000)
    declared = {"arrays": [{"keys": "set/*", "pointer": "/tags", "set": True}]}
    wanted = {"tags": list(range(items))}
    setup = [
        _json("PUT", _at(catalog, ""), declared),
        *_lines(
            catalog,
            (
                {"key": "draft", "op": "apply", "manager": f"m{n}", "value": wanted}
                for n in range(managers)
            ),
        ),
        _json(
            "POST",
            _at(catalog, "/transactions"),
            {"then": [{"action": "move", "from": "draft", "to": "set/a"}]},
        ),
    ]
    gone = [
        {"action": "let_go", "key": "set/a", "manager": f"m{n}"} for n in range(min(60, managers))
    ]
    attack = [
        _json("POST", _at(catalog, "/transactions?dry_run=true"), {"then": gone}),
        _json("PATCH", _at(catalog, "/documents/set/a?manager=new"), {"tags": [1]}, APPLY),
        _json("PATCH", _at(catalog, "/documents/set/a"), {"patch": []}, EXTENDED),
    ]
    return Program(setup, attack)


def patterns(choices: Choices, catalog: str) -> Program:
    """Predicates whose patterns take long to compile."""
    pattern = "(?i)[" + r"\PL" * choices.number(20, 328) + "]a"
    one = {"op": "matches", "path": "/a", "value": pattern}
    operations = [one] * choices.number(10, 1_000)
    if not choices.chance(0.5):
        operations = [{**one, "value": f"{pattern}{index}"} for index in range(len(operations))]
    setup = [_json("PUT", _at(catalog, "/documents/k"), {"a": "b"})]
    path = _at(catalog, "/documents/k?dry_run=true")
    return Program(setup, [_json("PATCH", path, {"patch": operations}, EXTENDED)])


def schemas_of_patterns(choices: Choices, catalog: str) -> Program:
    """Settings of many patterns, then a document that they hold for."""
    count = choices.number(50, 2_000)
    named = choices.pick(("properties", "patternProperties"))
    if named == "properties":
        schema: Json = {
            named: {
                f"p{index}": {"pattern": rf"(\pL|\pN){{1,5}}x{index}"} for index in range(count)
            }
        }
    else:
        schema = {named: {rf"(\pL|\pN){{1,5}}x{index}": {} for index in range(count)}}
    document = {f"p{index}": "aaaax0" for index in range(count)}
    attack = [
        _json("PUT", _at(catalog, ""), {"schemas": {"*": schema}}),
        _json("PUT", _at(catalog, "/documents/k"), document),
    ]
    return Program(attack=attack)


def wide_acls(choices: Choices, catalog: str) -> Program:
    """Pages of documents that have long acls, for somebody whom these let in."""
    count, names = choices.number(50, 1_200), choices.number(100, 12_000)
    acl = {"acl": {"read": ["*b"] * names}}
    held = {"op": "put", "value": 1, "attributes": {"mode": "replace", "value": acl}}
    setup = _lines(catalog, ({"key": f"k{index}", **held} for index in range(count)))
    page = choices.pick(
        (
            "/documents?select=digest&limit=10000",
            "/documents?select=digest&contains=k&limit=10000",
            "/documents?limit=1000",
            "/partitions?count=100",
            "/differences?from=0&limit=1000",
            "/commits?limit=1000",
        )
    )
    return Program(setup, [Request("GET", _at(catalog, page), as_reader=True)])


def reverts_of_much(choices: Choices, catalog: str) -> Program:
    """A revert that rebuilds a large document at many revisions."""
    texts, commits = choices.number(1_000, 500_000), choices.number(20, 200)
    setup = [_json("PUT", _at(catalog, "/documents/k"), {"t": ["a"] * texts})]
    setup += _lines(
        catalog,
        (
            {"key": "k", "op": "patch", "patch": [{"op": "add", "path": "/n", "value": index}]}
            for index in range(commits)
        ),
    )
    undone = list(range(commits - 1, 2, -2))[:99]
    body = {"revisions": undone or [2], "conflict": "skip"}
    return Program(setup, [_json("POST", _at(catalog, "/reverts?dry_run=true"), body)])


def _nested(choices: Choices, count: int, catalog: str) -> list[Request]:
    """Documents that take many times their text as objects, and some changes of each."""
    levels, width = choices.number(10, 90), choices.number(100, 5_000)
    as_list = choices.chance(0.5)
    one: Json = 1
    for _ in range(levels):
        one = [one] if as_list else {"a": one}
    held = [one] * width
    puts: list[Json] = [{"key": f"k{n}", "op": "put", "value": held} for n in range(count)]
    patch = [{"op": "add", "path": "/0", "value": 1}]
    changes: list[Json] = [
        {"key": f"k{n}", "op": "patch", "patch": patch} for _ in range(3) for n in range(count)
    ]
    return _lines(catalog, [*puts, *changes])


def reverts_of_nested(choices: Choices, catalog: str) -> Program:
    """Many reverts at once to an old revision of documents that are nested deeply."""
    count = choices.number(2, 4)
    setup = _nested(choices, count, catalog)
    body = {"to": count, "conflict": "skip"}
    path = _at(catalog, "/reverts?dry_run=true")
    return Program(setup, [_json("POST", path, body)], at_once=40)


def reads_of_nested(choices: Choices, catalog: str) -> Program:
    """Likewise reads of them, as they are or as they were."""
    count = choices.number(1, 2)
    setup = _nested(choices, count, catalog)
    about = choices.pick(("", "?revision=", "?revision="))
    keys = [f"k{n}" + (f"{about}{count + n}" if about else "") for n in range(count)]
    return Program(
        setup, [Request("GET", _at(catalog, f"/documents/{k}")) for k in keys], at_once=40
    )


def transactions_of_nested(choices: Choices, catalog: str) -> Program:
    """Likewise transactions that are about all of them."""
    count = choices.number(2, 4)
    setup = _nested(choices, count, catalog)
    patch = [{"op": "add", "path": "/0", "value": 1}]
    then = [{"action": "patch", "key": f"k{n}", "patch": patch} for n in range(count)]
    path = _at(catalog, "/transactions?dry_run=true")
    return Program(setup, [_json("POST", path, {"then": then})], at_once=40)


def large_answers(choices: Choices, catalog: str) -> Program:
    """Many large answers at once, some of which nobody takes."""
    size = choices.number(100_000, 3_900_000)
    count = choices.number(3, 12)
    fragment = choices.pick(("x" * 80, 1, "ab"))
    held = [fragment] * min(size // (len(json.dumps(fragment)) + 2), 500_000)
    setup = [_json("PUT", _at(catalog, f"/documents/k{index}"), held) for index in range(count)]
    setup += [_json("PUT", _at(catalog, f"/documents/k{index}"), [0, *held]) for index in range(3)]
    page = choices.pick(
        (
            "/export",
            "/differences?from=0&limit=1000",
            "/commits?limit=1000",
            "/documents?limit=1000",
        )
    )
    unread = choices.chance(0.5)
    requests = [Request("GET", _at(catalog, page), as_reader=True, unread=unread)]
    return Program(setup, requests * choices.pick((1, 2)), at_once=40)


def many_rules(choices: Choices, catalog: str) -> Program:
    """Long addresses under many rules of lists."""
    depth, moves = choices.number(10, 98), choices.number(50, 1_000)
    rules = {"/*" * (level + 1): ["id"] for level in range(depth)}
    deep = "/a" * depth
    one = {"op": "move", "from": deep, "path": deep}
    action = {
        "action": "patch",
        "key": "k",
        "patch": [one] * moves,
        "array_primary_keys": rules,
    }
    setup = [_json("PUT", _at(catalog, "/documents/k"), {"a": {}})]
    then = [action] * choices.number(1, 5)
    path = _at(catalog, "/transactions?dry_run=true")
    return Program(setup, [_json("POST", path, {"then": then})])


def lines_of_rules(choices: Choices, catalog: str) -> Program:
    """Small patches, each of which declares many lists."""
    depth, lines = choices.number(10, 98), choices.number(100, 3_000)
    rules = {"/*" * (level + 1): ["id"] for level in range(depth)}
    patch: list[Json] = [{"op": "add", "path": "/a/b/c", "value": 1, "create_parents": True}]
    one: Json = {"key": "k", "op": "patch", "patch": patch, "array_primary_keys": rules}
    return Program([_json("PUT", _at(catalog, "/documents/k"), {})], _lines(catalog, [one] * lines))


def long_lists(choices: Choices, catalog: str) -> Program:
    """Removals from a long list whose items go by key, in several patches of a transaction."""
    items, removals = choices.number(1_000, 100_000), choices.number(10, 140)
    declared = {"arrays": [{"keys": "*", "pointer": "/f", "item_key": ["a", "b"]}]}
    value = {"f": [{"a": "same", "b": index} for index in range(items)]}
    setup = [
        _json("PUT", _at(catalog, ""), declared),
        _json("PUT", _at(catalog, "/documents/k"), value),
    ]
    then = []
    for part in range(choices.number(1, 4)):
        gone = [
            {"op": "remove", "path": f"/f/same\u241f{part * removals + index}", "if_exists": True}
            for index in range(removals)
        ]
        then.append({"action": "patch", "key": "k", "patch": gone, "array_primary_keys": {}})
    path = _at(catalog, "/transactions?dry_run=true")
    return Program(setup, [_json("POST", path, {"then": then})])


def large_numbers(choices: Choices, catalog: str) -> Program:
    """Numbers that are long when they are written out, in a set and for a digest."""
    members, width = choices.number(100, 5_000), choices.number(10, 100)
    declared = {"arrays": [{"keys": "*", "pointer": "/s", "set": True}]}
    value = {"s": [[1e300] * width + [index] for index in range(members)]}
    setup = [_json("PUT", _at(catalog, ""), declared)]
    attack = [
        _json("PUT", _at(catalog, "/documents/k"), value),
        _json("PUT", _at(catalog, "/documents/plain"), {"p": value["s"]}),
        Request("GET", _at(catalog, "/documents?select=digest")),
    ]
    return Program(setup, attack)


def metrics_of_many(_choices: Choices, _catalog: str) -> Program:
    """The metrics, which are made of all that every worker has counted."""
    return Program(attack=[Request("GET", "/metrics", as_reader=True)], at_once=40)


def much_to_pass_by(choices: Choices, catalog: str) -> Program:
    """Pages of what wasn't there yet, or isn't to be seen, and of commits that aren't wanted."""
    count = choices.number(1_000, 8_000)
    hidden = choices.chance(0.3)
    held: Json = {"op": "put", "value": {"n": 1}}
    if hidden:
        acl = {"acl": {"read": ["ann"]}}
        held["attributes"] = {"mode": "replace", "value": acl}
    setup = _lines(catalog, ({"key": f"d/k{index}", **held} for index in range(count)))
    at = "" if hidden else "&revision=1&prefix=d/k1"
    page = choices.pick(
        (
            f"/documents?limit=1000{at}",
            f"/documents?select=digest&limit=1{at}",
            f"/documents?select=key&contains=k&limit=1{at}",
            "/differences?from=0&limit=1",
            "/changes?after=0&author=nobody&timeout=0",
            f"/documents?select=digest&delimiter=/&limit=10{at}",
        )
    )
    return Program(setup, [Request("GET", _at(catalog, page), as_reader=True)])


KNOWN: Final[dict[str, Callable[[Choices, str], Program]]] = {
    each.__name__: each
    for each in (
        blank_lines,
        many_owners,
        owners_that_fan_out,
        patterns,
        schemas_of_patterns,
        wide_acls,
        reverts_of_much,
        reverts_of_nested,
        reads_of_nested,
        transactions_of_nested,
        large_answers,
        many_rules,
        lines_of_rules,
        long_lists,
        large_numbers,
        metrics_of_many,
        much_to_pass_by,
    )
}

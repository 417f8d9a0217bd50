"""The console's pure modules, run in Chromium and held to the gateway's own patch language."""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import patching
from gateway.decide.edits import ApplyPatch
from gateway.decide.rebase import overlapping
from patching.list_declarations import parse_declarations
from patching.list_rules import ArrayKeys
from tests.console.browser import Browser
from tests.console.writer import Writer
from tests.service import RunningGateway

BIG = [
    "9007199254740993",
    "-9223372036854775808",
    "18446744073709551615",
    "1.0",
    "-0",
    "1e400",
    "0.1000",
    "1E5",
    "123456789012345678901234567890.5",
]


@pytest.fixture(scope="module")
def page(a_browser: Callable[[int], Browser], service: RunningGateway) -> Iterator[Browser]:
    """Anywhere below the console, whose modules can be imported there."""
    browser = a_browser(0)
    browser.begin(service.url)
    yield browser
    browser.end()


@pytest.mark.parametrize("indent", [0, 2])
def test_numbers_stay_as_they_were_written(page: Browser, indent: int) -> None:
    text = f'{{"n":[{",".join(BIG)}]}}'
    result = page.logic("return m.stringify(m.parse(a[0]), a[1])", text, indent)
    assert "".join(result.split()) == text


def test_short_values_are_on_one_line(page: Browser) -> None:
    value = {"a": [1, 2], "b": {"x": None}, "c": [[1]], "d": [], "e": ["long" * 30]}
    assert page.logic("return m.stringify(m.parse(a[0]), 2)", json.dumps(value)).split("\n") == [
        "{",
        '  "a": [1, 2],',
        '  "b": {"x": null},',
        '  "c": [',
        "    [1]",
        "  ],",
        '  "d": [],',
        '  "e": [',
        f'    "{"long" * 30}"',
        "  ]",
        "}",
    ]


def test_members_stay_in_order_and_under_any_name(page: Browser) -> None:
    text = '{"b":1,"10":2,"2":3,"__proto__":{"constructor":4},"":5,"~/":6,"\\u0000":7,"\\ud800":8}'
    assert page.logic("return m.stringify(m.parse(a[0]))", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        ' [ 1 , "a\\u00e9\\n\\/" , { "x" : [ ] } ] ',
        '"\U0001f600"',
        "-1.5e-7",
        "\r\n\t0",
    ],
)
def test_valid_json_is_parsed(page: Browser, text: str) -> None:
    assert json.loads(page.logic("return m.stringify(m.parse(a[0]), 2)", text)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ('{"a": 1,}', 1, 9),
        ("[1,\n 2\n 3]", 3, 2),
        ('{"a": 1, "a": 2}', 1, 10),
        ("01", 1, 2),
        ("nul", 1, 1),
        ('"a', 1, 1),
        ('"\t"', 1, 2),
        ('"\\x"', 1, 2),
        ("[1] 2", 1, 5),
        ("{a: 1}", 1, 2),
        ("+1", 1, 1),
        ("NaN", 1, 1),
        ("\ufeff1", 1, 1),
    ],
)
def test_invalid_json_is_reported_with_line_and_column(
    page: Browser, text: str, line: int, column: int
) -> None:
    found = page.logic(
        "try { m.parse(a[0]); return null } catch (e) { return [e.name, e.line, e.column] }", text
    )
    assert found == ["JsonError", line, column]


def test_the_position_of_a_pointer_in_a_text_is_found(page: Browser) -> None:
    """Or the nearest one around it, where there is no such place."""
    text = '{"a": [1, {"b/c": "x"}],\n "~": {"": null}}'
    places = {"": "{", "/a": "[1", "/a/1": '{"b', "/a/1/b~1c": '"x"', "/~0/": "null", "/a/7": "[1"}
    places |= {"/none/at/all": "{", "/a/1/b~1c/d": '"x"'}
    found = page.logic("return a[1].map((pointer) => m.offsetOf(a[0], pointer))", text, [*places])
    assert [
        text[at:].startswith(part) for at, part in zip(found, places.values(), strict=True)
    ] == [True] * len(places)


def test_deep_nesting_is_refused_not_a_crash(page: Browser) -> None:
    message = page.logic(
        'try { m.parse("[".repeat(100000)) } catch (e) { return e.name + e.message }'
    )
    assert "JsonError" in message
    assert "nested" in message


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("1e2", "100", True),
        ("-0", "0", True),
        ("9007199254740993", "9007199254740992", False),
        ("9007199254740993", "9007199254740993.0", True),
        ("true", "1", False),
        ("null", "0", False),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', True),
        ("[1,2]", "[2,1]", False),
        ('"1"', "1", False),
        ("[]", "{}", False),
    ],
)
def test_equality_is_that_of_json(page: Browser, one: str, other: str, same: bool) -> None:
    script = """const [x, y] = a.map(m.parse);
        return [m.equal(x, y), m.equal(y, x), m.canonical(x) === m.canonical(y)]"""
    assert page.logic(script, one, other) == [same] * 3


def test_patches_are_like_those_a_person_would_write(page: Browser) -> None:
    before = {"a": 1, "list": [1, 2, 3, 4], "gone": {"x": 1}, "~/": 0}
    after = {"a": 2, "list": [1, 3, 4, 5], "~/": None, "new": []}
    patch = json.loads(
        page.logic(
            "return m.stringify(m.patchOf(m.edits(m.parse(a[0]), m.parse(a[1]))))",
            json.dumps(before),
            json.dumps(after),
        )
    )
    assert patch == [
        {"op": "replace", "path": "/a", "value": 2},
        {"op": "remove", "path": "/list/1"},
        {"op": "add", "path": "/list/3", "value": 5},
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/~0~1", "value": None},
        {"op": "add", "path": "/new", "value": []},
    ]


def test_tests_compare_the_old_values_before_any_change(page: Browser) -> None:
    script = """const all = m.edits(m.parse(a[0]), m.parse(a[1]));
        return m.stringify(m.patchOf(all, new Set(all.map((e) => m.pointerOf(e.from)))))"""
    patch = json.loads(page.logic(script, "[1,2,3]", "[2,4]"))
    count = sum(each["op"] == "test" for each in patch)
    assert [each["op"] for each in patch[:count]] == ["test"] * count
    assert patching.apply([1, 2, 3], patch) == [2, 4]


def test_a_patch_turns_one_value_into_the_other(page: Browser) -> None:
    """For any two: by the gateway's own application, and by the console's check of itself."""
    rng = random.Random(20261121)
    pairs = [(before := value(rng, 3), changed(rng, before)) for _ in range(400)]
    script = """return a[0].map(([before, after]) => {
        const [x, y] = [m.parse(before), m.parse(after)];
        const patch = m.operationsOf(x, y, new Set(m.edits(x, y).map((e) => m.pointerOf(e.from))));
        if (!m.equal(m.applied(x, patch), y)) throw new Error(`${before} -> ${after}`);
        return m.stringify(m.patchOf(m.edits(x, y)));
    })"""
    patches = page.logic(script, [[json.dumps(each) for each in pair] for pair in pairs])
    assert any(len(json.loads(patch)) > 2 for patch in patches)
    for (before, after), patch in zip(pairs, patches, strict=True):
        made = patching.apply(copy.deepcopy(before), json.loads(patch))
        assert json.dumps(made, sort_keys=True) == json.dumps(after, sort_keys=True)


def test_a_merge_equals_the_rebase_of_the_gateway(page: Browser) -> None:
    """Where the gateway would rebase, the merge has no conflict, and the same result."""
    rng = random.Random(5)
    triples = []
    for _ in range(400):
        base = {name: value(rng, 2) for name in "abcdef"}
        triples.append((base, changed(rng, base), changed(rng, base)))
    script = """return a[0].map((texts) => {
        const [base, mine, theirs] = texts.map(m.parse);
        const {value, conflicts} = m.merge(base, mine, theirs);
        const choices = (side) => new Map(conflicts.map(({pointer}) => [pointer, side]));
        return [m.stringify(m.patchOf(m.edits(base, mine))), m.stringify(value),
                conflicts.map(({pointer}) => pointer),
                m.equal(m.merge(base, mine, theirs, choices("theirs")).value, value)];
    })"""
    texts = [[json.dumps(each) for each in triple] for triple in triples]
    rebased = 0
    for (base, _, theirs), (patch, merged, conflicts, default) in zip(
        triples, page.logic(script, texts), strict=True
    ):
        parsed = patching.parse(json.loads(patch))
        assert default
        if overlapping(ApplyPatch(parsed), base, theirs):
            continue
        rebased += 1
        assert conflicts == []
        expected = patching.apply(copy.deepcopy(theirs), parsed)
        assert json.dumps(json.loads(merged), sort_keys=True) == json.dumps(
            expected, sort_keys=True
        )
    assert rebased > 40


MERGES = {
    "apart": ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, [], {"a": 2, "b": 2}),
    "the same": ({"a": 1}, {"a": 2}, {"a": 2}, [], {"a": 2}),
    "both": ({"a": 1}, {"a": 2}, {"a": 3}, ["/a"], {"a": 3}),
    "I removed, they changed": ({"a": {"x": 1}}, {}, {"a": {"x": 2}}, ["/a"], {"a": {"x": 2}}),
    "they removed, I changed": ({"a": {"x": 1}}, {"a": {"x": 2}}, {}, ["/a"], {}),
    "items": ([1, 2], [9, 2], [1, 8], [], [9, 8]),
    "items that moved": ([1, 2], [2], [1, 8], [""], [1, 8]),
    "both made it": ({}, {"a": {"x": 1}}, {"a": {"y": 1}}, ["/a"], {"a": {"y": 1}}),
}


@pytest.mark.parametrize("case", MERGES)
def test_overlapping_changes_are_a_conflict(page: Browser, case: str) -> None:
    base, mine, theirs, pointers, value = MERGES[case]
    script = """const {value, conflicts} = m.merge(...a.map(m.parse));
        const mine = new Map(conflicts.map(({pointer}) => [pointer, "mine"]));
        const chosen = m.merge(...a.map(m.parse), mine).value;
        return [conflicts.map(({pointer}) => pointer), m.stringify(value), m.stringify(chosen)]"""
    found, merged, chosen = page.logic(script, *map(json.dumps, (base, mine, theirs)))
    assert (found, json.loads(merged)) == (pointers, value)
    if pointers:
        assert json.loads(chosen) == mine


def test_events_are_complete_however_the_stream_is_cut(page: Browser) -> None:
    stream = (
        'retry: 1000\n\nid: 7\nevent: commit\ndata: {"x":"\u00e4"}\n\n: note\nid: 8\n'
        "event: bookmark\ndata: {}\n\nevent: end\ndata: {}\n\n"
    )
    script = """return [1, 3, 1000].map((size) => {
        const parser = new m.EventParser();
        const found = [];
        for (let i = 0; i < a[0].length; i += size)
            found.push(...parser.push(a[0].slice(i, i + size)));
        return found.map(({name, data, id}) => [name, data, id]);
    })"""
    expected = [["commit", '{"x":"\u00e4"}', "7"], ["bookmark", "{}", "8"], ["end", "{}", None]]
    assert page.logic(script, stream) == [expected] * 3
    assert page.logic(script, stream.replace("\n", "\r\n")) == [expected] * 3


@pytest.mark.parametrize(
    "name", ["shop", "a/b", "urn:li:(x,y)", "%2F", "a?b#c", "\U0001f600 +&=", "..x", "a//b/"]
)
def test_addresses_can_contain_any_name(page: Browser, name: str) -> None:
    script = """const [name] = a;
        const href = m.hrefOf({catalog: name, key: name, tab: "history", from: 3, to: null});
        const {page, catalog, key, tab, from, to} = m.parseRoute(href);
        return [page, catalog, key, tab, from, to]"""
    assert page.logic(script, name) == ["document", name, name, "history", "3", None]


def test_an_invalid_address_shows_the_catalogs(page: Browser) -> None:
    for address in ("", "#", "#/", "#/nothing", "#/catalog/", "#/catalog/%zz"):
        assert page.logic("return m.parseRoute(a[0]).page", address) == "catalogs"


@pytest.mark.parametrize(
    ("written", "speaks"),
    [
        ("t", True),
        ("tables/t", True),
        ({"to": ["t"]}, True),
        ({"t": 1}, True),
        ("tt", False),
        (["x"], False),
    ],
)
def test_commits_that_mention_a_document_are_found(
    page: Browser, written: Any, speaks: bool
) -> None:
    script = """const patch = m.parse(a[0]);
        const changes = ["tables/x", null, "tables/t"].map((key) => ({key, patch}));
        return m.mentionsOf({changes}, "tables/t")"""
    patch = [{"op": "add", "path": "/r", "value": written}]
    assert page.logic(script, json.dumps(patch)) == (["tables/x"] if speaks else [])


@pytest.mark.parametrize(
    ("guard", "conditions", "query"),
    [
        ("unchanged", {"If-Match": '"1-a"'}, {}),
        ("rebase", {"If-Match": '"1-a"', "Prefer": "rebase"}, {}),
        ("catalog", {"If-Match": '"1-a"'}, {"resource_version": 7}),
        ("tests", {}, {}),
    ],
)
def test_guards_are_sent_as_conditions(
    page: Browser, guard: str, conditions: dict[str, str], query: dict[str, int]
) -> None:
    script = "return m.requirementsOf(a[0], {token: a[1]}, 7)"
    assert page.logic(script, guard, "1-a") == {"conditions": conditions, "query": query}
    assert page.logic(script, guard, None) == {"conditions": {"If-None-Match": "*"}, "query": {}}


def test_the_same_request_has_the_same_idempotency_key(page: Browser) -> None:
    script = """let n = 0;
        const keys = new m.IdempotencyKeys(() => `k${n += 1}`);
        return [["a"], ["a"], ["b"], ["a"]].map((each) => keys.for(...each))"""
    assert page.logic(script) == ["k1", "k1", "k2", "k3"]


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth else 6)
    if kind < 6:
        return [rng.randrange(4), rng.choice("xyz"), None, True, False, rng.randrange(4) + 0.5][
            kind
        ]
    if kind == 6:
        return [value(rng, depth - 1) for _ in range(rng.randrange(6))]
    return {
        name: value(rng, depth - 1)
        for name in rng.sample(["a", "b", "/", "~", ""], rng.randrange(5))
    }


def changed(rng: random.Random, old: Any) -> Any:
    """Something near ``old``: parts replaced, added, removed."""
    if isinstance(old, dict):
        new = {
            k: changed(rng, v) if rng.random() < 0.3 else v
            for k, v in old.items()
            if rng.random() < 0.9
        }
        return new | ({rng.choice("abn"): value(rng, 1)} if rng.random() < 0.2 else {})
    if isinstance(old, list):
        new_items = [
            changed(rng, v) if rng.random() < 0.3 else v for v in old if rng.random() < 0.85
        ]
        if rng.random() < 0.4:
            new_items.insert(rng.randrange(len(new_items) + 1), value(rng, 1))
        return new_items
    return value(rng, 1) if rng.random() < 0.6 else old


LISTS = [
    {"keys": "*", "pointer": "/columns", "item_key": ["name"]},
    {"keys": "*", "pointer": "/columns/*/tags", "set": True},
]


def _table(choose: random.Random) -> dict[str, Any]:
    """With a list of columns by name, each with a set of tags, and a list that isn't declared."""
    names = choose.sample(["id", "a/b", "~", "total", "1"], choose.randint(0, 4))
    columns: list[dict[str, Any]] = [{"name": name, "type": choose.choice("xyz")} for name in names]
    for column in columns:
        column["tags"] = choose.sample(["pii", 1, None, {"a": 1}], choose.randint(0, 3))
    others = [choose.choice([1, "t", {"n": choose.randint(0, 2)}]) for _ in range(3)]
    members = {name: choose.choice([1, "", None]) for name in "abc" if choose.random() < 0.6}
    return {"columns": columns, "others": others[: choose.randint(0, 3)], **members}


@pytest.mark.parametrize("seen", [False, True])
def test_a_patch_by_fields_makes_the_edit_on_the_document_that_was_seen(
    page: Browser, seen: bool
) -> None:
    """Held to the gateway's own language; items of declared lists may come in another order."""
    choose = random.Random(f"fields {seen}")
    declared = parse_declarations(LISTS).lists_of("k")
    pairs = [(_table(choose), _table(choose)) for _ in range(150)]
    # Only the order of items.
    for base, _ in pairs[:40]:
        pairs.append((base, {**base, "columns": base["columns"][::-1]}))
    patches = page.logic(
        """const settings = m.parse(a[1]);
        const rules = m.listsOf("k", settings);
        return m.stringify(m.parse(a[0]).map(([base, mine]) => {
          const { isExtended, body } = m.fieldPatch(base, mine, rules, a[2]);
          return [isExtended, body];
        }))""",
        json.dumps(pairs),
        json.dumps({"arrays": LISTS}),
        seen,
    )
    extended = 0
    for (base, mine), (is_extended, body) in zip(pairs, json.loads(patches), strict=True):
        extended += is_extended
        if is_extended:
            patch = patching.parse_extended(body)
            size = len(json.dumps(base))
            made = patching.apply_extended(base, patch, document_bytes=size, lists=declared).content
        else:
            made = patching.apply(base, patching.parse(body))
        assert _unordered(made) == _unordered(mine), body
        if not is_extended:
            assert patching.equal(made, mine)
    assert 20 < extended < len(pairs) - 20


def _unordered(table: Any) -> Any:
    def by_text(items: list[Any]) -> list[Any]:
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))

    columns = [{**each, "tags": by_text(each["tags"])} for each in table["columns"]]
    return {**table, "columns": by_text(columns)}


def test_a_form_shows_what_the_schema_says_of_each_place(page: Browser) -> None:
    schema = {
        "title": "Table",
        "required": ["name"],
        "properties": {
            "name": {"title": "Name", "type": "string"},
            "tier": {"$ref": "#/$defs/tier"},
            "until": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "loop": {"$ref": "#/properties/loop"},
            "columns": {"type": "array", "items": {"properties": {"type": {"enum": ["a", "b"]}}}},
        },
        "allOf": [{"properties": {"name": {"description": "as people say it"}}}],
        "patternProperties": {"^x-": {"type": "number"}, "(": {"type": "null"}},
        "additionalProperties": {"type": "boolean"},
        "$defs": {"tier": {"const": 1}},
    }
    found = page.logic(
        """const schemas = m.schemasOf("tables/t", m.parse(a[0]));
        return [[], ["name"], ["tier"], ["until"], ["loop"], ["columns", 3, "type"], ["x-n"],
          ["other"], ["name", 0, "deeper"]].map((path) => {
            const at = m.specAt(schemas, path);
            return [at.title, at.description, at.types, at.choices, at.format, [...at.required]];
          })""",
        json.dumps({"schemas": {"tables/*": schema, "views/*": {"title": "no"}, "*": True}}),
    )
    assert found == [
        ["Table", None, None, None, None, ["name"]],
        ["Name", "as people say it", ["string"], None, None, []],
        [None, None, None, [1], None, []],
        [None, None, ["string", "null"], None, "date", []],
        [None, None, None, None, None, []],
        [None, None, None, ["a", "b"], None, []],
        [None, None, ["number"], None, None, []],
        [None, None, ["boolean"], None, None, []],
        [None, None, None, None, None, []],
    ]


def test_no_pattern_of_a_schema_blocks_the_page(page: Browser) -> None:
    """The gateway's own search takes linear time, so its schemas may have any pattern."""
    patterns = [
        "(a+)+$",
        "^(a|a)*$",
        "(.*)*b",
        "a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?" + "a" * 30,
        ".*.*.*.*.*.*.*.*=",
        "(?:a|aa)(?:a|aa)(?:a|aa)(?:a|aa)(?:a|aa)" * 8 + "$",
        "(a{1,30}){1,30}$",
        "[]a]+[^]]*]*b",
    ]
    name = "a" * 2_000 + "!"
    quick = ["^a*a*$", "^x-", "^(?:x|y)-", r"^x-[0-9]{4}-[0-9]{2}$", r"^[(*+|]+\*?x", "-1$"]
    schema = {"patternProperties": {each: {"title": each} for each in patterns + quick}}
    titles = page.logic(
        """const schemas = m.schemasOf("k", m.parse(a[0]));
        return a[1].map((name) => m.specAt(schemas, [name]).title)""",
        json.dumps({"schemas": {"*": schema}}),
        [name, name[-31:], "a" * 199 + "!", "x-1", "y-", "x-2020-01", "(x"],
    )
    assert titles == [None, None, None, "^x-", "^(?:x|y)-", "^x-", r"^[(*+|]+\*?x"]


@pytest.mark.parametrize(("since", "reads"), [(4, [5]), (5, [5]), (7, [5, 8])])
def test_a_document_that_may_have_changed_before_the_feed_began_is_read_again(
    page: Browser, since: int, reads: list[int]
) -> None:
    """The feed has the catalog's commits only from the revision `since` on."""
    script = """const revisions = [5, 8];
    const reads = [];
    const api = {document: async () => {
      reads.push(revisions.shift());
      return {catalogRevision: reads.at(-1), revision: null, token: null};
    }};
    const live = {catalog: "c", recent: [], since: 0, listen: () => () => {},
      started: Promise.resolve().then(() => { live.since = a[0]; })};
    const model = new m.DocumentModel(api, live, "k");
    return model.open().then(() => [reads, model.shown.catalogRevision])"""
    assert page.logic(script, since) == [reads, reads[-1]]


@pytest.mark.parametrize(("key", "reads"), [("k", 1), (None, 2)])
def test_a_catalogs_settings_are_read_again_once_they_changed(
    page: Browser, key: str | None, reads: int
) -> None:
    """Else they are read once, for all views."""
    script = """let reads = 0;
    let tell = null;
    const body = new ReadableStream({start: (feed) => { tell = feed; }});
    const api = {
      catalog: async () => ({revision: 1, floor: 0, settings: reads += 1}),
      commits: async () => [], changes: async () => ({body}),
    };
    const live = new m.LiveCatalog(api, "c");
    const changes = [{key: a[0], action: "put"}];
    const commit = {revision: 2, commit_id: "x", author: "a", changes};
    const event = `id: 2\\nevent: commit\\ndata: ${JSON.stringify(commit)}\\n\\n`;
    return (async () => {
      await live.start();
      const before = (await live.head()).settings;
      const told = new Promise((resolve) => live.listen((some) => some.length && resolve()));
      tell.enqueue(new TextEncoder().encode(event));
      await told;
      const after = (await live.head()).settings;
      live.stop();
      return [before, after];
    })()"""
    assert page.logic(script, key) == [1, reads]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"nmae": "x", "b": 1}, {"name": "x", "b": 2}, ["changed b", "renamed nmae name"]),
        ({"a": {"x": [1]}}, {"a": {"y": [1]}}, ["renamed a,x a,y"]),
        ({"a": "x", "b": "x"}, {"c": "x"}, ["added c", "removed a", "removed b"]),
        ({"a": True}, {"b": True}, ["added b", "removed a"]),
        ({"a": {"x": 1}}, {"a": {}, "x": 1}, ["added x", "removed a,x"]),
        ({"a": [{"x": 1}]}, {"a": [{"y": 1}]}, ["renamed a,0,x a,0,y"]),
    ],
)
def test_a_member_with_the_same_value_under_a_new_name_counts_as_renamed(
    page: Browser, before: Any, after: Any, told: list[str]
) -> None:
    """Where just one came with what it had, beside it; yes, no and nothing are too common."""
    script = """const [before, after] = a.map((each) => m.parse(each));
    return m.withRenames(m.edits(before, after)).map(({kind, from, to}) =>
      [kind, from, to ?? []].filter((each) => each.length).join(" "))"""
    assert sorted(page.logic(script, json.dumps(before), json.dumps(after))) == told


def test_an_idempotency_key_is_reused_until_its_request_is_refused(page: Browser) -> None:
    script = """
    let made = 0;
    const keys = new m.IdempotencyKeys(() => (made += 1));
    const used = [];
    const send = async (parts, error) => {
      const sent = (key) => {
        used.push(key);
        if (error) throw Object.assign(new Error(), error);
      };
      await keys.run(parts, sent).catch(() => {});
    };
    return (async () => {
      await send(["a"], { code: "unreachable" });
      await send(["a"], { code: "outcome_unknown", members: { applied: "unknown" } });
      await send(["a"], { code: "changed_since", members: { applied: "no" } });
      await send(["a"]);
      await send(["b"]);
      return used;
    })();"""
    assert page.logic(script) == [1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, '{"etag": "1-aaa', "unreachable"),
        (200, "<html>sign in</html>", "unexpected_answer"),
        (404, "<html>404</html>", "unexpected_answer"),  # of which it isn't known what is gone
        (502, "<html>502</html>", "unexpected_answer"),
        (503, '{"code": "over', "unexpected_answer"),
        (504, "[]", "unexpected_answer"),
    ],
)
def test_an_unreadable_answer_leaves_a_write_unknown(
    page: Browser, status: int, body: str, code: str
) -> None:
    """One that breaks off, or is a proxy's: sent again, the write has the same key."""
    script = """
    const before = window.fetch;
    const cut = !a[1].endsWith(">") && a[1] !== "[]";
    window.fetch = async () => new Response(new ReadableStream({ start(stream) {
      stream.enqueue(new TextEncoder().encode(a[1]));
      if (cut) stream.error(new TypeError("network error"));
      else stream.close();
    } }), { status: a[0] });
    const api = new m.Api({ token: { get: () => null }, askForToken: null });
    return api.patch("c", "k", [], {})
      .then(() => "applied", (error) => [error.code, error.status, m.isUnsure(error)])
      .finally(() => { window.fetch = before; });"""
    assert page.logic(script, status, body) == [code, 0, True]


def test_a_pointer_to_the_whole_document_is_sent_explicitly(page: Browser) -> None:
    """Without its pointer, a request to give it back is one to let go of all that one applied."""
    script = """
    const before = window.fetch;
    const asked = [];
    window.fetch = async (target) => {
      asked.push(String(target));
      return new Response("{}");
    };
    const api = new m.Api({ token: { get: () => null }, askForToken: null });
    return Promise.all([api.giveBack("c", "k", "", {}), api.giveBack("c", "k", "/a", {})])
      .finally(() => { window.fetch = before; })
      .then(() => asked.map((each) => each.split("/v1/")[1]));"""
    assert page.logic(script) == [
        "catalogs/c/owners/k?pointer=",
        "catalogs/c/owners/k?pointer=%2Fa",
    ]


def test_the_revision_at_a_time_is_the_last_one_before_it(
    page: Browser, service: RunningGateway
) -> None:
    writer = Writer(service.url, uuid.uuid4().hex)
    for number in range(3):
        writer.put("k", number)
    script = """
    const api = new m.Api({ token: { get: () => null }, askForToken: null });
    const at = async (catalog, moments) =>
      Promise.all(moments.map((each) => api.revisionAt(catalog, new Date(each))));
    const [past, future] = ["2000-01-01T00:00:00Z", "2999-01-01T00:00:00Z"];
    return (async () => {
      const [, { time }] = await api.commits(a[0], { after: 0, limit: 3 });
      return [await at(a[0], [past, time, future]), await at(`${a[0]}-none`, [past, future])];
    })();"""
    (before, second, after), none = page.logic(script, writer.catalog)
    assert second in (0, 1), "a browser's moments are whole milliseconds"
    assert (before, after, none) == (0, 3, [0, 0])


def test_numeric_keys_of_items_are_written_as_the_gateway_writes_them(page: Browser) -> None:
    rule = parse_declarations([{"keys": "*", "pointer": "/f", "item_key": ["id"]}])
    keys = rule.lists_of("k").at(("f",))
    assert isinstance(keys, ArrayKeys)
    known = [0, -0.0, 1, 1.0, -7, 1.5, 0.1, 1e-7, 1e15, 2.0**53, 1e16, 1e22, 1.5e300, 2**53 + 1]
    known += [2**63 - 1, -(2**63), True, False, None, "1.0", "x"]
    texts = [msgspec.json.encode({"id": each}).decode() for each in known]
    texts += ['{"id": 1.50}', '{"id": 2.000}', '{"id": 1e2}']
    found = page.logic(
        "return a[0].map((text) => m.addressOf({ keys: [['id']] }, m.parse(text)))", texts
    )
    assert found == [keys.address_of(msgspec.json.decode(text)) for text in texts]

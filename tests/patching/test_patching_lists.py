"""The items of lists are identified by key or by value, according to the rules."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patch_strategies import documents, locations, randoms

from patching import (
    ABSENT,
    NO_LISTS,
    InvalidPatch,
    Lists,
    equal,
    list_rules,
    parse_lists,
    split_pointer,
)
from patching.errors import ListViolation
from patching.list_rules import ArrayKeys
from tests.cases import cases

US = "␟"
FIELDS = {"pointer": "/fields", "item_key": ["path"]}
TAGS = {"pointer": "/fields/*/tags", "set": True}
LISTS = parse_lists([FIELDS, TAGS, {"pointer": "/owners", "item_key": ["who/urn", "type"]}])


def keyed(pointer: str, *members: str) -> dict[str, Any]:
    return {"pointer": pointer, "item_key": list(members)}


def unique(pointer: str) -> dict[str, Any]:
    return {"pointer": pointer, "set": True}


@pytest.mark.parametrize("pointer", ["/fields", "/fields/0/tags", "/fields/user.name/tags"])
def test_a_rule_is_found_by_pointer_and_by_address(pointer: str) -> None:
    rule = LISTS.at(split_pointer(pointer))
    assert rule is not None
    assert isinstance(rule, ArrayKeys) == (pointer == "/fields")


@pytest.mark.parametrize("pointer", ["", "/fields/0", "/tags", "/fields/0/tags/1", "/a/0/tags"])
def test_arrays_without_a_rule_are_addressed_by_index(pointer: str) -> None:
    assert LISTS.at(split_pointer(pointer)) is None


def test_rules_found_step_by_step_are_the_same() -> None:
    assert LISTS.below("fields").rule == LISTS.at(("fields",))
    assert LISTS.below("fields").below("0").below("tags").rule == LISTS.at(("fields", "0", "tags"))
    assert LISTS.below("fields").below("0").below("tags").below("1") is NO_LISTS
    assert not NO_LISTS
    assert LISTS


def owner(urn: Any, kind: Any) -> dict[str, Any]:
    return {"who": {"urn": urn}, "type": kind}


KEYS = [
    ("/fields", {"path": "a", "n": 1}, ("a",)),
    ("/fields", {"path": 1.0}, ("1",)),
    ("/fields", {"path": None}, ("null",)),
    ("/fields", {"path": f"a{US}b"}, (f"a{US}b",)),
    ("/fields", {"path": ["a"]}, None),
    ("/fields", {"n": 1}, None),
    ("/fields", "a", None),
    ("/owners", owner("ann", "x"), ("ann", "x")),
    ("/owners", owner(f"a{US}b", "x"), None),
    ("/owners", {"who": "ann", "type": "x"}, None),
    ("/fields/0/tags", "a", ('"a"',)),
    ("/fields/0/tags", {"b": 1.0, "a": [True]}, ('{"a":[true],"b":1}',)),
    ("/fields/0/tags", "\ud800", ('"\\ud800"',)),
]


@pytest.mark.parametrize(("pointer", "item", "key"), KEYS)
def test_the_key_of_an_item_is_computed(pointer: str, item: Any, key: Any) -> None:
    rule = LISTS.at(split_pointer(pointer))
    assert rule is not None
    assert rule.key_of(item) == key
    assert rule.address_of(item) == (None if key is None else US.join(key))


def test_the_key_of_a_set_member_is_its_value() -> None:
    rule = LISTS.at(("fields", "0", "tags"))
    assert rule is not None
    for item in ("a", 1.5, None, {"b": [1, "\ud800"]}):
        key = rule.key_of(item)
        assert key is not None
        assert json.loads(key[0]) == item


VIOLATIONS = [
    ({"fields": [{"path": "a"}, {"path": "b"}, {"path": "a"}]}, "/fields/2", "/fields/0"),
    ({"fields": [{"path": "1"}, {"path": 1}]}, "/fields/1", "/fields/0"),
    ({"fields": [{"path": "a"}, {}]}, "/fields/1", "/fields/1/path"),
    ({"fields": [{"path": {}}]}, "/fields/0", "/fields/0/path"),
    ({"fields": ["a"]}, "/fields/0", "/fields/0"),
    (
        {"fields": [{"path": "a", "tags": ["x", 1, "x"]}]},
        "/fields/0/tags/2",
        "/fields/0/tags/0",
    ),
    ({"owners": [owner("a", "x"), {"who": {}, "type": 1}]}, "/owners/1", "/owners/1/who/urn"),
    ({"owners": [owner("a", f"x{US}")]}, "/owners/0", "/owners/0/type"),
]


@pytest.mark.parametrize(("document", "pointer", "other"), VIOLATIONS)
def test_a_double_or_a_missing_key_is_named_with_both_pointers(
    document: Any, pointer: str, other: str
) -> None:
    with pytest.raises(ListViolation) as caught:
        LISTS.require(document)
    assert (caught.value.pointer, caught.value.other) == (pointer, other)
    assert caught.value.code == "list_violation"


@pytest.mark.parametrize("document", [ABSENT, None, [], {"tags": {"path": 1}}, {"fields": []}])
def test_a_value_that_is_not_an_array_has_no_items(document: Any) -> None:
    assert LISTS.require(document) == 0


def test_a_list_shared_with_the_earlier_document_is_not_checked() -> None:
    double = [{"path": "a"}, {"path": "a"}]
    assert LISTS.require({"fields": double, "n": 2}, {"fields": double, "n": 1}) == 0
    with pytest.raises(ListViolation):
        LISTS.require({"fields": list(double)}, {"fields": double})


def test_the_work_of_a_check_grows_with_the_document_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lists without items take work too; what is shared takes none, nor does another rule."""
    many: list[Any] = [[] for _ in range(1000)]
    rules = parse_lists([{"pointer": f"/{n}/x", "set": True} for n in range(99)] + [
        {"pointer": "/*/x", "set": True}
    ])  # fmt: skip
    looked_at = 0

    def counted(part: Any, name: Any, member: Any = list_rules._member) -> Any:
        nonlocal looked_at
        looked_at += 1
        return member(part, name)

    monkeypatch.setattr(list_rules, "_member", counted)
    for document in (many, [{} for _ in many]):
        looked_at = 0
        assert rules.require(document) == len(many)
        assert looked_at < 5 * len(many)
    assert rules.require({"a": many}, {"a": many}) == 1
    looked_at = 0
    assert rules.require([*many, []], many) == len(many) + 1
    assert looked_at < 5 * len(many)


REFUSED = [
    ({}, "", "array"),
    ([1], "/0", "object"),
    ([{**FIELDS, "keys": "*"}], "/0", "keys"),
    ([{"item_key": ["a"]}], "/0/pointer", "Pointer"),
    ([{"pointer": "fields", "set": True}], "/0/pointer", "start"),
    ([{"pointer": "/~2", "set": True}], "/0/pointer", "~"),
    ([{"pointer": "/a" * 100, "set": True}], "/0/pointer", "has 100 tokens; the limit is 99"),
    ([{"pointer": "/a"}], "/0", "either"),
    ([{**FIELDS, "set": True}], "/0", "either"),
    ([{"pointer": "/a", "set": False}], "/0/set", "true"),
    ([keyed("/a")], "/0/item_key", "member names"),
    ([keyed("/a", "")], "/0/item_key", "member name"),
    ([keyed("/a", "/b")], "/0/item_key", "member name"),
    ([keyed("/a", "b", "b/c")], "/0/item_key", "another key"),
    ([unique(f"/{n}") for n in range(101)], "", "100"),
]


@pytest.mark.parametrize(("value", "pointer", "said"), REFUSED)
def test_an_invalid_rule_is_refused_with_its_pointer(value: Any, pointer: str, said: str) -> None:
    with pytest.raises(InvalidPatch) as caught:
        parse_lists(value)
    assert caught.value.pointer == pointer
    assert said in caught.value.detail


CONTRADICTIONS = [
    (unique("/a"), keyed("/a", "k")),
    (keyed("/a", "k"), keyed("/a", "l")),
    (keyed("/a", "k", "l"), keyed("/a", "l", "k")),
    (unique("/*/b"), keyed("/a/*", "k")),
    (unique("/a"), keyed("/a/*/b", "k")),
    (keyed("/a", "k"), unique("/a/name/b")),
    (keyed("/a", "k"), unique("/a/*/k")),
    (keyed("/a", "k/l"), unique("/a/*/k")),
    (keyed("/a", "k"), unique("/*/*/k/l")),
    (unique(""), keyed("/*/b", "k")),
]


@pytest.mark.parametrize("rules", CONTRADICTIONS)
def test_rules_that_contradict_each_other_are_refused_naming_both(rules: Any) -> None:
    for pair in (rules, rules[::-1]):
        with pytest.raises(InvalidPatch) as caught:
            parse_lists(list(pair))
        assert caught.value.pointer == "/1"
        for rule in rules:
            assert f"'{rule['pointer']}'" in caught.value.detail


@pytest.mark.parametrize(
    "rules",
    [
        (unique("/a"), unique("/a")),
        (unique("/a"), keyed("/b", "k")),
        (unique("/*/b"), unique("/a/*")),
        (keyed("/a", "k"), keyed("/a/*", "k")),
        (keyed("/a", "k"), unique("/a/*/l"), unique("/b/k")),
    ],
)
def test_consistent_rules_are_accepted(rules: Any) -> None:
    assert parse_lists(list(rules))


NAMES = ["a", "b", "0", "*"]
rule = st.builds(
    lambda random, keys: keyed(_pointer(random), "a") if keys else unique(_pointer(random)),
    randoms,
    st.booleans(),
)


def _pointer(random: Random) -> str:
    return "".join("/" + random.choice(NAMES) for _ in range(random.randint(0, 3)))


def as_oracle(rules: list[dict[str, Any]], tokens: tuple[str, ...]) -> set[str]:
    """What the rules say of the array at `tokens`; none of patching's code."""
    said = set()
    for each in rules:
        pattern = each["pointer"].split("/")[1:]
        if len(pattern) == len(tokens) and all(
            own == "*" or own == token for own, token in zip(pattern, tokens, strict=True)
        ):
            said.add("set" if "set" in each else "key")
    return said


@cases(100)
@given(st.lists(rule, max_size=4))
def test_accepted_rules_are_unambiguous_for_every_array(rules: Any) -> None:
    try:
        lists = parse_lists(rules)
    except InvalidPatch:
        return
    for length in range(4):
        for tokens in itertools.product(["a", "b", "c", "0"], repeat=length):
            said = as_oracle(rules, tokens)
            assert len(said) <= 1
            found = lists.at(tokens)
            assert said == (
                set() if found is None else {"key" if isinstance(found, ArrayKeys) else "set"}
            )
            below: Lists = lists
            for token in tokens:
                below = below.below(token)
            assert below.rule == found


def is_broken(rules: list[dict[str, Any]], document: Any) -> bool:
    """Whether a list of `document` has two items with one key, or one without; the slow way."""
    for tokens in locations(document):
        value = document
        for token in tokens:
            value = value[int(token)] if isinstance(value, list) else value[token]
        said = as_oracle(rules, tokens)
        if not isinstance(value, list) or not said:
            continue
        if "key" in said:
            keys = [each.get("a", []) if isinstance(each, dict) else [] for each in value]
            if any(isinstance(key, dict | list) for key in keys):
                return True
            value = [key if isinstance(key, str) else json.dumps(key) for key in keys]
        if any(equal(a, b) for a, b in itertools.combinations(value, 2)):
            return True
    return False


@cases(100)
@given(st.lists(rule, max_size=3), documents)
def test_every_violation_is_found(rules: Any, document: Any) -> None:
    try:
        lists = parse_lists(rules)
    except InvalidPatch:
        return
    try:
        lists.require(document)
        broken = False
    except ListViolation:
        broken = True
    assert broken == is_broken(rules, document)


def test_the_path_through_the_rules_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many addresses there are under however many rules."""
    made: list[None] = []
    make = list_rules._Way.__init__

    def counted(self: Any, *given: Any) -> None:
        made.append(None)
        make(self, *given)

    monkeypatch.setattr(list_rules._Way, "__init__", counted)
    rules = parse_lists([{"pointer": "/*" * depth, "item_key": ["id"]} for depth in range(1, 99)])
    address = ("a",) * 98
    for _ in range(100):
        assert all([*rules.keys_along(address)][1:])
    assert len(made) <= 99

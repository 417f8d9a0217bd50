"""Differences, footprints and their overlaps go by the items of lists, not by their places."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from extended_calls import size
from hypothesis import given
from patch_strategies import documents, randoms

from patching import (
    ABSENT,
    NO_LISTS,
    PatchError,
    PathMissing,
    apply_extended,
    apply_within,
    diff,
    equal,
    parse,
    parse_extended,
    parse_lists,
)
from patching.errors import ListViolation
from patching.footprints import Footprint, displaced, footprint, overlap
from tests.cases import cases

LISTS = parse_lists(
    [
        {"pointer": "/f", "item_key": ["k"]},
        {"pointer": "/f/*/t", "set": True},
        {"pointer": "/f/*/g", "item_key": ["a", "b/c"]},
        {"pointer": "/t", "set": True},
    ]
)


def by_key(document: Any, operations: Any, lists: Any = LISTS) -> Any:
    patch = parse_extended({"patch": operations})
    return apply_extended(document, patch, document_bytes=size(document), lists=lists).content


def sorted_lists(document: Any, lists: Any = LISTS) -> Any:
    """The document with its lists in the order of their texts: the slow way, none of diff's."""

    def of(value: Any, tokens: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {name: of(child, (*tokens, name)) for name, child in value.items()}
        if not isinstance(value, list):
            return float(value) if type(value) is int else value
        items = [of(child, (*tokens, "0")) for child in value]
        return sorted(items, key=text) if lists.at(tokens) else items

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    return of(document, ())


ORDERS = {"f": [{"k": "x", "n": 1, "t": ["r"]}, {"k": "y", "n": 1}], "t": ["r", "s"], "l": [1, 2]}
DIFFERENCES = [
    ({**ORDERS, "f": ORDERS["f"][::-1], "t": ["s", "r"]}, []),
    (
        {**ORDERS, "f": [{"k": "y", "n": 2}, {"k": "z"}, {"k": "x", "n": 1, "t": ["q"]}]},
        [
            {"op": "replace", "path": "/f/y/n", "value": 2},
            {"op": "add", "path": "/f/z", "value": {"k": "z"}},
            {"op": "pull", "path": "/f/x/t", "value": "r"},
            {"op": "add_to_set", "path": "/f/x/t", "value": "q"},
        ],
    ),
    ({**ORDERS, "f": ORDERS["f"][1:]}, [{"op": "remove", "path": "/f/x"}]),
    ({**ORDERS, "t": "r"}, [{"op": "replace", "path": "/t", "value": "r"}]),
    ({**ORDERS, "t": ["r", "r"]}, [{"op": "replace", "path": "/t", "value": ["r", "r"]}]),
    ({**ORDERS, "l": [2]}, [{"op": "remove", "path": "/l/0"}]),
]


@pytest.mark.parametrize(("after", "expected"), DIFFERENCES, ids=range(len(DIFFERENCES)))
def test_a_difference_names_items_by_key(after: Any, expected: Any) -> None:
    found = diff(ORDERS, after, compact=False, lists=LISTS)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert sorted_lists(by_key(ORDERS, found)) == sorted_lists(after)


def test_compact_does_not_replace_objects_that_contain_lists() -> None:
    before = {"f": [{"k": "x", **{f"n{n}": n for n in range(9)}}]}
    after = {"f": [{"k": "x"}]}
    assert len(diff(before, after, lists=LISTS)) == 9
    assert len(diff(before, after)) == 1


def an_item(random: Random, key: Any) -> Any:
    item: dict[str, Any] = {"k": key}
    if random.random() < 0.8:
        item["n"] = random.randint(0, 2)
    if random.random() < 0.6:
        item["t"] = random.sample(["r", "s", 1, True, {"o": [1]}], random.randint(0, 4))
    if random.random() < 0.3:
        keys = random.sample([(1, 2), (1, "~/"), ("p", None)], random.randint(0, 3))
        item["g"] = [{"a": a, "b": {"c": c}, "n": random.randint(0, 2)} for a, c in keys]
    return item


def a_document(random: Random) -> Any:
    keys = random.sample(["x", "y", "", "~/", 7, None, 1.5], random.randint(0, 5))
    return {
        "f": [an_item(random, key) for key in keys],
        "t": random.sample(["r", "s", "q", 0, False], random.randint(0, 3)),
        "l": random.choices([1, 2], k=random.randint(0, 2)),
        **({"n": random.randint(0, 2)} if random.random() < 0.5 else {}),
    }


@cases(500)
@given(randoms)
def test_applying_a_difference_gives_the_other_document_up_to_order(random: Random) -> None:
    before, after = a_document(random), a_document(random)
    for compact in (False, True):
        found = diff(before, after, compact=compact, lists=LISTS)
        assert sorted_lists(by_key(before, found)) == sorted_lists(after)
        assert bool(found) == (sorted_lists(before) != sorted_lists(after))


LOOSE = parse_lists([{"pointer": "/a", "item_key": ["a"]}, {"pointer": "/b/*", "set": True}])


@cases(300)
@given(documents, documents)
def test_differences_are_right_for_documents_with_arbitrary_lists_too(
    before: Any, after: Any
) -> None:
    found = diff(before, after, compact=False, lists=LOOSE)
    try:
        result = by_key(before, found, LOOSE)
    except ListViolation:  # in a list that is broken above what differs
        return
    assert sorted_lists(result, LOOSE) == sorted_lists(after, LOOSE)


def test_an_object_in_the_place_of_a_list_is_replaced_as_a_whole() -> None:
    before, after = {"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}
    found = diff(before, after, lists=LOOSE)
    assert found == [{"op": "replace", "path": "/a", "value": {"c": 3}}]
    assert by_key(before, found, LOOSE) == after


def changed(random: Random, document: Any) -> Any:
    """Some items of other content, gone, new, or elsewhere."""
    items = []
    for item in document["f"]:
        chance = random.random()
        if chance < 0.1:
            continue
        items.append(an_item(random, item["k"]) if chance < 0.4 else item)
    for key in random.sample(["u", "v"], random.randint(0, 1)):
        items.insert(random.randint(0, len(items)), an_item(random, key))
    if random.random() < 0.3:
        random.shuffle(items)
    members = [each for each in document["t"] if random.random() < 0.8]
    return {**document, "f": items, "t": members + random.sample(["m", "n"], random.randint(0, 1))}


@cases(500)
@given(randoms)
def test_changes_of_different_items_both_survive_in_any_order(random: Random) -> None:
    base = a_document(random)
    one, two = (diff(base, changed(random, base), compact=False, lists=LISTS) for _ in "12")
    feet = [footprint(parse_extended({"patch": each}), base, LISTS) for each in (one, two)]
    if overlap(*feet):
        return
    either, other = by_key(by_key(base, one), two), by_key(by_key(base, two), one)
    assert sorted_lists(either) == sorted_lists(other)


def a_patch(random: Random, document: Any) -> Any:
    """By index, as somebody who sees `document` writes it."""
    patch = []
    for _ in range(random.randint(1, 3)):
        at, items = random.randint(0, len(document["f"])), document["f"]
        value = an_item(random, random.choice(["u", "w"]))
        choices: list[Any] = [
            {"op": "add", "path": f"/f/{random.choice([at, '-'])}", "value": value},
            {"op": "add", "path": "/t/-", "value": random.choice("mr")},
        ]
        if at < len(items):
            choices += [
                {"op": "replace", "path": f"/f/{at}", "value": an_item(random, items[at]["k"])},
                {"op": "add", "path": f"/f/{at}/n", "value": 9},
                {"op": "remove", "path": f"/f/{at}"},
                {"op": "replace", "path": f"/f/{at}/k", "value": "w"},
                {"op": "move", "from": f"/f/{at}", "path": "/f/0"},
                {"op": "copy", "from": f"/f/{at}/k", "path": "/copied"},
                {"op": "test", "path": f"/f/{at}/k", "value": items[at]["k"]},
                {"op": "remove", "path": f"/f/{at}/t/0"},
            ]
        step = random.choice(choices)
        try:
            document = apply_within(document, [step], document_bytes=0)[0]
        except PatchError:
            continue
        patch.append(step)
    return patch


@cases(1000)
@given(randoms)
def test_a_patch_by_index_that_does_not_overlap_has_the_same_effect_on_a_newer_state(
    random: Random,
) -> None:
    base = a_document(random)
    patch, now = a_patch(random, base), changed(random, base)
    since = diff(base, now, compact=False, lists=LISTS)
    own = footprint(parse(patch), base, LISTS)
    met = overlap(own, footprint(parse_extended({"patch": since}), base, LISTS))
    if met or displaced(own, base, now, LISTS):
        return
    then = apply_within(base, patch, document_bytes=0)[0]
    try:
        LISTS.require(then)
        done = apply_within(now, patch, document_bytes=0)[0]
    except (ListViolation, PathMissing):
        return  # refused in any state; or it was to be inserted beyond what is left
    assert sorted_lists(done) == sorted_lists(by_key(then, since))


def fp(reads: list[str], writes: list[str], indexed: list[str] = []) -> Footprint:  # noqa: B006
    return Footprint(frozenset(reads), frozenset(writes), frozenset(indexed))


PLAIN = [
    ({"op": "replace", "path": "/f/1/n", "value": 2}, fp([], ["/f/y/n"], ["/f"])),
    ({"op": "replace", "path": "/f/1/k", "value": "z"}, fp([], ["/f/y", "/f/z"], ["/f"])),
    ({"op": "add", "path": "/f/0", "value": {"k": "z"}}, fp([], ["/f/z"])),
    ({"op": "add", "path": "/f/-", "value": {"k": "z"}}, fp([], ["/f/z"])),
    ({"op": "remove", "path": "/f/1"}, fp([], ["/f/y"], ["/f"])),
    ({"op": "remove", "path": "/t/1"}, fp([], ['/t/"s"'], ["/t"])),
    ({"op": "move", "from": "/f/1", "path": "/f/0"}, fp(["/f/y"], ["/f/y"], ["/f"])),
    ({"op": "test", "path": "/f/0/t/0", "value": "r"}, fp(['/f/x/t/"r"'], [], ["/f", "/f/x/t"])),
    ({"op": "remove", "path": "/l/0"}, fp([], ["/l"])),
    ({"op": "replace", "path": "/f", "value": []}, fp([], ["/f"])),
]


@pytest.mark.parametrize(("operation", "expected"), PLAIN, ids=range(len(PLAIN)))
def test_footprints_by_index(operation: Any, expected: Any) -> None:
    assert footprint([operation], ORDERS, LISTS) == expected


EXTENDED = [
    ({"op": "replace", "path": "/f/y/n", "value": 2}, fp([], ["/f/y/n"])),
    ({"op": "replace", "path": "/f/y/k", "value": "z"}, fp([], ["/f/y"])),
    ({"op": "add", "path": "/f/z", "value": {}}, fp([], ["/f/z"])),
    ({"op": "remove", "path": "/f/y"}, fp([], ["/f/y"])),
    ({"op": "add_to_set", "path": "/t", "value": "q"}, fp(['/t/"q"'], ['/t/"q"'])),
    ({"op": "pull", "path": "/f/x/t", "value": "r"}, fp(['/f/x/t/"r"'], ['/f/x/t/"r"'])),
    ({"op": "test", "path": "/f/z/n", "value": 1}, fp(["/f/z"], [])),
    ({"op": "move", "from": "/f/y", "path": "/f/z"}, fp(["/f/y"], ["/f/y", "/f/z"])),
]


@pytest.mark.parametrize(("operation", "expected"), EXTENDED, ids=range(len(EXTENDED)))
def test_footprints_by_key(operation: Any, expected: Any) -> None:
    assert footprint(parse_extended({"patch": [operation]}), ORDERS, LISTS) == expected


def test_without_a_document_the_footprint_of_an_index_is_the_whole_list() -> None:
    one = {"op": "replace", "path": "/f/1/n", "value": 2}
    assert footprint([one], ABSENT, LISTS) == fp(["/f"], ["/f"], ["/f"])
    by_name = parse_extended({"patch": [{**one, "path": "/f/y/n"}]})
    assert footprint(by_name, ABSENT, LISTS) == fp([], ["/f/y/n"])


def test_an_index_of_an_item_that_was_appended_depends_on_the_whole_list() -> None:
    appended = {"op": "add", "path": "/f/-", "value": {"k": "z"}}
    then = {"op": "add", "path": "/f/2/n", "value": 1}
    assert footprint([appended, then], ORDERS, LISTS).reads == {"/f"}


def test_appended_items_displace_no_others() -> None:
    own = fp([], [], ["/f"])
    more = {**ORDERS, "f": [*ORDERS["f"], {"k": "z"}]}  # type: ignore[misc]
    first = {**ORDERS, "f": [{"k": "z"}, *ORDERS["f"]]}  # type: ignore[misc]
    assert displaced(own, ORDERS, more, LISTS) == []
    assert displaced(own, ORDERS, first, LISTS) == ["/f"]
    assert equal(diff(ORDERS, first, lists=NO_LISTS) == [], False)

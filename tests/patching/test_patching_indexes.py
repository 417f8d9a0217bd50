"""An index into a list reaches the item that its sender meant, or nothing."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from extended_calls import extended, size
from hypothesis import given
from patch_strategies import randoms

from patching import InvalidPatch, PatchError, apply_extended, apply_within, equal, parse_lists
from patching.errors import IndexNeedsTest, ListViolation
from tests.cases import cases

LISTS = parse_lists(
    [
        {"pointer": "/f", "item_key": ["k"]},
        {"pointer": "/f/*/t", "set": True},
        {"pointer": "/p", "item_key": ["a", "b/c"]},
        {"pointer": "/t", "set": True},
    ]
)
D = {
    "f": [{"k": "x", "t": ["r", "s"]}, {"k": "y", "n": 1}, {"k": "z"}],
    "p": [{"a": 1, "b": {"c": 1}, "n": 1}, {"a": 1, "b": {"c": 2}, "n": 1}],
    "t": ["r", "s"],
    "free": [1, 2, 3],
}


def op(name: str, path: str, **members: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **members}


def pin(path: str, value: Any) -> dict[str, Any]:
    return op("test", path, value=value)


def add(path: str, value: Any) -> dict[str, Any]:
    return op("add", path, value=value)


def replace(path: str, value: Any) -> dict[str, Any]:
    return op("replace", path, value=value)


def remove(path: str) -> dict[str, Any]:
    return op("remove", path)


def move(source: str, path: str) -> dict[str, Any]:
    return {"op": "move", "from": source, "path": path}


def copy(source: str, path: str) -> dict[str, Any]:
    return {"op": "copy", "from": source, "path": path}


def run(document: Any, operations: list[Any]) -> Any:
    return apply_within(document, operations, document_bytes=size(document), lists=LISTS)[0]


Y = pin("/f/1/k", "y")
REFUSED = [
    ([replace("/f/1/n", 2)], 0, ("/f/1/k",)),
    ([replace("/f/1", {"k": "y"})], 0, ("/f/1/k",)),
    ([remove("/f/0")], 0, ("/f/0/k",)),
    ([add("/f/1/m", 2)], 0, ("/f/1/k",)),
    ([move("/f/0", "/f/2")], 0, ("/f/0/k",)),
    ([copy("/f/0/k", "/first")], 0, ("/f/0/k",)),
    ([add("/f/0/t/-", "q")], 0, ("/f/0/k",)),
    ([pin("/f/0/k", "x"), remove("/f/0/t/1")], 1, ("/f/0/t/1",)),
    ([remove("/t/1")], 0, ("/t/1",)),
    ([replace("/p/1/n", 2)], 0, ("/p/1/a", "/p/1/b/c")),
    ([pin("/p/1/a", 1), replace("/p/1/n", 2)], 1, ("/p/1/a", "/p/1/b/c")),
    ([pin("/f/1/n", 1), replace("/f/1/n", 2)], 1, ("/f/1/k",)),
    ([Y, remove("/f/0")], 1, ("/f/0/k",)),
    ([Y, add("/f/0", {"k": "w"}), replace("/f/1/n", 2)], 2, ("/f/1/k",)),
    ([Y, remove("/f/1"), remove("/f/1")], 2, ("/f/1/k",)),
    ([replace("/f/1/n", 2), Y], 0, ("/f/1/k",)),
    ([add("/t/-", "q"), remove("/t/2")], 1, ("/t/2",)),
]


@pytest.mark.parametrize(("operations", "operation", "tests"), REFUSED)
def test_an_item_that_was_not_tested_is_not_reached(
    operations: Any, operation: int, tests: Any
) -> None:
    with pytest.raises(IndexNeedsTest) as caught:
        run(D, operations)
    assert (caught.value.operation, caught.value.tests) == (operation, tests)


TAKEN = [
    [Y, replace("/f/1/n", 2)],
    [pin("/f/1", {"k": "y", "n": 1}), replace("/f/1/n", 2)],
    [pin("/f", D["f"]), replace("/f/1/n", 2), remove("/f/0/t/0")],
    [pin("", D), remove("/f/0"), remove("/f/0"), remove("/t/0")],
    [pin("/p/1/a", 1), pin("/p/1/b", {"c": 2}), replace("/p/1/n", 2)],
    [Y, add("/f/0", {"k": "w"}), replace("/f/2/n", 2), add("/f/0/n", 1)],
    [add("/f/1", {"k": "w"}), add("/f/1/n", 2)],
    [Y, replace("/f/1/k", "v"), replace("/f/1/n", 2)],
    [Y, move("/f/1", "/f/0"), replace("/f/0/n", 2)],
    [replace("/t", ["a", "b"]), remove("/t/0")],
    [add("/f/-", {"k": "w"}), add("/t/-", "q"), add("/t/0", "q2"), remove("/free/1")],
    [pin("/t/1", "s"), remove("/t/1")],
    [pin("/t/1", "s"), remove("/t/1"), pin("/t/0", "r"), remove("/t/0")],
]


@pytest.mark.parametrize("operations", TAKEN, ids=range(len(TAKEN)))
def test_a_tested_item_is_reached_and_some_operations_need_no_test(operations: Any) -> None:
    plain = apply_within(D, operations, document_bytes=size(D))[0]
    assert equal(run(D, operations), plain)


def test_equal_members_of_two_sets_are_different_items() -> None:
    document = {"t": [1], "f": [{"k": "x", "t": [1]}]}
    with pytest.raises(IndexNeedsTest):
        run(document, [pin("/t/0", 1), pin("/f/0/k", "x"), remove("/f/0/t/0")])


def by_key(document: Any, *operations: Any, keyed: Any = None) -> Any:
    patch = extended(list(operations), keyed)
    return apply_extended(document, patch, document_bytes=size(document), lists=LISTS)


def test_extended_patches_name_items_of_declared_lists_by_key() -> None:
    done = by_key(
        D,
        replace("/f/y/n", 2),
        add("/f/w", {}),
        remove("/f/x"),
        op("add_to_set", "/t", value="q"),
        add("/p/1␟3", {"n": 1}),
    )
    assert done.content["f"] == [{"k": "y", "n": 2}, {"k": "z"}, {"k": "w"}]
    assert done.content["p"][2] == {"a": "1", "b": {"c": "3"}, "n": 1}
    assert apply_within(D, done.effective, document_bytes=size(D))[0] == done.content


def test_array_primary_keys_may_only_repeat_the_declared_keys() -> None:
    assert by_key(D, replace("/f/y/n", 2), keyed={"/f": ["k"], "/g": ["k"]}).effective
    for keyed in ({"/f": ["n"]}, {"/t": ["k"]}, {"/f/y/s": ["k"]}):
        with pytest.raises(InvalidPatch) as caught:
            by_key(D, keyed=keyed)
        assert caught.value.member == "array_primary_keys"


def test_an_impossible_address_is_refused_as_with_array_primary_keys() -> None:
    with pytest.raises(InvalidPatch):
        by_key(D, add("/f/y", {"k": "x"}))
    with pytest.raises(InvalidPatch):
        by_key(D, remove("/p/1"))


def test_a_list_with_a_repeated_key_is_refused() -> None:
    with pytest.raises(ListViolation) as caught:
        by_key({"f": [{"k": 1}, {"k": "1"}]}, replace("/f/1/n", 1))
    assert (caught.value.pointer, caught.value.other) == ("/f/1", "/f/0")


SET_REFUSED = [
    [remove("/t/1")],
    [pin("/t/0", "r"), remove("/t/1")],
    [pin("/t/1", "s"), add("/t/0", "q"), remove("/t/1")],
    [pin("/f/x/t/0", "r"), remove("/f/x/t/1")],
    [copy("/t/0", "/first")],
]


@pytest.mark.parametrize("operations", SET_REFUSED, ids=range(len(SET_REFUSED)))
def test_members_of_sets_cannot_be_addressed_by_key(operations: Any) -> None:
    with pytest.raises(IndexNeedsTest):
        by_key(D, *operations)


def test_members_of_sets_can_be_tested() -> None:
    assert by_key(D, pin("/t/1", "s"), remove("/t/1")).content["t"] == ["r"]
    assert by_key(D, pin("/t", ["r", "s"]), remove("/t/0"), remove("/t/0")).content["t"] == []


# Of what a client saw, others may have made anything; its patch changes what it meant, or nothing.

_number = itertools.count(1)


def a_list(random: Random, keys: list[str]) -> list[Any]:
    some = random.sample(keys, random.randint(0, len(keys)))
    return [{"k": key, "n": next(_number), "t": ["a"]} for key in some]


def changed_by_others(random: Random, items: list[Any]) -> list[Any]:
    kept = [each for each in items if random.random() < 0.8]
    if random.random() < 0.3:
        random.shuffle(kept)
    for key in random.sample("uvw", random.randint(0, 2)):
        kept.insert(random.randint(0, len(kept)), {"k": key, "n": next(_number), "t": ["a"]})
    return kept


def a_patch(random: Random, items: list[Any]) -> list[Any]:
    """By index, as of `items`, with a test here and there."""
    patch: list[Any] = []
    state: Any = {"f": items}
    for _ in range(random.randint(1, 4)):
        here = state["f"]
        at = random.randint(0, len(here))
        choice = random.choice(["add", "append"] if at == len(here) else _CHANGES)
        if choice == "test":
            step = pin(f"/f/{at}/k", here[at]["k"])
        elif choice == "look":  # at what other items may have, too
            step = pin(f"/f/{at}/t", here[at]["t"])
        elif choice == "replace":
            step = replace(f"/f/{at}/n", next(_number))
        elif choice == "rename":
            step = replace(f"/f/{at}/k", f"new{next(_number)}")
        elif choice == "remove":
            step = remove(f"/f/{at}")
        elif choice == "move":
            step = move(f"/f/{at}", f"/f/{random.randint(0, len(here) - 1)}")
        elif choice == "pull":
            step = remove(f"/f/{at}/t/0")
        else:
            place = "-" if choice == "append" else str(at)
            step = add(f"/f/{place}", {"k": f"new{next(_number)}", "n": 0, "t": ["a"]})
        try:
            state = apply_within(state, [step], document_bytes=0)[0]
        except PatchError:
            continue
        patch.append(step)
    return patch


_CHANGES = [
    "test",
    "test",
    "test",
    "look",
    "replace",
    "rename",
    "remove",
    "move",
    "pull",
    "add",
    "append",
]


def touched(before: list[Any], after: list[Any]) -> set[str]:
    """The keys of the items that have changed, computed the slow way."""
    old, new = ({each["k"]: each for each in items} for items in (before, after))
    return {key for key in old | new if old.get(key) != new.get(key)}


@cases(1000)
@given(randoms)
def test_no_other_item_is_ever_edited_whatever_others_changed_since(random: Random) -> None:
    seen = a_list(random, list("pqrst"))
    patch = a_patch(random, seen)
    meant = touched(seen, apply_within({"f": seen}, patch, document_bytes=0)[0]["f"])  # type: ignore
    now = changed_by_others(random, seen)
    try:
        after = run({"f": now}, patch)["f"]
    except PatchError:
        return
    assert touched(now, after) <= meant

"""Containers: objects, and lists whose items are told apart by key or by value. What is in them has
a name: that of a member, or the address of an item. All else, and an empty container, is a leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from patching.list_rules import NO_LISTS, ArrayKeys, ArraySet, Lists, told_apart
from patching.owners import Tree
from patching.pointers import Tokens
from patching.values import ABSENT, Document, Json

# The rules for a value and what is in it. None: it is a leaf, whatever it is, as items of sets are.
Rules: TypeAlias = "Lists | None"


def kind(value: Document, rules: Rules) -> Literal["object", "list"] | None:
    """None: it is no container."""
    if rules is None:
        return None
    if isinstance(value, dict):
        return "object"
    if rules and isinstance(value, list) and rules.rule is not None:
        return None if value and _items(value, rules) is None else "list"
    return None


def members(value: Document, rules: Rules) -> dict[str, Any] | None:
    """What is in a container, by name; None: it is a leaf, or absent."""
    if not value or rules is None:
        return None
    if isinstance(value, dict):
        return value
    return _items(value, rules) if rules and isinstance(value, list) else None


def within(value: Json, rules: Rules, name: str) -> Rules:
    """The rules for what has this name in the container `value`."""
    if not rules:
        return rules
    if isinstance(value, list) and isinstance(rules.rule, ArraySet):
        return None
    return rules.below(name) or NO_LISTS


def changed(value: Any, inside: Mapping[str, Any], changes: Mapping[str, Document]) -> Any:
    """The container `value`, in which `inside` is, with what `changes` has under these names;
    ABSENT is removed, and new items come last."""
    if not changes:
        return value
    now = {name: changes.get(name, item) for name, item in inside.items()}
    now |= changes
    left = {name: item for name, item in now.items() if item is not ABSENT}
    return left if isinstance(value, dict) else list(left.values())


def with_key(value: Json, rules: Rules, name: str, item: Document, before: Json) -> Document:
    """`item`, what is left of `before`, with the key that the list `value` finds it by."""
    rule = rules.rule if rules and isinstance(value, list) else None
    if isinstance(rule, ArrayKeys) and item is not ABSENT and item is not before:
        return rule.filled(item, name, before)
    return item


def _items(array: list[Any], rules: Lists) -> dict[str, Any] | None:
    """By address; None where the items have no rule, or one has no address of its own."""
    rule = rules.rule
    return None if rule is None else told_apart(array, rule.address_of)


def owned_leaves(tree: Tree, content: Json, rules: Rules) -> Iterator[tuple[Tokens, int, Json]]:
    """The owned leaves in `content`."""
    if isinstance(tree, int):
        yield (), tree, content
        return
    inside = members(content, rules) or {}
    for name, below in tree.items():
        for tokens, place, value in owned_leaves(below, inside[name], within(content, rules, name)):
            yield (name, *tokens), place, value

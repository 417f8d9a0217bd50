"""The model's lists: arrays of the simulated documents that settings may declare.

The items of /items have a key, their ``id``; /marks is a set. Where they aren't declared, and where
two items of one are alike, they are arrays like others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .asks import Ask, Compare
from .gone import GONE

Tokens = tuple[str, ...]
Lists = frozenset[str]  # the names of those that are declared

ITEMS, MARKS = "items", "marks"
NO_LISTS: Lists = frozenset()


def declared(settings: Any) -> Lists:
    """By the content of the settings."""
    arrays = settings.get("arrays", ()) if isinstance(settings, dict) else ()
    return frozenset(each["pointer"][1:] for each in arrays)


def key_of(name: str, item: Any) -> str | None:
    """What tells an item of the list ``name`` from others; None: nothing."""
    if name == MARKS:
        return json.dumps(item, separators=(",", ":"), sort_keys=True)
    key = item.get("id") if isinstance(item, dict) else None
    return key if isinstance(key, str) else None


def named(name: str, array: Any) -> dict[str, Any] | None:
    """The items by what tells them apart; None where that isn't so, or where it is no array."""
    if not isinstance(array, list):
        return None
    found = {key_of(name, item): item for item in array}
    whole = len(found) == len(array) and None not in found
    return {str(key): item for key, item in found.items()} if whole else None


def wrong(content: Any, lists: Lists) -> bool:
    """Whether a list of the content has two items that are alike."""
    arrays = _arrays(content, lists)
    return any(named(name, array) is None for name, array in arrays.items())


def sound(lists: Lists, *contents: Any) -> Lists:
    """Those that are right in all of them, and no objects."""
    bad = {
        name
        for content in contents
        for name in lists
        if (array := _member(content, name)) is not None and named(name, array) is None
    }
    return lists - bad


def without_objects(content: Any, lists: Lists) -> Any:
    """Without what is in the place of a list, and is none."""
    if not isinstance(content, dict):
        return content
    return {
        name: value
        for name, value in content.items()
        if name not in lists or isinstance(value, list)
    }


def rules(lists: Lists) -> Callable[[Tokens], str | None]:
    """As the oracle of owners has them."""

    def at(tokens: Tokens) -> str | None:
        if len(tokens) != 1 or tokens[0] not in lists:
            return None
        return "id" if tokens[0] == ITEMS else ""

    return at


def ordered(content: Any, *before: Any, lists: Lists) -> Any:
    """With the items of its lists in the order in which the first of ``before`` has them, then the
    next."""
    if not isinstance(content, dict):
        return content
    found = dict(content)
    for name, array in _arrays(content, lists).items():
        items = named(name, array)
        earlier = [_arrays(each, lists).get(name) for each in before]
        keys = [key for each in earlier for key in named(name, each) or ()]
        if items is not None:
            found[name] = [items[key] for key in dict.fromkeys(keys) if key in items]
    return found


def differing(then: Any, there: Any, lists: Lists, at: Tokens = ()) -> list[Tokens]:
    """Where two values differ, as far down as there are objects, and lists of the content."""
    if len(at) == 1 and at[0] in lists:
        one, other = named(at[0], then), named(at[0], there)
        if one is None or other is None:
            return [] if then == there else [at]
        then, there = one, other
    if not (isinstance(then, dict) and isinstance(there, dict)):
        return [] if then == there else [at]
    return [
        place
        for name in {**then, **there}
        for place in differing(then.get(name, GONE), there.get(name, GONE), lists, (*at, name))
    ]


def meet(one: Iterable[Tokens], others: Sequence[Tokens]) -> bool:
    """Whether a place is one of the others, or lies above or below it."""
    return any(a[: len(b)] == b or b[: len(a)] == a for a in one for b in others)


def displaced(name: str, then: Any, there: Any) -> bool:
    """Whether an item of the list isn't where it was."""
    before, after = ([*(named(name, _member(each, name)) or ())] for each in (then, there))
    return after[: len(before)] != before


def item_at(document: Any, tokens: Tokens, lists: Lists) -> tuple[str, str] | None:
    """The list, and the key of the item, that a pointer leads to or through by index."""
    if len(tokens) < 2 or tokens[0] not in lists:
        return None
    array = _member(document, tokens[0])
    if not isinstance(array, list) or not tokens[1].isdigit() or int(tokens[1]) >= len(array):
        return None
    key = key_of(tokens[0], array[int(tokens[1])])
    return None if key is None else (tokens[0], key)


def is_pinned(ask: Ask, key: str, when: Sequence[Compare], *, otherwise: bool) -> bool:
    """Whether the request names the very state of the document that it edits."""
    if ask.resource_version is not None:
        return True
    for each in when if otherwise else (*ask.compare, *when):
        if each.what == "revision":
            return True
        if each.what in ("token", "unchanged", "equals") and each.key == key:
            return True
        if each.what == "range-unchanged" and key.startswith(each.key):
            return True
    tags = ask.if_match or ("*",)
    return "*" not in tags and all(
        isinstance(tag, int)
        or (isinstance(tag, tuple) and any(name == key for name, _ in tag))
        or (isinstance(tag, str) and ask.key == key)
        for tag in tags
    )


def _member(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, dict) else None


def _arrays(content: Any, lists: Lists) -> Mapping[str, list[Any]]:
    found = {name: _member(content, name) for name in sorted(lists)}
    return {name: value for name, value in found.items() if isinstance(value, list)}

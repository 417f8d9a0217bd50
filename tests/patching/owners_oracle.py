"""Applying with owners once more, slow and plain: on flat maps from tokens to leaves.

A document is a map of its leaves; a container that isn't empty isn't in it, so what becomes empty
is gone by itself. Owners are a map from tokens to {(manager, plain): since}. Lists are told by a
function of tokens: the key of the items, "" for a set. No code is shared with `patching`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

GONE = object()

Lists = Callable[[tuple[str, ...]], str | None]


def no_lists(_: tuple[str, ...]) -> None:
    return None


def leaves(
    value: Any, at: tuple[str, ...] = (), lists: Lists = no_lists
) -> dict[tuple[str, ...], Any]:
    key = lists(at)
    if isinstance(value, list) and value and key is not None:
        found = {}
        for item in value:
            if key:
                found |= leaves(item, (*at, item[key]), lists)
            else:
                found[(*at, json.dumps(item, separators=(",", ":")))] = item
        return found
    if isinstance(value, dict) and value:
        found = {}
        for name, below in value.items():
            found |= leaves(below, (*at, name), lists)
        return found
    return {at: value}


def is_empty(value: Any, at: tuple[str, ...], lists: Lists) -> bool:
    """Whether it is a container of the kind that is there, without anything in it."""
    return bool(value == {}) if lists(at) is None else bool(value == [])


def listed(node: Any, at: tuple[str, ...], lists: Lists) -> Any:
    if not isinstance(node, dict) or not node:
        return node
    inside = {name: listed(below, (*at, name), lists) for name, below in node.items()}
    return inside if lists(at) is None else list(inside.values())


def built(flat: dict[tuple[str, ...], Any], lists: Lists = no_lists) -> Any:
    if () in flat:
        return flat[()]
    root: dict[str, Any] = {}
    for tokens, value in flat.items():
        node = root
        for token in tokens[:-1]:
            node = node.setdefault(token, {})
        node[tokens[-1]] = value
    return listed(root, (), lists)


def keep_keys(flat, before, lists):
    """Items of which anything is left keep their key."""
    for tokens in before:
        key = lists(tokens[:-2]) if len(tokens) > 1 else None
        if key and tokens[-1] == key and any(below(tokens[:-1], each) for each in flat):
            flat.setdefault(tokens, before[tokens])


def same(one: Any, other: Any) -> bool:
    """JSON equality: true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return type(one) in (int, float, str, type(None)) and one == other


def below(tokens, other):
    """Whether `other` lies below `tokens`."""
    return len(other) > len(tokens) and other[: len(tokens)] == tokens


def forced(tokens, force):
    return any(tokens[:length] in force for length in range(len(tokens) + 1))


def applied(
    document, owned, wanted, manager, revision, conflict="refuse", force=(), lists=no_lists
):
    """(document, owners, contested pointers as tokens); the first two None where it is refused."""
    me = (manager, False)
    flat = {} if document is GONE else leaves(document, (), lists)
    before = dict(flat)
    owned = {tokens: dict(names) for tokens, names in owned.items()}
    want = leaves(wanted, (), lists)
    for tokens in list(owned):  # what it wants no longer
        if me in owned[tokens] and tokens not in want:
            del owned[tokens][me]
            if not owned[tokens]:
                del owned[tokens], flat[tokens]
    keep_keys(flat, before, lists)
    contested = set()
    for tokens, value in want.items():
        inside = [each for each in flat if below(tokens, each)]
        if is_empty(value, tokens, lists) and inside:
            continue  # an object is there
        emptied = [each for each in flat if is_empty(flat[each], each, lists)]
        for above in [each for each in emptied if below(each, tokens)]:
            flat.pop(above)
            owned.pop(above, None)
        in_the_way = [each for each in flat if below(each, tokens)] + inside
        if tokens in flat and not same(flat[tokens], value):
            in_the_way.append(tokens)
        others = [each for each in in_the_way if set(owned.get(each, ())) - {me}]
        stay = [each for each in others if conflict != "force" and not forced(each, force)]
        if stay:
            contested |= set(stay)
            owned.get(tokens, {}).pop(me, None)
            continue
        if tokens in flat and tokens not in in_the_way:
            owned.setdefault(tokens, {}).setdefault(me, revision)
            continue
        since = owned.get(tokens, {}).get(me, revision)
        for each in in_the_way:
            flat.pop(each, None)
            owned.pop(each, None)
        flat[tokens] = value
        owned[tokens] = {me: since}
    if contested and conflict == "refuse":
        return None, None, contested
    return built(flat, lists) if flat else {}, owned, contested


def released(document, owned, manager, lists=no_lists):
    flat = leaves(document, (), lists)
    before, owned = dict(flat), {tokens: dict(names) for tokens, names in owned.items()}
    for tokens in list(owned):
        owned[tokens].pop((manager, False), None)
        if not owned[tokens]:
            del owned[tokens], flat[tokens]
    keep_keys(flat, before, lists)
    return built(flat, lists), owned


def given_back(owned, places, author):
    """The owners after `author`, None: an admin, gave back what it owns by plain writes; None where
    that is refused."""
    found, refused = {}, set(places)
    others = {}
    for tokens, names in owned.items():
        plain = {name for name, by_write in names if by_write}
        mine = plain if author is None else plain & {author}
        meant = [each for each in places if tokens[: len(each)] == each]
        left = dict(names)
        if meant:
            left = {n: at for n, at in names.items() if not (n[1] and n[0] in mine)}
            if mine:
                refused -= set(meant)
            for each in meant:
                others.setdefault(each, set()).update(plain - mine)
        if left:
            found[tokens] = left
    if any(others.get(each) for each in refused):
        return None
    return found


def written(owned, before, after, author, revision, lists=no_lists):
    """The owners after a plain write."""
    me = (author, True)
    then = {} if before is GONE else leaves(before, (), lists)
    now = {} if after is GONE else leaves(after, (), lists)
    found = {}
    for tokens, names in owned.items():
        if tokens in now:
            if same(then[tokens], now[tokens]):
                found[tokens] = dict(names)
            else:
                found[tokens] = {me: names.get(me, revision)}
        elif inside := [each for each in now if below(tokens, each)]:
            if not is_empty(then[tokens], tokens, lists):
                found |= {each: {me: revision} for each in inside}
        else:
            above = [each for each in now if below(each, tokens)]
            left = [each for each in above if not is_empty(now[each], each, lists)]
            found |= {each: {me: revision} for each in left}
    return found


def restored(base, target, now, after, author, revision, kept=(), lists=no_lists):
    """The owners after a revert; each of `base`, `target` and `now` is (document, owners)."""
    was, there, left = (
        {} if each is GONE else leaves(each, (), lists) for each in (target[0], now[0], after)
    )
    since = {
        tokens: {name: at for name, at in names.items() if base[1].get(tokens, {}).get(name) != at}
        for tokens, names in now[1].items()
    }
    since = {tokens: names for tokens, names in since.items() if names}
    plain, of_those_since = (
        written(owned, now[0], after, author, revision, lists) for owned in (now[1], since)
    )
    found = {}
    for tokens, value in left.items():
        mine = plain.get(tokens, {})
        if tokens in was and same(was[tokens], value) and not forced(tokens, kept):
            then, wanted, held = (each[1].get(tokens, {}) for each in (base, target, now))
            if tokens in there and same(there[tokens], value):
                undone = {name: at for name, at in then.items() if wanted.get(name) != at}
                mine = {name: at for name, at in held.items() if undone.get(name) != at}
                for name, at in wanted.items():
                    if then.get(name) != at:
                        mine.setdefault(name, at)
            else:
                mine = wanted or of_those_since.get(tokens, {})
        if mine:
            found[tokens] = dict(mine)
    return found

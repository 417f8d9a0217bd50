"""Applying with owners once more, slow and plain: on flat maps from tokens to leaves.

A document is a map of its leaves; a container that isn't empty isn't in it, so what becomes empty
is gone by itself. Owners are a map from tokens to {(manager, plain): since}. No code is shared with
`patching`.
"""

from __future__ import annotations

from typing import Any

GONE = object()


def leaves(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict) and value:
        found = {}
        for name, below in value.items():
            found |= leaves(below, (*at, name))
        return found
    return {at: value}


def built(flat: dict[tuple[str, ...], Any]) -> Any:
    if () in flat:
        return flat[()]
    root: dict[str, Any] = {}
    for tokens, value in flat.items():
        node = root
        for token in tokens[:-1]:
            node = node.setdefault(token, {})
        node[tokens[-1]] = value
    return root


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


def applied(document, owned, wanted, manager, revision, conflict="refuse", force=()):
    """(document, owners, contested pointers as tokens); the first two None where it is refused."""
    me = (manager, False)
    flat = {} if document is GONE else leaves(document)
    owned = {tokens: dict(names) for tokens, names in owned.items()}
    want = leaves(wanted)
    for tokens in list(owned):  # what it wants no longer
        if me in owned[tokens] and tokens not in want:
            del owned[tokens][me]
            if not owned[tokens]:
                del owned[tokens], flat[tokens]
    contested = set()
    for tokens, value in want.items():
        inside = [each for each in flat if below(tokens, each)]
        if value == {} and inside:
            continue  # an object is there
        for above in [each for each in flat if below(each, tokens) and flat[each] == {}]:
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
    return built(flat) if flat else {}, owned, contested


def released(document, owned, manager):
    flat, owned = leaves(document), {tokens: dict(names) for tokens, names in owned.items()}
    for tokens in list(owned):
        owned[tokens].pop((manager, False), None)
        if not owned[tokens]:
            del owned[tokens], flat[tokens]
    return built(flat), owned


def written(owned, before, after, author, revision):
    """The owners after a plain write."""
    me = (author, True)
    then = {} if before is GONE else leaves(before)
    now = {} if after is GONE else leaves(after)
    found = {}
    for tokens, names in owned.items():
        if tokens in now:
            if same(then[tokens], now[tokens]):
                found[tokens] = dict(names)
            else:
                found[tokens] = {me: names.get(me, revision)}
        elif inside := [each for each in now if below(tokens, each)]:
            if then[tokens] != {}:
                found |= {each: {me: revision} for each in inside}
        else:
            found |= {
                each: {me: revision} for each in now if below(each, tokens) and now[each] != {}
            }
    return found

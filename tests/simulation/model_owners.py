"""The model's owners: by the tokens of a leaf, who owns it, each since a revision.

An owner is a name and whether that is of plain writes. What applies, letting go and plain writes
come to is told by the oracle of the patch library's tests, which shares no code with the library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tests.patching import owners_oracle as oracle

from .asks import Wanted
from .model_lists import NO_LISTS, Lists, ordered, rules, sound, without_objects

Tokens = tuple[str, ...]
Names = Mapping[tuple[str, bool], int]
Owners = Mapping[Tokens, Names]

NOBODY: Owners = {}


@dataclass(frozen=True)
class Place:
    """A place that others have otherwise: of an apply with its ``owners``, each a name, whether by
    plain writes, and since when."""

    key: str
    pointer: str
    owners: frozenset[tuple[str, bool, int]] = frozenset()
    of_attributes: bool = False


def applied(
    key: str, content: Any, owners: Owners, wanted: Wanted, revision: int, lists: Lists
) -> tuple[Any, Owners, frozenset[Place]]:
    """Content (None: it is absent) and owners after an apply, both None where it is refused, and
    the places that are contested. Owners as ``fitted``."""
    after, owned, contested = oracle.applied(
        oracle.GONE if content is None else content,
        owners,
        wanted.content,
        wanted.manager,
        revision,
        wanted.conflict,
        {tuple(pointer.split("/")[1:]) for pointer in wanted.force},
        rules(sound(lists, content, wanted.content)),
    )
    places = (
        Place(key, pointer_of(each), _others(owners[each], wanted.manager)) for each in contested
    )
    after = ordered(after, content, wanted.content, lists=lists)
    # Before, two items of a list may have been alike.
    return after, owned and fitted(owned, after, lists), frozenset(places)


def released(content: Any, owners: Owners, manager: str, lists: Lists) -> tuple[Any, Owners]:
    """After the manager let go of all that it owns. Owners as ``fitted``."""
    after, owned = oracle.released(content, owners, manager, rules(sound(lists, content)))
    return ordered(after, content, lists=lists), owned


def given_back(owners: Owners, places: Collection[Tokens]) -> Owners:
    """After an admin gave back what plain writes own at and below ``places``. Owners as
    ``fitted``."""
    found: Owners = oracle.given_back(owners, places, None)
    return found


def written(
    owners: Owners, before: Any, after: Any, author: str, revision: int, lists: Lists
) -> Owners:
    """After plain writes by ``author``, which made ``after`` of ``before``."""
    alike = sound(lists, before, after)
    owners = fitted(owners, before, alike)
    found: Owners = oracle.written(owners, before, after, author, revision, rules(alike))
    return fitted(found, after, lists)


def restored(
    base: Any,
    target: Any,
    now: Any,
    after: Any,
    author: str,
    revision: int,
    kept: Collection[Tokens],
    lists: Lists,
) -> Owners:
    """After a revert by ``author``, which made ``after`` of ``now``; ``base``, ``target`` and
    ``now`` are (content, attributes, owners)."""
    alike = sound(lists, now[0], after)
    then = [without_objects(each[0], alike) for each in (base, target)]
    alike = sound(alike, *then)
    states = [
        (content, fitted(each[2], content, alike))
        for content, each in zip((*then, now[0]), (base, target, now), strict=True)
    ]
    told = author, revision, kept, rules(alike)
    found: Owners = oracle.restored(*states, after, *told)
    return fitted(found, after, lists)


def fitted(owners: Owners, content: Any, lists: Lists) -> Owners:
    """As it is by the lists that there are now: what is in a new list is whose the array was, and
    an array that is none any more is theirs who owned something in it."""
    there = leaves(content, lists)
    found: dict[Tokens, dict[tuple[str, bool], int]] = {}
    for tokens, names in owners.items():
        below = [each for each in there if each[: len(tokens)] == tokens]
        above = [each for each in there if tokens[: len(each)] == each]
        for each in [tokens] if tokens in there else below or above:
            mine = found.setdefault(each, {})
            for name, since in names.items():
                mine[name] = min(since, mine.get(name, since))
    return found


def leaves(content: Any, lists: Lists = NO_LISTS) -> dict[Tokens, Any]:
    found: dict[Tokens, Any] = oracle.leaves(content, (), rules(sound(lists, content)))
    return found


def told(owners: Mapping[str, Any] | None) -> Owners:
    """Owners as the gateway tells and stores them, in JSON."""
    if owners is None:
        return NOBODY
    sets = [{(name, plain): since for name, since, plain in each} for each in owners["by"]]
    return {tokens: sets[place] for tokens, place in _flat(owners["of"]).items()}


def changed(before: Owners, change: Mapping[str, Any] | None, revision: int) -> Owners:
    """What a commit's record of a change, in JSON, makes of the owners that were."""
    if change is None:
        return before
    after = {tokens: dict(names) for tokens, names in before.items()}
    for name, plain, tree in change.get("lost", ()):
        for tokens in _flat(tree):
            after.get(tokens, {}).pop((name, plain), None)
    for name, plain, tree in change.get("gained", ()):
        for tokens, since in _flat(tree).items():
            after.setdefault(tokens, {})[name, plain] = since or revision
    return {tokens: names for tokens, names in after.items() if names}


def pointer_of(tokens: Tokens) -> str:
    return "".join(f"/{token}" for token in tokens)


def _flat(tree: Any, at: Tokens = ()) -> dict[Tokens, int]:
    if isinstance(tree, int):
        return {at: tree}
    found: dict[Tokens, int] = {}
    for name, below in tree.items():
        found |= _flat(below, (*at, name))
    return found


def _others(names: Names, manager: str) -> frozenset[tuple[str, bool, int]]:
    own = (manager, False)
    return frozenset((*name, since) for name, since in names.items() if name != own)

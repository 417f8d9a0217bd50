"""Owners: who owns which leaves of a document, and since when.

A *leaf* is what is owned: a scalar, an empty object, a whole array. An object with members isn't
one; its members are, or what is in them. A leaf may have several owners, who want the same value.

Owners are a tree in the shape of the document, whose leaves are places in a table, because most
leaves of a document have the same few owners. The table is sorted and without duplicates, so equal
owners have equal fields, and equal JSON except for the order of members:

    {"by": [[["ann", 7, true]], [["nightly", 3, false]]],
     "of": {"comment": 0, "columns": {"id": {"type": 1}, "at": {"type": 1}}}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from patching.pointers import Tokens, join_pointer

_encode = msgspec.json.Encoder().encode

# By member, the tree below it; an integer is a leaf, its place in the table. No tree is empty.
Tree: TypeAlias = "dict[str, Any] | int"


class Ownership(msgspec.Struct, frozen=True, array_like=True, order=True):
    """`manager` has owned a leaf since revision `since`. `plain`: by a write that wasn't an apply.

    A manager and the author of plain writes are two owners, even if they have one name."""

    manager: str
    since: int
    plain: bool = False

    @property
    def name(self) -> tuple[str, bool]:
        """What tells this owner from others."""
        return self.manager, self.plain


Set: TypeAlias = "tuple[Ownership, ...]"


class OwnerTree(msgspec.Struct, frozen=True):
    """The owners of a document's leaves; a document in which nobody owns anything has None.

    `by` is the table: the sets of owners that leaves have, sorted, as is each of them."""

    by: tuple[Set, ...]
    of: Tree

    def leaves(self) -> Iterator[tuple[Tokens, Set]]:
        """Each owned leaf, by its tokens from the root, with its owners; in the tree's order."""
        for tokens, place in _leaves(self.of):
            yield tokens, self.by[place]

    def at(self, tokens: Tokens) -> Set:
        """The owners of the leaf at `tokens`; () if it has none, or isn't a leaf."""
        node: Any = self.of
        for token in tokens:
            node = node.get(token) if isinstance(node, dict) else None
        return self.by[node] if isinstance(node, int) else ()

    def count(self) -> int:
        """How many leaves have owners."""
        return _count(self.of)

    def total(self) -> int:
        """The number of owners, summed over the leaves."""
        times = Counter(places_of(self.of))
        return sum(len(self.by[place]) * count for place, count in times.items())

    def managers(self) -> list[str]:
        """The managers that own anything by an apply, sorted."""
        return sorted({each.manager for owners in self.by for each in owners if not each.plain})

    def size_bytes(self) -> int:
        """The size of the owners as JSON, in bytes."""
        return len(_encode(self))


class OwnersChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a change did to a document's owners: by manager and kind (plain or not), the leaves as a
    tree.

    In `gained` a leaf is 0, or an earlier revision since which the owner owns it: as a part of
    another leaf, or elsewhere. Nobody has one leaf in both `gained` and `lost`."""

    gained: tuple[tuple[str, bool, Tree], ...] = ()
    lost: tuple[tuple[str, bool, Tree], ...] = ()

    def pointers(self) -> list[tuple[str, bool, list[str], list[str]]]:
        """By manager and kind, sorted: the pointers of what it gained, and of what it lost."""
        found: dict[tuple[str, bool], tuple[list[str], list[str]]] = {}
        for which, named in enumerate((self.gained, self.lost)):
            for manager, plain, tree in named:
                pointers = found.setdefault((manager, plain), ([], []))[which]
                pointers += [join_pointer(tokens) for tokens, _ in _leaves(tree)]
        return [
            (manager, plain, sorted(gained), sorted(lost))
            for (manager, plain), (gained, lost) in sorted(found.items())
        ]


def owners_of(leaves: Mapping[Tokens, Iterable[Ownership]]) -> OwnerTree | None:
    """The owners of these leaves, none of which lies below another; None if nobody owns any."""
    sets = {tokens: tuple(sorted(owners)) for tokens, owners in leaves.items()}
    by = sorted({owners for owners in sets.values() if owners})
    places = {owners: place for place, owners in enumerate(by)}
    if not by:
        return None
    return OwnerTree(
        tuple(by), tree_of((tokens, places[owners]) for tokens, owners in sets.items() if owners)
    )


def canonical(by: list[Set], of: Tree) -> OwnerTree:
    """The owners of a tree whose table may be unsorted, or contain sets that no leaf has."""
    used = {place for _, place in _leaves(of)}
    order = sorted(used, key=lambda place: by[place])
    table = tuple([by[place] for place in order])
    if order == list(range(len(by))):
        return OwnerTree(table, of)
    places = {old: new for new, old in enumerate(order)}
    return OwnerTree(table, _renumbered(of, places))


def change_between(
    before: OwnerTree | None, after: OwnerTree | None, *, revision: int | None = None
) -> OwnersChange | None:
    """The change that turns `before` into `after`; None if they are equal. `revision` is that of
    the change, if leaves may come from elsewhere: their owners have owned them for longer."""
    if before is after:
        return None
    then = dict(before.leaves()) if before else {}
    now = dict(after.leaves()) if after else {}
    known = {owner for owners in then.values() for owner in owners}
    gained: dict[tuple[str, bool], list[tuple[Tokens, int]]] = {}
    lost: dict[tuple[str, bool], list[tuple[Tokens, int]]] = {}
    new: dict[tuple[Set, Set], list[Ownership]] = {}  # by the owners of a leaf then and now
    for tokens, owners in now.items():
        both = then.get(tokens, ()), owners
        if both not in new:
            new[both] = [owner for owner in owners if owner not in both[0]]
        for owner in new[both]:
            came = revision is not None and owner.since != revision
            since = owner.since if came or owner in known else 0
            gained.setdefault(owner.name, []).append((tokens, since))
    gone: dict[tuple[Set, Set], list[Ownership]] = {}
    for tokens, owners in then.items():
        both = owners, now.get(tokens, ())
        if both not in gone:
            names = {owner.name for owner in both[1]}
            gone[both] = [owner for owner in owners if owner.name not in names]
        for owner in gone[both]:
            lost.setdefault(owner.name, []).append((tokens, 0))
    if not gained and not lost:
        return None
    return OwnersChange(_named(gained), _named(lost))


def changed_owners(
    before: OwnerTree | None, change: OwnersChange, revision: int
) -> OwnerTree | None:
    """The owners after `change`, made at `revision`: the reverse of `change_between`."""
    leaves = dict(before.leaves()) if before else {}
    sets = {tokens: {owner.name: owner for owner in owners} for tokens, owners in leaves.items()}
    for manager, plain, tree in change.lost:
        for tokens, _ in _leaves(tree):
            sets.get(tokens, {}).pop((manager, plain), None)
    for manager, plain, tree in change.gained:
        for tokens, since in _leaves(tree):
            owner = Ownership(manager, since or revision, plain)
            sets.setdefault(tokens, {})[owner.name] = owner
    return owners_of({tokens: owners.values() for tokens, owners in sets.items()})


def tree_of(leaves: Iterable[tuple[Tokens, int]]) -> Tree:
    """The tree with these leaves: of each, its tokens from the root and its place in the table."""
    root: dict[str, Any] = {}
    for tokens, place in leaves:
        if not tokens:
            return place
        node = root
        for token in tokens[:-1]:
            node = node.setdefault(token, {})
        node[tokens[-1]] = place
    return root


def tokens_of(tree: Tree) -> Iterator[Tokens]:
    """The tokens of each leaf, from the root."""
    for tokens, _ in _leaves(tree):
        yield tokens


def places_of(tree: Tree) -> Iterator[int]:
    """The place of each leaf in the table; leaves with the same owners have the same place."""
    for _, place in _leaves(tree):
        yield place


def _named(
    leaves: dict[tuple[str, bool], list[tuple[Tokens, int]]],
) -> tuple[tuple[str, bool, Tree], ...]:
    return tuple((*name, tree_of(leaves[name])) for name in sorted(leaves))


_ROOT: Final[Tokens] = ()


def _leaves(tree: Tree) -> Iterator[tuple[Tokens, int]]:
    """In the tree's order. One iterator for each level, so that no tree is too deep."""
    if isinstance(tree, int):
        yield _ROOT, tree
        return
    way: list[str] = []
    inside = [iter(tree.items())]
    while inside:
        for name, below in inside[-1]:
            if isinstance(below, int):
                yield (*way, name), below
            else:
                way.append(name)
                inside.append(iter(below.items()))
                break
        else:
            inside.pop()
            way[-1:] = []


def _count(tree: Tree) -> int:
    return 1 if isinstance(tree, int) else sum(map(_count, tree.values()))


def _renumbered(tree: Tree, places: dict[int, int]) -> Tree:
    if isinstance(tree, int):
        return places[tree]
    return {name: _renumbered(below, places) for name, below in tree.items()}

"""Applying what a manager wants of a document, and what plain writes do to owners.

A manager sends the part of the document that it wants, an object. From then on it owns the leaves
in it (`owners` says what a leaf is). Worked example: A wants {"a": {"x": 1}, "b": 2}, and there is
no document. This becomes the document, and A owns /a/x and /b. Then B wants
{"a": {"y": 5}, "b": 2}: /a/y is added, which B owns, and both own /b. Then A wants {"a": {"x": 3}}:
/a/x changes, and A lets go of /b, which stays, because B owns it. When B wants {}, /a/y and /b go.

The rules:

- A leaf that isn't there is added. If one has the wanted value already, the manager becomes one
  more of its owners. One with another value changes, and becomes the manager's alone, if nobody
  else owns it. Otherwise it is *contested*, and `conflict` decides.
- Before anything is added, the manager lets go of what it owned and no longer wants. A leaf that
  nobody else owns is then removed, and so is a container that this leaves empty, but not the
  document. What nobody ever owned stays.
- null is a value like any other: it removes nothing.
- An array is one leaf, whatever is in it, unless `lists` tell its items apart. Items with a key are
  like members: what is in them is owned. Each member of a set is a leaf, and never changes. New
  items come last. An item keeps its key as long as anything else is left in it. What is said of
  empty objects is true of empty lists, too.
- {} means that an object is there. An object with members will do; it isn't a leaf, so the manager
  owns nothing there. Others may add members to an empty object that somebody owns: then it is no
  longer a leaf, and nobody owns it as one.
- If a container is wanted in the place of another leaf, or a leaf in the place of a container, that
  leaf, or each leaf in the container, is in the way. Those that others own are contested; if there
  are none, the whole is replaced.
- An absent document is created, even by {}. A deleted one has no owners any more.

A plain write knows no managers. Its effect follows from the document before and after it: an owned
leaf that it changed is its author's alone, marked as plain. So are the leaves of a container in the
place of an owned leaf, and a leaf in the place of a container with owned leaves. An owned leaf that
it removed is nobody's, and what nobody owned stays nobody's. Whoever took a leaf over like this can
give it back (`give_back`): it keeps its value and loses that owner, so the next apply may change
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from patching.errors import DEFAULT_LIMITS, InvalidPatch, LimitExceeded, Limits, PatchConflict
from patching.list_rules import (
    NO_LISTS,
    Lists,
    Rules,
    changed,
    kind,
    members,
    owned_leaves,
    with_key,
    within,
)
from patching.owners import Ownership, OwnerTree, Set, Tree, canonical, owners_of, places_of
from patching.pointers import Tokens, is_within, join_pointer, split_pointer
from patching.values import ABSENT, Absent, Document, Json, depth, described, encoded_bytes, equal

OnConflict: TypeAlias = Literal["refuse", "skip", "force"]
CONFLICTS: Final[tuple[OnConflict, ...]] = ("refuse", "skip", "force")


@dataclass(frozen=True, slots=True)
class Contested:
    """A leaf that others own with the present `value`, and that a manager wants with another.

    `wanted` is what the manager sends at `pointer`; ABSENT if what it sends at `wanted_at` replaces
    it."""

    pointer: str
    owners: Set
    value: Json
    wanted: Document
    wanted_at: str


class OwnedByOthers(PatchConflict):
    """Others own what a manager wants to change, or what somebody gives up (at least one leaf);
    nothing was changed. `hint` is added to the message: what to do about it, if that isn't
    clear."""

    code = "owned_by_others"

    def __init__(self, contested: tuple[Contested, ...], hint: str = "") -> None:
        first = contested[0]
        owner = first.owners[0]
        how = "a plain write" if owner.plain else "an apply"
        others = len(contested) - 1
        more = f"; others own {others} more field{'s' * (others > 1)}" if others else ""
        super().__init__(
            f"owned by {owner.manager!r} since revision {owner.since}, by {how}{more}{hint}",
            pointer=first.pointer,
        )
        self.contested = contested


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """A document and its owners (None: nobody owns any of it) after an apply.

    Each is the same object as before if it didn't change. `skipped` are contested leaves left
    alone."""

    content: Document
    owners: OwnerTree | None
    skipped: tuple[Contested, ...] = ()


def apply_wanted(
    document: Document,
    owners: OwnerTree | None,
    wanted: Json,
    *,
    manager: str,
    revision: int,
    conflict: OnConflict = "refuse",
    force: Iterable[str] = (),
    lists: Lists = NO_LISTS,
    limits: Limits = DEFAULT_LIMITS,
) -> ApplyResult:
    """Returns the document and its owners after `manager` applies `wanted` at `revision`: see the
    module.

    Contested leaves at or below a pointer in `force` become the manager's alone, with its value.
    For the others `conflict` decides: "force" does the same; "skip" leaves them as they are, not
    owned by the manager; "refuse" refuses everything. A value that would replace several contested
    leaves does so only if all of them are forced. A pointer in `force` may name what isn't
    contested.

    Applied again to the resulting document and owners, it changes nothing.

    `lists` are the rules for the document's lists. Raises InvalidPatch if `wanted` isn't an object,
    or `force` has what isn't a pointer; ListViolation if `wanted` breaks `lists`; OwnedByOthers;
    LimitExceeded for `depth_max`, `result_bytes_max`, and for `managers_max`, `owned_leaves_max`,
    `owners_max` and `owners_bytes_max` if the owners have grown. Arguments aren't modified, and the
    result shares what didn't change."""
    if not isinstance(wanted, dict):
        detail = f"the value to apply must be an object, not {described(wanted)}"
        raise InvalidPatch(detail, pointer="")
    nested = depth(wanted)
    if nested > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, nested)
    work = _Work(
        owners, Ownership(manager, revision), conflict, frozenset(map(split_pointer, force))
    )
    lists.require(wanted)
    tree = work.start(document, lists)
    released, content = work.released(tree, wanted, document, lists)
    if content is ABSENT and document is not ABSENT:
        content = {}
    tree, content = work.want((), wanted, content, released, lists)
    if work.refused:
        raise OwnedByOthers(tuple(work.refused))
    after = work.owners(tree)
    refuse_oversized(document, content, limits)
    refuse_many(work.fitted_owners, after, limits)
    return ApplyResult(content, after, tuple(work.skipped))


def let_go(
    document: Document, owners: OwnerTree, manager: str, *, lists: Lists = NO_LISTS
) -> ApplyResult:
    """Returns the document and its owners after `manager` has let go of all that it owned.

    It is like applying {}, but an emptied document isn't owned, and nothing changes if the manager
    owns nothing. Raises OwnedByOthers if it owns nothing by applies, but plain writes of the same
    name own something, which can only be given back."""
    if manager not in owners.managers():
        by_writes = _plainly_owned(document, owners, lists, lambda name: name == manager)
        if by_writes:
            raise OwnedByOthers(tuple(by_writes), "; to give it back, name its pointer")
        return ApplyResult(document, owners)
    work = _Work(owners, Ownership(manager, 0), "refuse", frozenset())
    tree, content = work.released(work.start(document, lists), ABSENT, document, lists)
    if content is ABSENT and document is not ABSENT:
        content = {}
    return ApplyResult(content, work.owners(tree))


def give_back(
    document: Document,
    owners: OwnerTree,
    pointers: Iterable[str],
    *,
    author: str | None,
    lists: Lists = NO_LISTS,
) -> ApplyResult:
    """Returns `document` and its owners without what `author` (None: anybody) owns by plain writes
    at and below `pointers`.

    No value changes, and what applies own stays theirs. A leaf without another owner becomes
    nobody's: the next apply may change it. Raises OwnedByOthers if at one of the pointers only
    plain writes of others own something; nothing changes if none does. InvalidPatch if one isn't a
    pointer."""
    places = frozenset(map(split_pointer, pointers))
    found = fitted(owners, document, lists) or owners
    after: dict[Tokens, Set] = {}
    given: set[Tokens] = set()
    for tokens, by in found.leaves():
        after[tokens] = by
        if is_within(tokens, places):
            left = [each for each in by if not (each.plain and author in (None, each.manager))]
            if len(left) < len(by):
                after[tokens] = tuple(left)
                given.update(tokens[:length] for length in range(len(tokens) + 1))
    if author is not None and not places <= given:
        plain = _plainly_owned(document, found, lists, lambda name: name != author)
        left_over = places - given
        others = [each for each in plain if is_within(split_pointer(each.pointer), left_over)]
        if others:
            raise OwnedByOthers(tuple(others), "; only they or an admin can give it back")
    return ApplyResult(document, owners_of(after) if given else owners)


def _plainly_owned(
    document: Document, owners: OwnerTree, lists: Lists, is_meant: Callable[[str], bool]
) -> list[Contested]:
    """The leaves owned by plain writes of authors whose names satisfy `is_meant`."""
    owners = fitted(owners, document, lists) or owners
    if document is ABSENT:
        return []
    found = []
    for tokens, place, value in owned_leaves(owners.of, document, lists):
        by = tuple([each for each in owners.by[place] if each.plain and is_meant(each.manager)])
        if by:
            found.append(Contested(join_pointer(tokens), by, value, ABSENT, join_pointer(tokens)))
    return found


def taken_over(
    owners: OwnerTree | None,
    before: Document,
    after: Document,
    *,
    author: str,
    revision: int,
    lists: Lists = NO_LISTS,
    limits: Limits = DEFAULT_LIMITS,
) -> OwnerTree | None:
    """Returns the owners after a plain write by `author`, which made `after` of `before`: see the
    module.

    Returns the same object if no owned leaf changed and, even with new `lists`, if nothing at all
    did. It examines only what is owned and not shared by both. Raises LimitExceeded for
    `owned_leaves_max` and `owners_max`."""
    if owners is None or before is after:
        return owners
    work = _Work(owners, Ownership(author, revision, plain=True), "force", frozenset())
    tree = work.start(before, lists)
    assert tree is not None
    assert before is not ABSENT
    if tree is not owners.of and equal(before, after):
        return owners
    found = work.owners(work.taken(tree, before, after, lists))
    refuse_many(work.fitted_owners, found, limits, plain=True)
    return found


def require_fit(owners: OwnerTree | None, content: Document, lists: Lists, limits: Limits) -> None:
    """Raises LimitExceeded if a document that moves where these `lists` apply would have too many
    owners: what is in a list that is new to it belongs to the owners of the array."""
    if owners is not None and lists:
        refuse_many(owners, fitted(owners, content, lists), limits, plain=True)


def fitted(owners: OwnerTree | None, content: Document, lists: Lists) -> OwnerTree | None:
    """`owners`, fitted to the present rules for lists: what is in a new list belongs to the owners
    of the array, and an array that is no longer a list to all who owned something in it."""
    work = _Work(owners, Ownership("", 0), "refuse", frozenset())
    work.start(content, lists)
    return work.fitted_owners


class _Work:
    """What one owner does. `table` begins with the sets of owners that were found. Nearly
    everything about a leaf follows from its place in the table, and is computed once for each.

    `fitted_owners`: all owners before that, `fitted` to the present rules for lists."""

    def __init__(
        self,
        found: OwnerTree | None,
        owner: Ownership,
        conflict: OnConflict,
        force: frozenset[Tokens],
    ) -> None:
        self.found = found
        self.owner = owner
        self.conflict = conflict
        self.force = force
        self.table: list[Set] = list(found.by) if found else []
        self.places = {owners: place for place, owners in enumerate(self.table)}
        self._own: dict[int, Ownership | None] = {}
        self._others: dict[int, Set] = {}
        self._joined: dict[int, int] = {}
        self.fitted_owners = found
        self.refused: list[Contested] = []
        self.skipped: list[Contested] = []

    def start(self, document: Document, rules: Rules) -> Tree | None:
        """The tree that was found, fitted to the present rules for lists."""
        if self.found is None or document is ABSENT:
            return None
        tree = self.fitted(self.found.of, document, rules)
        self.fitted_owners = self.owners(tree)
        return tree

    def owners(self, tree: Tree | None) -> OwnerTree | None:
        if tree is None:
            return None
        if self.found is not None and tree is self.found.of:
            return self.found
        return canonical(self.table, tree)

    def place(self, owners: Set) -> int:
        found = self.places.get(owners)
        if found is None:
            found = self.places[owners] = len(self.table)
            self.table.append(owners)
        return found

    def own(self, tree: Tree | None) -> Ownership | None:
        """How `owner` owns this leaf already; None if it doesn't."""
        if not isinstance(tree, int):
            return None
        if tree not in self._own:
            name = self.owner.name
            self._own[tree] = next((each for each in self.table[tree] if each.name == name), None)
        return self._own[tree]

    def others(self, place: int) -> Set:
        found = self._others.get(place)
        if found is None:
            name = self.owner.name
            found = tuple([each for each in self.table[place] if each.name != name])
            self._others[place] = found
        return found

    def joined(self, tree: Tree | None) -> int:
        """The place of a leaf once `owner` is among its owners."""
        if not isinstance(tree, int):
            return self.place((self.owner,))
        if tree not in self._joined:
            is_there = self.own(tree) is not None
            joined = () if is_there else tuple(sorted((*self.table[tree], self.owner)))
            self._joined[tree] = tree if is_there else self.place(joined)
        return self._joined[tree]

    def alone(self, tree: Tree | None, value: Json, rules: Rules) -> Tree:
        """The tree of `value`, which `owner` put in the place of `tree` and owns alone."""
        inside = members(value, rules)
        if inside:
            return {
                name: self.alone(None, below, within(value, rules, name))
                for name, below in inside.items()
            }
        own = self.own(tree)
        if isinstance(tree, int) and self.table[tree] == (own,):
            return tree
        return self.place((own or self.owner,))

    # Each step returns the tree and the content: the same objects if nothing changed.

    def fitted(self, tree: Tree, content: Json, rules: Rules) -> Tree:
        """`tree`, fitted to the present rules for lists: see the function `fitted`."""
        inside = members(content, rules)
        if isinstance(tree, int):
            if not inside:
                return tree
            return {
                name: self.fitted(tree, item, within(content, rules, name))
                for name, item in inside.items()
            }
        if inside is None or not tree.keys() <= inside.keys():
            owners: dict[tuple[str, bool], Ownership] = {}
            places = set(places_of(tree))
            for each in sorted({each for place in places for each in self.table[place]}):
                owners.setdefault(each.name, each)
            return self.fitted(self.place(tuple(sorted(owners.values()))), content, rules)
        changes: dict[str, Tree | Absent] = {}
        for name, below in tree.items():
            new = self.fitted(below, inside[name], within(content, rules, name))
            if new is not below:
                changes[name] = new
        return cast(Tree, changed(tree, tree, changes))

    def released(
        self, tree: Tree | None, wanted: Document, content: Document, rules: Rules
    ) -> tuple[Tree | None, Document]:
        """Without what the manager owns and doesn't want. ABSENT: nothing is left here."""
        if tree is None:
            return None, content
        if isinstance(tree, int):
            if wanted is not ABSENT or self.own(tree) is None:
                return tree, content
            others = self.others(tree)
            return (self.place(others), content) if others else (None, ABSENT)
        inside, sent = members(content, rules), members(wanted, rules) or {}
        assert inside is not None
        assert content is not ABSENT
        kept: dict[str, Tree | Absent] = {}
        left: dict[str, Document] = {}
        for name, below in tree.items():
            below_rules = within(content, rules, name)
            new, value = self.released(below, sent.get(name, ABSENT), inside[name], below_rules)
            if new is not below:
                kept[name] = _node(new)
            if value is not inside[name]:
                left[name] = with_key(content, rules, name, value, inside[name])
        after = changed(content, inside, left)
        if not after:
            return None, ABSENT
        return changed(tree, tree, kept) or None, after

    def want(
        self, way: Tokens, wanted: Json, content: Document, tree: Tree | None, rules: Rules
    ) -> tuple[Tree | None, Document]:
        """With what the manager wants at `way`. Notes what stays contested."""
        if content is ABSENT:
            return self.alone(None, wanted, rules), wanted
        of_kind = kind(wanted, rules)
        if of_kind is not None and of_kind == kind(content, rules):
            if wanted:
                return self.want_members(way, wanted, content, tree, rules)
            return (tree if content else self.joined(tree)), content
        if equal(wanted, content):
            return self.joined(tree), content
        contested = [] if tree is None else list(self.contested(way, wanted, content, tree, rules))
        if not contested or self.is_forced(contested):
            return self.alone(tree, wanted, rules), wanted
        if self.own(tree) is not None:
            assert isinstance(tree, int)
            tree = self.place(self.others(tree))
        return tree, content

    def want_members(
        self, way: Tokens, wanted: Json, content: Json, tree: Tree | None, rules: Rules
    ) -> tuple[Tree | None, Document]:
        owned = tree if isinstance(tree, dict) else {}  # an empty container gives way to members
        inside = members(content, rules) or {}
        kept: dict[str, Tree | Absent] = {}
        left: dict[str, Document] = {}
        for name, value in (members(wanted, rules) or {}).items():
            below, there = owned.get(name), inside.get(name, ABSENT)
            below_rules = within(content, rules, name)
            new, now = self.want((*way, name), value, there, below, below_rules)
            if new is not below:
                kept[name] = _node(new)
            if now is not there:
                left[name] = now
        return changed(owned, owned, kept) or None, changed(content, inside, left)

    def contested(
        self, way: Tokens, wanted: Json, content: Json, tree: Tree, rules: Rules
    ) -> Iterator[tuple[Tokens, Contested]]:
        at = join_pointer(way)
        for tokens, place, value in owned_leaves(tree, content, rules):
            others = self.others(place)
            if others:
                pointer = at + join_pointer(tokens)
                sent = wanted if not tokens else ABSENT
                yield (*way, *tokens), Contested(pointer, others, value, sent, at)

    def is_forced(self, contested: list[tuple[Tokens, Contested]]) -> bool:
        left = contested
        if self.force:
            left = [each for each in left if not self.is_named(each[0])]
        if not left or self.conflict == "force":
            return True
        if self.conflict == "refuse":
            self.refused += [each for _, each in left]
        else:
            self.skipped += [each for _, each in left]
        return False

    def is_named(self, way: Tokens) -> bool:
        return is_within(way, self.force)

    def taken(self, tree: Tree, before: Json, after: Document, rules: Rules) -> Tree | None:
        """The tree of `after`, which the author made of `before`, whose tree is `tree`."""
        if before is after:
            return tree
        if after is ABSENT:
            return None
        same_kind = kind(before, rules) == kind(after, rules)
        if isinstance(tree, int):
            if equal(before, after):
                return tree
            gives_way = same_kind and not before and kind(after, rules)
            return None if gives_way else self.alone(tree, after, rules)
        if not same_kind:
            return self.alone(None, after, rules)
        then, now = members(before, rules) or {}, members(after, rules) or {}
        kept: dict[str, Tree | Absent] = {}
        for name, below in tree.items():
            there = now.get(name, ABSENT)
            new = self.taken(below, then[name], there, within(before, rules, name))
            if new is not below:
                kept[name] = _node(new)
        return changed(tree, tree, kept) or None


def _node(tree: Tree | None) -> Tree | Absent:
    return ABSENT if tree is None else tree


def refuse_oversized(before: Document, after: Document, limits: Limits) -> None:
    """Raises LimitExceeded if `after` is larger than `result_bytes_max` and than `before`."""
    if after is before or after is ABSENT:
        return
    size = encoded_bytes(after)
    if size > limits.result_bytes_max and (before is ABSENT or size > encoded_bytes(before)):
        raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size)


def refuse_many(
    before: OwnerTree | None, after: OwnerTree | None, limits: Limits, *, plain: bool = False
) -> None:
    """Raises LimitExceeded if `after` has grown beyond a bound. `plain`: without those of managers,
    who can't be new, and of the size."""
    if after is None or after is before:
        return
    for name, maximum, count in (
        ("owned_leaves_max", limits.owned_leaves_max, OwnerTree.count),
        ("owners_max", limits.owners_max, OwnerTree.total),
    ):
        actual = count(after)
        if actual > maximum and (before is None or actual > count(before)):
            raise LimitExceeded(name, maximum, actual)
    if plain:
        return
    managers = len(after.managers())
    if managers > limits.managers_max and (before is None or managers > len(before.managers())):
        raise LimitExceeded("managers_max", limits.managers_max, managers)
    size = after.size_bytes()
    if size > limits.owners_bytes_max and (before is None or size > before.size_bytes()):
        raise LimitExceeded("owners_bytes_max", limits.owners_bytes_max, size)

"""Applying what a manager wants of a document, and what plain writes do to owners.

A manager sends the part of the document that it wants, an object. It owns the leaves in it from
then on (`_owners` says what a leaf is). Worked example: A wants {"a": {"x": 1}, "b": 2}, and there
is no document. The document is that now, and A owns /a/x and /b. Then B wants {"a": {"y": 5},
"b": 2}: the document has /a/y too, which B owns, and both own /b. Then A wants {"a": {"x": 3}}:
/a/x changes, and A lets go of /b, which stays, for B owns it. When B wants {}, /a/y and /b go.

The rules:

- A leaf that isn't there is added. One that has the wanted value already becomes owned together,
  whoever owns it. One of another value changes, and is the manager's alone, where nobody else owns
  it. Otherwise it is *contested*, and `conflict` decides.
- What the manager owned and wants no longer, it lets go of, before anything is added. A leaf that
  nobody else owns is then removed, and so is a container that becomes empty because of that, but
  not the document. What nobody ever owned stays.
- null is a value like any other: it removes nothing.
- An array is one leaf, whatever is in it.
- {} means that an object is there. An object with members will do; that is no leaf, so the manager
  owns nothing there. Whoever owns an empty object, others may add members to it: then it is no
  leaf any more, and nobody owns it as one.
- A container is wanted where there is another leaf, or a leaf where there is a container: the leaf,
  or each leaf in the container, stands in the way. Contested are those that others own; where there
  are none, the whole is replaced.
- A document that is absent is made, also by {}. One that is deleted has no owners any more.

A plain write knows no managers. It is told from the document before and after it: an owned leaf
that it changed is its author's alone, marked as plain. So are the leaves of a container in the
place of an owned leaf, and a leaf in the place of a container with owned leaves. An owned leaf that
it removed is nobody's, and what nobody owned stays nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from patching._errors import DEFAULT_LIMITS, InvalidPatch, LimitExceeded, Limits, PatchConflict
from patching._json import ABSENT, Absent, Document, Json, depth, described, encoded_bytes, equal
from patching._owners import Owner, Owners, Set, Tree, canonical
from patching._pointer import Tokens, join_pointer, split_pointer

Conflict: TypeAlias = Literal["refuse", "skip", "force"]
CONFLICTS: Final[tuple[Conflict, ...]] = ("refuse", "skip", "force")


@dataclass(frozen=True, slots=True)
class Contested:
    """A leaf that a manager wants otherwise, and the others that own it; `value` is what it is.

    `wanted` is what the manager sends at `pointer`: ABSENT where it sends a leaf at `wanted_at`,
    above `pointer`, and so leaves no room for it."""

    pointer: str
    owners: Set
    value: Json
    wanted: Document
    wanted_at: str


class OwnedByOthers(PatchConflict):
    """What a manager wants differs from what others own: nothing was changed. At least one."""

    code = "owned_by_others"

    def __init__(self, contested: tuple[Contested, ...]) -> None:
        first = contested[0]
        owner = first.owners[0]
        how = "a plain write" if owner.plain else "an apply"
        more = f", and {len(contested) - 1} more" if len(contested) > 1 else ""
        super().__init__(
            f"owned by {owner.manager!r} since revision {owner.since}, by {how}{more}",
            pointer=first.pointer,
        )
        self.contested = contested


@dataclass(frozen=True, slots=True)
class Applied:
    """A document and its owners (None: nobody owns any of it) as an apply leaves them.

    Both are what they were, the same objects, where nothing changed. `skipped` stayed as others
    want it."""

    content: Document
    owners: Owners | None
    skipped: tuple[Contested, ...] = ()


def apply_wanted(
    document: Document,
    owners: Owners | None,
    wanted: Json,
    *,
    manager: str,
    revision: int,
    conflict: Conflict = "refuse",
    force: Iterable[str] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> Applied:
    """What becomes of `document` when `manager` applies `wanted`, at `revision`: see the module.

    Of contested leaves, those at or below a pointer in `force` become the manager's alone, with the
    value that it wants. The others are, by `conflict`, so forced, too; or skipped: they stay as
    they are, and the manager doesn't own them; or else everything is refused. A value that would
    replace several contested leaves does so only where all of them are forced. A pointer in `force`
    may name what isn't contested.

    Applied once more, with the document and owners that came of it, it changes nothing.

    InvalidPatch where `wanted` is no object, or a pointer is none. OwnedByOthers; LimitExceeded for
    `depth_max`, `result_bytes_max`, and for `owned_leaves_max` and `owners_bytes_max` where the
    owners have grown. Arguments aren't modified, and the result shares what didn't change."""
    if not isinstance(wanted, dict):
        detail = f"what a manager wants is an object, not {described(wanted)}"
        raise InvalidPatch(detail, pointer="")
    nested = depth(wanted)
    if nested > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, nested)
    work = _Work(owners, Owner(manager, revision), conflict, frozenset(map(split_pointer, force)))
    tree = None if owners is None else owners.of
    released, content = work.released(tree, wanted, document)
    if content is ABSENT and document is not ABSENT:
        content = {}
    tree, content = work.want((), wanted, content, released)
    if work.refused:
        raise OwnedByOthers(tuple(work.refused))
    after = work.owners(tree)
    _refuse_oversized(document, content, limits)
    _refuse_many(owners, after, limits)
    return Applied(content, after, tuple(work.skipped))


def let_go(document: Document, owners: Owners, manager: str) -> Applied:
    """What becomes of `document` when `manager` wants nothing of it any more.

    Like applying {}, but that an emptied document isn't owned."""
    work = _Work(owners, Owner(manager, 0), "refuse", frozenset())
    tree, content = work.released(owners.of, ABSENT, document)
    if content is ABSENT and document is not ABSENT:
        content = {}
    return Applied(content, work.owners(tree))


def taken_over(
    owners: Owners | None,
    before: Document,
    after: Document,
    *,
    author: str,
    revision: int,
    limits: Limits = DEFAULT_LIMITS,
) -> Owners | None:
    """The owners after a plain write by `author`, which made `after` of `before`: see the module.

    The same object where it changed nothing that is owned. It looks at what is owned, and no
    further than where both documents share a value. LimitExceeded for `owned_leaves_max`."""
    if owners is None or before is after:
        return owners
    work = _Work(owners, Owner(author, revision, plain=True), "force", frozenset())
    found = work.owners(work.taken(owners.of, before, after))
    _refuse_many(owners, found, limits, encoded=False)
    return found


class _Work:
    """One owner at work. `table` begins with the sets of the owners as they were found."""

    def __init__(
        self, found: Owners | None, owner: Owner, conflict: Conflict, force: frozenset[Tokens]
    ) -> None:
        self.found = found
        self.owner = owner
        self.conflict = conflict
        self.force = force
        self.table: list[Set] = list(found.by) if found else []
        self.places = {owners: place for place, owners in enumerate(self.table)}
        self.refused: list[Contested] = []
        self.skipped: list[Contested] = []

    def owners(self, tree: Tree | None) -> Owners | None:
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

    def own(self, tree: Tree | None) -> Owner | None:
        """The owner at work as it owns this leaf already, if it does."""
        if not isinstance(tree, int):
            return None
        return next((each for each in self.table[tree] if each.name == self.owner.name), None)

    def others(self, place: int) -> Set:
        return tuple([each for each in self.table[place] if each.name != self.owner.name])

    def joined(self, tree: Tree | None) -> int:
        """A leaf with the owner at work among its owners."""
        if not isinstance(tree, int):
            return self.place((self.owner,))
        if self.own(tree) is not None:
            return tree
        return self.place(tuple(sorted((*self.table[tree], self.owner))))

    def alone(self, tree: Tree | None, value: Json) -> Tree:
        """What is owned in `value`, which the owner at work put in the place of `tree`."""
        if isinstance(value, dict) and value:
            return {name: self.alone(None, below) for name, below in value.items()}
        own = self.own(tree)
        if isinstance(tree, int) and self.table[tree] == (own,):
            return tree
        return self.place((own or self.owner,))

    # Each step returns the tree and the content, the same objects where nothing changed.

    def released(
        self, tree: Tree | None, wanted: Document, content: Document
    ) -> tuple[Tree | None, Document]:
        """Without what the manager owns and doesn't want. ABSENT: nothing is left here."""
        if tree is None:
            return None, content
        if isinstance(tree, int):
            if wanted is not ABSENT or self.own(tree) is None:
                return tree, content
            others = self.others(tree)
            return (self.place(others), content) if others else (None, ABSENT)
        assert isinstance(content, dict)
        kept, left = tree, content
        for name, below in tree.items():
            sent = wanted.get(name, ABSENT) if isinstance(wanted, dict) else ABSENT
            new, value = self.released(below, sent, content[name])
            kept = _with(kept, tree, name, below, _node(new))
            left = _with(left, content, name, content[name], value)
        if not left:
            return None, ABSENT
        return kept or None, left

    def want(
        self, way: Tokens, wanted: Json, content: Document, tree: Tree | None
    ) -> tuple[Tree | None, Document]:
        """With what the manager wants at `way`; what stays contested is noted."""
        if content is ABSENT:
            return self.alone(None, wanted), wanted
        if isinstance(wanted, dict) and isinstance(content, dict):
            if wanted:
                return self.want_members(way, wanted, content, tree)
            return (tree if content else self.joined(tree)), content
        if equal(wanted, content):
            return self.joined(tree), content
        contested = [] if tree is None else list(self.contested(way, wanted, content, tree))
        if not contested or self.is_forced(contested):
            return self.alone(tree, wanted), wanted
        if self.own(tree) is not None:
            assert isinstance(tree, int)
            tree = self.place(self.others(tree))
        return tree, content

    def want_members(
        self, way: Tokens, wanted: dict[str, Any], content: dict[str, Any], tree: Tree | None
    ) -> tuple[Tree | None, Document]:
        owned = tree if isinstance(tree, dict) else {}  # an empty object gives way to members
        kept, left = owned, content
        for name, value in wanted.items():
            below, there = owned.get(name), content.get(name, ABSENT)
            new, now = self.want((*way, name), value, there, below)
            kept = _with(kept, owned, name, _node(below), _node(new))
            left = _with(left, content, name, there, now)
        return kept or None, left

    def contested(
        self, way: Tokens, wanted: Json, content: Json, tree: Tree
    ) -> Iterator[tuple[Tokens, Contested]]:
        at = join_pointer(way)
        for tokens, place, value in _owned(tree, content):
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
        return any(way[:length] in self.force for length in range(len(way) + 1))

    def taken(self, tree: Tree, before: Document, after: Document) -> Tree | None:
        """What is owned of `after` where `tree` was of `before`, which the author made it of."""
        if before is after:
            return tree
        if after is ABSENT:
            return None
        if isinstance(tree, int):
            if equal(before, after):
                return tree
            if isinstance(after, dict) and before == {}:
                return None
            return self.alone(tree, after)
        if not isinstance(after, dict):
            return self.alone(None, after)
        assert isinstance(before, dict)
        kept = tree
        for name, below in tree.items():
            new = self.taken(below, before[name], after.get(name, ABSENT))
            kept = _with(kept, tree, name, below, _node(new))
        return kept or None


def _owned(tree: Tree, content: Json) -> Iterator[tuple[Tokens, int, Json]]:
    """The owned leaves in `content`."""
    if isinstance(tree, int):
        yield (), tree, content
        return
    assert isinstance(content, dict)
    for name, below in tree.items():
        for tokens, place, value in _owned(below, content[name]):
            yield (name, *tokens), place, value


def _node(tree: Tree | None) -> Tree | Absent:
    return ABSENT if tree is None else tree


def _with(
    now: dict[str, Any], found: dict[str, Any], name: str, before: Any, after: Any
) -> dict[str, Any]:
    """`now` with member `name` changed from `before`; ABSENT is no member. `found` is copied when
    the first one changes."""
    if after is before:
        return now
    if now is found:
        now = found.copy()
    if after is ABSENT:
        del now[name]
    else:
        now[name] = after
    return now


def _refuse_oversized(before: Document, after: Document, limits: Limits) -> None:
    if after is before or after is ABSENT:
        return
    size = encoded_bytes(after)
    if size > limits.result_bytes_max and (before is ABSENT or size > encoded_bytes(before)):
        raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size)


def _refuse_many(
    before: Owners | None, after: Owners | None, limits: Limits, *, encoded: bool = True
) -> None:
    """Owners that there are already are never refused for being too many."""
    if after is None or after is before:
        return
    count = after.count()
    if count > limits.owned_leaves_max and (before is None or count > before.count()):
        raise LimitExceeded("owned_leaves_max", limits.owned_leaves_max, count)
    if not encoded:
        return
    size = after.size_bytes()
    if size > limits.owners_bytes_max and (before is None or size > before.size_bytes()):
        raise LimitExceeded("owners_bytes_max", limits.owners_bytes_max, size)

"""Owners after a revert: whoever lost a leaf through a change owns it again once that is undone.

Worked example. nightly applied {"rows": 1} at revision 1, and ann wrote 2 at revision 2, so that
she owns /rows plainly. Reverting 2 gives /rows back: it is 1, and nightly's since 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from patching.errors import DEFAULT_LIMITS, Limits
from patching.list_rules import NO_LISTS, Lists, Rules, kind, members, within
from patching.owners import OwnerTree, Set, Tree, owners_of
from patching.ownership import fitted, refuse_many, taken_over
from patching.pointers import Tokens, is_within, split_pointer
from patching.values import ABSENT, Document, equal


class Owned(NamedTuple):
    """A document and its owners (None: nobody owns any of it)."""

    content: Document
    owners: OwnerTree | None


def restored(
    base: Owned,
    target: Owned,
    now: Owned,
    content: Document,
    *,
    author: str,
    revision: int,
    kept: Iterable[str] = (),
    lists: Lists = NO_LISTS,
    limits: Limits = DEFAULT_LIMITS,
) -> OwnerTree | None:
    """Returns the owners after a revert by `author`, which turned `now` into `content` by the
    change from `base`, the document as the undone change left it, to `target`, as it was before.

    A leaf that has the same value as in `target` gets its owners from there:

    - If it had that value already, whoever lost it with the change owns it again, whoever gained it
      doesn't, and owners that came since stay.
    - If its value changes back, it belongs to its owners in `target`: those who came since want
      another value. If it had none there, but others came since, it is the author's, marked as
      plain, to tell them.

    Other leaves, and those at and below pointers in `kept`, which the revert left as they were
    changed since, fare as in a plain write. Reverting the last change restores exactly the owners
    before it. LimitExceeded as in `apply_wanted`.
    """

    def taken(owners: OwnerTree | None) -> Owned:
        after = taken_over(
            owners,
            now.content,
            content,
            author=author,
            revision=revision,
            lists=lists,
            limits=limits,
        )
        return Owned(content, after)

    plain = taken(now.owners)
    if content is ABSENT or (base.owners is None and target.owners is None):
        return plain.owners
    states = (base, target, now, plain, taken(_came_since(base, now, lists)))
    found: dict[Tokens, Set] = {}
    places = [_Place.of(each, lists) for each in states]
    _restore((), places, lists, frozenset(map(split_pointer, kept)), found)
    after = owners_of(found)
    refuse_many(now.owners, after, limits)
    return now.owners if _is_as_it_was(now, Owned(content, after), lists) else after


def _is_as_it_was(now: Owned, after: Owned, lists: Lists) -> bool:
    """Whether at most the rules for lists have changed: that alone makes no commit."""
    owners = (fitted(now.owners, now.content, lists), after.owners)
    then, there = ({} if each is None else dict(each.leaves()) for each in owners)
    return then == there and equal(now.content, after.content)


def _came_since(base: Owned, now: Owned, lists: Lists) -> OwnerTree | None:
    """The owners of `now` that don't own the same in `base` since the same revision."""
    then, there = (fitted(each.owners, each.content, lists) for each in (base, now))
    if then is None or there is None:
        return there
    known = dict(then.leaves())
    return owners_of(
        {
            tokens: [each for each in by if each not in known.get(tokens, ())]
            for tokens, by in there.leaves()
        }
    )


class _Place(NamedTuple):
    """The value at one place of a document, and its owners; `by` is the table of sets of owners."""

    value: Document
    tree: Tree | None = None
    by: tuple[Set, ...] = ()

    @classmethod
    def of(cls, owned: Owned, lists: Lists) -> _Place:
        owners = fitted(owned.owners, owned.content, lists)
        return cls(owned.content) if owners is None else cls(owned.content, owners.of, owners.by)

    @property
    def owners(self) -> Set:
        """() if it isn't a leaf."""
        return self.by[self.tree] if isinstance(self.tree, int) else ()

    @property
    def names(self) -> Iterable[str]:
        return self.tree if isinstance(self.tree, dict) else ()

    def within(self, rules: Rules, names: Iterable[str]) -> list[_Place]:
        inside = members(self.value, rules) or {}
        below = self.tree if isinstance(self.tree, dict) else {}
        return [_Place(inside.get(each, ABSENT), below.get(each), self.by) for each in names]


def _restore(
    way: Tokens,
    places: Sequence[_Place],
    rules: Rules,
    kept: frozenset[Tokens],
    found: dict[Tokens, Set],
) -> None:
    """Put the owners of the leaves at and below `way` into `found`."""
    after = places[3]
    inside = members(after.value, rules)
    if inside is None or after.value is ABSENT:
        owners = after.owners if is_within(way, kept) else _restored_leaf(*places)
        if owners:
            found[way] = owners
        return
    there = kind(after.value, rules)
    alike = [each if kind(each.value, rules) == there else _Place(ABSENT) for each in places]
    names = dict.fromkeys(name for each in alike for name in each.names if name in inside)
    for name, *below in zip(names, *(each.within(rules, names) for each in alike), strict=True):
        _restore((*way, name), below, within(after.value, rules, name), kept, found)


def _restored_leaf(
    base: _Place, target: _Place, now: _Place, after: _Place, of_those_since: _Place
) -> Set:
    if not equal(target.value, after.value):
        return after.owners
    then, wanted = base.owners, target.owners
    if not equal(now.value, after.value):
        return wanted or of_those_since.owners
    stay = [each for each in now.owners if each not in then or each in wanted]
    names = {each.name for each in stay}
    back = [each for each in wanted if each not in then and each.name not in names]
    return tuple(sorted((*stay, *back)))

"""Three-way merge of values: what led from one state to another, done to a third.

    base = {"name": "orders", "tier": 1}      # as a change left it
    wanted = {"name": "order", "tier": 1}     # as it was before: the change is to be undone
    now = {"name": "orders", "tier": 2}       # somebody set the tier since
    three_way(base, wanted, now).content      # {"name": "order", "tier": 2}

Objects are merged member by member, and lists whose items have keys (`Lists`) item by item. The
items of any other array are merged by index where all three have as many of them, and are one value
each: after others have moved items around, nobody can tell which one is which. Else the array is
one value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from patching._json import ABSENT, Document, equal
from patching._lists import NO_LISTS, ItemKey, ListRule, Lists, told_apart
from patching._pointer import Tokens, is_within, join_pointer, split_pointer


class Dispute(msgspec.Struct, frozen=True):
    """A place that differs between `base` and `now` and is wanted to be otherwise than both.

    `now` and `wanted` are the values there; ABSENT: none. `forced`: it was made as wanted."""

    pointer: str
    now: Document
    wanted: Document
    forced: bool = False


class Merged(msgspec.Struct, frozen=True):
    """`content` is what was merged, with `now` (or, forced, `wanted`) in the places of `disputes`.

    It shares what it can with its sources."""

    content: Document
    disputes: tuple[Dispute, ...]


def three_way(
    base: Document,
    wanted: Document,
    now: Document,
    *,
    force: bool = False,
    force_at: Iterable[str] = (),
    lists: Lists = NO_LISTS,
) -> Merged:
    """Do to `now` what leads from `base` to `wanted`. `ABSENT`: there is no document.

    Where `now` is as `base`, the result is as `wanted`; where `wanted` is as `base`, it is as
    `now`. A place in which all three differ is disputed: it stays as it is `now`, or becomes as
    `wanted` where `force` is true, or the place is at or below a pointer in `force_at`.
    InvalidPatch where that is none."""
    work = _Work([()] if force else [split_pointer(each) for each in force_at])
    content = work.merged((), lists, base, wanted, now)
    return Merged(content, tuple(work.disputes))


class _Work:
    def __init__(self, forced: Iterable[Tokens]) -> None:
        self.forced = frozenset(forced)
        self.disputes: list[Dispute] = []

    def merged(
        self, tokens: Tokens, lists: Lists, base: Document, wanted: Document, now: Document
    ) -> Document:
        if base is wanted:
            return now
        if isinstance(base, dict) and isinstance(wanted, dict) and isinstance(now, dict):
            return self.objects(tokens, lists, base, wanted, now)
        if isinstance(base, list) and isinstance(wanted, list) and isinstance(now, list):
            return self.arrays(tokens, lists, base, wanted, now)
        return self.values(tokens, base, wanted, now)

    def values(self, tokens: Tokens, base: Document, wanted: Document, now: Document) -> Document:
        if _same(base, now):
            return wanted
        if _same(base, wanted) or _same(wanted, now):
            return now
        forced = is_within(tokens, self.forced)
        self.disputes.append(Dispute(join_pointer(tokens), now, wanted, forced))
        return wanted if forced else now

    def objects(
        self,
        tokens: Tokens,
        lists: Lists,
        base: dict[str, Any],
        wanted: dict[str, Any],
        now: dict[str, Any],
    ) -> Document:
        after: dict[str, Any] = {}
        for name in dict.fromkeys((*now, *wanted)):
            members = [each.get(name, ABSENT) for each in (base, wanted, now)]
            member = self.merged((*tokens, name), lists.below(name), *members)
            if member is not ABSENT:
                after[name] = member
        return after

    def arrays(
        self, tokens: Tokens, lists: Lists, base: list[Any], wanted: list[Any], now: list[Any]
    ) -> Document:
        if lists.rule is not None:
            found = [told_apart(each, lists.rule.key_of) for each in (base, wanted, now)]
            keyed = [each for each in found if each is not None]
            if len(keyed) == len(found):
                return self.items(tokens, lists, lists.rule, *keyed)
        if not len(base) == len(wanted) == len(now):
            return self.values(tokens, base, wanted, now)
        return [
            self.values((*tokens, str(index)), *items)
            for index, items in enumerate(zip(base, wanted, now, strict=True))
        ]

    def items(
        self,
        tokens: Tokens,
        lists: Lists,
        rule: ListRule,
        base: dict[ItemKey, Any],
        wanted: dict[ItemKey, Any],
        now: dict[ItemKey, Any],
    ) -> Document:
        """In the order that is wanted, unless others have made one since."""
        after: list[Any] = []
        ordered = list(wanted) if list(base) == list(now) else _ordered(list(now), list(wanted))
        for key in dict.fromkeys((*ordered, *now)):
            three = [each.get(key, ABSENT) for each in (base, wanted, now)]
            address = rule.address_of(next(each for each in three if each is not ABSENT)) or ""
            item = self.merged((*tokens, address), lists.below(address), *three)
            if item is not ABSENT:
                after.append(item)
        return after


def _ordered(now: list[ItemKey], wanted: list[ItemKey]) -> list[ItemKey]:
    """`now`, with the keys that only `wanted` has behind those that they follow there."""
    there = set(now)
    following: dict[ItemKey | None, list[ItemKey]] = {}
    last: ItemKey | None = None
    for key in wanted:
        if key in there:
            last = key
        else:
            following.setdefault(last, []).append(key)
    ordered = list(following.get(None, ()))
    for key in now:
        ordered.append(key)
        ordered += following.get(key, ())
    return ordered


def _same(one: Document, other: Document) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return one is other or equal(one, other)

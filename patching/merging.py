"""Merging: JSON Merge Patch (RFC 7396), and three-way: applying the change from one state to
another to a third.

    base = {"name": "orders", "tier": 1}      # as a change left it
    wanted = {"name": "order", "tier": 1}     # as it was before: the change is to be undone
    now = {"name": "orders", "tier": 2}       # somebody set the tier since
    three_way(base, wanted, now).content      # {"name": "order", "tier": 2}

A three-way merge takes objects member by member, and lists whose items have keys (`Lists`) item by
item. Any other array is merged by index if all three have equally many items, each as one value:
once others have moved items, nobody can tell which is which. Otherwise the array is one value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from patching.errors import DEFAULT_LIMITS, LimitExceeded, Limits
from patching.list_rules import NO_LISTS, ItemKey, ListRule, Lists, by_name
from patching.pointers import Tokens, is_within, join_pointer, split_pointer
from patching.values import ABSENT, Document, Json, depth, encoded_bytes, equal


def merge(document: Document, merge_patch: Json, *, limits: Limits = DEFAULT_LIMITS) -> Document:
    """Returns the document that `merge_patch` makes of `document` (RFC 7396 section 2).

    Neither is modified. What doesn't change keeps its identity, by the measure of `equal`: a member
    1 that is patched with 1.0 stays the object it was. So the result *is* `document` if and only if
    nothing changes. Any JSON value is a merge patch. An absent document is merged like any value
    that isn't an object: `merge(ABSENT, {"a": 1, "b": None})` is `{"a": 1}`.

    Raises LimitExceeded if `merge_patch` is nested deeper than `depth_max`, or if the result is
    larger than both `result_bytes_max` and `document`. The result is measured if it changed."""
    # a document of unknown size counts as full: anything that can grow it is measured
    full = limits.result_bytes_max
    return merge_within(document, merge_patch, 1, limits=limits, document_bytes=full)[0]


def merge_within(
    document: Document,
    merge_patch: Json,
    patch_bytes: int,
    *,
    limits: Limits = DEFAULT_LIMITS,
    document_bytes: int,
) -> tuple[Document, int]:
    """Like `merge`, for a document that has at most `document_bytes` bytes as compact JSON, and a
    patch of `patch_bytes`.

    Returns the result and an upper bound of its size for the next call, as `apply_within` does: the
    result is measured, and the bound made exact, only when the bound would pass
    `result_bytes_max`."""
    nested = depth(merge_patch)
    if nested > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, nested)
    merged = _merged(document, merge_patch)
    if merged is document or merged is ABSENT:
        return document, document_bytes
    size = document_bytes + patch_bytes
    if size > limits.result_bytes_max:
        size = encoded_bytes(merged)
        grew = document is ABSENT or size > encoded_bytes(document)
        if size > limits.result_bytes_max and grew:
            raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size)
    return merged, size


def _merged(target: Document, patch: Json) -> Document:
    if not isinstance(patch, dict):
        return target if equal(target, patch) else patch
    before: dict[str, Any] = target if isinstance(target, dict) else {}
    after: dict[str, Any] | None = None  # made when the first member changes
    for name, value in patch.items():
        old = before.get(name, ABSENT)
        new = ABSENT if value is None else _merged(old, value)
        if new is old:
            continue
        if after is None:
            after = before.copy()
        if new is ABSENT:
            del after[name]
        else:
            after[name] = new
    if after is not None:
        return after
    return target if isinstance(target, dict) else {}


class Dispute(msgspec.Struct, frozen=True):
    """A place in which `base`, `now` and `wanted` all differ.

    `now` and `wanted` are the values there; ABSENT: none. `forced`: it got the wanted value."""

    pointer: str
    now: Document
    wanted: Document
    forced: bool = False


class Merged(msgspec.Struct, frozen=True):
    """The merged `content`, which has `now` (or, if forced, `wanted`) in the places of `disputes`.

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
    """Applies the change from `base` to `wanted` to `now`. `ABSENT`: there is no document.

    Where `now` equals `base`, the result is as `wanted`; where `wanted` equals `base`, it is as
    `now`. A place in which all three differ is disputed: it stays as in `now`, or becomes as in
    `wanted` if `force` is true or the place is at or below a pointer in `force_at`. Raises
    InvalidPatch if one of these isn't a pointer."""
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
            found = [by_name(each, lists.rule.key_of) for each in (base, wanted, now)]
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
        """In the order of `wanted`, unless the keys or their order have changed since `base`."""
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
    """`now`, with each key that only `wanted` has after the key that it follows there."""
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

"""The model's reverts: three states of a document, put together part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .gone import GONE
from .model_lists import NO_LISTS, Lists, differing, named
from .model_owners import Place, Tokens, pointer_of


@dataclass(frozen=True)
class Forced:
    """What becomes as it was, whatever has come since: all at and below these places."""

    content: frozenset[Tokens] = frozenset()
    attributes: frozenset[Tokens] = frozenset()

    def of(self, part: int) -> frozenset[Tokens]:
        return self.attributes if part else self.content


ALL = Forced(frozenset({()}), frozenset({()}))


def undone(
    key: str, base: Any, target: Any, now: Any, forced: Forced, lists: Lists
) -> tuple[Any, set[Place]]:
    """What leads from ``base`` to ``target``, done to ``now``: content and attributes. Each is
    (content, attributes, owners).

    With the places that were changed otherwise since, and aren't ``forced``. A document that goes,
    or comes back, is one.
    """
    base, target, now = (each[:2] for each in (base, target, now))
    if GONE not in (base[0], target[0], now[0]):
        merges = [_Merge(forced.of(part), NO_LISTS if part else lists) for part in (0, 1)]
        parts = [
            merge.merged(three)
            for merge, three in zip(merges, zip(base, target, now, strict=True), strict=True)
        ]
        places = {
            Place(key, pointer_of(at), of_attributes=bool(number))
            for number, merge in enumerate(merges)
            for at in merge.disputed
        }
        return (parts[0], parts[1]), places
    if base == now:
        return target, set()
    if target in (base, now):
        return now, set()
    left = {
        Place(key, pointer_of(at), of_attributes=bool(part))
        for part, at in _changed_since(base, now, lists)
        if not _is_forced(at, forced.of(part))
    }
    return (now if left else target), left


class _Merge:
    """``disputed``: the places that were changed otherwise since, and aren't ``forced``."""

    def __init__(self, forced: frozenset[Tokens], lists: Lists) -> None:
        self._forced = forced
        self._lists = lists
        self.disputed: list[Tokens] = []

    def merged(self, three: Sequence[Any], at: Tokens = ()) -> Any:
        """Of ``three``: base, target, now."""
        if all(isinstance(each, dict) for each in three):
            return self._members(three, [*three[2], *three[1]], at)
        if len(at) == 1 and at[0] in self._lists:
            items = [named(at[0], each) for each in three]
            if None not in items:
                names = [*_order(*map(list, items)), *items[2]]
                return list(self._members(items, names, at).values())
        of_lists = all(isinstance(each, list) for each in three)
        if of_lists and len({len(each) for each in three}) == 1:
            return [self._value(each, at) for each in zip(*three, strict=True)]
        return self._value(three, at)

    def _members(self, three: Sequence[Any], names: Sequence[str], at: Tokens) -> dict[str, Any]:
        after = {
            name: self.merged([each.get(name, GONE) for each in three], (*at, name))
            for name in dict.fromkeys(names)
        }
        return {name: value for name, value in after.items() if value is not GONE}

    def _value(self, three: Sequence[Any], at: Tokens) -> Any:
        base, target, now = three
        if base == now:
            return target
        if target in (base, now):
            return now
        if _is_forced(at, self._forced):
            return target
        self.disputed.append(at)
        return now


def _order(base: list[str], target: list[str], now: list[str]) -> list[str]:
    """What comes back goes behind what it followed; all as they were where nobody ordered them
    otherwise."""
    if base == now:
        return target
    order = list(now)
    for previous, key in zip([None, *target], target, strict=False):
        if key not in order:
            order.insert(0 if previous is None else order.index(previous) + 1, key)
    return order


def _is_forced(at: Tokens, forced: frozenset[Tokens]) -> bool:
    return any(at[: len(each)] == each for each in forced)


def _changed_since(base: Any, now: Any, lists: Lists) -> Iterator[tuple[int, Tokens]]:
    """The part, content or attributes, and the place there."""
    if GONE in (base[0], now[0]):
        yield 0, ()
        return
    for part, (then, there) in enumerate(zip(base, now, strict=True)):
        for at in differing(then, there, NO_LISTS if part else lists):
            yield part, at

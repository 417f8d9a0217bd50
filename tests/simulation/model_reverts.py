"""The model's reverts: three states of a document, put together part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .gone import GONE
from .model_owners import Place, Tokens, pointer_of


def undone(key: str, base: Any, target: Any, now: Any, *, force: bool) -> tuple[Any, set[Place]]:
    """What leads from ``base`` to ``target``, done to ``now``; each is (content, attributes).

    With the places that were changed otherwise since. A document that goes, or comes back, is one.
    """
    if GONE not in (base[0], target[0], now[0]):
        parts = [
            _merged(*three, force=force, at=())
            for three in zip(base, target, now, strict=True)  # content, attributes
        ]
        places = {
            Place(key, pointer_of(at), of_attributes=bool(number))
            for number, (_, disputed) in enumerate(parts)
            for at in disputed
        }
        return (parts[0][0], parts[1][0]), places
    if base == now:
        return target, set()
    if target in (base, now):
        return now, set()
    return (target if force else now), set(_changed_since(key, base, now))


def _merged(
    base: Any, target: Any, now: Any, *, force: bool, at: Tokens
) -> tuple[Any, list[Tokens]]:
    if all(isinstance(each, dict) for each in (base, target, now)):
        after, disputed = {}, []
        for name in {**now, **target}:
            three = [each.get(name, GONE) for each in (base, target, now)]
            value, places = _merged(*three, force=force, at=(*at, name))
            disputed += places
            if value is not GONE:
                after[name] = value
        return after, disputed
    of_lists = all(isinstance(each, list) for each in (base, target, now))
    if of_lists and len(base) == len(target) == len(now):
        items = [
            _value(*three, force=force, at=at) for three in zip(base, target, now, strict=True)
        ]
        return [value for value, _ in items], [at for _, places in items for at in places]
    return _value(base, target, now, force=force, at=at)


def _value(
    base: Any, target: Any, now: Any, *, force: bool, at: Tokens
) -> tuple[Any, list[Tokens]]:
    if base == now:
        return target, []
    if target in (base, now):
        return now, []
    return (target if force else now), [at]


def _changed_since(key: str, base: Any, now: Any) -> Iterator[Place]:
    if GONE in (base[0], now[0]):
        yield Place(key, "")
        return
    for number, (then, there) in enumerate(zip(base, now, strict=True)):
        for at in differing(then, there):
            yield Place(key, pointer_of(at), of_attributes=bool(number))


def differing(then: Any, there: Any, at: Tokens = ()) -> Iterator[Tokens]:
    """Where two values differ, as far down as there are objects."""
    if isinstance(then, dict) and isinstance(there, dict):
        for name in {**then, **there}:
            yield from differing(then.get(name, GONE), there.get(name, GONE), (*at, name))
    elif then != there:
        yield at

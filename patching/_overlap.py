"""Sets of pointers read and written, and whether two of them get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from ._json import Document
from ._pointer import Tokens, find, index_of

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of JSON Pointers. A pointer stands for the whole value below it; "" for everything.

    `a | b` is the footprint of both, so that of many commits is one."""

    reads: frozenset[str] = _NOTHING
    writes: frozenset[str] = _NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(self.reads | other.reads, self.writes | other.writes)


def overlap(a: Footprint, b: Footprint) -> list[str]:
    """The pointers of `a` that `b` gets in the way of, sorted; [] if the two are independent.

    Two pointers meet if they are equal or one lies below the other; reads don't meet reads. The
    cost is proportional to the text of the pointers times their depth, not to the product of the
    two sets."""
    touched = b.reads | b.writes
    met = set(_meeting(a.writes, touched))
    met.update(_meeting(a.reads, b.writes))
    return sorted(met)


def _meeting(pointers: Set[str], others: Set[str]) -> Iterator[str]:
    if not pointers or not others:
        return
    above_others = {above for other in others for above in _ancestors(other)}
    for pointer in pointers:
        if (
            pointer in others
            or pointer in above_others
            or any(above in others for above in _ancestors(pointer))
        ):
            yield pointer


def _ancestors(pointer: str) -> Iterator[str]:
    while pointer:
        pointer = _parent(pointer)
        yield pointer


def _parent(pointer: str) -> str:
    return pointer[: pointer.rindex("/")]


def written(path: str, tokens: Tokens, root: Document) -> str:
    """What an operation writes that adds or removes at `path`: the array around it, if any."""
    if not tokens:
        return path
    holder = find(root, tokens[:-1])
    if isinstance(holder, list):
        return _parent(path)
    if isinstance(holder, dict):
        return path
    return _parent(path) if tokens[-1] == "-" or _could_be_index(tokens[-1]) else path


def _could_be_index(token: str) -> bool:
    return index_of(token, 10**18) >= 0

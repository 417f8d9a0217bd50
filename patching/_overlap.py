"""Footprints as values: whether two of them meet."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from patching._json import Document
from patching._lists import Lists
from patching._names import Names
from patching._pointer import Tokens, find, index_of, split_pointer

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of JSON Pointers. A pointer stands for the whole value below it; "" for everything.

    In them, items of lists go by what tells them apart (see `Names`), and `indexed` are the lists
    that the patch leads through by index. `a | b` is the footprint of both, so that of many commits
    is one."""

    reads: frozenset[str] = _NOTHING
    writes: frozenset[str] = _NOTHING
    indexed: frozenset[str] = _NOTHING

    def __or__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.reads | other.reads, self.writes | other.writes, self.indexed | other.indexed
        )


def overlap(a: Footprint, b: Footprint) -> list[str]:
    """The pointers of `a` that `b` gets in the way of, sorted; [] if the two are independent.

    Two pointers meet if they are equal or one lies below the other; reads don't meet reads. The
    cost is proportional to the text of the pointers times their depth, not to the product of the
    two sets."""
    touched = b.reads | b.writes
    met = set(_meeting(a.writes, touched))
    met.update(_meeting(a.reads, b.writes))
    return sorted(met)


def displaced(footprint: Footprint, base: Document, now: Document, lists: Lists) -> list[str]:
    """The lists that the patch with this footprint on `base` leads through by index, and in which
    an item of `base` is elsewhere `now`; sorted. Items behind the last one of `base` move none."""
    names = Names(lists)
    found = []
    for pointer in sorted(footprint.indexed):
        tokens = split_pointer(pointer)
        before, after = names.order(base, tokens), names.order(now, tokens)
        if after[: len(before)] != before:
            found.append(pointer)
    return found


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
    """The pointer that adding or removing at `path` writes: the array around it, if any."""
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

"""A principal and what it may do in which catalogs; pure values.

A pattern is the name of a catalog in which `*` stands for any text, also none, also with slashes.
Everything else in it is literal, and it is held against the whole name as clients see it: decoded,
case-sensitive, not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """Each includes the ones before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """``role`` in every catalog that ``pattern`` stands for."""

    role: Role
    pattern: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is from. ``name`` is the author of its commits."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, role: Role, catalog: str) -> bool:
        """Whether one of the grants gives ``role``, or more, in ``catalog``."""
        return any(grant.role >= role and matches(grant.pattern, catalog) for grant in self.grants)


# A request that is from nobody yet: it may do nothing.
NOBODY = Principal("", ())
# Everybody, where access control is off.
ANONYMOUS = Principal("anonymous", (Grant(Role.ADMIN, "*"),))


def matches(pattern: str, name: str) -> bool:
    """Whether ``pattern`` stands for ``name``, as a whole. Takes linear time in both, about.

    Each piece between two stars is looked for where the one before it ended: the first place that
    it is found at is as good as any.
    """
    first, *pieces = pattern.split("*")
    if not pieces:
        return name == pattern
    *between, last = pieces
    if not name.startswith(first):
        return False
    place = len(first)
    for piece in between:
        found = name.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return len(name) - place >= len(last) and name.endswith(last)

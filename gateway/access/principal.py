"""A principal, its grants, and its share of a bound.

A grant names catalogs by a pattern, in which `*` stands for any text, including slashes and the
empty text. Everything else is literal. The pattern is compared with the whole name as clients see
it: decoded, case-sensitive, not normalised.

A grant is written ``role:pattern`` on the command line, in stored tokens and in claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gateway.errors import Forbidden


class Role(IntEnum):
    """Each role includes the ones before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """Gives ``role`` in every catalog whose name matches ``pattern``."""

    role: Role
    pattern: str


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request; ``name`` is the author of its commits."""

    name: str
    grants: tuple[Grant, ...]

    @property
    def holder(self) -> str | None:
        """In whose share it counts (see ``Shares``); None if access control is off, because then
        everybody is the same principal."""
        return None if self is ANONYMOUS else self.name

    def may(self, role: Role, catalog: str) -> bool:
        """Whether one of the grants gives ``role``, or more, in ``catalog``."""
        return any(grant.role >= role and matches(grant.pattern, catalog) for grant in self.grants)


# The principal of a request that is not authenticated yet; it may do nothing.
NOBODY = Principal("", ())
# Everybody, if access control is off.
ANONYMOUS = Principal("anonymous", (Grant(Role.ADMIN, "*"),))


def forbidden(by: Principal, role: Role, catalog: str, to: str = "this") -> Forbidden:
    """The refusal of a principal that lacks ``role`` in ``catalog``, which ``to`` needs.

    It lists the principal's first grants.
    """
    name, more = role.name.lower(), len(by.grants) - _GRANTS_SHOWN
    shown = [grant_text(each)[:_GRANT_SHOWN_MAX] for each in by.grants[:_GRANTS_SHOWN]]
    if more > 0:
        shown.append(f"and {more} more")
    detail = (
        f"{to} needs the role {name!r} in catalog {catalog!r};"
        f" {by.name!r} has {', '.join(shown) or 'no grants'}"
    )
    return Forbidden(detail, name, catalog)


def matches(pattern: str, name: str) -> bool:
    """Whether ``pattern`` matches the whole ``name``. Takes about linear time in the name.

    Each piece between two stars is searched from the end of the piece before it: the first match is
    as good as any later one.
    """
    if pattern == "*":
        return True
    if "*" not in pattern:
        return name == pattern
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    if pattern.count("*") - 1 > len(name):  # there is a character between any two stars
        return False
    first, *between, last = pattern.split("*")
    if not name.startswith(first):
        return False
    place = len(first)
    for piece in between:
        found = name.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return len(name) - place >= len(last) and name.endswith(last)


_GRANT_SHOWN_MAX: Final = 106
_GRANTS_SHOWN: Final = 5
NAME_CHARACTERS_MAX: Final = 255
_PATTERN_CHARACTERS_MAX: Final = 1000
GRANTS_MAX: Final = 1000
_ROLES: Final = {role.name.lower(): role for role in Role}


def principal(name: object, grants: object) -> Principal:
    """The principal with this name and grants written as ``"role:pattern"``.

    Raises ValueError for an invalid name or grant, and quotes neither.
    """
    if not isinstance(grants, list | tuple) or len(grants) > GRANTS_MAX:
        raise ValueError(f"grants must be a list of at most {GRANTS_MAX}")
    return Principal(checked_name(name), tuple(map(parse_grant, grants)))


def checked_name(name: object) -> str:
    """``name``, if it is valid: printable text without spaces at its ends. Raises ValueError."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"a name must have 1 to {NAME_CHARACTERS_MAX} characters")
    if not name.isprintable() or name != name.strip():
        raise ValueError("a name must be printable, without a space at either end")
    if name == ANONYMOUS.name:
        raise ValueError(f"the name {name!r} is reserved for when access control is off")
    return name


def parse_grant(text: object) -> Grant:
    """The grant that is written as ``"role:pattern"``. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError("a grant must be a string such as 'read:sales-*'")
    role, colon, pattern = text.partition(":")
    if role not in _ROLES or not colon:
        raise ValueError(f"a grant must be role:pattern; the roles are {', '.join(_ROLES)}")
    if not 1 <= len(pattern) <= _PATTERN_CHARACTERS_MAX or not _is_storable(pattern):
        raise ValueError(
            f"a grant's pattern must have 1 to {_PATTERN_CHARACTERS_MAX} characters and no NUL"
        )
    return Grant(_ROLES[role], pattern)


def grant_text(grant: Grant) -> str:
    return f"{grant.role.name.lower()}:{grant.pattern}"


def _is_storable(text: str) -> bool:
    """Whether ``text`` can be the name of a catalog: UTF-8 has no lone surrogates."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def subject_prefix(issuer: str | None, setting: str | None) -> str | None:
    """The text before a JWT's subject in its principal's name, from the setting
    `jwt_subject_prefix`. If that is None, it follows from the issuer; if it is "-", it is empty.
    None: there is no issuer."""
    if setting is None:
        return None if issuer is None else f"{issuer}#"
    return "" if setting == "-" else setting


class Shares:
    """Each principal's share of a bound. Not thread-safe.

    A principal may hold as much as it leaves to others. With a maximum of 12, the first one gets 6
    and leaves 6, a second one gets 3 of these, a third one 2: a newcomer finds some, unless many
    came before.
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.held = 0
        self._held_by: dict[str | None, int] = {}

    def has_room_for(self, principal: str | None, amount: int = 1) -> bool:
        """Whether the principal may hold ``amount`` more. None: only the maximum counts, no share,
        since everybody is the same principal."""
        if principal is None:
            return self.held + amount <= self.maximum
        return may_hold(self._held_by.get(principal, 0), amount, self.held, self.maximum)

    def take(self, principal: str | None, amount: int = 1) -> None:
        """Take ``amount``, without a check: see ``has_room_for``. None: in nobody's share."""
        self.held += amount
        self._held_by[principal] = self._held_by.get(principal, 0) + amount

    def give_back(self, principal: str | None, amount: int = 1) -> None:
        """Give back what ``take`` took."""
        self.held -= amount
        left = self._held_by.get(principal, 0) - amount
        if left:
            self._held_by[principal] = left
        else:
            self._held_by.pop(principal, None)


def may_hold(held: int, more: int, held_by_all: int, maximum: int) -> bool:
    """Whether a holder of ``held`` may have ``more`` of ``maximum``; see ``Shares``."""
    return held + more <= maximum - held_by_all

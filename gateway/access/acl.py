"""The attribute ``acl`` of a document: its readers and its writers; pure.

::

    {"acl": {"read": ["ann", "etl-*"], "write": ["ann"]}}

Either list may be missing; then the acl doesn't restrict that right. An item is a pattern of
principals' names, in which `*` stands for any text. An acl only takes rights away that the catalog
gives; it takes none from an admin of the catalog. The right to write a document doesn't include the
right to read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.access.principal import Principal, Role, matches
from gateway.model import Right
from patching import Json, join_pointer

ACL: Final = "acl"
# The most patterns in a list, and characters in a pattern, of an acl that is written. Earlier
# versions stored longer acls, which still count.
NAMES_MAX: Final = 100
PATTERN_CHARACTERS_MAX: Final = 512
_RIGHTS: Final = ("read", "write")


class AclMalformed(ValueError):
    """An invalid acl. ``pointer`` is the place in the attributes that is wrong."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Acl:
    """The patterns of principals that may read and write; None: all that the catalog allows."""

    read: tuple[str, ...] | None
    write: tuple[str, ...] | None


def acl_of(attributes: Mapping[str, Json]) -> Acl | None:
    """The acl in ``attributes``; None if there is none. Raises AclMalformed."""
    if ACL not in attributes:
        return None
    value = attributes[ACL]
    if not isinstance(value, dict):
        raise AclMalformed(f"/{ACL}", "it must be an object with 'read', 'write' or both")
    for name in value:
        if name not in _RIGHTS:
            raise AclMalformed(
                join_pointer((ACL, name)), "unknown member; known members: read, write"
            )
    read, write = (_patterns(value, right) for right in _RIGHTS)
    return Acl(read, write)


def require_few_names(acl: Acl) -> None:
    """Raise AclMalformed if a list or a pattern is longer than may be written."""
    for right, names in zip(_RIGHTS, (acl.read, acl.write), strict=True):
        pointer = f"/{ACL}/{right}"
        if len(names or ()) > NAMES_MAX:
            raise AclMalformed(
                pointer, f"it has {len(names or ())} names; the limit is {NAMES_MAX}"
            )
        for index, name in enumerate(names or ()):
            if len(name) > PATTERN_CHARACTERS_MAX:
                raise AclMalformed(
                    f"{pointer}/{index}", f"it has more than {PATTERN_CHARACTERS_MAX} characters"
                )


def _patterns(acl: Mapping[str, Json], right: str) -> tuple[str, ...] | None:
    if right not in acl:
        return None
    listed = acl[right]
    if not isinstance(listed, list):
        raise AclMalformed(f"/{ACL}/{right}", "it must be an array of principals' names")
    names = []
    for index, name in enumerate(listed):
        if not isinstance(name, str) or not name:
            raise AclMalformed(
                f"/{ACL}/{right}/{index}", "it must be a principal's name, or a pattern with '*'"
            )
        names.append(name)
    return tuple(names)


def may_read(principal: Principal, catalog: str, attributes: Mapping[str, Json] | None) -> bool:
    """Whether a principal that may read ``catalog`` may read a document with ``attributes``."""
    return _may("read", principal, catalog, attributes)


def may_write(principal: Principal, catalog: str, attributes: Mapping[str, Json] | None) -> bool:
    """Whether a principal that may write ``catalog`` may write a document with ``attributes``."""
    return _may("write", principal, catalog, attributes)


def _may(
    right: Right, principal: Principal, catalog: str, attributes: Mapping[str, Json] | None
) -> bool:
    """A malformed acl, which somebody has stored without the gateway, lets only admins in."""
    if attributes is None or ACL not in attributes:
        return True
    if principal.may(Role.ADMIN, catalog):
        return True
    value = attributes[ACL]
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        return _remembered(right, principal.name, value)
    return _verdict(right, principal.name, attributes)


def _verdict(right: Right, name: str, attributes: Mapping[str, Json]) -> bool:
    try:
        acl = acl_of(attributes)
    except AclMalformed:
        return False
    patterns = None if acl is None else acl.read if right == "read" else acl.write
    return patterns is None or name in patterns or any(matches(each, name) for each in patterns)


_encode: Final = msgspec.json.Encoder().encode
_VERDICTS_MAX: Final = 10_000
_verdicts: Final[dict[tuple[bytes, Right, str], bool]] = {}


def _is_long(listed: Json) -> bool:
    return isinstance(listed, list) and len(listed) > NAMES_MAX


def _remembered(right: Right, name: str, acl: Json) -> bool:
    """The verdict of a long acl, remembered by the acl's digest: matching thousands of names takes
    50 times as long as a digest."""
    which = hashlib.blake2b(_encode(acl), digest_size=16).digest(), right, name
    verdict = _verdicts.get(which)
    if verdict is None:
        if len(_verdicts) >= _VERDICTS_MAX:
            _verdicts.clear()
        verdict = _verdicts[which] = _verdict(right, name, {ACL: acl})
    return verdict

"""The compares of a transaction as they are sent: each refusal names the place in the body.

A compare is about a document (``key``), about all whose keys begin with a ``prefix``, or about the
catalog (``resource_version``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar, cast

import patching
import patching.extended
from gateway.decide.compares import (
    Compare,
    Equals,
    IsAbsent,
    IsUnchanged,
    RevisionIs,
    Satisfies,
    TokenIs,
)
from gateway.decide.ranges import COUNT_MAX, RangeAbsent, RangeCount, RangeUnchanged, Relation
from gateway.decide.strict import whole
from gateway.errors import Unstorable
from gateway.http.wire.body import document_bytes, require_storable_operations
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import require_key, require_prefix
from gateway.http.wire.members import REVISION, member, refuse_member, require_known, require_object
from gateway.http.wire.problems import problem_of
from gateway.limits import RequestLimits
from patching import Limits, PatchError, join_pointer

_OF_KEYS: Final = ("etag", "absent", "unchanged_since", "equals", "test")
_OF_RANGES: Final = ("unchanged_since", "absent", "count")
_KNOWN: Final = ("key", "prefix", *_OF_KEYS, "count", "resource_version")
_RELATIONS: Final[tuple[Relation, ...]] = ("less", "equal", "greater")
_COUNT: Final = whole(0, COUNT_MAX)
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class Reader:
    """The rules for the items of a body, which ``principal`` has sent."""

    limits: RequestLimits
    patch_limits: Limits
    principal: str


def read_compare(item: Any, at: str, reader: Reader) -> Compare:
    """The compare at ``at`` of the body. Raises RequestRefused, Unstorable."""
    members = require_object(item, _KNOWN, at)
    if "resource_version" in members:
        require_known(members, ("resource_version",), at)
        return RevisionIs(member(members, "resource_version", REVISION, at))
    if "prefix" in members:
        require_known(members, ("prefix", *_OF_RANGES), at)
        return _range_compare(members, at, reader)
    require_known(members, ("key", *_OF_KEYS), at)
    key = key_of(members, "key", at, reader)
    name = _only_one(members, _OF_KEYS, at)
    value, place = members[name], f"{at}/{name}"
    match name:
        case "etag":
            if not isinstance(value, str) or not value or '"' in value:
                refuse_member(place, "it must be a version token, without a header's quotes")
            return TokenIs(key, value)
        case "absent":
            _require_true(value, place)
            return IsAbsent(key)
        case "unchanged_since":
            return IsUnchanged(key, member(members, name, REVISION, at))
        case "equals":
            document_bytes(value, reader.limits, place)
            return Equals(key, value)
    tests = patch_of(
        value,
        place,
        reader,
        lambda: patching.extended.parse_tests(value, limits=reader.patch_limits),
    )
    return Satisfies(key, tests)


def _range_compare(
    members: dict[str, Any], at: str, reader: Reader
) -> RangeUnchanged | RangeAbsent | RangeCount:
    prefix = prefix_of(members, at, reader)
    name = _only_one(members, _OF_RANGES, at)
    if name == "unchanged_since":
        return RangeUnchanged(prefix, member(members, name, REVISION, at))
    if name == "absent":
        _require_true(members[name], f"{at}/{name}")
        return RangeAbsent(prefix)
    count = require_object(members[name], _RELATIONS, f"{at}/{name}")
    given = [relation for relation in _RELATIONS if relation in count]
    if len(given) != 1:
        refuse_member(f"{at}/{name}", f"it must have exactly one of: {', '.join(_RELATIONS)}")
    return RangeCount(prefix, given[0], member(count, given[0], _COUNT, f"{at}/{name}"))


def _only_one(members: dict[str, Any], names: tuple[str, ...], at: str) -> str:
    given = [name for name in names if name in members]
    if len(given) != 1:
        refuse_member(at, f"it must have exactly one of: {', '.join(names)}")
    return given[0]


def _require_true(value: Any, place: str) -> None:
    if value is not True:
        refuse_member(place, "it must be true; for a document that exists, use a 'test' of \"\"")


def patch_of(operations: Any, place: str, reader: Reader, parse: Callable[[], _Parsed]) -> _Parsed:
    """The result of ``parse`` for ``operations`` at ``place``; its errors name the place."""
    try:
        require_storable_operations(operations, reader.limits.depth_max)
        return parse()
    except Unstorable as error:
        error.pointer = f"{place}/{error.operation}"
        raise
    except PatchError as error:
        _refuse_patch(error, place)


def _refuse_patch(error: PatchError, place: str) -> NoReturn:
    problem = problem_of(error)
    assert problem is not None
    member = getattr(error, "member", None)
    if member == "array_primary_keys":
        place = place.rpartition("/")[0] + "/array_primary_keys"
    elif error.operation is not None:
        inside = [str(error.operation), *([member] if member else [])]
        place += join_pointer(inside)
    members = {**problem.members, "pointer": place}
    raise RequestRefused(problem.code, problem.detail, **cast(Any, members)) from error


def key_of(members: dict[str, Any], name: str, at: str, reader: Reader) -> str:
    key = members.get(name)
    if not isinstance(key, str):
        place = f"{at}/{name}" if name in members else at
        refuse_member(place, f"'{name}' must be a document's key")
    require_key_at(key, f"{at}/{name}", reader)
    return key


def require_key_at(key: str, place: str, reader: Reader) -> None:
    """Raise RequestRefused unless the text at ``place`` can be a document's key."""
    try:
        require_key(key, reader.limits)
    except RequestRefused as error:
        error.members["pointer"] = place
        raise


def prefix_of(members: dict[str, Any], at: str, reader: Reader) -> str:
    """The member ``prefix``, which is required; "" is the beginning of all keys."""
    prefix = members.get("prefix")
    if not isinstance(prefix, str):
        place = f"{at}/prefix" if "prefix" in members else at
        refuse_member(place, "'prefix' must be the beginning of documents' keys")
    try:
        require_prefix(prefix, reader.limits)
    except RequestRefused as error:
        error.members["pointer"] = f"{at}/prefix"
        raise
    return prefix

"""A manager's terms, whichever way they are sent.

They are parameters of a document's routes, and members of an action or a bulk line:

    manager   who wants it and is to own it; the principal, unless said
    conflict  what becomes of what others own and want otherwise: refuse (unless said), skip, force
    force     pointers at and below which it is taken from them in any case
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import patching
import patching.ownership
from gateway.decide.owning import ApplyWanted, LetGo
from gateway.decide.strict import SWITCH, Exact
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import AUTHOR_RULE, is_author
from gateway.http.wire.members import member, refuse_member
from patching import Json

APPLY_MEMBERS: Final = ("manager", "conflict", "force")
LET_GO_MEMBERS: Final = ("manager", "prune")

MANAGER_RULE: Final = f"it must be {AUTHOR_RULE}"
CONFLICT_RULE: Final = f"it must be one of {', '.join(patching.ownership.CONFLICTS)}"
_FORCE_MAX: Final = 1000
_MANAGER: Final = Exact(str, MANAGER_RULE, is_author)
_CONFLICT: Final = Exact(
    str, CONFLICT_RULE, lambda text: text in patching.ownership.CONFLICTS, load_default="refuse"
)
_FORCE: Final = Exact(
    list,
    f"it must be a list of at most {_FORCE_MAX} JSON Pointers",
    lambda items: len(items) <= _FORCE_MAX and all(isinstance(each, str) for each in items),
    load_default=(),
)


class ApplyTerms(NamedTuple):
    """How something is applied, beside what is."""

    manager: str
    conflict: patching.ownership.OnConflict
    force: tuple[str, ...]

    def edit(self, wanted: Json, size_bytes: int) -> ApplyWanted:
        return ApplyWanted(wanted, size_bytes, *self)

    def as_json(self) -> Json:
        return [self.manager, self.conflict, [*self.force]]


def apply_parameters(asked: Mapping[str, Any], principal: str) -> ApplyTerms:
    """The terms in loaded parameters. Raises RequestRefused for a pointer that is none."""
    force = tuple(asked.get("force", ()))
    for pointer in force:
        try:
            patching.split_pointer(pointer)
        except patching.InvalidPatch as error:
            detail = f"parameter 'force': {error.detail}"
            raise RequestRefused("invalid_parameter", detail, parameter="force") from error
    if len(force) > _FORCE_MAX:
        detail = f"parameter 'force': it can be given {_FORCE_MAX} times"
        raise RequestRefused("invalid_parameter", detail, parameter="force")
    return ApplyTerms(asked.get("manager") or principal, asked.get("conflict", "refuse"), force)


def apply_members(members: Mapping[str, Any], principal: str, at: str = "") -> ApplyTerms:
    """The terms among ``members``, which are at ``at`` of the body. Raises RequestRefused."""
    force = tuple(member(members, "force", _FORCE, at))
    for index, pointer in enumerate(force):
        try:
            patching.split_pointer(pointer)
        except patching.InvalidPatch as error:
            refuse_member(f"{at}/force/{index}", error.detail)
    manager = member(members, "manager", _MANAGER, at) or principal
    conflict = cast(patching.ownership.OnConflict, member(members, "conflict", _CONFLICT, at))
    return ApplyTerms(manager, conflict, force)


def let_go_members(members: Mapping[str, Any], principal: str, at: str = "") -> LetGo:
    """Likewise."""
    manager = member(members, "manager", _MANAGER, at) or principal
    return LetGo(manager, member(members, "prune", SWITCH, at))


def require_wanted(value: Json, pointer: str = "") -> None:
    """Raise RequestRefused unless ``value``, at ``pointer`` of the body, can be wanted."""
    if not isinstance(value, dict):
        refuse_member(pointer, "the body of an apply must be an object")

"""The terms of an apply, of letting go and of giving back.

They are parameters of a document's routes, and members of an action or a bulk line:

    manager   the manager that applies, and owns what it sends; the principal by default
    conflict  for leaves that others own with other values: refuse (the default), skip, force
    force     pointers at and below which leaves are taken over in any case
    pointers  where to give back what plain writes own; as a parameter: pointer, repeatable
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import patching
import patching.ownership
from gateway.decide.owning import ApplyWanted, GiveBack, LetGo
from gateway.decide.strict import SWITCH, Exact, choice
from gateway.http.wire.body import member, refuse_member
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import AUTHOR_RULE, is_author
from gateway.http.wire.query import refuse_parameter
from patching import Json

APPLY_MEMBERS: Final = ("manager", "conflict", "force")
LET_GO_MEMBERS: Final = ("manager", "prune")
GIVE_BACK_MEMBERS: Final = ("pointers",)

_POINTERS_MAX: Final = 1000
_MANAGER: Final = Exact(str, f"it must be {AUTHOR_RULE}", is_author)
_CONFLICT: Final = choice(patching.ownership.CONFLICTS, load_default="refuse")
_FORCE: Final = Exact(
    list,
    f"it must be a list of at most {_POINTERS_MAX} JSON Pointers",
    lambda items: len(items) <= _POINTERS_MAX and all(isinstance(each, str) for each in items),
    load_default=(),
)
_POINTERS: Final = Exact(
    list,
    f"it must be a list of 1 to {_POINTERS_MAX} JSON Pointers",
    lambda items: 0 < len(items) <= _POINTERS_MAX and all(isinstance(e, str) for e in items),
    load_default=(),
)


class ApplyTerms(NamedTuple):
    """How a value is applied."""

    manager: str
    conflict: patching.ownership.OnConflict
    force: tuple[str, ...]

    def edit(self, wanted: Json, size_bytes: int) -> ApplyWanted:
        return ApplyWanted(wanted, size_bytes, *self)

    def as_json(self) -> Json:
        return [self.manager, self.conflict, [*self.force]]


def apply_parameters(params: Mapping[str, Any], principal: str) -> ApplyTerms:
    """The terms in loaded parameters. Raises RequestRefused for an invalid pointer."""
    force = _pointer_parameters(params, "force")
    return ApplyTerms(params.get("manager") or principal, params.get("conflict", "refuse"), force)


def owners_parameters(params: Mapping[str, Any], principal: str) -> LetGo | GiveBack:
    """The edit that a ``DELETE`` of owners asks for: to give back if there is a ``pointer``, else
    to let go. Raises RequestRefused."""
    pointers = _pointer_parameters(params, "pointer")
    if not pointers:
        return LetGo(params.get("manager") or principal, params["prune"])
    for name in ("manager", "prune"):
        if params.get(name):
            detail = f"parameters 'pointer' and {name!r} can't be given together"
            raise RequestRefused("invalid_parameter", detail, parameter=name)
    return GiveBack(pointers)


def _pointer_parameters(params: Mapping[str, Any], name: str) -> tuple[str, ...]:
    pointers = tuple(params.get(name, ()))
    for pointer in pointers:
        try:
            patching.split_pointer(pointer)
        except patching.InvalidPatch as error:
            refuse_parameter(name, error.detail)
    if len(pointers) > _POINTERS_MAX:
        refuse_parameter(name, f"it can be given at most {_POINTERS_MAX} times")
    return pointers


def apply_members(members: Mapping[str, Any], principal: str, at: str = "") -> ApplyTerms:
    """The terms in ``members``, an object at pointer ``at`` of the body. Raises RequestRefused."""
    force = _pointer_members(members, "force", _FORCE, at)
    manager = member(members, "manager", _MANAGER, at) or principal
    conflict = cast(patching.ownership.OnConflict, member(members, "conflict", _CONFLICT, at))
    return ApplyTerms(manager, conflict, force)


def let_go_members(members: Mapping[str, Any], principal: str, at: str = "") -> LetGo:
    """The edit that ``members`` ask for. Raises RequestRefused."""
    manager = member(members, "manager", _MANAGER, at) or principal
    return LetGo(manager, member(members, "prune", SWITCH, at))


def give_back_members(members: Mapping[str, Any], at: str = "") -> GiveBack:
    """The edit that ``members`` ask for. Raises RequestRefused."""
    if "pointers" not in members:
        refuse_member(at, "'pointers' is missing")
    return GiveBack(_pointer_members(members, "pointers", _POINTERS, at))


def owning_terms(edit: LetGo | GiveBack) -> Json:
    """The terms of ``edit``, for the fingerprint of its request."""
    if isinstance(edit, GiveBack):
        return {"give_back": [*edit.pointers]}
    return [edit.manager, edit.prune]


def _pointer_members(
    members: Mapping[str, Any], name: str, kind: Exact, at: str
) -> tuple[str, ...]:
    pointers = tuple(member(members, name, kind, at))
    for index, pointer in enumerate(pointers):
        try:
            patching.split_pointer(pointer)
        except patching.InvalidPatch as error:
            refuse_member(f"{at}/{name}/{index}", error.detail)
    return pointers


def require_wanted(value: Json, pointer: str = "") -> None:
    """Raise RequestRefused unless ``value``, at ``pointer`` of the body, can be applied."""
    if not isinstance(value, dict):
        refuse_member(pointer, "an apply needs an object")

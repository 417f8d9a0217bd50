"""What a manager wants otherwise than others, who own it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from patching._errors import PatchConflict
from patching._json import Document, Json
from patching._owners import Set

Conflict: TypeAlias = Literal["refuse", "skip", "force"]
CONFLICTS: Final[tuple[Conflict, ...]] = ("refuse", "skip", "force")


@dataclass(frozen=True, slots=True)
class Contested:
    """A leaf that a manager wants otherwise, and the others that own it; `value` is what it is.

    `wanted` is what the manager sends at `pointer`: ABSENT where it sends a leaf at `wanted_at`,
    above `pointer`, and so leaves no room for it."""

    pointer: str
    owners: Set
    value: Json
    wanted: Document
    wanted_at: str


class OwnedByOthers(PatchConflict):
    """What a manager wants differs from what others own: nothing was changed. At least one."""

    code = "owned_by_others"

    def __init__(self, contested: tuple[Contested, ...]) -> None:
        first = contested[0]
        owner = first.owners[0]
        how = "a plain write" if owner.plain else "an apply"
        more = f", and {len(contested) - 1} more" if len(contested) > 1 else ""
        super().__init__(
            f"owned by {owner.manager!r} since revision {owner.since}, by {how}{more}",
            pointer=first.pointer,
        )
        self.contested = contested

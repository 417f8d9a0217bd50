"""What a manager wants of documents: lines that apply what differs, and let go of the rest.

A line for each document of which the manager owns something else than it wants::

    wanted      it owns     line
    {"a": 2}    {"a": 2}    -
    {"a": 2}    else        apply {"a": 2}
    -           anything    let_go, prune

None has a guard: what becomes of it is decided on the state that is written. An apply of the same
again changes nothing there, and so does letting go of what the manager owns nothing of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from patching.errors import ListViolation
from patching.ownership import OnConflict
from patching.part_digests import part_text
from patching.spark.json_values import NoJson
from patching.spark.plan import APPLY, LET_GO, Planned, Planner, There, Wanted

DEFAULT_CONFLICT: Final[OnConflict] = "refuse"


@dataclass(frozen=True)
class ManagedPlanner(Planner):
    """Makes the lines of ``manager``. ``conflict``: what becomes of leaves that others own."""

    manager: str = ""
    conflict: OnConflict = DEFAULT_CONFLICT

    compares: ClassVar[bool] = False

    def digested(self, key: str, value: Any) -> bytes:
        try:
            return part_text(value, self.lists.lists_of(key))
        except ListViolation:  # for the gateway to refuse
            return b""

    def creation(self, key: str, value: Any) -> Planned:
        terms = {"manager": self.manager, "conflict": self.conflict}
        return self._planned(APPLY, key, {"op": "apply", "value": value, **terms})

    def change(self, key: str, value: Any, there: There) -> Planned:  # noqa: ARG002 - whatever is there
        return self.creation(key, value)

    def deletion(self, key: str, etag: str) -> Planned:  # noqa: ARG002 - whatever is there
        return self._planned(LET_GO, key, {"op": "let_go", "manager": self.manager, "prune": True})

    def value(self, wanted: Wanted) -> Any:
        value = super().value(wanted)
        if not isinstance(value, dict):
            raise NoJson("what a manager wants of a document is an object")
        return value

"""What a manager wants of documents: lines that apply it, and lines that let go of the rest.

A line for each document, for the gateway alone knows who owns what of it::

    wanted      there   line
    {"a": 2}    any     apply {"a": 2}
    -           yes     let_go, prune

None has a guard: what becomes of it is decided on the state that is written. An apply of the same
again changes nothing there, and so does letting go of what the manager owns nothing of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from patching import Conflict
from patching.spark.json_values import NoJson
from patching.spark.plan import APPLY, INVALID, LET_GO, Planned, Planner, There, Wanted, to_batches

DEFAULT_CONFLICT: Final[Conflict] = "refuse"


@dataclass(frozen=True)
class ManagedPlanner(Planner):
    """Makes the lines of ``manager``. ``conflict``: what becomes of leaves that others own."""

    manager: str = ""
    conflict: Conflict = DEFAULT_CONFLICT

    def plan(self, wanted: Wanted, there: There | None) -> Planned:  # noqa: ARG002 - whatever is there
        try:
            value = self.value(wanted)
        except NoJson as error:
            return Planned(INVALID, wanted.key, detail=str(error))
        assert wanted.key is not None
        terms = {"manager": self.manager, "conflict": self.conflict}
        return self._planned(APPLY, wanted.key, {"op": "apply", "value": value, **terms})

    def deletion(self, key: str, etag: str) -> Planned:  # noqa: ARG002 - whatever is there
        return self._planned(LET_GO, key, {"op": "let_go", "manager": self.manager, "prune": True})

    def value(self, wanted: Wanted) -> Any:
        value = super().value(wanted)
        if not isinstance(value, dict):
            raise NoJson("what a manager wants of a document is an object")
        return value

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``, of rows (key, copies, value), or of ``compared``."""
        return to_batches(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Planned]:
        for batch in batches:
            for row in batch.to_pylist():
                if row["copies"] is None:
                    yield self.deletion(row["there"], row["etag"])
                else:
                    yield self.plan(Wanted(row["key"], row["value"], row["copies"]), None)

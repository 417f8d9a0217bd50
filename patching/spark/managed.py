"""What a manager wants of documents: lines that apply what differs, and let go of the rest.

A line for each document in which the manager owns something other than it wants::

    wanted      it owns     line
    {"a": 2}    {"a": 2}    -
    {"a": 2}    else        apply {"a": 2}
    -           anything    let_go, prune

No line has a guard: the gateway decides it on the current state. To apply the same again changes
nothing, and neither does letting go of a document in which the manager owns nothing.

Instead, lines have the fence of their run. Each run, and each plan, is a version of an open
application of the manager and the prefix, and ends the one before: a late line of an earlier run
can't put back what this one has replaced.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from patching.errors import ListViolation
from patching.ownership import OnConflict
from patching.part_digests import part_text
from patching.spark.json_values import NoJson
from patching.spark.options import Options
from patching.spark.plan import APPLY, APPLY_FIRST, LET_GO, Planned, Planner, StoredText, Wanted
from patching.spark.version_steps import Version, VersionRefused, applications, step

DEFAULT_CONFLICT: Final[OnConflict] = "refuse"
_SHOWN_MAX: Final = 100


class Overtaken(Exception):
    """A later run of the manager has begun in the catalog; nothing of this one was sent."""


def next_run(options: Options, catalog: str, manager: str, prefix: str, now_us: int) -> Version:
    """The version of a run that begins now. Raises RequestError."""
    about = hashlib.blake2b(f"{manager}\0{prefix}".encode(), digest_size=8).hexdigest()
    name = f"spark-sync-{manager[:_SHOWN_MAX]}-{about}"
    known = {each["application"]: each for each in applications(options, catalog)}
    last = max(known[name]["version"] or 0, known[name]["finished"] or 0) if name in known else 0
    return Version(name, max(now_us, last + 1), open=True)


def begin_run(options: Options, catalog: str, run: Version) -> str:
    """Begin ``run``; returns the fence of its lines. Raises Overtaken and VersionRefused."""
    try:
        with options.open_transport() as transport:
            record = step(transport, options, catalog, run)
    except VersionRefused as error:
        if getattr(error.__cause__, "code", None) != "application_conflict":
            raise
        raise Overtaken(f"another run of this manager began later: {error}") from error
    if record["finished"] is not None and record["finished"] >= run.number:
        raise Overtaken("another run of this manager began later, and has finished")
    return str(record["fence"])


@dataclass(frozen=True)
class ManagedPlanner(Planner):
    """Makes the lines of ``manager``. ``conflict``: what happens to leaves that others own."""

    manager: str = ""
    conflict: OnConflict = DEFAULT_CONFLICT

    compares: ClassVar[bool] = False

    def digested(self, key: str, value: Any) -> bytes:
        try:
            return part_text(value, self.lists.lists_of(key))
        except ListViolation:  # for the gateway to refuse
            return b""

    def creation(self, key: str, value: Any) -> Planned:
        return self._applied(APPLY_FIRST, key, value)

    def change(self, key: str, value: Any, there: StoredText) -> Planned:  # noqa: ARG002 - whatever is there
        return self._applied(APPLY, key, value)

    def _applied(self, action: str, key: str, value: Any) -> Planned:
        terms = {"manager": self.manager, "conflict": self.conflict}
        return self._planned(action, key, {"op": "apply", "value": value, **terms})

    def deletion(self, key: str, etag: str) -> Planned:  # noqa: ARG002 - whatever is there
        return self._planned(LET_GO, key, {"op": "let_go", "manager": self.manager, "prune": True})

    def value(self, wanted: Wanted) -> Any:
        value = super().value(wanted)
        if not isinstance(value, dict):
            raise NoJson("a document must be an object to be applied by a manager")
        return value

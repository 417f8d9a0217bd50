"""Heads, their moves, and what holds their history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gateway.model.values import Commit, Verdict


class Claim(msgspec.Struct, frozen=True):
    """A worker's place in the line for a head; others let it move first, for ``hold_ms`` at most.

    A hint: a move that passes a claim is as good as any.
    """

    by: str
    hold_ms: int


class Head(msgspec.Struct, frozen=True):
    """Where a catalog is. All commits up to ``written`` are written out; ``tail`` are the ones
    above it up to ``revision``, None where they weren't read.

    ``judged`` is the number of the last verdict. Those up to ``judged_written`` are written out;
    ``verdicts`` are the ones above it, None where they weren't read.

    ``floor`` is the oldest revision whose state can still be told; the commits above it are all
    there. ``deleted``: the catalog was deleted at ``revision``. ``claims`` are read with the tail.

    ``last`` is the id of the commit at ``revision``, ``last_verdict`` that of verdict ``judged``;
    "" without one, and of a head of an older format until it is moved.
    """

    catalog: str
    revision: int = 0
    time_us: int = 0
    written: int = 0
    floor: int = 0
    deleted: bool = False
    tail: tuple[Commit, ...] | None = None
    judged: int = 0
    judged_written: int = 0
    verdicts: tuple[Verdict, ...] | None = None
    claims: tuple[Claim, ...] = ()
    last: str = ""
    last_verdict: str = ""

    @property
    def place(self) -> Place:
        return Place(self.revision, self.last, self.judged, self.last_verdict)


class Place(NamedTuple):
    """Where a head is: at a revision and a verdict, each with its id. See ``Head``.

    Two heads at one place have one history.
    """

    revision: int
    last: str
    judged: int
    last_verdict: str

    def is_of(self, later: Place) -> bool:
        """Whether a head that was here can be at ``later`` now, as far as the two tell."""
        return (
            self.revision <= later.revision
            and self.judged <= later.judged
            and (self.revision != later.revision or self.last == later.last)
            and (self.judged != later.judged or self.last_verdict == later.last_verdict)
        )

    def __str__(self) -> str:
        commit = f"revision {self.revision} (commit {self.last or 'unknown'})"
        return f"{commit}, verdict {self.judged}" if self.judged else commit


class Move(msgspec.Struct, frozen=True):
    """Move a head on by ``commits`` and ``verdicts``, each ascending without a gap, if it is still
    at revision ``base`` (0: no head yet) and verdict ``judged``, by the commit with the id ``last``
    and the verdict with the id ``last_verdict``.

    They join the head's tail and its verdicts. The commits up to ``written`` leave it, and the
    verdicts up to ``judged_written``: these are written out for sure.

    It passes the claims of the workers ``past``, which leave the line with it, and is lost where
    another one's comes first; unless it ``passes_all``.
    """

    catalog: str
    base: int
    commits: Sequence[Commit]
    written: int
    judged: int = 0
    verdicts: Sequence[Verdict] = ()
    judged_written: int = 0
    past: Sequence[str] = ()
    last: str = ""
    last_verdict: str = ""
    passes_all: bool = False

    @property
    def place(self) -> Place:
        """Where the head must be."""
        return Place(self.base, self.last, self.judged, self.last_verdict)

    @property
    def reached(self) -> tuple[int, int]:
        """The revision and the verdict that the head is at afterwards."""
        return self.base + len(self.commits), self.judged + len(self.verdicts)

    @property
    def goal(self) -> Place:
        """Where the head is afterwards."""
        revision, judged = self.reached
        last = self.commits[-1].id if self.commits else self.last
        last_verdict = self.verdicts[-1].id if self.verdicts else self.last_verdict
        return Place(revision, last, judged, last_verdict)


@dataclass(frozen=True, slots=True)
class Pin:
    """Keeps compaction below ``revision`` until ``expires_us`` (microseconds since the epoch).

    ``owner`` is the principal that made it, "" the service itself. ``note`` is for people.
    """

    id: str
    revision: int
    expires_us: int
    owner: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of a catalog's history: see ``Head.floor``.

    ``swept`` is the floor that history has been swept to; lower than ``floor`` until the floor has
    been up for a while, and a sweep has followed. ``raises`` are the floors above ``swept`` that
    were set, each with the seconds since, by the database's clock.
    """

    revision: int
    floor: int
    swept: int
    pins: tuple[Pin, ...]
    raises: tuple[tuple[int, float], ...] = field(default=(), compare=False)

    def sweepable(self, grace_s: float) -> int:
        """The highest floor that was set ``grace_s`` ago or earlier, by the database's clock;
        ``swept`` without one."""
        aged = (floor for floor, age_s in self.raises if age_s >= grace_s)
        return max(aged, default=self.swept)

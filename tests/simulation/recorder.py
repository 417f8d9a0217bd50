"""What a simulation writes down while it runs, for the checker to read afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from gateway.decide.request import Outcome
from gateway.errors import CommitError
from gateway.model import CommitRecord, DocumentRecord, HeadMove, PinRecord, Reply, Verdict
from gateway.read.history import HistoryPage, RevisionAt
from gateway.retention.compaction import CompactionResult
from gateway.service import DocumentReading
from gateway.store.contract import Moved, MoveResult, Swept
from tests.memory_store import MemoryStore

from .asks import Ask
from .sim_runtime import EPOCH_US


@dataclass(frozen=True)
class Made:
    """A commit as its head's move put it there, at the moment ``tick``.

    ``changes`` is the JSON of (key, action, create_revision, patch, value, attributes, owners,
    owners_change) for each change, taken at that moment, so that values changed in place later on
    don't go unnoticed.
    """

    tick: int
    base_revision: int
    commit: CommitRecord
    changes: bytes


@dataclass(frozen=True)
class Kept:
    """A change of what is kept of a catalog, at the moment ``tick``; ``at_us`` is the true time.

    What was refused isn't here; a sweep is, even where it found nothing left to do.
    ``what`` and ``about``: pin (the Pin), unpin (its id), floor (the new one), swept (the floor),
    sweep (a Swept), replies (through), tombstones (through).
    """

    tick: int
    at_us: int
    catalog: str
    what: str
    about: Any


@dataclass(frozen=True)
class Listed:
    """Documents at one revision. ``next_after`` and ``whole``: whether that is all of them."""

    revision: int
    documents: Mapping[str, DocumentRecord | None]
    next_after: str | None = None
    whole: bool = True


@dataclass
class Call:
    """One call of a client. ``answered`` stays None where no answer ever came.

    ``called``, ``answered`` and ``Made.tick`` count the recorded events, so that no two are at the
    same moment; those that end in ``_s`` are virtual seconds. ``suspended_s`` is how long the
    worker stood still meanwhile.
    """

    ask: Ask
    worker: str
    called: int
    called_s: float
    suspended_s: float = 0.0
    answered: int | None = None
    answered_s: float = 0.0
    outcome: Outcome | None = None
    reading: DocumentReading | None = None
    page: HistoryPage | None = None
    listed: Listed | None = None
    at: RevisionAt | None = None
    pin: PinRecord | None = None
    compacted: CompactionResult | None = None
    reply: Reply | None = None
    error: Exception | None = None
    commit_id: str | None = None
    bulk: tuple[int, int] | None = None  # which bulk it came in, and its place there
    unread: CommitError | None = None  # why nothing was decided: a revert can't tell what to undo


@dataclass(frozen=True)
class Heard:
    """What a watcher was told at ``tick``: a commit, how far it has come (bookmark), or that what
    lies below a revision can't be told any more (compacted). Or that it has all ``documents`` of a
    revision, which it began to ask for at ``asked`` (synced)."""

    tick: int
    what: Literal["commit", "bookmark", "compacted", "synced"]
    revision: int
    encoded: bytes = b""
    documents: Mapping[str, DocumentRecord] = field(default_factory=dict)
    asked: int = 0


@dataclass
class Following:
    """A watcher of the commits on ``keys`` or on keys with ``prefix``; of all if neither."""

    catalog: str
    keys: frozenset[str]
    prefix: str
    position: int = 0
    heard: list[Heard] = field(default_factory=list)


@dataclass
class Recording:
    """A history. ``logs`` are the winning moves by catalog, ``kept`` what retention did, in order;
    the rest is the state at the end: ``fresh`` is what a new worker reads, ``past`` what it reads
    of earlier revisions, ``findings`` what its verification says."""

    logs: dict[str, list[Made]] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    verdicts: list[tuple[int, Verdict]] = field(default_factory=list)  # with the moves' ticks
    lost_verdicts: list[str] = field(default_factory=list)
    commits: dict[str, list[CommitRecord]] = field(default_factory=dict)
    documents: dict[tuple[str, str], DocumentRecord] = field(default_factory=dict)
    fresh: dict[tuple[str, str], DocumentReading] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    neglected: list[str] = field(default_factory=list)
    faulty: bool = True
    longest_s: float = 0.0  # a request's deadline
    skew_us: int = 0  # by which a clock may be wrong
    past: dict[tuple[str, str, int], DocumentRecord | None] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    followings: list[Following] = field(default_factory=list)
    deaf: list[str] = field(default_factory=list)  # watchers who long since should have heard more
    ticks: int = 0

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks


class RecordingStore(MemoryStore):
    """The in-memory store, which notes when each head moved and what it was moved to, and when
    something was pinned, compacted or purged."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def measure_leases_by(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    def move_head(self, move: HeadMove) -> MoveResult:
        result = super().move_head(move)
        if result is Moved.WON:
            tick = self._recording.tick()
            log = self._recording.logs.setdefault(move.catalog, [])
            for commit in move.commits:
                log.append(Made(tick, move.base, commit, changes_json(commit)))
            self._recording.verdicts += [(tick, verdict) for verdict in move.verdicts]
        return result

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        return self._note(super().set_pin(catalog, pin, held), catalog, "pin", pin)

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        return self._note(super().drop_pin(catalog, pin_id), catalog, "unpin", pin_id)

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        return self._note(super().raise_floor(catalog, floor, now_us, at), catalog, "floor", floor)

    def end_sweep(self, catalog: str, floor: int) -> None:
        super().end_sweep(catalog, floor)
        self._note(True, catalog, "swept", floor)

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        for each in swept:
            super().sweep(catalog, [each])
            self._note(True, catalog, "sweep", each)

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        dropped = super().drop_replies(catalog, through, before_us)
        self._note(dropped > 0, catalog, "replies", through)
        return dropped

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        purged = super().purge_tombstones(catalog, through, before_us, limit)
        self._note(purged > 0, catalog, "tombstones", through)
        return purged

    def _note(self, done: bool, catalog: str, what: str, about: Any) -> bool:
        if done:
            at_us = EPOCH_US + int(self._monotonic() * 1e6)
            self._recording.kept.append(Kept(self._recording.tick(), at_us, catalog, what, about))
        return done

    def everything(
        self,
    ) -> tuple[dict[str, list[CommitRecord]], dict[tuple[str, str], DocumentRecord]]:
        """Commits (ascending) and documents as they are stored."""
        commits = {
            catalog: [commit for _, commit in sorted(written.items())]
            for catalog, written in self._commits.items()
        }
        return commits, dict(self._documents)

    def lost_verdicts(self) -> list[str]:
        """The names of the verdicts that are neither in a head nor written out."""
        there = [verdict for head in self._heads.values() for verdict in head.verdicts or ()]
        kept = {verdict.id for verdict in (*there, *self._verdicts.values())}
        return [
            f"{verdict.catalog}: key {verdict.idempotency.key}"
            for _, verdict in self._recording.verdicts
            if verdict.id not in kept
        ]


def changes_json(commit: CommitRecord) -> bytes:
    changes: list[Any] = [
        [
            *(str(change.key), change.action, change.create_revision, change.patch),
            *([] if absent(change.value) else [change.value], change.attributes),
            *(change.owners, change.owners_change),
        ]
        for change in commit.changes
    ]
    return msgspec.json.encode(changes)


def told(commit: CommitRecord) -> bytes:
    """How watchers are told of a commit here: the id and the changes."""
    return msgspec.json.encode([commit.id, changes_json(commit).decode()])


def absent(value: object) -> bool:
    """Whether ``value`` is the mark for "nothing there" rather than JSON."""
    return not (value is None or isinstance(value, dict | list | str | int | float))

"""What a simulation writes down while it runs, for the checker to read afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.commits.history import CommitPage
from gateway.commits.requests import Outcome
from gateway.commits.service import Reading
from gateway.model import Commit, Document, Head
from gateway.store.contract import Moved
from gateway.store.memory import MemoryStore

from .asks import Ask


@dataclass(frozen=True)
class Made:
    """A commit as its head's move put it there, at the moment ``tick``.

    ``changes`` is the JSON of (key, action, create_revision, patch, value) for each change, taken
    at that moment, so that values changed in place later on don't go unnoticed.
    """

    tick: int
    base_revision: int
    commit: Commit
    changes: bytes


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
    reading: Reading | None = None
    page: CommitPage | None = None
    reply: Commit | None = None
    error: Exception | None = None
    commit_id: str | None = None


@dataclass
class Recording:
    """A history. ``logs`` are the winning moves by catalog; the rest is the state at the end."""

    logs: dict[str, list[Made]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    commits: dict[str, list[Commit]] = field(default_factory=dict)
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    fresh: dict[tuple[str, str], Reading] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    neglected: list[str] = field(default_factory=list)
    faulty: bool = True
    longest_s: float = 0.0  # a request's deadline
    ticks: int = 0

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks


class RecordingStore(MemoryStore):
    """The in-memory store, which notes when each head moved and what it was moved to."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def _move(self, to: Head) -> Moved:
        result = super()._move(to)
        if result is Moved.WON:
            tick = self._recording.tick()
            log = self._recording.logs.setdefault(to.catalog, [])
            for commit in to.batch or ():
                log.append(Made(tick, to.base_revision, commit, changes_json(commit)))
        return result

    def everything(self) -> tuple[dict[str, list[Commit]], dict[tuple[str, str], Document]]:
        """Commits (ascending) and documents as they are stored."""
        commits = {
            catalog: [commit for _, commit in sorted(written.items())]
            for catalog, written in self._commits.items()
        }
        return commits, dict(self._documents)


def changes_json(commit: Commit) -> bytes:
    changes: list[Any] = [
        [str(c.key), c.action, c.create_revision, c.patch, [] if absent(c.value) else [c.value]]
        for c in commit.changes
    ]
    return msgspec.json.encode(changes)


def absent(value: object) -> bool:
    """Whether ``value`` is the mark for "nothing there" rather than JSON."""
    return not (value is None or isinstance(value, dict | list | str | int | float))

"""Meters: HTTP, the commit loop, the cache, the feed, compaction and the store report to them.

A metrics system overrides ``Meters``; by itself it listens to nothing. A call must be cheap, and
must neither wait nor raise: it is made in the middle of a write. Levels, such as the length of the
queue, are asked for instead: ``Readings``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from gateway.decide.request import Applied, Outcome, Refused, Unknown
from gateway.errors import UnknownOutcome, code_of
from gateway.memory import MemoryReadings

RoundOutcome = Literal["finished", "failed"]
RelayOutcome = Literal["delivered", "failed"]


@dataclass(slots=True)
class RoundTimes:
    """When a round came to its steps, in monotonic seconds; 0.0: it didn't come to that.

    ``taken`` from the queue, ``decided``, heads ``moved``.
    """

    taken: float
    decided: float = 0.0
    moved: float = 0.0


class WriteEnded(msgspec.Struct, frozen=True):
    """One request of the commit loop has its outcome.

    ``outcome`` is ``applied``, ``replayed``, ``unchanged``, ``dry_run``, or the code of the
    problem. ``queued`` is when it joined the queue, ``taken`` when the first round took it, None
    where none did; ``times`` are those of the last round that had it.
    """

    outcome: str
    attempts: int
    queued: float
    taken: float | None
    times: RoundTimes | None


class Meters:
    """What happens, told as it happens; nobody listens yet.

    Called by many threads. Times are in seconds.
    """

    def request_ended(
        self, route: str, method: str, status: int, seconds: float, problem: str | None
    ) -> None:
        """``problem`` is the code of the problem that was answered, if one was."""

    def store_called(self, operation: str, seconds: float) -> None: ...

    def store_unreachable(self, operation: str) -> None: ...

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None: ...

    def heads_moved(self, batches: Collection[int], seconds: float) -> None:
        """A round has moved as many heads as there are ``batches``, each by so many commits.

        ``seconds`` since the round took them from the queue.
        """

    def races_lost(self, heads: int) -> None:
        """So many heads of a round were moved by somebody else meanwhile."""

    def written_out(self, moves: Sequence[float]) -> None:
        """So many moves of heads are written out, each so many seconds after it was made."""

    def delivered(self, seconds: float) -> None:
        """A watcher took commits, the oldest of which was made ``seconds`` ago."""

    def compaction_round(self, outcome: RoundOutcome) -> None:
        """This process has gone over all catalogs, or was kept from it by an error."""

    def compaction_failed(self) -> None:
        """One catalog could not be compacted."""

    def commits_swept(self, commits: int) -> None:
        """So many commits were changed or deleted by compaction."""

    def relayed(self, outcome: RelayOutcome, count: int) -> None:
        """So many events were delivered to a subscription; or a delivery has failed."""

    def base_refused(self) -> None:
        """A state wasn't the one that a change was made from: see ``gateway.state.replay``."""

    def head_went_back(self) -> None:
        """A head isn't one that can follow what this process knew of it."""


NO_METERS: Final = Meters()


@dataclass(frozen=True, slots=True)
class CacheReadings:
    """``hits`` and ``misses`` count the documents looked for since the process began."""

    bytes: int
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class FeedReadings:
    """``lag_commits``: how far the watcher that is furthest behind is from its catalog's head."""

    watchers: int
    lag_commits: int


@dataclass(frozen=True, slots=True)
class RelayReadings:
    """``subscriptions`` that this process works for, those of them that are ``failing``, and how
    many commits the furthest one is behind."""

    subscriptions: int = 0
    failing: int = 0
    lag_commits: int = 0


@dataclass(frozen=True, slots=True)
class Readings:
    """How things stand in this process."""

    queue_requests: int
    queue_bytes: int
    cache: CacheReadings
    feed: FeedReadings
    memory: MemoryReadings
    relay: RelayReadings = RelayReadings()


def outcome_code(outcome: Outcome, *, dry_run: bool) -> str:
    """The text of an outcome in ``WriteEnded.outcome``."""
    if isinstance(outcome, Applied):
        return "replayed" if outcome.replayed else "applied"
    if isinstance(outcome, Refused):
        return code_of(outcome.error)
    if isinstance(outcome, Unknown):
        return UnknownOutcome.code
    return "dry_run" if dry_run else "unchanged"

"""Meters: HTTP, the commit loop, the cache, the feed, compaction and the store report to them.

A metrics system overrides ``Meters``; the base class ignores everything. A call must be cheap, and
must neither wait nor raise, because it is made in the middle of a write. Levels, such as the length
of the queue, are read instead: ``Readings``.
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
    """When a round reached its steps, in monotonic seconds; 0.0: it didn't.

    ``taken``: the batches were taken from the queue; ``decided``; ``moved``: the heads were moved.
    """

    taken: float
    decided: float = 0.0
    moved: float = 0.0


class WriteEnded(msgspec.Struct, frozen=True):
    """One request of the commit loop has its outcome.

    ``outcome`` is ``applied``, ``replayed``, ``unchanged``, ``dry_run``, or the code of the
    problem. ``queued`` is when it joined the queue, ``taken`` when the first round took it (None:
    none did); ``times`` are those of the last round that had it.
    """

    outcome: str
    attempts: int
    queued: float
    taken: float | None
    times: RoundTimes | None


class Meters:
    """Gets reports of what happens, and ignores them; see the module.

    Many threads call it. Times are in seconds.
    """

    def request_ended(
        self, route: str, method: str, status: int, seconds: float, problem: str | None
    ) -> None:
        """A request has ended. ``problem`` is the code of the problem that was answered, if any."""

    def store_called(self, operation: str, seconds: float) -> None: ...

    def store_unreachable(self, operation: str) -> None: ...

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None: ...

    def heads_moved(self, batches: Collection[int], seconds: float) -> None:
        """A round has moved heads; ``batches`` has the number of commits for each of them.

        ``seconds``: since the round took the batches from the queue.
        """

    def races_lost(self, heads: int) -> None:
        """Somebody else has moved this number of a round's heads meanwhile."""

    def written_out(self, moves: Sequence[float]) -> None:
        """Moves of heads are written out; ``moves`` has, for each, the seconds since it was
        made."""

    def delivered(self, seconds: float) -> None:
        """A watcher took commits, the oldest of which was made ``seconds`` ago."""

    def compaction_round(self, outcome: RoundOutcome) -> None:
        """This process has gone over all catalogs, or an error has prevented that."""

    def compaction_failed(self) -> None:
        """One catalog could not be compacted."""

    def commits_swept(self, commits: int) -> None:
        """Compaction has changed or deleted this number of commits."""

    def relayed(self, outcome: RelayOutcome, count: int) -> None:
        """``count`` events were delivered to a subscription; or a delivery has failed."""

    def base_refused(self) -> None:
        """A change was refused because it was made from another state: see
        ``gateway.state.replay``."""

    def head_went_back(self) -> None:
        """A head has gone back: it can't come after the one that this process has seen."""


NO_METERS: Final = Meters()


@dataclass(frozen=True, slots=True)
class CacheReadings:
    """The cache's size; ``hits`` and ``misses`` count the documents looked up since the process
    began."""

    bytes: int
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class FeedReadings:
    """The watchers; ``lag_commits``: how many commits the slowest one is behind its catalog's
    head."""

    watchers: int
    lag_commits: int


@dataclass(frozen=True, slots=True)
class RelayReadings:
    """The number of ``subscriptions`` that this process delivers for, of those that are
    ``failing``, and how many commits the slowest one is behind. ``waiting``: how many have no
    worker, and find no room in this one."""

    subscriptions: int = 0
    waiting: int = 0
    failing: int = 0
    lag_commits: int = 0


@dataclass(frozen=True, slots=True)
class Readings:
    """The levels of this process."""

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

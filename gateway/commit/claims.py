"""The line in which workers of several machines wait for a catalog's head.

A worker that has lost two races in a row for a head claims its next move, and decides on the head
that it reads then: one update and one read for all such catalogs of a round. While a claim is the
first in line, the moves of other workers are lost. So the first in line wins its race, however far
from the database it is. Its move removes the claim. A worker stops claiming a catalog if nobody
else has moved it since its own last move.

A worked example. Worker near moves the head every 2 ms; worker far needs 40 ms to the database and
back. Far decides on revision 7, and its move arrives when the head is at 27: lost. It decides on
47, and its move arrives at 67: lost. Its claim arrives at 87. Near loses its next two moves, gets
in line behind far, and reads the head every few milliseconds. Far reads the head, still at 87,
decides, and its move wins. Then near goes on.

Claims are hints. A worker that has waited for the first claim as long as that claim asks for moves
past it. So a worker that died delays the others only once. The conditional update decides in any
case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.limits import ServiceLimits
from gateway.model import Claim, Head
from gateway.runtime import Runtime
from gateway.store.contract import Store, StoreUnreachable

# How long a claim asks others to wait: the time of this many calls of the database, which is enough
# to read the head, decide and move it; within bounds.
_HOLD_CALLS: Final = 6
_HOLD_MS: Final = (50, 1_000)
_HOLD_FIRST_MS: Final = 250
# All earlier claims together delay a worker by no more than this, and this share of a request's
# time.
_WAIT_LONGEST_S: Final = 1.0
_WAIT_SHARE: Final = 0.25
# How often a waiting worker reads the head during the time of the first claim, and the bounds of
# the pause between two reads.
_READS: Final = 10
_READ_S: Final = (0.002, 0.02)
_CATALOGS_MAX: Final = 10_000
# Lost races in a row before a worker claims: a claim is one more call, and most are lost only once.
_RACES: Final = 2
_UNKNOWN: Final = -1


@dataclass(slots=True)
class _Wait:
    """A wait in line: ``since`` when, and ``first_since`` when for the claim of ``first``. The next
    move may pass the claims of ``passed``."""

    since: float
    first: str
    first_since: float
    passed: tuple[str, ...] = ()


class ClaimKeeper:
    """This worker's claims. For each catalog, only one thread at a time calls this."""

    def __init__(self, store: Store, runtime: Runtime, limits: ServiceLimits) -> None:
        self._store = store
        self._runtime = runtime
        self._by = runtime.new_id()
        self._hold_ms = _HOLD_FIRST_MS
        self._wait_longest_s = min(_WAIT_LONGEST_S, _WAIT_SHARE * limits.deadline_ms / 1_000)
        # The catalogs that others write, too, each with the revision to which this worker moved it
        # last: their next moves are to be claimed. For others, only ``note_lost`` is called.
        self.shared: dict[str, int] = {}
        self._held: set[str] = set()
        self.given_up: set[str] = set()  # claims that ``leave`` is to remove from the heads
        self._waits: dict[str, _Wait] = {}

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads with their tails, read after claiming their next moves. Raises
        StoreUnreachable."""
        unclaimed = [catalog for catalog in catalogs if catalog not in self._held]
        if unclaimed:
            with suppress(StoreUnreachable):  # then it moves without a claim
                self._claim(unclaimed)
        return self._store.tails(catalogs)

    def _claim(self, catalogs: Collection[str]) -> None:
        self.given_up.difference_update(catalogs)
        began = self._runtime.monotonic()
        self._store.claim(catalogs, Claim(self._by, self._hold_ms))
        took_ms = int(1_000 * (self._runtime.monotonic() - began))
        self._hold_ms = min(max(_HOLD_CALLS * took_ms, _HOLD_MS[0]), _HOLD_MS[1])
        self._held.update(catalogs)

    def pause_s(self, catalog: str, line: Sequence[Claim]) -> float:
        """How long to wait before the next read of the head; 0.0: no claim is to be waited for."""
        names = [claim.by for claim in line]
        if self._by not in names:
            self._held.discard(catalog)  # a worker that passed the claim removed it
        before = names[: names.index(self._by)] if self._by in names else names
        if not before:
            self._waits.pop(catalog, None)
            return 0.0
        now = self._runtime.monotonic()
        wait = self._waits.setdefault(catalog, _Wait(now, before[0], now))
        if wait.first != before[0]:
            wait.first, wait.first_since, wait.passed = before[0], now, ()
        hold_s = min(line[0].hold_ms / 1_000, self._wait_longest_s)
        if now - wait.since >= self._wait_longest_s:
            wait.passed = tuple(before)
        elif now - wait.first_since >= hold_s:
            wait.passed = (before[0],)
        else:
            return min(max(hold_s / _READS, _READ_S[0]), _READ_S[1])
        return 0.0

    def passed(self, catalog: str) -> tuple[str, ...]:
        """The workers whose claims the next move of the catalog may pass."""
        wait = self._waits.get(catalog)
        return (self._by,) if wait is None else (self._by, *wait.passed)

    def note_won(self, catalog: str, base: int, reached: int) -> None:
        """Note that this worker has moved the head from ``base`` to ``reached``, which removed its
        claim."""
        self._held.discard(catalog)
        self._waits.pop(catalog, None)
        if self.shared.get(catalog, base) == base:
            self.shared.pop(catalog, None)  # nobody else has moved it since
        else:
            self.shared[catalog] = reached

    def note_lost(self, catalog: str, races: int) -> None:
        """Note that another worker was first, or seemed to be, in this number of ``races`` in a
        row."""
        if races < _RACES and catalog not in self.shared:
            return
        if len(self.shared) >= _CATALOGS_MAX:
            for known in (self.shared, self._held, self.given_up, self._waits):
                known.clear()
        self.shared[catalog] = _UNKNOWN

    def give_up(self, catalog: str) -> None:
        """Leave the line at the next ``leave``, because this worker has nothing left to commit."""
        self._waits.pop(catalog, None)
        if catalog in self._held:
            self._held.discard(catalog)
            self.given_up.add(catalog)

    def leave(self) -> None:
        """Leave the lines of all catalogs that were given up."""
        left, self.given_up = self.given_up, set()
        if not left:  # another leader did it
            return
        with suppress(StoreUnreachable):  # then others pass the claims when their time is over
            self._store.drop_claims(left, self._by)

"""The line of the workers that write one catalog and can't see each other.

A worker that has lost two races in a row for a head claims the next move of it, and decides on the
head that it reads then: one update for all the catalogs of a round, one look. While somebody's
claim comes first, the moves of others are lost; so the first in line wins its race, however far
from the database it is. Its move takes the claim away. A worker that finds its catalog unmoved by
others claims nothing any more.

A worked example. Worker near moves the head every 2 ms; far needs 40 ms to the database and back.
Far decides on revision 7, and its move arrives when the head is at 27: lost. It decides on 47, and
arrives at 67: lost. Its claim arrives at 87. Near's next move is lost, and the one after it; then
near stands behind far, and looks at the head every few milliseconds. Far reads the head, still at
87; its move arrives, still on 87, and wins; near goes on.

Claims are hints. Whoever has waited for the first in line for as long as that claim asks moves past
it: a worker that died delays the others once. The conditional write decides in any case.
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

# A claim holds for as long as it takes to look, decide and move, some calls of the database each.
_HOLD_CALLS: Final = 6
_HOLD_MS: Final = (50, 1_000)
_HOLD_FIRST_MS: Final = 250
# All claims before a worker's delay it by no more than this, and this share of a request's time.
_WAIT_LONGEST_S: Final = 1.0
_WAIT_SHARE: Final = 0.25
# The head is looked at so many times while a claim holds, in bounds.
_LOOKS: Final = 10
_LOOK_S: Final = (0.002, 0.02)
_CATALOGS_MAX: Final = 10_000
# A claim is one more call of the database, and most races are lost but once.
_RACES: Final = 2
_UNKNOWN: Final = -1


@dataclass(slots=True)
class _Wait:
    """Since when this worker waits, and since when for the one who is first now."""

    since: float
    first: str
    first_since: float
    past: tuple[str, ...] = ()


class ClaimKeeper:
    """This worker's places in line. Each catalog is asked about by one thread at a time."""

    def __init__(self, store: Store, runtime: Runtime, limits: ServiceLimits) -> None:
        self._store = store
        self._runtime = runtime
        self._by = runtime.new_id()
        self._hold_ms = _HOLD_FIRST_MS
        self._wait_longest_s = min(_WAIT_LONGEST_S, _WAIT_SHARE * limits.deadline_ms / 1_000)
        # The catalogs that others write, too, with the revision that this worker moved them to:
        # their next moves are to be claimed. Nothing here is called for any other catalog.
        self.shared: dict[str, int] = {}
        self._held: set[str] = set()
        self.given_up: set[str] = set()  # of which others need not know yet: see ``leave``
        self._waits: dict[str, _Wait] = {}

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        """The heads with their tails, read once their next moves are claimed. Raises
        StoreUnreachable."""
        unclaimed = [catalog for catalog in catalogs if catalog not in self._held]
        if unclaimed:
            with suppress(StoreUnreachable):  # whoever can't claim moves without
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
        """How long to wait before the next look at the head; 0.0: nobody is to be waited for."""
        names = [claim.by for claim in line]
        if self._by not in names:
            self._held.discard(catalog)  # another worker has passed it
        before = names[: names.index(self._by)] if self._by in names else names
        if not before:
            self._waits.pop(catalog, None)
            return 0.0
        now = self._runtime.monotonic()
        wait = self._waits.setdefault(catalog, _Wait(now, before[0], now))
        if wait.first != before[0]:
            wait.first, wait.first_since, wait.past = before[0], now, ()
        hold_s = min(line[0].hold_ms / 1_000, self._wait_longest_s)
        if now - wait.since >= self._wait_longest_s:
            wait.past = tuple(before)
        elif now - wait.first_since >= hold_s:
            wait.past = (before[0],)
        else:
            return min(max(hold_s / _LOOKS, _LOOK_S[0]), _LOOK_S[1])
        return 0.0

    def past(self, catalog: str) -> tuple[str, ...]:
        """The workers whose claims the next move of the catalog may pass."""
        wait = self._waits.get(catalog)
        return (self._by,) if wait is None else (self._by, *wait.past)

    def won(self, catalog: str, base: int, reached: int) -> None:
        """This worker has moved the head from ``base``, and its claim is gone with that."""
        self._held.discard(catalog)
        self._waits.pop(catalog, None)
        if self.shared.get(catalog, base) == base:
            self.shared.pop(catalog, None)  # nobody else has moved it since
        else:
            self.shared[catalog] = reached

    def lost(self, catalog: str, races: int) -> None:
        """Another worker was first, or seemed to be, in so many ``races`` in a row."""
        if races < _RACES and catalog not in self.shared:
            return
        if len(self.shared) >= _CATALOGS_MAX:
            for known in (self.shared, self._held, self.given_up, self._waits):
                known.clear()
        self.shared[catalog] = _UNKNOWN

    def give_up(self, catalog: str) -> None:
        """There is nothing left to move the head by: this worker leaves the line with the next
        ``leave``."""
        self._waits.pop(catalog, None)
        if catalog in self._held:
            self._held.discard(catalog)
            self.given_up.add(catalog)

    def leave(self) -> None:
        """Leave the lines of all catalogs that were given up."""
        left, self.given_up = self.given_up, set()
        if not left:  # another leader did
            return
        with suppress(StoreUnreachable):  # then the claims are passed when their time is over
            self._store.drop_claims(left, self._by)

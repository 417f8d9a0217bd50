"""The queue of writes: one lane per catalog, and at most one batch of each lane under way.

A leader takes every lane that is ready (group commit by combining: no timer, no delay when idle).
Requests that arrive while their catalog's batch is under way form its next batch.

Workers that write one catalog make room for each other, to save lost races. Nothing relies on it:
the conditional write decides in any case. Workers of one machine take turns, for they can tell each
other cheaply who is writing (``Turns``); a worker that waits too long goes ahead without one. What
comes to a worker that waits is handed over, as a rule (``gateway.commit.handover``).
Workers of different machines stand in line at the head itself (``gateway.commit.claims``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.commit.pending import Pending, still_in_time
from gateway.errors import QueueFull
from gateway.limits import ServiceLimits
from gateway.runtime import Event, Runtime

# A turn is a worker's right to write a catalog. The queue looks again for another's turn when it
# has probably ended, and then often. After its own turn it yields, longer after a long one.
_TURN_FIRST_LOOK = 0.6
_TURN_NEXT_LOOK = 0.15
_TURN_LOOK_S = 0.0006
_TURN_LOOK_LONGEST_S = 0.01
_TURN_YIELD = 0.3
_TURN_YIELD_S = 0.0015
_TURN_YIELD_LONGEST_S = 0.02
_TURN_MEMORY = 0.8
# After its patience a lane goes ahead without a turn. Patience is several times the recent waits,
# for a batch of large documents takes long on a busy machine, and going ahead early costs both
# workers their work. Each loss doubles it. Until the catalog's turn has been free once more, nobody
# waits for it: a worker that is stopped during its turn delays the others only once.
_TURN_PATIENCE = 4
_TURN_PATIENCE_SHORTEST_S = 0.3
_TURN_PATIENCE_LONGEST_S = 2.0
_HINTS_MAX = 10_000
# Decisions are quick: a batch that has been at it for longer is waiting for the database.
_DECIDED_WITHIN_S = 1.0
# For how long after another worker was seen on a catalog it is taken to be still there.
_CONTENDED_S = 0.5


class Turns(Protocol):
    """A catalog's turn goes round the workers that see each other. No method waits."""

    def take(self, catalog: str) -> bool:
        """Whether it is this worker's turn now; where it isn't, it is remembered as waiting."""

    def give_up(self, catalog: str) -> None:
        """No longer wait for the turn."""

    def end(self, catalog: str) -> bool:
        """End a turn that was taken; whether another worker is waiting for it."""


@dataclass(slots=True)
class _Lane:
    waiting: deque[Pending] = field(default_factory=deque)
    busy: bool = False
    has_turn: bool = False
    turn_began: float = 0.0
    waits_since: float | None = None  # when it began to wait for another worker's turn to end
    not_before: float = 0.0
    unreachable: bool = False  # its last batch came back because the database was out of reach


class Queue:
    """Thread-safe; no method but ``take`` waits."""

    def __init__(
        self,
        runtime: Runtime,
        limits: ServiceLimits,
        turns: Turns | None = None,
        may_move: Callable[[str, bool], bool] = lambda *_: True,
        behind: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``may_move`` tells of a catalog, and of whether its next batch is large, whether its head
        may move on; ``look_again`` is called when one may that it refused.

        ``behind`` is told of each catalog whose turn is another worker's.
        """
        self._runtime = runtime
        self._may_move = may_move
        self._behind = behind
        self._turns = turns
        self._turns_lost: set[str] = set()  # catalogs whose turns aren't waited for
        self._turn_wait_s = 0.0  # a moving average over recent waits
        self._limits = limits
        self._lock = runtime.lock()
        self._lanes: dict[str, _Lane] = {}
        self._idle: list[Event] = []
        self._requests = 0
        self._bytes = 0
        self._contended_until: dict[str, float] = {}

    def put(self, pending: Pending) -> None:
        """Add a request to its lane. Raises QueueFull; then nothing was tried."""
        with self._lock:
            if self._requests >= self._limits.queue_requests_max:
                raise QueueFull(f"{self._requests} writes are waiting, no more are taken in")
            if not self._has_room(pending.request.size_bytes, 1):
                raise QueueFull(f"{self._bytes} bytes of writes are waiting, no more are taken in")
            self._add(pending)

    def put_first_of(self, pendings: Sequence[Pending], now: float) -> int:
        """Add as many of them, from the first one on, as there is room for; returns how many.

        Their caller waits for room. Such requests fill only half of the queue; the rest is for
        requests that a full queue refuses. ``now``: their time in the queue begins.
        """
        with self._lock:
            for count, pending in enumerate(pendings):
                if not self._has_room(pending.request.size_bytes, 2):
                    return count
                pending.waited_s = now - pending.queued
                self._add(pending)
        return len(pendings)

    def _has_room(self, size_bytes: int, share: int) -> bool:
        if self._requests * share >= self._limits.queue_requests_max:
            return False
        fits = (self._bytes + size_bytes) * share <= self._limits.queue_bytes_max
        return fits or not self._requests

    def _add(self, pending: Pending) -> None:
        self._requests += 1
        self._bytes += pending.request.size_bytes
        lane = self._lanes.setdefault(pending.request.catalog, _Lane())
        lane.waiting.append(pending)
        if not lane.busy and len(lane.waiting) == 1:
            # A lane that already has waiting requests has a leader that will look at it.
            self._wake_one()

    def leave(self, pending: Pending) -> bool:
        """Take a request out, unless something was sent for it; returns whether it is out.

        A batch goes on without a request that left. While a batch is being decided, its requests
        stay for the first second: decisions are quick, and a departure discards that of the batch.
        """
        with self._lock:
            lane = self._lanes.get(pending.request.catalog)
            if lane is None or pending not in lane.waiting:
                begun, now = pending.deciding, self._runtime.monotonic()
                if pending.held or pending.outcome is not None:
                    return False
                if begun is not None and now - begun < _DECIDED_WITHIN_S:
                    return False
                pending.gone = True
                # A round that has not begun to decide is waiting for the database.
                pending.unreachable = pending.unreachable or begun is None
                return True
            lane.waiting.remove(pending)
            pending.gone = True
            pending.unreachable = pending.unreachable or lane.unreachable
            if not lane.waiting:
                lane.waits_since = None
                if self._turns is not None:
                    self._turns.give_up(pending.request.catalog)
            self._drop_if_empty(pending.request.catalog, lane)
            return True

    def hold(self, batches: Mapping[str, Sequence[Pending]]) -> set[str]:
        """Hold the batches that no request has left; returns their catalogs.

        A held request can't leave until this try ends.
        """
        with self._lock:
            whole = {
                catalog
                for catalog, batch in batches.items()
                if not any(pending.gone for pending in batch)
            }
            for catalog in whole:
                for pending in batches[catalog]:
                    pending.held = True
        return whole

    def departed(self, *pendings: Pending) -> None:
        """Free the room of requests that have their answers."""
        with self._lock:
            self._requests -= len(pendings)
            self._bytes -= sum(pending.request.size_bytes for pending in pendings)

    def take(self) -> dict[str, list[Pending]]:
        """The next batch of every lane that is ready, by catalog; waits until there is one.

        These lanes are busy until ``end_batch``.
        """
        mine = self._runtime.event()
        while True:
            with self._lock:
                batches, wait_s = self._collect()
                if batches:
                    if wait_s is not None:
                        self._wake_one()  # another leader watches the lanes that pause
                    return batches
                mine.clear()
                self._idle.append(mine)
            mine.wait(wait_s)
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)

    def end_batch(
        self,
        catalog: str,
        left: Sequence[Pending] = (),
        *,
        pause_s: float = 0.0,
        lost: bool = False,
    ) -> None:
        """End a batch: the requests ``left`` go to the front of the lane for another try.

        A request past its deadline is answered instead, for its caller has left it to the batch
        and doesn't look at the lane again.

        The catalog's next batch starts after ``pause_s`` seconds. ``lost``: the race for the head
        was, to another worker.
        """
        with self._lock:
            now = self._runtime.monotonic()
            if lost:
                self._met(catalog, now)
            lane = self._lanes[catalog]
            lane.busy = False
            lane.unreachable = any(pending.unreachable for pending in left)
            lane.waiting.extendleft(reversed(still_in_time(left, now)))
            if lane.has_turn:
                lane.has_turn = False
                if self._turns is not None and self._turns.end(catalog):
                    self._met(catalog, now)
                    yield_s = max(_TURN_YIELD_S, _TURN_YIELD * (now - lane.turn_began))
                    pause_s = max(pause_s, min(yield_s, _TURN_YIELD_LONGEST_S))
            lane.not_before = now + pause_s if pause_s else 0.0
            if lane.waiting:
                self._wake_one()
            self._drop_if_empty(catalog, lane)

    def load(self) -> tuple[int, int]:
        """The number of writes that wait or are under way, and their bytes."""
        return self._requests, self._bytes

    def look_again(self, catalog: str) -> None:
        """The catalog's head may move on."""
        with self._lock:
            lane = self._lanes.get(catalog)
            if lane is not None and lane.waiting:
                self._wake_one()

    def is_contended(self, catalog: str) -> bool:
        """Whether another process has written the catalog lately."""
        with self._lock:
            return self._contended_until.get(catalog, 0.0) > self._runtime.monotonic()

    def _met(self, catalog: str, now: float) -> None:
        """Another worker was seen to write the catalog, or to wait for its turn to."""
        if len(self._contended_until) >= _HINTS_MAX:
            self._contended_until.clear()
        self._contended_until[catalog] = now + _CONTENDED_S

    def _collect(self) -> tuple[dict[str, list[Pending]], float | None]:
        now = self._runtime.monotonic()
        batches: dict[str, list[Pending]] = {}
        wait_s: float | None = None
        for catalog, lane in list(self._lanes.items()):
            if lane.busy:
                continue
            if not lane.waiting:
                self._drop_if_empty(catalog, lane)
            elif not self._may_move(catalog, self._is_large(catalog, lane, now)):
                continue
            elif lane.not_before > now or not self._takes_turn(catalog, lane, now):
                pause_s = lane.not_before - now
                wait_s = pause_s if wait_s is None else min(wait_s, pause_s)
            else:
                lane.busy = True
                batches[catalog] = self._batch(lane)
        return batches, wait_s

    def _is_large(self, catalog: str, lane: _Lane, now: float) -> bool:
        """Whether the next batch is half full already, and no other worker's would be carried
        along beside the ones before it."""
        half = self._limits.batch_requests_max // 2
        return len(lane.waiting) >= half and self._contended_until.get(catalog, 0.0) <= now

    def _takes_turn(self, catalog: str, lane: _Lane, now: float) -> bool:
        """Whether the lane's batch may start; if not, ``not_before`` says when to look again."""
        if self._turns is None or self._turns.take(catalog):
            self._turns_lost.discard(catalog)
            if lane.waits_since is not None:
                self._met(catalog, now)
                waited_s = min(now - lane.waits_since, _TURN_PATIENCE_LONGEST_S)
                self._turn_wait_s += (1 - _TURN_MEMORY) * (waited_s - self._turn_wait_s)
            lane.has_turn = True
            lane.turn_began = now
            lane.waits_since = None
            return True
        if catalog in self._turns_lost:
            self._turns.give_up(catalog)
            return True
        if lane.waits_since is None:
            lane.waits_since = now
            lane.not_before = now + self._look_s(_TURN_FIRST_LOOK)
            self._behind(catalog)
            return False
        patience_s = self._patience_s()
        if now - lane.waits_since < patience_s:
            lane.not_before = now + self._look_s(_TURN_NEXT_LOOK)
            return False
        lane.waits_since = None
        self._turns.give_up(catalog)
        if len(self._turns_lost) >= _HINTS_MAX:
            self._turns_lost.clear()
        self._turns_lost.add(catalog)
        self._turn_wait_s = 2 * patience_s / _TURN_PATIENCE
        return True

    def _patience_s(self) -> float:
        patience_s = _TURN_PATIENCE * self._turn_wait_s
        return min(max(patience_s, _TURN_PATIENCE_SHORTEST_S), _TURN_PATIENCE_LONGEST_S)

    def _look_s(self, share: float) -> float:
        """Seconds until the next look; bounded, for a suspended worker counts its sleep as wait."""
        return min(max(_TURN_LOOK_S, share * self._turn_wait_s), _TURN_LOOK_LONGEST_S)

    def _batch(self, lane: _Lane) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while lane.waiting and len(batch) < self._limits.batch_requests_max:
            size += lane.waiting[0].request.size_bytes
            if batch and size > self._limits.batch_bytes_max:
                break
            batch.append(lane.waiting.popleft())
        return batch

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().set()

    def _drop_if_empty(self, catalog: str, lane: _Lane) -> None:
        if not lane.busy and not lane.waiting and lane.not_before <= self._runtime.monotonic():
            del self._lanes[catalog]

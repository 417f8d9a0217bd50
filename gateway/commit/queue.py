"""The queue of writes: one lane per catalog, and at most one batch of each lane under way.

A leader takes the lanes that are ready (group commit by combining: no timer, no delay when idle),
as many as one call of the store can handle. Requests that arrive while their catalog's batch is
under way form its next batch.

Suspects (``gateway.state.sharing``) and lanes whose move is in doubt are taken one by one, by
separate leaders. So however long the store takes for them, the leaders of other lanes are free.

Workers that write one catalog coordinate, to avoid lost races. Nothing relies on this: the
conditional update decides in any case. Workers of one machine take turns, because they can cheaply
tell each other who is writing (``Turns``); a worker that waits too long goes ahead without its
turn. Most requests that come to a worker that waits are handed over (``gateway.commit.handover``).
Workers of different machines wait in line at the head itself (``gateway.commit.claims``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Final, Protocol, TypeVar

from gateway.cpu import CpuAccount
from gateway.decide.request import Outcome, Refused, Request, Unknown, is_for_now
from gateway.errors import DeadlineExceeded, HeldBack, MemoryFull, QueueFull, StoreUnavailable
from gateway.limits import MIB, ServiceLimits
from gateway.meters import RoundTimes, WriteEnded, outcome_code
from gateway.runtime import Event, Runtime
from gateway.state.sharing import Suspects

# A lane that waits for another worker's turn to end checks it when it has probably ended, and then
# often; the shares are of the average wait. After its own turn, it yields: longer after a long one.
_TURN_FIRST_CHECK = 0.6
_TURN_NEXT_CHECK = 0.15
_TURN_CHECK_S = 0.0006
_TURN_CHECK_LONGEST_S = 0.01
_TURN_YIELD = 0.3
_TURN_YIELD_S = 0.0015
_TURN_YIELD_LONGEST_S = 0.02
_TURN_MEMORY = 0.8
# After its patience, a lane goes ahead without a turn. Patience is several times the recent waits,
# because a batch of large documents takes long on a busy machine, and going ahead early costs both
# workers their work. Each wait in vain doubles it. After that, the catalog's turn isn't waited for
# until it has been free once. So a worker that is stopped during its turn delays the others only
# once.
_TURN_PATIENCE = 4
_TURN_PATIENCE_SHORTEST_S = 0.3
_TURN_PATIENCE_LONGEST_S = 2.0


class Turns(Protocol):
    """The turns of workers that see each other, for each catalog. No method waits."""

    def take(self, catalog: str) -> bool:
        """Whether it is this worker's turn now; if not, the worker counts as waiting."""

    def give_up(self, catalog: str) -> None:
        """No longer wait for the turn."""

    def end(self, catalog: str) -> bool:
        """End a turn that was taken; return whether another worker is waiting for it."""


def _yield_s(turn_s: float) -> float:
    """The pause after a turn of ``turn_s``, for another worker that waits for its own."""
    return min(max(_TURN_YIELD_S, _TURN_YIELD * turn_s), _TURN_YIELD_LONGEST_S)


class _TurnWaits:
    """The recent waits for turns of others, by a moving average. Not thread-safe."""

    def __init__(self) -> None:
        self._average_s = 0.0

    def add(self, waited_s: float) -> None:
        """Count a wait. It is bounded, because that of a suspended worker includes its sleep."""
        waited_s = min(waited_s, _TURN_PATIENCE_LONGEST_S)
        self._average_s += (1 - _TURN_MEMORY) * (waited_s - self._average_s)

    def add_loss(self) -> None:
        """Count a wait of ``patience_s`` that was in vain."""
        self._average_s = 2 * self.patience_s / _TURN_PATIENCE

    @property
    def patience_s(self) -> float:
        """How long a lane waits for its turn."""
        patience_s = _TURN_PATIENCE * self._average_s
        return min(max(patience_s, _TURN_PATIENCE_SHORTEST_S), _TURN_PATIENCE_LONGEST_S)

    @property
    def first_check_s(self) -> float:
        """The time until a lane first checks whether another worker's turn has ended."""
        return self._check_s(_TURN_FIRST_CHECK)

    @property
    def next_check_s(self) -> float:
        return self._check_s(_TURN_NEXT_CHECK)

    def _check_s(self, share: float) -> float:
        return min(max(_TURN_CHECK_S, share * self._average_s), _TURN_CHECK_LONGEST_S)


# The most catalogs, requests and bytes of requests that a leader takes together. A call of the
# store has to end within seconds even over a slow line, and no request is answered before all are
# decided.
_CATALOGS_MAX: Final = 256
_REQUESTS_MAX: Final = 1_024
_BYTES_MAX: Final = 4 * MIB
# How often a lane whose head may not move yet is checked, even without ``recheck``: whether its
# next batch is large changes with time, too.
_CHECK_ANYWAY_S: Final = 0.5

# The most catalogs in each set of hints.
_HINTS_MAX = 10_000
# How long after a request's deadline its batch may continue before its outcome is "unknown".
_GRACE_AFTER_DEADLINE_S: Final = 15.0
_CHECK_AGAIN_S: Final = 0.5
# Decisions are quick: a batch that takes longer than this is waiting for the database.
_DECIDED_WITHIN_S = 1.0
# How long a catalog counts as contended after another worker was seen to write it.
_CONTENDED_S = 0.5


class Stage(Enum):
    """Where a request is between the queue and its answer."""

    WAITING = "waiting"  # in its lane
    TAKEN = "taken"  # by a round, which waits for the database
    DECIDING = "deciding"
    HELD = "held"  # its commit is being sent: it can't leave any more
    ANSWERED = "answered"
    LEFT = "left"  # its commit must not be sent

    __hash__ = object.__hash__  # Enum's is Python code, and is called eight times for a request


# docs/commit-loop.md draws them.
TRANSITIONS: Final[Mapping[Stage, Mapping[Stage, str]]] = {
    Stage.WAITING: {
        Stage.TAKEN: "a round takes its batch",
        Stage.LEFT: "its time is over",
    },
    Stage.TAKEN: {
        Stage.DECIDING: "the database can be reached",
        Stage.WAITING: "it can't be reached",
        Stage.LEFT: "its time is over, or the write before it may come again",
        Stage.ANSWERED: "the round fails, or its time is over",
    },
    Stage.DECIDING: {
        Stage.HELD: "its batch is decided, and none of it has left",
        Stage.WAITING: "its batch can't be decided, or one of it has left",
        Stage.LEFT: "its time is over, and it takes long",
        Stage.ANSWERED: "the round fails or is stuck, or its time is over",
    },
    Stage.HELD: {
        Stage.ANSWERED: "the head has moved or needn't, or the round is stuck",
        Stage.WAITING: "the race is lost, or the move is refused",
    },
    Stage.ANSWERED: {},
    Stage.LEFT: {},
}


@dataclass(slots=True, eq=False)
class Pending:
    """A request on its way through the queue. Its ``stage`` changes under the queue's lock, except
    when it is answered. ``attempts`` counts the races that it lost, ``vain_reads`` the heads that
    were read for it in vain.

    Several requests may share ``done``, which is set at the answer of each. ``after`` is the
    request before it on the same document, among those that came together. ``queued`` is when it
    arrived, and ``taken`` when a round first took it, in monotonic seconds. ``deadline`` is the
    request's, plus the time that it waited for room in the queue. ``times`` are those of its last
    round. ``account`` bounds the processor time of all its decisions together; None: no bound.
    """

    request: Request
    done: Event
    queued: float = 0.0
    waited_s: float = 0.0
    after: Pending | None = None
    taken: float | None = None
    times: RoundTimes | None = None
    attempts: int = 0
    vain_reads: int = 0
    unreachable: bool = False  # its last try failed because the database was out of reach
    stage: Stage = Stage.WAITING
    deciding: float | None = None  # when the decision of its batch began
    outcome: Outcome | None = None
    account: CpuAccount | None = None

    @property
    def deadline(self) -> float:
        return self.request.deadline + self.waited_s

    @property
    def races(self) -> int:
        """How often another worker was first, or seemed to be."""
        return self.attempts + self.vain_reads

    def enter(self, stage: Stage) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise AssertionError(f"a request that is {self.stage.value} can't be {stage.value}")
        self.stage = stage

    def answer(self, outcome: Outcome) -> None:
        """Answer the request, unless it has an answer: after an "unknown", no other may follow."""
        if self.outcome is None:
            self.outcome = outcome
            if self.stage is not Stage.LEFT:
                self.enter(Stage.ANSWERED)
            # A thread that finds the event set clears it, then checks all that it waits for.
            if not self.done.is_set():
                self.done.set()

    def ended(self) -> WriteEnded:
        """The report for the meters, once it has its answer."""
        assert self.outcome is not None
        code = outcome_code(self.outcome, dry_run=self.request.dry_run)
        return WriteEnded(code, self.attempts + 1, self.queued, self.taken, self.times)

    def hold_back(self, which: str) -> None:
        """Refuse the request, because ``which``, an earlier one, may be sent again before it."""
        detail = (
            f"{which} was refused for now, or its outcome is unknown: send these lines again, in"
            " order"
        )
        self.enter(Stage.LEFT)
        self.answer(Refused(HeldBack(detail)))

    def is_held_back(self) -> bool:
        """Whether it must not be applied, because the request before it may be sent again.

        If so, it is answered. The same then goes for the request after it.
        """
        after = self.after
        if after is None:
            return False
        if after.stage is Stage.LEFT or (after.outcome is not None and is_for_now(after.outcome)):
            self.hold_back(f"an earlier line for document {self.request.key!r}")
            return True
        if after.outcome is not None:
            self.after = None  # it was decided: free its memory
        return False


def _too_late(pending: Pending) -> Outcome:
    """The outcome of a request whose deadline passed before its commit was sent."""
    waited = "waiting for its turn" if pending.deciding is None else "waiting for the database"
    tries = f"{pending.attempts} lost races" if pending.attempts else waited
    if pending.unreachable:
        return Refused(StoreUnavailable("the database can't be reached; nothing was applied"))
    return Refused(DeadlineExceeded(f"the deadline passed after {tries}; nothing was applied"))


def still_in_time(left: Sequence[Pending], now: float) -> list[Pending]:
    """The requests to try again; those whose deadline has passed are answered."""
    left = [p for p in left if p.stage not in (Stage.LEFT, Stage.ANSWERED)]
    for pending in left:
        pending.deciding = None
        if pending.deadline <= now:
            pending.answer(_too_late(pending))
        else:
            pending.enter(Stage.WAITING)
    return [pending for pending in left if pending.stage is Stage.WAITING]


class LaneStage(Enum):
    """Where the batches of a catalog are."""

    OPEN = "open"  # the next batch gathers
    AWAITING = "awaiting"  # the lane waits for another worker's turn to end
    BUSY = "busy"  # a batch is under way
    DOUBTING = "doubting"  # its move is in doubt

    __hash__ = object.__hash__  # as in ``Stage``


# docs/commit-loop.md draws them.
LANE_TRANSITIONS: Final[Mapping[LaneStage, Mapping[LaneStage, str]]] = {
    LaneStage.OPEN: {
        LaneStage.BUSY: "a leader takes the batch",
        LaneStage.AWAITING: "it is another worker's turn",
    },
    LaneStage.AWAITING: {
        LaneStage.BUSY: "the turn comes, or takes too long",
        LaneStage.OPEN: "all requests have left",
    },
    LaneStage.BUSY: {
        LaneStage.OPEN: "the batch ends",
        LaneStage.DOUBTING: "its move gets no answer",
    },
    LaneStage.DOUBTING: {
        LaneStage.BUSY: "the move is sent again",
    },
}


@dataclass(slots=True)
class Lane:
    """The requests for one catalog that wait for their batch, and the batch that is under way.

    ``since`` is when it began to wait for another worker's turn to end or, if it is busy, when its
    own turn began; None: neither.
    """

    waiting: deque[Pending] = field(default_factory=deque)
    stage: LaneStage = LaneStage.OPEN
    since: float | None = None
    not_before: float = 0.0
    check_at: float | None = None  # when a leader checks it next; None: now, or not by time
    unreachable: bool = False  # its last batch came back because the database was out of reach
    most: int | None = None  # the most requests of its next batch, after a larger one failed
    defects: int = 0  # batches in a row that a defect has ended
    doubt: Callable[[], None] | None = None  # sends its move in doubt again

    @property
    def busy(self) -> bool:
        return self.stage is LaneStage.BUSY or self.stage is LaneStage.DOUBTING

    def enter(self, stage: LaneStage) -> None:
        if stage not in LANE_TRANSITIONS[self.stage]:
            raise AssertionError(f"a lane that is {self.stage.value} can't be {stage.value}")
        self.stage = stage


class Schedule:
    """The lanes that one kind of leaders has to check: ``now``, in order, or ``later``, by time."""

    def __init__(self, started: Callable[[], None] = lambda: None) -> None:
        """``started`` is called when it gets its first lane."""
        self.now: dict[str, None] = {}
        self.later: list[tuple[float, str]] = []  # a heap
        self.idle: list[Event] = []
        self._started: Callable[[], None] | None = started

    def add(self, catalog: str, at: float | None = None) -> None:
        if self._started is not None:
            started, self._started = self._started, None
            started()
        if at is None:
            self.now[catalog] = None
            self.wake()
        else:
            heappush(self.later, (at, catalog))
            if self.later[0] == (at, catalog):
                self.wake()

    def pop(self) -> str:
        catalog = next(iter(self.now))
        del self.now[catalog]
        return catalog

    def wake(self) -> None:
        if self.idle:
            self.idle.pop().set()


Apart = dict[str, list[Pending]] | Callable[[], None]
_Taken = TypeVar("_Taken")


class Queue:
    """The writes that wait or are under way, by catalog. Thread-safe; only ``until_answered``,
    ``take`` and ``take_apart`` wait."""

    def __init__(
        self,
        runtime: Runtime,
        limits: ServiceLimits,
        turns: Turns | None = None,
        may_move: Callable[[str, bool], bool] = lambda *_: True,
        hurry: Callable[[str], object] = lambda _: None,
        turn_missed: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``may_move`` gets a catalog, and whether its next batch is large, and returns whether its
        head may move. If not, ``hurry`` is called with the catalog, without a lock, and ``recheck``
        is to be called when it may.

        ``turn_missed`` is called with each catalog that has to wait for another worker's turn.
        """
        self._runtime = runtime
        self._may_move = may_move
        self._hurry = hurry
        self._held_up: list[str] = []  # to be hurried
        self._turn_missed = turn_missed
        self._turns = turns
        self._turns_lost: set[str] = set()  # catalogs whose turns aren't waited for
        self._turn_waits = _TurnWaits()
        self._limits = limits
        self._lock = runtime.lock()
        self._lanes: dict[str, Lane] = {}
        self.suspects = Suspects(runtime, "writing")
        self._schedule, self._apart = Schedule(), Schedule()
        self._requests = 0
        self._bytes = 0
        self._contended_until: dict[str, float] = {}

    def when_apart(self, started: Callable[[], None]) -> None:
        """Have ``started`` called once, when ``take_apart`` has its first lane."""
        self._apart = Schedule(started)

    def put(self, pending: Pending) -> None:
        """Add a request to its lane. Raises QueueFull; then nothing was tried."""
        with self._lock:
            if self._requests >= self._limits.queue_requests_max:
                raise QueueFull(f"{self._requests} writes wait, the maximum (queue_requests_max)")
            if not self._has_room(pending.request.size_bytes, 1):
                raise QueueFull(
                    f"{self._bytes} bytes of writes wait; no room for more (queue_bytes_max)"
                )
            self._add(pending)

    def put_first_of(self, pendings: Sequence[Pending], now: float) -> int:
        """Add as many of them, from the first one on, as there is room for; return their number.

        They may fill only half of the queue, because their caller can wait; a full queue refuses
        other requests. Their deadlines are put off by the time from their arrival to ``now``.
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
        lane = self._lanes.setdefault(pending.request.catalog, Lane())
        lane.waiting.append(pending)
        if not lane.busy and len(lane.waiting) == 1:
            # A lane in which others wait already will be checked.
            self._check_now(pending.request.catalog)
        elif not lane.busy and len(lane.waiting) == self._limits.batch_requests_max // 2:
            self._check_now(pending.request.catalog)  # its batch is large now: see ``_is_large``

    def until_answered(self, pending: Pending, unless: Callable[[], bool] | None = None) -> bool:
        """Wait for its answer. Return False as soon as ``unless`` is true; it is called at first,
        and whenever ``pending.done`` is set.

        Waits until the request's deadline or, if its commit was sent by then, as long as that
        takes.
        """
        while pending.outcome is None:
            if unless is not None and unless():
                return False
            if not self._is_set_by(pending, pending.deadline):
                self._take_out(pending)
        return True

    def _is_set_by(self, pending: Pending, until: float) -> bool:
        """Whether its event is set by then; several requests of one caller may share the event."""
        is_set = pending.done.wait(max(until - self._runtime.monotonic(), 0.0))
        if is_set and pending.outcome is None:
            pending.done.clear()  # another request's answer, or this one comes at this moment
        return is_set

    def _take_out(self, pending: Pending) -> None:
        """End a request whose time is over: take it out, or wait for its batch."""
        give_up = self._runtime.monotonic() + _GRACE_AFTER_DEADLINE_S
        while not self.leave(pending):
            until = self._runtime.monotonic() + _CHECK_AGAIN_S
            while pending.outcome is None and self._is_set_by(pending, until):
                pass
            if pending.outcome is not None:
                return
            if self._runtime.monotonic() > give_up:
                self.give_up(pending)
                return
        pending.answer(_too_late(pending))

    def leave(self, pending: Pending) -> bool:
        """Take a request out, unless its commit is being sent or it has ended; return whether that
        was done.

        A batch continues without it. While the batch is being decided, it stays for the first
        second: a decision is quick, and would be discarded.
        """
        with self._lock:
            if pending.stage in (Stage.HELD, Stage.ANSWERED, Stage.LEFT):
                return False
            if pending.stage is Stage.WAITING:
                self._leave_lane(pending)
            elif pending.deciding is None:
                pending.unreachable = True  # the round is waiting for the database
            elif self._runtime.monotonic() - pending.deciding < _DECIDED_WITHIN_S:
                return False
            pending.enter(Stage.LEFT)
            return True

    def _leave_lane(self, pending: Pending) -> None:
        catalog = pending.request.catalog
        lane = self._lanes[catalog]
        lane.waiting.remove(pending)
        pending.unreachable = pending.unreachable or lane.unreachable
        if not lane.waiting:
            if lane.stage is LaneStage.AWAITING:
                lane.enter(LaneStage.OPEN)
                lane.since = None
            if self._turns is not None:
                self._turns.give_up(catalog)
        self._drop_if_empty(catalog, lane)

    def give_up(self, pending: Pending) -> None:
        """Answer "unknown", because its leader is stuck or gone, and its commit may yet be made."""
        with self._lock:
            pending.answer(Unknown(pending.request.commit_id))

    def to_decide(self, batch: Sequence[Pending]) -> list[Pending]:
        """The requests of a batch to decide now: those that haven't left and aren't held back."""
        with self._lock:
            now = self._runtime.monotonic()
            left = [p for p in batch if p.stage is not Stage.LEFT and not p.is_held_back()]
            for pending in left:
                pending.enter(Stage.DECIDING)
                pending.deciding = now
        return left

    def hold(self, batches: Mapping[str, Sequence[Pending]]) -> set[str]:
        """Hold the batches that no request has left; return their catalogs.

        A held request can't leave until this attempt ends.
        """
        with self._lock:
            whole = {
                catalog
                for catalog, batch in batches.items()
                if not any(pending.stage is Stage.LEFT for pending in batch)
            }
            for catalog in whole:
                for pending in batches[catalog]:
                    if pending.stage is not Stage.ANSWERED:  # as unknown
                        pending.enter(Stage.HELD)
        return whole

    def departed(self, *pendings: Pending) -> None:
        """Free the room of requests that have their answers, or whose caller waits no more."""
        with self._lock:
            self._requests -= len(pendings)
            self._bytes -= sum(pending.request.size_bytes for pending in pendings)

    def take(self) -> dict[str, list[Pending]]:
        """Wait for batches of lanes that are ready, and return them by catalog.

        Their lanes are busy until ``end_batch``. Suspects are left to ``take_apart``.
        """
        return self._take(self._schedule, self._collect)

    def take_apart(self) -> Apart:
        """Wait for the next batch of a suspect, alone, or for a move in doubt to continue."""
        return self._take(self._apart, self._next_apart)

    def _take(self, schedule: Schedule, take: Callable[[], tuple[_Taken, float | None]]) -> _Taken:
        mine = self._runtime.event()
        while True:
            with self._lock:
                taken, wait_s = take()
                held_up, self._held_up = self._held_up, []
                if not taken:
                    mine.clear()
                    schedule.idle.append(mine)
                elif wait_s is not None or schedule.now:
                    schedule.wake()  # another leader watches the lanes that pause
            for catalog in held_up:
                with suppress(MemoryError, RuntimeError):  # no thread can begin: it waits longer
                    self._hurry(catalog)
            if taken:
                return taken
            mine.wait(wait_s)
            with self._lock:
                if mine in schedule.idle:
                    schedule.idle.remove(mine)

    def in_doubt(self, catalog: str, go_on: Callable[[], None], pause_s: float) -> None:
        """Have ``go_on`` called after ``pause_s``, because the move of the catalog's batch is in
        doubt."""
        with self._lock:
            lane = self._lanes[catalog]
            lane.enter(LaneStage.DOUBTING)
            lane.doubt = go_on
            self._check_later(catalog, self._runtime.monotonic() + pause_s)

    def end_batch(
        self,
        catalog: str,
        left: Sequence[Pending] = (),
        *,
        pause_s: float = 0.0,
        lost: bool = False,
        most: int | None = None,
        defect: bool = False,
    ) -> None:
        """End a batch: the requests ``left`` go back to the front of the lane.

        A request past its deadline is answered instead, because its caller relies on the batch and
        doesn't check the lane again.

        The catalog's next batch starts after ``pause_s`` seconds. ``lost``: another worker won the
        race for the head. ``most`` bounds the requests of the next batch; with each batch that ends
        without it, the bound doubles. ``defect``: a defect ended the batch.

        If it raises, the batch has ended, and the requests that couldn't go back are refused.
        """
        with self._lock:
            lane = self._lanes[catalog]
            lane.enter(LaneStage.OPEN)
            try:
                if lost:
                    self._note_contention(catalog, self._runtime.monotonic())
                lane.defects = lane.defects + 1 if defect else 0
                doubled = 2 * (lane.most or self._limits.batch_requests_max)
                lane.most = most or (doubled if doubled < self._limits.batch_requests_max else None)
                self._put_back(catalog, lane, left, pause_s)
            except BaseException:
                self._break_off(catalog, lane, left)
                raise

    def _put_back(self, catalog: str, lane: Lane, left: Sequence[Pending], pause_s: float) -> None:
        now = self._runtime.monotonic()
        lane.unreachable = any(pending.unreachable for pending in left)
        lane.waiting.extendleft(reversed(still_in_time(left, now)))
        began, lane.since = lane.since, None
        if began is not None and self._turns is not None and self._turns.end(catalog):
            self._note_contention(catalog, now)
            pause_s = max(pause_s, _yield_s(now - began))
        lane.not_before = now + pause_s if pause_s else 0.0
        if pause_s:
            self._check_later(catalog, lane.not_before)
        elif lane.waiting:
            self._check_now(catalog)
        self._drop_if_empty(catalog, lane)

    def _break_off(self, catalog: str, lane: Lane, left: Sequence[Pending]) -> None:
        """Refuse the requests that couldn't go back to the lane, for example for lack of memory:
        nobody would take them. Then the lane goes on."""
        refused = Refused(MemoryFull("this worker has no memory left; nothing was applied"))
        for pending in left:
            if pending.outcome is None and pending not in lane.waiting:
                if pending.stage is Stage.WAITING:
                    pending.enter(Stage.LEFT)
                pending.answer(refused)
        self._check_now(catalog)
        if lane.since is not None and self._turns is not None:
            lane.since = None
            self._turns.end(catalog)

    def defects(self, catalog: str) -> int:
        """The number of the catalog's batches in a row that a defect has ended."""
        lane = self._lanes.get(catalog)
        return 0 if lane is None else lane.defects

    def load(self) -> tuple[int, int]:
        """The number of writes that wait or are under way, and their bytes."""
        return self._requests, self._bytes

    def recheck(self, catalog: str) -> None:
        """Check the catalog's lane, because its head may move now."""
        with self._lock:
            lane = self._lanes.get(catalog)
            if lane is not None and lane.waiting and not lane.busy:
                self._check_now(catalog)

    def is_contended(self, catalog: str) -> bool:
        """Whether another process has written the catalog lately."""
        with self._lock:
            return self._contended_until.get(catalog, 0.0) > self._runtime.monotonic()

    def _note_contention(self, catalog: str, now: float) -> None:
        """Note that another worker writes the catalog, or waits for its turn to write it."""
        if len(self._contended_until) >= _HINTS_MAX:
            self._contended_until.clear()
        self._contended_until[catalog] = now + _CONTENDED_S

    def _check_now(self, catalog: str) -> None:
        (self._apart if catalog in self.suspects else self._schedule).add(catalog)

    def _check_later(self, catalog: str, when: float) -> None:
        lane = self._lanes[catalog]
        if lane.check_at is None or when < lane.check_at:
            is_apart = lane.doubt is not None or catalog in self.suspects
            (self._apart if is_apart else self._schedule).add(catalog, when)
            lane.check_at = when  # last, as there may be no memory for the others

    def _recall(self, schedule: Schedule, now: float) -> float | None:
        """Have the lanes whose time has come checked now; return the seconds until the next one."""
        while schedule.later and schedule.later[0][0] <= now:
            when, catalog = heappop(schedule.later)
            lane = self._lanes.get(catalog)
            if lane is not None and lane.check_at == when:
                lane.check_at = None
                schedule.now[catalog] = None
        return schedule.later[0][0] - now if schedule.later else None

    def _collect(self) -> tuple[dict[str, list[Pending]], float | None]:
        """Batches that are ready, and the seconds until the next lane is to be checked."""
        now = self._runtime.monotonic()
        self._recall(self._schedule, now)
        batches: dict[str, list[Pending]] = {}
        try:
            self._collect_into(batches, now)
            return batches, self._recall(self._schedule, now)
        except BaseException:  # no memory is left, for example
            for catalog, batch in batches.items():
                lane = self._lanes[catalog]
                lane.enter(LaneStage.OPEN)
                self._break_off(catalog, lane, batch)
            raise

    def _collect_into(self, batches: dict[str, list[Pending]], now: float) -> None:
        requests = size_bytes = 0
        while self._schedule.now and len(batches) < _CATALOGS_MAX:
            if requests >= _REQUESTS_MAX or size_bytes >= _BYTES_MAX:
                break
            catalog = self._schedule.pop()
            if catalog in self.suspects:
                self._apart.add(catalog)
                continue
            try:
                batch = self._started(catalog, now)
            except MemoryError:
                self._schedule.add(catalog)  # it is taken later
                raise
            if batch:
                batches[catalog] = batch
                requests += len(batch)
                size_bytes += sum(pending.request.size_bytes for pending in batch)

    def _next_apart(self) -> tuple[Apart, float | None]:
        now = self._runtime.monotonic()
        wait_s = self._recall(self._apart, now)
        while self._apart.now:
            catalog = self._apart.pop()
            lane = self._lanes.get(catalog)
            if lane is not None and lane.doubt is not None:
                doubt, lane.doubt = lane.doubt, None
                lane.enter(LaneStage.BUSY)
                return doubt, wait_s
            if catalog not in self.suspects:
                self._schedule.add(catalog)
            elif batch := self._started(catalog, now):
                return {catalog: batch}, wait_s
        return {}, self._recall(self._apart, now)

    def _started(self, catalog: str, now: float) -> list[Pending] | None:
        """The lane's next batch, if it may start; if not, the lane is checked again when it may."""
        lane = self._lanes.get(catalog)
        if lane is None:
            return None
        if lane.busy:
            if lane.doubt is not None:
                self._apart.add(catalog)
        elif not lane.waiting:
            self._drop_if_empty(catalog, lane)
        elif not self._may_move(catalog, self._is_large(catalog, lane, now)):
            self._held_up.append(catalog)
            self._check_later(catalog, now + _CHECK_ANYWAY_S)
        elif lane.not_before > now or not self._takes_turn(catalog, lane, now):
            self._check_later(catalog, lane.not_before)
        else:
            batch = self._batch(lane)
            lane.enter(LaneStage.BUSY)
            return batch
        return None

    def _is_large(self, catalog: str, lane: Lane, now: float) -> bool:
        """Whether the next batch is at least half full, and no other worker writes the catalog,
        whose commits it would also have to carry along."""
        half = self._limits.batch_requests_max // 2
        return len(lane.waiting) >= half and self._contended_until.get(catalog, 0.0) <= now

    def _takes_turn(self, catalog: str, lane: Lane, now: float) -> bool:
        """Whether the lane's batch may start; if not, ``not_before`` says when to check again."""
        if self._turns is None or self._turns.take(catalog):
            self._turns_lost.discard(catalog)
            if lane.since is not None:
                self._note_contention(catalog, now)
                self._turn_waits.add(now - lane.since)
            lane.since = now
            return True
        if catalog in self._turns_lost:
            self._turns.give_up(catalog)
            return True
        if lane.since is None:
            lane.enter(LaneStage.AWAITING)
            lane.since = now
            lane.not_before = now + self._turn_waits.first_check_s
            self._turn_missed(catalog)
            return False
        if now - lane.since < self._turn_waits.patience_s:
            lane.not_before = now + self._turn_waits.next_check_s
            return False
        lane.since = None
        self._turns.give_up(catalog)
        if len(self._turns_lost) >= _HINTS_MAX:
            self._turns_lost.clear()
        self._turns_lost.add(catalog)
        self._turn_waits.add_loss()
        return True

    def _batch(self, lane: Lane) -> list[Pending]:
        """The lane's next batch, taken from it. If it raises, nothing is taken."""
        batch: list[Pending] = []
        size = 0
        most = lane.most or self._limits.batch_requests_max
        for pending in lane.waiting:
            size += pending.request.size_bytes
            if len(batch) == most or (batch and size > self._limits.batch_bytes_max):
                break
            batch.append(pending)
        for pending in batch:
            lane.waiting.popleft()
            pending.enter(Stage.TAKEN)
        return batch

    def _drop_if_empty(self, catalog: str, lane: Lane) -> None:
        if not lane.busy and not lane.waiting and lane.not_before <= self._runtime.monotonic():
            del self._lanes[catalog]

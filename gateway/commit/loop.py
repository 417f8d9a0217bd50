"""Where a request waits for its outcome, and the leaders that run the rounds.

``round`` has the protocol itself; this file only brings requests and rounds together.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from gateway import memory
from gateway.commit.handover import HandOver
from gateway.commit.messages import Handed
from gateway.commit.queue import Pending, too_late
from gateway.commit.round import Round, RoundParts
from gateway.cpu import CpuAccount, conclude, own_account
from gateway.decide.request import Applied, Outcome, Request, Unchanged, Unknown
from gateway.errors import QueueFull
from gateway.meters import WriteEnded, outcome_code
from gateway.runtime import Event, Runtime
from gateway.state.cache import Guesses

_log = logging.getLogger(__name__)

# How long a batch under way may take beyond its requests' deadlines before they are told "unknown".
_GRACE_AFTER_DEADLINE_S = 15.0
_LOOK_AGAIN_S = 0.5
# Each waits for the store because of one catalog at a time.
_LEADERS_APART = 8
_PAUSE_QUEUE_FULL_S = 0.005


class CommitLoop:
    """``commit`` is called by many threads; ``leaders`` threads of this class's own run rounds."""

    def __init__(self, parts: RoundParts, hand_over: HandOver, leaders: int) -> None:
        self._parts = parts
        self._hand_over = hand_over
        self._queue = parts.queue
        self._runtime = parts.runtime
        self._guesses = Guesses(parts.runtime)
        self._leaders = leaders
        self._callers = Callers(parts.runtime)
        self._started = False
        self._start_lock = parts.runtime.lock()

    def commit(self, request: Request) -> tuple[Outcome, int]:
        """The request's outcome and the number of attempts it took. Raises QueueFull.

        Returns at the request's deadline at the latest, unless its commit was sent by then: that
        one has an outcome to wait for.
        """
        if self._hand_over.is_used:
            handed = self._hand_over.handed(request)
            if handed is not None:
                conclude()
                return handed
            self._hand_over.asked(request.catalog)
        return self._committed(request)

    def commit_for(self, request: Request, worker: int) -> Handed:
        """``commit`` of a request that another worker of this machine hands over."""
        self._hand_over.asked(request.catalog, worker)
        try:
            outcome, attempts = self._committed(request)
        except QueueFull as full:
            return Handed(None, 1, goes_on=True, error=full)
        goes_on = self._hand_over.goes_on(request.catalog, worker, outcome)
        return Handed(outcome, attempts, goes_on)

    def _committed(self, request: Request) -> tuple[Outcome, int]:
        self._start()
        pending = self._pending(request, self._runtime.event(), own_account())
        try:
            self._queue.put(pending)
        except QueueFull as full:
            ended = WriteEnded(full.code, 1, pending.queued, None, None)
            self._parts.meters.writes_ended([ended])
            raise
        try:
            self._await(pending)
            conclude()
            self._parts.meters.writes_ended([_ended(pending)])
            return _answer(pending)
        finally:
            self._queue.departed(pending)

    def commit_each(self, requests: Sequence[Request]) -> list[tuple[Outcome, int]]:
        """Like ``commit`` for each, concurrently; those of a catalog join its queue in this order.

        The call waits while the queue is full, in turn with others: that is no part of the time
        that the requests have. What comes after one on the same document that was refused for now
        is refused too (``HeldBack``), so that they can be sent again in order.
        """
        self._start()
        answered = self._runtime.event()
        pendings = [self._pending(request, answered, None) for request in requests]
        newest: dict[tuple[str, str], Pending] = {}
        for pending in pendings:
            document = (pending.request.catalog, pending.request.key)
            pending.after, newest[document] = newest.get(document), pending
        queued = let_go = 0
        try:
            if requests:
                with self._callers.turn(requests[0].by.name):
                    while queued < len(pendings):
                        now = self._runtime.monotonic()
                        queued += self._queue.put_first_of(pendings[queued:], now)
                        if queued < len(pendings):
                            let_go += self._make_room(pendings[let_go:queued])
            while let_go < len(pendings):
                let_go += self._let_go(pendings[let_go:])
        finally:
            self._queue.departed(*pendings[let_go:queued])
        return doubting(requests, [_answer(pending) for pending in pendings])

    def _make_room(self, queued: Sequence[Pending]) -> int:
        """Let go of the first ones that are answered or late; wait a little where there is none."""
        for first in queued[:1]:
            if first.outcome is not None or first.deadline <= self._runtime.monotonic():
                return self._let_go(queued)
        self._runtime.sleep(_PAUSE_QUEUE_FULL_S)
        return 0

    def _let_go(self, queued: Sequence[Pending]) -> int:
        """Await the first one, and let go of it and of all behind it that have their answers, too;
        returns how many that are."""
        self._await(queued[0])
        done = list(takewhile(lambda pending: pending.outcome is not None, queued))
        self._parts.meters.writes_ended([_ended(pending) for pending in done])
        self._queue.departed(*done)
        return len(done)

    def _pending(self, request: Request, answered: Event, account: CpuAccount | None) -> Pending:
        """One that comes without an account, in a line or from another worker, gets its own."""
        account = account or CpuAccount(self._parts.rules.limits.request_cpu_ms / 1000)
        return Pending(request, answered, self._runtime.monotonic(), account=account)

    def _start(self) -> None:
        """Leaders start with the first request: after the server has forked, not before it."""
        if self._started:
            return
        with self._start_lock:
            if not self._started:
                self._queue.when_apart(self._start_apart)
                for number in range(self._leaders):
                    self._runtime.spawn(self._lead, f"leader-{number}")
                self._parts.write_out.start()
                self._started = True

    def _await(self, pending: Pending) -> None:
        left_s = pending.deadline - self._runtime.monotonic()
        if self._is_answered(pending, max(left_s, 0.0)):
            return
        give_up = self._runtime.monotonic() + _GRACE_AFTER_DEADLINE_S
        while not self._queue.leave(pending):
            if self._is_answered(pending, _LOOK_AGAIN_S):
                return
            if self._runtime.monotonic() > give_up:
                self._queue.give_up(pending)
                return
        pending.answer(too_late(pending))

    def _is_answered(self, pending: Pending, within_s: float) -> bool:
        """Whether it is, ``within_s`` seconds from now. Its event is one for all that its caller
        waits for."""
        until = self._runtime.monotonic() + within_s
        while pending.outcome is None:
            if not pending.done.wait(max(until - self._runtime.monotonic(), 0.0)):
                break
            if pending.outcome is None:
                pending.done.clear()  # it was another's answer, or this one comes right now
        return pending.outcome is not None

    def _lead(self) -> None:
        account = self._account()
        while True:
            self._run(Round(self._parts, self._guesses, self._queue.take()), account)

    def _account(self) -> memory.Account:
        """What this leader holds, round by round."""
        if self._parts.memory is not None:
            memory.work_for(self._parts.memory.own_account())
        return memory.account()

    def _start_apart(self) -> None:
        for number in range(_LEADERS_APART):
            self._runtime.spawn(self._lead_apart, f"leader-apart-{number}")

    def _lead_apart(self) -> None:
        account = self._account()
        while True:
            taken = self._queue.take_apart()
            if isinstance(taken, dict):
                self._run(Round(self._parts, self._guesses, taken), account)
            else:
                taken()
                self._leave_lines()

    def _run(self, current: Round, account: memory.Account) -> None:
        try:
            current.run()
        except Exception as error:  # noqa: BLE001 - a leader must outlive any defect
            current.abandon(error)
        if account.held:
            account.close()
        self._leave_lines()

    def _leave_lines(self) -> None:
        if not self._parts.claims.given_up:
            return
        try:
            self._parts.claims.leave()
        except Exception:  # noqa: BLE001 - it is a hint, and a leader must outlive any defect
            _log.exception("claims can't be given up")


def _answer(pending: Pending) -> tuple[Outcome, int]:
    assert pending.outcome is not None
    return pending.outcome, pending.attempts + 1


def _ended(pending: Pending) -> WriteEnded:
    outcome, attempts = _answer(pending)
    code = outcome_code(outcome, dry_run=pending.request.dry_run)
    return WriteEnded(code, attempts, pending.queued, pending.taken, pending.times)


def doubting(
    requests: Sequence[Request], outcomes: Sequence[tuple[Outcome, int]]
) -> list[tuple[Outcome, int]]:
    """The outcomes, where a done request is in doubt behind one in doubt on its document.

    Who is told of both sends both again, in order; told that the second is done, only the first.
    """
    doubted: set[tuple[str, str]] = set()
    told = []
    for request, (outcome, attempts) in zip(requests, outcomes, strict=True):
        document = (request.catalog, request.key)
        if isinstance(outcome, Unknown):
            doubted.add(document)
        elif document in doubted and isinstance(outcome, Applied | Unchanged):
            outcome = Unknown(request.commit_id)
        told.append((outcome, attempts))
    return told


class Callers:
    """Who comes next to bring many requests: the principals in turn, the calls of each in order.

    So a principal with a thousand calls delays another's next one by one call of its own. At most
    one call has its turn at a time. Thread-safe.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._has_turn = False
        self._waiting: dict[str, deque[Event]] = {}

    @contextmanager
    def turn(self, principal: str) -> Iterator[None]:
        """Wait for one's turn, which ends with the block."""
        mine: Event | None = None
        with self._lock:
            if self._has_turn:
                mine = self._runtime.event()
                self._waiting.setdefault(principal, deque()).append(mine)
            self._has_turn = True
        try:
            if mine is not None:
                mine.wait()
            yield
        finally:
            if not self._left(principal, mine):
                self._pass_on()

    def _left(self, principal: str, mine: Event | None) -> bool:
        """Whether the call was broken off while it waited; then it waits no more."""
        with self._lock:
            calls = self._waiting.get(principal, deque())
            if mine is None or mine not in calls:
                return False
            calls.remove(mine)
            if not calls:
                del self._waiting[principal]
            return True

    def _pass_on(self) -> None:
        with self._lock:
            self._has_turn = bool(self._waiting)
            if not self._waiting:
                return
            principal = next(iter(self._waiting))
            calls = self._waiting.pop(principal)
            following = calls.popleft()
            if calls:
                self._waiting[principal] = calls  # behind all others
        following.set()

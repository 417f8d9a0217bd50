"""Where a request waits for its outcome, and the leaders that run the rounds.

``round`` has the protocol itself; this file only brings requests and rounds together.
"""

from __future__ import annotations

import logging

from gateway import memory
from gateway.commit.handover import HandOver
from gateway.commit.messages import Handed
from gateway.commit.queue import Pending
from gateway.commit.round import Round, RoundParts
from gateway.commit.series import Callers, Series
from gateway.cpu import CpuAccount, conclude, own_account
from gateway.decide.request import Outcome, Request
from gateway.errors import QueueFull
from gateway.meters import WriteEnded
from gateway.state.cache import Guesses

_log = logging.getLogger(__name__)

# Each waits for the store because of one catalog at a time.
_LEADERS_APART = 8


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
        self._request_cpu_s = parts.rules.limits.request_cpu_ms / 1000
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
        # One that comes without an account, from another worker, gets its own.
        account = own_account() or CpuAccount(self._request_cpu_s)
        now = self._runtime.monotonic()
        pending = Pending(request, self._runtime.event(), now, account=account)
        try:
            self._queue.put(pending)
        except QueueFull as full:
            refused = WriteEnded(full.code, 1, pending.queued, None, None)
            self._parts.meters.writes_ended([refused])
            raise
        try:
            self._queue.until_answered(pending)
            conclude()
            self._parts.meters.writes_ended([pending.ended()])
            return _answer(pending)
        finally:
            self._queue.departed(pending)

    def series(self, principal: str) -> Series:
        """Of requests that come together, brought by that principal."""
        self._start()
        parts = self._parts
        return Series(
            self._queue, self._runtime, parts.meters, self._callers, principal, self._request_cpu_s
        )

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

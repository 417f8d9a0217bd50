"""A request from the queue to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.cpu import Account
from gateway.decide.request import Outcome, Refused, Request, is_for_now
from gateway.errors import DeadlineExceeded, HeldBack, StoreUnavailable
from gateway.meters import RoundTimes
from gateway.runtime import Event


@dataclass(slots=True, eq=False)
class Pending:
    """A request from the queue to its answer. ``attempts`` counts the races it has lost, ``looks``
    the heads that were read for it in vain.

    ``done`` is set at each answer to one of those that share it. ``after`` is the one before it,
    of those that came together, on the same document.
    ``queued`` and ``taken``, in monotonic seconds: its arrival, and the first round that took it.
    ``deadline`` is that of the request, later by as long as it waited for room in the queue.
    ``times`` are those of its last round. ``account`` is what its decisions may compute together;
    None: as much as they like.
    """

    request: Request
    done: Event
    queued: float = 0.0
    waited_s: float = 0.0
    after: Pending | None = None
    taken: float | None = None
    times: RoundTimes | None = None
    attempts: int = 0
    looks: int = 0
    unreachable: bool = False  # its last try failed because the database was out of reach
    deciding: float | None = None  # when the decision of its batch began
    held: bool = False  # its commit is being sent: it can't leave any more
    gone: bool = False  # it has left: its commit must not be sent
    outcome: Outcome | None = None
    account: Account | None = None

    @property
    def deadline(self) -> float:
        return self.request.deadline + self.waited_s

    @property
    def races(self) -> int:
        """How often another worker was first, or seemed to be."""
        return self.attempts + self.looks

    def answer(self, outcome: Outcome) -> None:
        """The first answer stays: a caller that was told "unknown" is told nothing else later."""
        if self.outcome is None:
            self.outcome = outcome
            self.done.set()

    def is_held_back(self) -> bool:
        """Whether it must not be applied, because the one before it may come again.

        Where it is, it is answered, and so is what comes after it in its turn.
        """
        after = self.after
        if after is None:
            return False
        if after.gone or (after.outcome is not None and is_for_now(after.outcome)):
            self.gone = True
            detail = (
                f"a write of document {self.request.key!r} before it, of those that came together,"
                " was refused for now or may not have been applied: send them again in order"
            )
            self.answer(Refused(HeldBack(detail)))
        elif after.outcome is not None:
            self.after = None  # it was decided, and needs no memory any more
        return self.gone


def too_late(pending: Pending) -> Outcome:
    """The outcome of a request whose deadline passed before anything was sent for it."""
    waited = "waiting for its turn" if pending.deciding is None else "waiting for the database"
    tries = f"{pending.attempts} lost races" if pending.attempts else waited
    if pending.unreachable:
        return Refused(StoreUnavailable("the database can't be reached; nothing was applied"))
    return Refused(DeadlineExceeded(f"the deadline came after {tries}; nothing was applied"))


def still_in_time(left: Sequence[Pending], now: float) -> list[Pending]:
    """The requests that may try again; those past their deadline are answered."""
    left = [pending for pending in left if not pending.gone]
    for pending in left:
        pending.held, pending.deciding = False, None
        if pending.outcome is None and pending.deadline <= now:
            pending.answer(too_late(pending))
    return [pending for pending in left if pending.outcome is None]

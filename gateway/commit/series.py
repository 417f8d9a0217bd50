"""Many requests of one caller that come together, window by window.

A window may be put into the queue while the one before it is under way: it is decided as soon as
that has its answers. A caller that waits for its turn, or for room in the queue, has no window
under way, or lets go of it meanwhile: so nobody waits for room that is held by who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from gateway.commit.inputs import LooksAhead
from gateway.commit.queue import Pending, Queue
from gateway.cpu import CpuAccount
from gateway.decide.request import (
    Applied,
    Request,
    Unchanged,
    Unknown,
    WriteOutcome,
    is_for_now,
)
from gateway.meters import Meters
from gateway.runtime import Event, Runtime

_PAUSE_QUEUE_FULL_S: Final = 0.005
_HELD_BACK_MAX: Final = 10_000


_Document = tuple[str, str]


class Series:
    """For one thread at a time. ``stirred`` is set at each answer, and to make the thread ask
    ``unless`` again (``is_answered``)."""

    def __init__(
        self,
        queue: Queue,
        runtime: Runtime,
        meters: Meters,
        callers: Callers,
        principal: str,
        request_cpu_s: float,
        looks_ahead: LooksAhead,
    ) -> None:
        self.stirred = runtime.event()
        self._queue = queue
        self._runtime = runtime
        self._meters = meters
        self._callers = callers
        self._principal = principal
        self._request_cpu_s = request_cpu_s
        self._looks_ahead = looks_ahead
        self._windows: deque[list[Pending]] = deque()  # under way
        self._last: dict[_Document, Pending] = {}  # by document, the last one under way
        self._queued: deque[Pending] = deque()  # that hold room, in their order
        # Of windows that were taken: documents of which a request was refused for now or, True,
        # may have been applied, and catalogs (``hold_back``).
        self._held_back: dict[_Document | str, bool] = {}

    def put(self, requests: Sequence[Request]) -> bool:
        """Bring the next window into the queue, those of a catalog in this order.

        The call waits while the queue is full, in turn with others, and looks ahead: that is no
        part of the time that the requests have. False, and nothing was done, where it is another's
        turn and a window is under way: that has to be taken first.

        What comes after a request on the same document that was refused for now is refused too
        (``HeldBack``), so that they can be sent again in order.
        """
        if not requests:
            self._windows.append([])
            return True
        now = self._runtime.monotonic()
        requests = [self._looks_ahead.of(each) if each.ranges else each for each in requests]
        with self._callers.turn(self._principal, waits=not self._windows) as has_turn:
            if not has_turn:
                return False
            window = [self._pending(request, now) for request in requests]
            waiting = [pending for pending in window if pending.outcome is None]
            put = 0
            while put < len(waiting):
                more = self._queue.put_first_of(waiting[put:], self._runtime.monotonic())
                self._queued.extend(waiting[put : put + more])
                put += more
                if put < len(waiting):
                    self._make_room()
            self._windows.append(window)
        return True

    def is_answered(self, unless: Callable[[], bool] | None = None) -> bool:
        """Wait until the first window under way has its answers. Return False as soon as ``unless``
        is true; it is asked whenever ``stirred`` is set."""
        for pending in self._windows[0]:
            if pending.outcome is None:
                if not self._queue.until_answered(pending, unless):
                    return False
                self._let_go()
        return True

    def take(self) -> list[WriteOutcome]:
        """Wait for the outcomes of the first window under way, end it, and return them.

        If an earlier write of its document is in doubt, a done write counts as in doubt, too: the
        client then sends both again, in order. Otherwise it would send only the first one again.
        """
        self.is_answered()
        self._let_go()
        return [self._told(pending) for pending in self._windows.popleft()]

    def hold_back(self, catalog: str) -> None:
        """Hold back all later requests for this catalog."""
        self._held_back[catalog] = False

    def close(self) -> None:
        """Nobody waits for what is under way."""
        self._queue.departed(*self._queued)
        self._queued.clear()

    def _pending(self, request: Request, now: float) -> Pending:
        account = CpuAccount(self._request_cpu_s)
        pending = Pending(request, self.stirred, now, account=account)
        document = (request.catalog, request.key)
        pending.after, self._last[document] = self._last.get(document), pending
        if document in self._held_back:
            pending.hold_back(f"an earlier write of document {request.key!r}")
        elif request.catalog in self._held_back:
            pending.hold_back("an earlier write of this catalog")
        elif len(self._held_back) >= _HELD_BACK_MAX:
            pending.hold_back(f"an earlier write of {_HELD_BACK_MAX} documents each")
        return pending

    def _told(self, pending: Pending) -> WriteOutcome:
        request, outcome = pending.request, pending.outcome
        assert outcome is not None
        document = (request.catalog, request.key)
        if self._last.get(document) is pending:
            del self._last[document]
        if isinstance(outcome, (Applied, Unchanged)):
            if self.is_in_doubt(document):
                outcome = Unknown(request.commit_id)
        elif is_for_now(outcome):
            self._held_back[document] = self.is_in_doubt(document) or isinstance(outcome, Unknown)
        return WriteOutcome(outcome, request.commit_id, pending.attempts + 1)

    def is_in_doubt(self, document: _Document) -> bool:
        return self._held_back.get(document, False)

    def _make_room(self) -> None:
        """Let go of the first ones that are answered or late; wait a little where there is none."""
        for first in tuple(self._queued)[:1]:
            if first.outcome is not None or first.deadline <= self._runtime.monotonic():
                self._queue.until_answered(first)
                self._let_go()
                return
        self._runtime.sleep(_PAUSE_QUEUE_FULL_S)

    def _let_go(self) -> None:
        """Give back the room of the first requests that have their answers."""
        done = list(takewhile(lambda pending: pending.outcome is not None, self._queued))
        for _ in done:
            self._queued.popleft()
        if done:
            self._meters.writes_ended([pending.ended() for pending in done])
            self._queue.departed(*done)


class Callers:
    """The order in which calls bring many requests: principals alternate, and each one's calls keep
    their order.

    So a principal with a thousand calls delays the next call of another by only one of them. Only
    one call has its turn at a time. Thread-safe.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._has_turn = False
        self._waiting: dict[str, deque[Event]] = {}

    @contextmanager
    def turn(self, principal: str, *, waits: bool = True) -> Iterator[bool]:
        """Wait for one's turn, which ends with the block; or be told that there was none at once,
        where one ``waits`` for nothing."""
        mine: Event | None = None
        with self._lock:
            is_refused = self._has_turn and not waits
            if self._has_turn and waits:
                mine = self._runtime.event()
                self._waiting.setdefault(principal, deque()).append(mine)
            self._has_turn = True
        if is_refused:
            yield False
            return
        try:
            if mine is not None:
                mine.wait()
            yield True
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

"""Many requests of one caller that come together, window by window.

A window may be put into the queue while the one before it is under way; it is decided as soon as
that one is answered. A caller that waits for its turn, or for room in the queue, has no window
under way, or frees the room of its answered requests meanwhile. So callers can't wait for each
other's room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from gateway.commit.inputs import ReadAhead
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
    """The windows of one caller, used by one thread at a time. ``stirred`` is set at each answer,
    and also to have ``is_answered`` call ``unless`` again."""

    def __init__(
        self,
        queue: Queue,
        runtime: Runtime,
        meters: Meters,
        callers: Callers,
        principal: str,
        request_cpu_s: float,
        read_ahead: ReadAhead,
    ) -> None:
        self.stirred = runtime.event()
        self._queue = queue
        self._runtime = runtime
        self._meters = meters
        self._callers = callers
        self._principal = principal
        self._request_cpu_s = request_cpu_s
        self._read_ahead = read_ahead
        self._windows: deque[list[Pending]] = deque()  # under way
        self._last: dict[_Document, Pending] = {}  # by document, the last one under way
        self._queued: deque[Pending] = deque()  # requests that hold room, in their order
        # From windows that were taken: the documents with a request that was refused for now
        # (False) or may have been applied (True), and the catalogs of ``hold_back`` (False).
        self._held_back: dict[_Document | str, bool] = {}

    def put(self, requests: Sequence[Request]) -> bool:
        """Put the next window into the queue; requests for one catalog keep their order.

        Waits while the queue is full, in turn with others, and looks ahead; this doesn't count
        against the requests' deadlines. Returns False, having done nothing, if it is another
        caller's turn and a window is under way: that one has to be taken first.

        If a request is refused for now, later requests on its document are refused, too
        (``HeldBack``), so that they can be sent again in order.
        """
        if not requests:
            self._windows.append([])
            return True
        now = self._runtime.monotonic()
        requests = [self._read_ahead.fill(each) if each.ranges else each for each in requests]
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

        If an earlier write of a document is in doubt, a later successful one counts as in doubt,
        too: then the client sends both again, in order. Otherwise it would send only the first one.
        """
        self.is_answered()
        self._let_go()
        return [self._outcome_of(pending) for pending in self._windows.popleft()]

    def hold_back(self, catalog: str) -> None:
        """Hold back all later requests for this catalog."""
        self._held_back[catalog] = False

    def close(self) -> None:
        """Free the room of what is under way, which nobody waits for any more."""
        self._queue.departed(*self._queued)
        self._queued.clear()

    def _pending(self, request: Request, now: float) -> Pending:
        account = CpuAccount(self._request_cpu_s)
        pending = Pending(request, self.stirred, now, account=account)
        document = (request.catalog, request.key)
        pending.after, self._last[document] = self._last.get(document), pending
        if document in self._held_back:
            pending.hold_back(f"an earlier line for document {request.key!r}")
        elif request.catalog in self._held_back:
            pending.hold_back("an earlier line for this catalog")
        elif len(self._held_back) >= _HELD_BACK_MAX:
            pending.hold_back(f"an earlier line for each of {_HELD_BACK_MAX} documents")
        return pending

    def _outcome_of(self, pending: Pending) -> WriteOutcome:
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
        """Free room: that of the first requests, if the first one is answered or late; otherwise,
        wait a little."""
        for first in tuple(self._queued)[:1]:
            if first.outcome is not None or first.deadline <= self._runtime.monotonic():
                self._queue.until_answered(first)
                self._let_go()
                return
        self._runtime.sleep(_PAUSE_QUEUE_FULL_S)

    def _let_go(self) -> None:
        """Free the room of the first requests, up to one that has no answer."""
        done = list(takewhile(lambda pending: pending.outcome is not None, self._queued))
        for _ in done:
            self._queued.popleft()
        if done:
            self._meters.writes_ended([pending.ended() for pending in done])
            self._queue.departed(*done)


class Callers:
    """The order in which calls put their windows into the queue, one call at a time: principals
    alternate, and each one's calls keep their order.

    So a principal with a thousand calls delays the next call of another by only one of them.
    Thread-safe.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._has_turn = False
        self._waiting: dict[str, deque[Event]] = {}

    @contextmanager
    def turn(self, principal: str, *, waits: bool = True) -> Iterator[bool]:
        """Wait for one's turn, which ends with the block, and yield True. Without ``waits``, yield
        False if the turn doesn't come at once."""
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
        """Whether the call was broken off while it waited; then it is no longer waiting."""
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

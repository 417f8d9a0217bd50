"""Admission: a bound on the requests that a worker has under way; more are refused at once.

Writes, bulk requests and reads are counted separately, each until the last byte of its answer was
sent. A write counts from the moment when its whole body has arrived, so that a slow sender takes
nobody's place. Feeds have a bound of their own, and probes such as ``/livez`` always get through. A
principal may have only a share of each kind, which is checked once the principal is known.

Each request has an account of the memory that it takes; see ``gateway.memory``.

The server bounds the cost of refusing: it asks ``has_room_for`` before it reads a request.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from marshmallow import Schema

from gateway.access.principal import Shares
from gateway.decide.strict import load
from gateway.http.context import (
    KEY,
    READING,
    Counted,
    Environ,
    Observed,
    OpenContext,
    WsgiApplication,
)
from gateway.http.door.rate_limits import spend_body_bytes
from gateway.http.wire.body import decode_value, invalid_body, read_body, require_few_values
from gateway.http.wire.codes import RequestRefused, TryLater
from gateway.http.wire.headers import require_json
from gateway.http.wire.problems import problem_answer
from gateway.limits import AdmissionLimits, RequestLimits
from gateway.memory import UNWEIGHED_BYTES, Account, Memory, work_for

_log = logging.getLogger(__name__)
_WAIT_S: Final = 1.0
_READING_STARTS: Final = tuple(method.encode() for method in READING)


class InFlight:
    """The requests of one kind that are under way, and their holders. Thread-safe.

    The holder is a principal's name; None while it isn't known, or if access control is off.
    """

    def __init__(self, what: str, setting: str, count_max: int, bytes_max: int | None) -> None:
        self._what = what
        self._setting = setting
        self._count = Shares(count_max)
        self._bytes = None if bytes_max is None else Shares(bytes_max)
        self._lock = threading.Lock()

    def enter(self, holder: str | None, size: int) -> None:
        """Count one more request, of ``size`` bytes. Raises TryLater if there is no room for it, or
        if it exceeds its holder's share."""
        with self._lock:
            self.refuse_if_full(size)
            if holder is not None:
                self._refuse_beyond_share(holder, size)
            self._take(holder, size)

    def claim(self, holder: str, size: int) -> None:
        """Give a request of ``size`` bytes, held by None so far, to ``holder``.

        Raises TryLater if that exceeds the holder's share; then None still holds it.
        """
        with self._lock:
            self._give_back(None, size)
            try:
                self._refuse_beyond_share(holder, size)
            except TryLater:
                self._take(None, size)
                raise
            self._take(holder, size)

    def leave(self, holder: str | None, size: int) -> None:
        with self._lock:
            self._give_back(holder, size)

    def is_full(self) -> bool:
        """Whether the number, or the bytes, of the requests have reached the maximum."""
        if self._bytes is not None and self._bytes.held >= self._bytes.maximum:
            return True
        return self._count.held >= self._count.maximum

    def refuse_if_full(self, size: int) -> None:
        """Raise TryLater unless there is room for one more of ``size`` bytes. Reserves nothing."""
        count, held = self._count, self._bytes
        if count.held >= count.maximum:
            detail = f"{count.held} {self._what} are under way, the maximum"
            raise _full(detail, self._setting)
        # A request alone may have any size: other limits bound it.
        if held is not None and count.held and held.held + size > held.maximum:
            detail = f"{held.held} bytes of {self._what} are under way; no room for this one"
            raise _full(detail, self._setting.replace("_max", "_bytes_max"))

    def _take(self, holder: str | None, size: int) -> None:
        self._count.take(holder)
        if self._bytes is not None:
            self._bytes.take(holder, size)

    def _give_back(self, holder: str | None, size: int) -> None:
        self._count.give_back(holder)
        if self._bytes is not None:
            self._bytes.give_back(holder, size)

    def _refuse_beyond_share(self, holder: str, size: int) -> None:
        if not self._count.has_room_for(holder):
            setting = self._setting
        elif (
            self._bytes is not None
            and self._count.held
            and not self._bytes.has_room_for(holder, size)
        ):
            setting = self._setting.replace("_max", "_bytes_max")
        else:
            return
        detail = f"principal {holder!r} has as many {self._what} under way as its share allows"
        raise _full(detail, setting)


def _full(detail: str, setting: str) -> TryLater:
    return TryLater("overloaded", f"{detail} ({setting})", _WAIT_S)


class _Seat:
    """A request's place among those in flight; taken once, left once."""

    def __init__(self, among: InFlight) -> None:
        self._among = among
        self._holder: str | None = None
        self._size: int | None = None

    def take(self, size: int) -> None:
        if self._size is None:
            self._among.enter(self._holder, size)
            self._size = size

    def claim(self, holder: str) -> None:
        if self._size is not None:
            self._among.claim(holder, self._size)
        self._holder = holder

    def leave(self) -> None:
        if self._size is not None:
            self._among.leave(self._holder, self._size)
            self._size = None


class Admission:
    """The WSGI middleware that counts requests; ``Observation`` around it gives them their ids."""

    def __init__(
        self, application: WsgiApplication, limits: AdmissionLimits, memory: Memory
    ) -> None:
        self._application = application
        self._memory = memory
        writes = ("writes_in_flight_max", limits.writes_in_flight_max)
        self._writes = InFlight("writes", *writes, limits.writes_in_flight_bytes_max)
        self._reads = InFlight("reads", "reads_in_flight_max", limits.reads_in_flight_max, None)
        self._bulk = InFlight("bulk requests", "bulk_requests_max", limits.bulk_requests_max, None)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if _forgotten:
            _close_forgotten()
        among = self._kind(environ)
        if among is None:
            if environ["PATH_INFO"].startswith("/v1/"):
                return self._held(environ, start_response, None, _Seat(self._reads))
            return self._application(environ, start_response)
        observed, seat = environ[KEY], _Seat(among)
        try:
            self._admit(observed, among, seat)
        except TryLater as full:
            return problem_answer(full, observed)(environ, start_response)
        return self._held(environ, start_response, among, seat)

    def _held(
        self,
        environ: Environ,
        start_response: Callable[..., Any],
        among: InFlight | None,
        seat: _Seat,
    ) -> Held:
        """The app's answer. ``among`` None: a feed, which has no seat, but an account like any
        other request."""
        held = Held(seat)
        if among is not self._bulk:  # lines in large numbers, with bounds of their own
            held.account = self._memory.account()
            work_for(held.account)
        observed: Observed = environ[KEY]
        observed.counted = Counted(None if among is None else seat, held.account)
        try:
            held.answer = answer = self._application(environ, start_response)
            if held.account is not None and isinstance(answer, tuple):
                held.account.keep(sum(map(len, answer)))
        except BaseException:
            held.close()
            raise
        return held

    def _admit(self, observed: Observed, among: InFlight, seat: _Seat) -> None:
        if among is self._writes and observed.method != "DELETE":
            size = observed.body_bytes
            if size != 0:  # it has a body, and takes its seat once that has arrived
                among.refuse_if_full(size or 0)
                return
        seat.take(0)

    def _kind(self, environ: Environ) -> InFlight | None:
        """The kind of requests that this one counts among; None if it isn't counted here."""
        path = environ["PATH_INFO"]
        if not path.startswith("/v1/"):
            return None
        if environ["REQUEST_METHOD"] in READING:
            return None if _is_feed(path) else self._reads
        return self._bulk if path == "/v1/bulk" else self._writes

    def has_room_for(self, start: bytes) -> bool:
        """Whether a request whose first bytes are ``start`` would probably be admitted now."""
        if _forgotten:
            _close_forgotten()
        among = self._reads if start.startswith(_READING_STARTS) else self._writes
        return not among.is_full()


def claim_share(counted: Counted, holder: str | None) -> None:
    """Count the request in the share of ``holder``, known by now. Raises TryLater beyond it."""
    if holder is None:
        return
    if counted.account is not None:
        counted.account.claim(holder)
    if counted.seat is not None:
        counted.seat.claim(holder)


def take_body(context: OpenContext, limits: RequestLimits, *, parsed: bool = True) -> bytes:
    """The request's body, never empty; counted as under way and against the rate limits.

    ``parsed``: it will be decoded, and the request's account takes the memory for that. Raises
    RequestRefused, also for an empty body and for too many values; TryLater if too much is under
    way; AboveLimit and MemoryFull if there is no room for it; AccessError if the principal would no
    longer be let in; StoreUnavailable; and the connection's errors (werkzeug's BadRequest).
    """
    raw = read_body(context, limits)
    seat, account = context.observed.counted
    # A smaller body takes little memory, whatever is in it.
    weighs = parsed and len(raw) > UNWEIGHED_BYTES
    if weighs:
        require_few_values(raw, limits)
    if seat is not None:
        seat.take(len(raw))
    if weighs and account is not None:
        account.take_text(raw)
    if context.spending is not None:
        spend_body_bytes(context, len(raw))
    context.require_still_let_in()  # a slow body may outlive a token
    if not raw:
        raise RequestRefused("malformed_json", "the body is empty")
    return raw


def take_members(context: OpenContext, limits: RequestLimits, schema: Schema) -> dict[str, Any]:
    """The request's body, a JSON object, as ``schema`` loads it."""
    require_json(context.environ)
    return load(schema, decode_value(take_body(context, limits), limits), invalid_body)


class Held:
    """An answer that holds its request's seat and account until its last byte was sent."""

    __slots__ = ("_is_over", "_seat", "account", "answer")

    def __init__(self, seat: _Seat) -> None:
        self._seat = seat
        self._is_over = False
        self.account: Account | None = None
        self.answer: Iterable[bytes] = ()

    def __iter__(self) -> Iterator[bytes]:
        yield from self.answer
        self.close()

    def close(self) -> None:
        """The server calls it; if it fails to, ``_close_forgotten`` does."""
        if self._is_over:
            return
        self._is_over = True
        try:
            close = getattr(self.answer, "close", None)
            if close is not None:
                close()
        finally:
            self.answer = ()
            self._seat.leave()
            if self.account is not None:
                self.account.close()
                work_for(None)

    def __del__(self) -> None:
        if not self._is_over:
            _forgotten.append(self)


_forgotten: Final[deque[Held]] = deque()


def _close_forgotten() -> None:
    """Close the answers that nobody closed: others need their seats.

    ``__del__`` can't do it, because the garbage collector may run in the middle of any code, in any
    thread. Closing takes locks, which the interrupted code may hold, and sets context variables,
    which belong to another request there (and CPython 3.11 crashes if it collects garbage while it
    sets one: python/cpython#148891).
    """
    while _forgotten:
        try:
            held = _forgotten.popleft()
        except IndexError:  # another thread took it
            return
        try:
            held.close()
        except Exception:  # noqa: BLE001 - the present request, which is another one, goes on
            _log.exception("an answer that the server didn't close can't be closed")


def _is_feed(path: str) -> bool:
    # /v1/catalogs/{catalog}/changes: the path is still encoded, so names hold no slash.
    return path.endswith("/changes") and path.count("/") == 4

"""The processor time of requests: an account for each, and the sections of code that draw on it.

A worker computes for one request at a time, and meanwhile all others wait. A *section* is code that
only computes: it waits for nothing, holds no lock, and changes nothing that outlives it. So it can
be interrupted between any two of its instructions, to let others go on; and it can be broken off
when the account of its request is used up: then nothing was done.

The server calls ``draw`` every few milliseconds of processor time, in the middle of whatever is
being computed (``server.time_slices``). No section reads a clock: entering one costs less than a
microsecond, and a request pays by how often it is found computing. If nobody calls ``draw``, as in
tests and commands, accounts are never used up.

What a request computes outside of sections, such as decoding the database's answers, is charged to
its account as well. Then it is broken off at the next section, or call of the database; and pages
end early, with a position to go on from, once half of the account is used (``is_half_used``).

Many requests that compute a little each are as bad as one that computes much. So a section begins
only while the time slice isn't over; otherwise others go on first.

Worked example: a leader decides the requests p and q of one batch, each in a section on its own
account. p takes 20 ms of processor time to decide, q would take a minute. While q is computed,
other requests go on in between; when its two seconds are used, ``BrokenOff`` is raised in it,
leaves the section as ``TooMuchWork``, and becomes q's refusal. p is committed.

The same happens when the process has no memory left: ``MemoryError`` leaves a section of a request
as ``MemoryFull``, a refusal, unless the request's outcome is certain already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import wraps
from types import CodeType, TracebackType
from typing import Final, ParamSpec, TypeVar

from gateway.errors import CommitError, MemoryFull

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class TooMuchWork(CommitError):
    """The request has used up its processor time: nothing was applied or decided. The answer of a
    read ends, or never begins."""

    code = "too_much_work"

    def __init__(self, limit_ms: int) -> None:
        super().__init__(
            f"the request takes more than {limit_ms} ms of processor time (request_cpu_ms):"
            " ask for less at a time"
        )
        self.limit_ms = limit_ms


class BrokenOff(BaseException):
    """Raised in a section whose account is used up. It is no ``Exception``, so that no handler
    swallows it: a half-finished computation decides nothing."""


class CpuAccount:
    """The processor time of one request: ``limit_s`` seconds."""

    __slots__ = ("left_s", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s

    def draw(self, seconds: float) -> bool:
        """Use ``seconds``; whether the section may be interrupted. Raises BrokenOff if the account
        is used up."""
        self.left_s -= seconds
        if self.left_s < 0:
            slices.broken_off += 1
            raise BrokenOff
        return True

    def charge(self, seconds: float) -> None:
        """Use ``seconds``, for code that can't be broken off."""
        self.left_s -= seconds

    def require(self) -> None:
        """Raise TooMuchWork if the account is used up."""
        if self.left_s < 0:
            slices.broken_off += 1
            raise self.refusal()

    def refusal(self) -> TooMuchWork:
        return TooMuchWork(round(self.limit_s * 1000))

    def without_memory(self) -> Exception:
        """The error that a ``MemoryError`` in its section becomes."""
        return MemoryFull("this worker has no memory left for the request")


class _Unlimited(CpuAccount):
    """The account of code that may be interrupted but not broken off: it computes for no request,
    or for one whose outcome is certain. It counts nothing, so it can be shared."""

    __slots__ = ()

    def draw(self, _seconds: float) -> bool:
        return True

    def charge(self, _seconds: float) -> None: ...

    def without_memory(self) -> Exception:
        return MemoryError()


class _Uninterruptible(CpuAccount):
    """The account of code that may be neither interrupted nor broken off."""

    __slots__ = ()

    def draw(self, _seconds: float) -> bool:
        return False

    def charge(self, _seconds: float) -> None: ...


_UNINTERRUPTIBLE: Final = _Uninterruptible(math.inf)
_UNLIMITED: Final = _Unlimited(math.inf)
# The account of the request that this thread or greenlet works for, and that of the section that it
# is in, if any.
_own: ContextVar[CpuAccount | None] = ContextVar("own", default=None)
_drawn: ContextVar[CpuAccount | None] = ContextVar("drawn", default=None)


def begin(limit_s: float) -> None:
    """Give this thread, or greenlet, the account of a new request."""
    _own.set(CpuAccount(limit_s))


def work_for(account: CpuAccount | None) -> CpuAccount | None:
    """Have this thread, or greenlet, work on that account; return the one before."""
    before = _own.get()
    _own.set(account)
    return before


def renew() -> None:
    """Give the rest of the present request a new account."""
    account = _own.get()
    if account is not None:
        _own.set(CpuAccount(account.limit_s))


def own_account() -> CpuAccount | None:
    """The account of the request that this thread or greenlet works for; None: it works for
    none."""
    return _own.get()


def is_half_used() -> bool:
    """Whether the request has used half of its processor time. Then its answer should end, if the
    rest can come in another one."""
    account = _own.get()
    return account is not None and account.left_s < account.limit_s / 2


def require_some_left() -> None:
    """Raise TooMuchWork if the request has used up its processor time. For code outside of sections
    that is about to read more."""
    account = _own.get()
    if account is not None:
        account.require()


class section:  # noqa: N801 - it reads as a statement
    """A context whose code draws on ``account``; None: it is no section.

    Raises TooMuchWork if the account is used up before its end. A section inside another one is a
    part of it.
    """

    __slots__ = ("_account", "_token")

    def __init__(self, account: CpuAccount | None) -> None:
        self._account = account
        self._token: Token[CpuAccount | None] | None = None

    def __enter__(self) -> None:
        if self._account is not None and _drawn.get() is None:
            if slices.is_over:
                slices.yield_now()
            self._account.require()
            self._token = _drawn.set(self._account)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is None:
            return
        drawn = _drawn.get()
        _drawn.reset(self._token)
        assert self._account is not None
        if kind is BrokenOff:
            raise self._account.refusal() from None
        if kind is MemoryError and drawn is self._account:
            raise drawn.without_memory() from None


class uninterrupted:  # noqa: N801 - it reads as a statement
    """A context within a section that is neither interrupted nor broken off, because it takes a
    lock, or changes what others see."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _drawn.set(_UNINTERRUPTIBLE)

    def __exit__(self, *_: object) -> None:
        _drawn.reset(self._token)


def is_uninterrupted() -> bool:
    """Whether this thread, or greenlet, is in a ``uninterrupted``."""
    return _drawn.get() is _UNINTERRUPTIBLE


def conclude() -> None:
    """Don't break the request off from here on, because its outcome is certain.

    In a section, this holds up to the section's end; elsewhere, for all that this thread or
    greenlet still computes for the request.
    """
    where = _own if _drawn.get() is None else _drawn
    if where.get() is not None:
        where.set(_UNLIMITED)


def in_section(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``function`` as a section on the account of the request that it is called for, if any.

    Once the request's outcome is certain (``conclude``), it isn't broken off any more.
    """
    return _as_section(function, None)


def interruptible(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``function`` as a section on the request's account; without a request, one that can only be
    interrupted. For functions that both requests and the process's own work call."""
    return _as_section(function, _UNLIMITED)


def _as_section(
    function: Callable[_Given, _Result], otherwise: CpuAccount | None
) -> Callable[_Given, _Result]:
    """``function`` as a section on the request's account, or, without a request, on ``otherwise``.
    The same as ``section``, without the cost of a context."""

    @wraps(function)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        account = _own.get() or otherwise
        if account is None or _drawn.get() is not None:  # no section, or a part of one
            return function(*given, **named)
        if slices.is_over:
            slices.yield_now()
        account.require()
        token = _drawn.set(account)
        # However it ends, the section is left first: whatever is called in it could be broken off,
        # too.
        try:
            result = function(*given, **named)
        except BrokenOff:
            _drawn.reset(token)
            raise account.refusal() from None
        except MemoryError:
            drawn = _drawn.get() or account
            _drawn.reset(token)
            raise drawn.without_memory() from None
        except BaseException:
            _drawn.reset(token)
            raise
        _drawn.reset(token)
        return result

    return call


def draw(seconds: float, code: CodeType | None = None) -> bool:
    """Charge ``seconds`` to the section that this thread or greenlet is in, or else to the request
    that it works for, if any. Returns whether it is in a section that may be interrupted.

    ``code`` is what is being executed: code that enters or leaves a section counts as outside, and
    isn't charged. Raises BrokenOff if the account is used up, again at each call, because something
    may swallow it.
    """
    account = _drawn.get()
    if account is not None:
        return code not in _EDGES and account.draw(seconds)
    own = _own.get()
    if own is not None:
        own.charge(seconds)
    return False


class Slices:
    """The time slices of this process: the stretches of processor time between two times that it
    looks at its sockets. ``longest_s`` and ``long`` count all code, inside and outside of sections.

    While the present slice ``is_over``, code that begins to compute, or doesn't have to wait for
    its client, calls ``yield_now``.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.yield_now: Callable[[], None] = lambda: None
        self.longest_s = 0.0
        self.long = 0
        self.yields = 0
        self.broken_off = 0


slices: Final = Slices()


def yield_if_over() -> None:
    """Let others go on first if the time slice is over. For code outside of sections that is about
    to compute for long, and holds no lock."""
    if slices.is_over:
        slices.yield_now()


_EDGES: Final = frozenset(
    each.__code__
    for each in (
        section.__enter__,
        section.__exit__,
        uninterrupted.__enter__,
        uninterrupted.__exit__,
        conclude,
        in_section(draw),  # any wrapper of ``_as_section``: they all share one code object
    )
)

"""The processor time of requests: an account for each, and the sections of code that draw on it.

A worker computes for one request at a time, so what one computes all others wait for. A *section*
is code that only computes: it waits for nothing, holds no lock, and changes nothing that outlives
it. So it can be interrupted between any two instructions of it, to give others a turn, and it can
be broken off where the account of its request is used up: then nothing was done.

The server calls ``draw`` every few milliseconds of processor time, in the middle of whatever is
being computed (``server.time_slices``). No section looks at a clock: entering one costs less than a
microsecond, and a request pays by how often it is met computing. Where nobody calls ``draw``, in
tests and in commands, accounts never end.

What a request computes outside of sections, such as what the database answers, is charged to its
account as well. It is broken off at the next section, or question to the database; and pages end
early, with a place to go on from, once half of the account is used (``is_half_used``).

Many requests that compute a little each are as bad as one that computes much. So a section begins
only while the slice isn't over: otherwise others have their turn first.

Worked example: a leader decides the requests p and q of one batch, each in a section on its own
account. p takes 20 ms of processor time to decide, q would take a minute. While q is computed,
other requests get their turns; when its two seconds are over, ``BrokenOff`` is raised in it, leaves
the section as ``TooMuchWork``, and is q's refusal. p is committed.

So it is where the process has no memory left: ``MemoryError`` leaves a section of a request as
``MemoryFull``, a refusal, unless it is decided already what becomes of the request.
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
    """It would be computed for longer than a request may: nothing was applied, nor decided. Of a
    read the answer ends, or never begins."""

    code = "too_much_work"

    def __init__(self, limit_ms: int) -> None:
        super().__init__(
            f"the request takes more than {limit_ms} ms of processor time (request_cpu_ms):"
            " ask for less at a time"
        )
        self.limit_ms = limit_ms


class BrokenOff(BaseException):
    """Raised in a section whose account is used up. No handler of ``Exception`` may swallow it:
    what is half computed decides nothing."""


class CpuAccount:
    """What one request may compute: ``limit_s`` seconds of processor time."""

    __slots__ = ("left_s", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s

    def draw(self, seconds: float) -> bool:
        """Whether what draws on it may be interrupted. Raises BrokenOff where it is used up."""
        self.left_s -= seconds
        if self.left_s < 0:
            slices.broken_off += 1
            raise BrokenOff
        return True

    def charge(self, seconds: float) -> None:
        """It was computed where nothing is broken off."""
        self.left_s -= seconds

    def require(self) -> None:
        """Raises TooMuchWork where it is used up."""
        if self.left_s < 0:
            slices.broken_off += 1
            raise self.refusal()

    def refusal(self) -> TooMuchWork:
        return TooMuchWork(round(self.limit_s * 1000))

    def without_memory(self) -> Exception:
        """What a ``MemoryError`` in its section is."""
        return MemoryFull("the process has no memory left for what the request takes")


class _Nobodys(CpuAccount):
    """What is computed for nobody, or tells of what is done: it may only be interrupted. It keeps
    no count, so that all may share it."""

    __slots__ = ()

    def draw(self, _seconds: float) -> bool:
        return True

    def charge(self, _seconds: float) -> None: ...

    def without_memory(self) -> Exception:
        return MemoryError()


class _Whole(CpuAccount):
    __slots__ = ()

    def draw(self, _seconds: float) -> bool:
        return False

    def charge(self, _seconds: float) -> None: ...


_WHOLE: Final = _Whole(math.inf)
_NOBODYS: Final = _Nobodys(math.inf)
# Whose request this thread or greenlet works for, and the account of the section it is in, if any.
_own: ContextVar[CpuAccount | None] = ContextVar("own", default=None)
_drawn: ContextVar[CpuAccount | None] = ContextVar("drawn", default=None)


def begin(limit_s: float) -> None:
    """From here on this thread, or greenlet, works for a new request."""
    _own.set(CpuAccount(limit_s))


def work_for(account: CpuAccount | None) -> CpuAccount | None:
    """From here on this thread, or greenlet, works on that account; returns the one before."""
    before = _own.get()
    _own.set(account)
    return before


def renew() -> None:
    """What comes now of the same request has an account of its own."""
    account = _own.get()
    if account is not None:
        _own.set(CpuAccount(account.limit_s))


def own_account() -> CpuAccount | None:
    """That of the request that this thread or greenlet works for, if it does for one."""
    return _own.get()


def is_half_used() -> bool:
    """Whether the request has used half of what it may compute: its answer should come to an end
    where there is more for another one."""
    account = _own.get()
    return account is not None and account.left_s < account.limit_s / 2


def require_some_left() -> None:
    """Raise TooMuchWork where the request has used up what it may compute. For code that is no
    section, and is about to ask for more to compute."""
    account = _own.get()
    if account is not None:
        account.require()


class section:  # noqa: N801 - it reads as a statement
    """A context in which ``account`` is drawn on; None: it is no section.

    Raises TooMuchWork where the account is used up before its end. Within a section another one is
    a part of it.
    """

    __slots__ = ("_account", "_token")

    def __init__(self, account: CpuAccount | None) -> None:
        self._account = account
        self._token: Token[CpuAccount | None] | None = None

    def __enter__(self) -> None:
        if self._account is not None and _drawn.get() is None:
            if slices.is_over:
                slices.give_turn()
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


class whole:  # noqa: N801 - it reads as a statement
    """A context within a section that is neither interrupted nor broken off: it takes a lock, or
    changes what others see."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _drawn.set(_WHOLE)

    def __exit__(self, *_: object) -> None:
        _drawn.reset(self._token)


def is_whole() -> bool:
    """Whether this thread, or greenlet, is where it is not to be interrupted."""
    return _drawn.get() is _WHOLE


def conclude() -> None:
    """It is decided what becomes of the request: from here on nothing of it is broken off.

    In a section that is true up to its end, elsewhere of all that this thread or greenlet computes
    for the request.
    """
    where = _own if _drawn.get() is None else _drawn
    if where.get() is not None:
        where.set(_NOBODYS)


def computed(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``function`` as a section on the account of the request that it is called for, if any.

    Where it is decided what becomes of the request (``conclude``), nothing is broken off any more.
    """
    return _as_section(function, None)


def interruptible(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Likewise, and a section for nobody where there is no account: what is called by requests and
    by the process's own work."""
    return _as_section(function, _NOBODYS)


def _as_section(
    function: Callable[_Given, _Result], otherwise: CpuAccount | None
) -> Callable[_Given, _Result]:
    """As in a ``section``, on the account ``otherwise`` where there is no request's."""

    @wraps(function)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        account = _own.get() or otherwise
        if account is None or _drawn.get() is not None:  # no section, or a part of one
            return function(*given, **named)
        if slices.is_over:
            slices.give_turn()
        account.require()
        token = _drawn.set(account)
        # However it ends, it is left before anything is called, which would be broken off as well.
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
    """Charge ``seconds`` to the section that this thread or greenlet is in; whether it is in one,
    which may be interrupted. Elsewhere they are charged to the request that it works for, if any.

    ``code`` is what is being executed: where that is the beginning or the end of a section, it is
    as if there were none. Raises BrokenOff where the account is used up; again at each call, for
    whatever may swallow it.
    """
    account = _drawn.get()
    if account is not None:
        return code not in _EDGES and account.draw(seconds)
    own = _own.get()
    if own is not None:
        own.charge(seconds)
    return False


class Slices:
    """What this process has seen of its slices: the stretches of processor time between two looks
    at its sockets. ``longest_s`` and ``long`` count all code, sections or not.

    While the one under way ``is_over``, all who begin to compute, or have no need to wait for their
    client, call ``give_turn``.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.give_turn: Callable[[], None] = lambda: None
        self.longest_s = 0.0
        self.long = 0
        self.turns = 0
        self.broken_off = 0


slices: Final = Slices()


def let_others() -> None:
    """Where the slice is over, others have their turn first. For code that is no section and is
    about to compute for long; it holds no lock."""
    if slices.is_over:
        slices.give_turn()


_EDGES: Final = frozenset(
    each.__code__
    for each in (
        section.__enter__,
        section.__exit__,
        whole.__enter__,
        whole.__exit__,
        conclude,
        computed(draw),  # its wrapper, whose code all of them share
    )
)

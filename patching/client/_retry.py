"""When a request is sent again, and after which pause: one policy for the client and for Spark."""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Final, TypeVar

from patching.client.errors import NotAuthorized, Problem, RequestError

_T = TypeVar("_T")

# The longest that a client can tell the gateway to try; sockets can't wait for ever, either.
_LONGEST_S: Final = 999_999_999.0


@dataclass(frozen=True, slots=True)
class RetryDetails:
    """A retry that is about to be made: after ``failures`` in a row, the last being ``error``, and
    after a pause of ``pause_s`` seconds."""

    failures: int
    pause_s: float
    error: Exception


@dataclass(frozen=True, slots=True)
class Retry:
    """When a request is sent again.

    ``retries_max``: how often one request is sent again (0: never; None: until its deadline, which
    bounds it in any case).

    The n-th pause in a row is drawn evenly from 0 to ``first_s`` doubled n-1 times, at most
    ``longest_s`` seconds (full jitter), so that many clients that failed together don't come back
    together. If the gateway said how long to wait, that is added. ``luck`` returns numbers
    from 0 to 1.

    ``answer_s``: how many seconds the first try of a request on one document waits for its answer,
    if it may be sent again; twice as long as answers have taken lately, if that is longer. Each
    further try waits twice as long, and none beyond the deadline. So an answer that gets lost on
    the way costs that much, not the whole time. None: up to the deadline.

    ``make_keys``: a write without an idempotency key gets one, so that it can be sent again if its
    answer gets lost. Without a key, it is sent again only if it certainly wasn't applied.

    ``on_retry`` is called before each pause, in the thread that pauses: to count or to log.

    ``clock`` and ``sleep`` count seconds. ``sends_max``, ``retries_max`` plus 1, is deprecated.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    luck: Callable[[], float] = random.random
    _: KW_ONLY
    retries_max: int | None = 19
    answer_s: float | None = 1.0
    make_keys: bool = True
    on_retry: Callable[[RetryDetails], object] | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    sends_max: InitVar[int | None] = None

    def __post_init__(self, sends_max: int | None) -> None:
        if sends_max is not None:
            if sends_max < 1:
                raise ValueError("sends_max must be at least 1")
            warn_renamed("sends_max", "retries_max, which is 1 less", stacklevel=4)
            object.__setattr__(self, "retries_max", sends_max - 1)
        if self.retries_max is not None and self.retries_max < 0:
            raise ValueError("retries_max must be at least 0")
        if not 0 <= self.first_s <= self.longest_s:
            raise ValueError("first_s must be from 0 to longest_s")
        if self.answer_s is not None and self.answer_s <= 0:
            raise ValueError("answer_s must be more than 0")

    def pause_s(self, failures: int, error: BaseException | None = None) -> float:
        """The seconds to pause after ``failures`` (from 1) in a row, the last being ``error``."""
        longest_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))
        asked_s = error.retry_after_s if isinstance(error, RequestError) else None
        return longest_s * self.luck() + (asked_s or 0.0)

    def announce(self, failures: int, pause_s: float, error: Exception) -> None:
        """Call ``on_retry``."""
        if self.on_retry is not None:
            self.on_retry(RetryDetails(failures, pause_s, error))

    def tries(self, timeout_s: float) -> Tries:
        """The tries of one request that begins now, all within ``timeout_s`` seconds, which may be
        infinite."""
        return Tries(self, self.clock() + min(timeout_s, _LONGEST_S))


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a caller uses a deprecated name."""
    warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel)


class Tries:
    """One request, sent until it is answered or given up. ``failures``: how often it failed."""

    def __init__(self, retry: Retry, deadline: float) -> None:
        self._retry = retry
        self._deadline = deadline
        self.failures = 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; below 0 if it has passed."""
        return self._deadline - self._retry.clock()

    def answer_s(self, usual_s: float = 0.0) -> float:
        """How long the next try of a request on one document waits for its answer, if answers have
        taken ``usual_s`` lately; infinite for the last try."""
        retry = self._retry
        is_last = retry.retries_max is not None and self.failures >= retry.retries_max
        if retry.answer_s is None or is_last:
            return math.inf
        return max(retry.answer_s, 2.0 * usual_s) * 2.0 ** min(self.failures, 60)

    def pause_after(
        self, error: RequestError, passes: bool | None = None, *, pauses: bool = True
    ) -> float | None:
        """Counts ``error``; returns how many seconds to pause before the next try, 0 unless
        ``pauses``. None if ``error`` won't pass (by default as `may_pass` says), the request was
        sent often enough, or the pause would end after the deadline."""
        self.failures += 1
        passes = may_pass(error) if passes is None else passes
        retries_max = self._retry.retries_max
        if not passes or (retries_max is not None and self.failures > retries_max):
            return None
        pause_s = self._retry.pause_s(self.failures, error) if pauses else 0.0
        if pause_s >= self.left_s:
            return None
        self._retry.announce(self.failures, pause_s, error)
        return pause_s

    def again(self, error: RequestError) -> bool:
        """Pause as `pause_after` says. Returns False, at once, if there is no next try."""
        pause_s = self.pause_after(error)
        if pause_s:
            self._retry.sleep(pause_s)
        return pause_s is not None

    def ask(self, send: Callable[[], _T]) -> _T:
        """Returns the result of ``send``, which is called again after each failure that may pass,
        and so must be safe to repeat. Raises the last RequestError."""
        while True:
            try:
                return send()
            except RequestError as error:
                again = self.again(error)
                error.sends = self.failures
                if not again:
                    raise


def may_pass(error: RequestError) -> bool:
    """Whether it makes sense to send the request again: it may succeed, or tell what became of the
    first."""
    if isinstance(error, NotAuthorized):
        return False
    return error.retryable or (isinstance(error, Problem) and error.code == "outcome_unknown")

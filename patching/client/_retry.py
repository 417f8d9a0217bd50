"""When a request is sent again, and after which pause: one policy for the client and for Spark."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from patching.client._errors import NotAuthorized, Problem, RequestError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """The n-th pause in a row is drawn evenly from 0 to ``first_s`` doubled n-1 times, at most
    ``longest_s`` (full jitter), so that many clients that failed together don't come back together.

    ``luck`` gives numbers from 0 to 1.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    luck: Callable[[], float] = random.random

    def pause_s(self, failures: int, error: BaseException | None = None) -> float:
        """After so many ``failures`` in a row (1 or more), the last being ``error``: where the
        gateway said how long to stay away, that comes on top."""
        longest_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))
        asked_s = error.retry_after_s if isinstance(error, RequestError) else None
        return longest_s * self.luck() + (asked_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Backoff):
    """A request is sent ``sends_max`` times at most (1: never again), and not after its deadline,
    with the pauses of `Backoff` in between.

    ``make_keys``: a write that comes without an idempotency key is given one, so that it can be
    sent again when its answer got lost. Without a key it is sent again only where it is certain
    that it was not applied.

    ``clock`` and ``sleep`` count seconds.
    """

    sends_max: int = 20
    make_keys: bool = True
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        if self.sends_max < 1:
            raise ValueError("sends_max is at least 1")
        if not 0 <= self.first_s <= self.longest_s:
            raise ValueError("first_s is from 0 to longest_s")

    def tries(self, timeout_s: float) -> Tries:
        """The tries of one request that begins now and is last sent within ``timeout_s``."""
        return Tries(self, self.clock() + timeout_s)


class Tries:
    """One request, sent until it is answered or given up. ``failures``: how often it failed."""

    def __init__(self, retry: Retry, deadline: float) -> None:
        self._retry = retry
        self._deadline = deadline
        self.failures = 0

    @property
    def left_s(self) -> float:
        """How long until the deadline; below 0 where it has passed."""
        return self._deadline - self._retry.clock()

    def again(
        self, error: RequestError, passes: bool | None = None, *, pauses: bool = True
    ) -> bool:
        """Count ``error`` and pause, if it ``pauses``. False, at once, where it doesn't pass (None:
        as `may_pass` says), the request was sent often enough, or the pause would end after the
        deadline."""
        self.failures += 1
        passes = may_pass(error) if passes is None else passes
        if not passes or self.failures >= self._retry.sends_max:
            return False
        pause_s = self._retry.pause_s(self.failures, error) if pauses else 0.0
        if pause_s >= self.left_s:
            return False
        if pause_s:
            self._retry.sleep(pause_s)
        return True

    def ask(self, send: Callable[[], _T]) -> _T:
        """The result of ``send``, which is called again after each failure that may pass, and so
        must be safe to repeat. Raises the last RequestError."""
        while True:
            try:
                return send()
            except RequestError as error:
                again = self.again(error)
                error.sends = self.failures
                if not again:
                    raise


def may_pass(error: RequestError) -> bool:
    """Whether sending the request again makes sense at all: it may succeed, or what became of it
    may be found out by that."""
    if isinstance(error, NotAuthorized):
        return False
    return error.retryable or (isinstance(error, Problem) and error.code == "outcome_unknown")

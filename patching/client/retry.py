"""When a request is sent again, and after which pause.

How long to wait after a failure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from patching.client.errors import RequestError
from patching.client.problems import NotAuthorized, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A request is sent ``sends_max`` times at most (1: never again), and not after its deadline.

    The n-th pause is drawn evenly from 0 to ``first_s`` doubled n-1 times, ``longest_s`` at most
    (full jitter); where the gateway said how long to stay away, that comes on top.

    ``make_keys``: a write that comes without an idempotency key is given one, so that it can be
    sent again when its answer got lost. Without a key it is sent again only where it is certain
    that it was not applied.

    ``luck`` gives numbers from 0 to 1; ``clock`` and ``sleep`` count seconds.
    """

    sends_max: int = 20
    first_s: float = 0.1
    longest_s: float = 5.0
    make_keys: bool = True
    luck: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        if self.sends_max < 1:
            raise ValueError("sends_max is at least 1")
        if not 0 <= self.first_s <= self.longest_s:
            raise ValueError("first_s is from 0 to longest_s")

    def pause_s(self, failures: int, error: BaseException | None = None) -> float:
        """After so many ``failures`` in a row (1 or more), the last being ``error``."""
        longest_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))
        asked_s = error.retry_after_s if isinstance(error, RequestError) else None
        return longest_s * self.luck() + (asked_s or 0.0)


def may_pass(error: RequestError) -> bool:
    """Whether sending the request again makes sense at all: it may succeed, or it may be found out
    by that what became of it."""
    if isinstance(error, NotAuthorized):
        return False
    return error.retryable or (isinstance(error, Problem) and error.code == "outcome_unknown")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_s`` to ``longest_s``; each is drawn from its upper half, so
    that many clients that failed together don't come back together.

    ``luck`` gives numbers from 0 to 1.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    luck: Callable[[], float] = random.random

    def pause_s(self, failures: int, error: BaseException | None = None) -> float:
        """After so many ``failures`` in a row (1 or more), the last being ``error``. Not before
        the time that the gateway asked to stay away."""
        longest_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))
        pause_s = longest_s * (1 + self.luck()) / 2
        wanted_s = error.retry_after_s if isinstance(error, RequestError) else None
        return max(pause_s, wanted_s or 0.0)

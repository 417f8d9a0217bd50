"""How long to wait after a failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from .errors import RequestError


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

"""Pauses between the attempts of a client that lost a race."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Full jitter: before attempt k+1, uniform in 0 .. min(cap, base * 2^(k-1)).

    `base_ms` 0 is the immediate retry.
    """

    base_ms: float = 0.0
    cap_ms: float = 0.0

    def pause_s(self, attempt: int, rng: random.Random) -> float:
        """How long to pause after the lost attempt (1, 2, ...)."""
        if not self.base_ms:
            return 0.0
        limit_ms = min(self.cap_ms, self.base_ms * 2.0 ** min(attempt - 1, 30))
        return rng.uniform(0.0, limit_ms) / 1000

    def __str__(self) -> str:
        if not self.base_ms:
            return "immediate"
        return f"backoff {self.base_ms:g}..{self.cap_ms:g} ms"


IMMEDIATE = Backoff()
CANDIDATES = (
    Backoff(1, 20),
    Backoff(2, 50),
    Backoff(5, 100),
    Backoff(10, 200),
    Backoff(20, 400),
    Backoff(40, 800),
    Backoff(80, 1600),
)

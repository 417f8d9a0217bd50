"""How long the tests wait until they call it a hang. No test has a limit of its own.

The limits catch hangs, not slowness: each is minutes, and what they wait for takes seconds.
GATEWAY_TEST_PATIENCE multiplies them, for a machine that is slower still. A test of what happens
when a limit *of the gateway* passes sets that limit small, and asserts what happened, not when.
"""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("GATEWAY_TEST_PATIENCE") or 1)

# One wait: for an answer, a condition, a thread, the start or the end of a process.
WAIT_S = 180 * PATIENCE
WAIT_MS = int(1000 * WAIT_S)
# A program that a test runs from its beginning to its end.
RUN_S = 600 * PATIENCE
# A test with the fixtures that are made for it. Above the others, whose failures say more.
TEST_S = 1200 * PATIENCE

# The settings of a gateway whose test is not about them: nothing it does comes too late.
UNHURRIED = {
    "deadline_ms": min(WAIT_MS, 600_000),
    "store_timeout_ms": min(WAIT_MS, 600_000),
    "body_timeout_s": min(int(WAIT_S), 3600),
    "body_whole_timeout_s": min(int(WAIT_S), 3600),
    "worker_timeout_s": min(int(WAIT_S), 3600),
}


def pause_s(waited_s: float) -> float:
    """Between two looks at what one has waited for so long: many looks keep others from working."""
    return min(0.1, max(0.01, waited_s / 10))

"""Limits per principal over HTTP: what a request costs, and the draft's RateLimit fields.

draft-ietf-httpapi-ratelimit-headers-11. Each answer to a limited principal has ``RateLimit-Policy``
(for each policy, the quota of a window) and ``RateLimit`` (``r`` units are left, and as many come
back in ``t`` seconds). In a refusal, ``RateLimit`` has only the exceeded policies, and ``t`` is the
time until none is exceeded; Retry-After is never earlier.

A client that spends ``r`` units in ``t`` seconds keeps to the policy's rate in the long run. The
draft has no name for the unit ``operations``: a client must not take it for requests.

The rates never refuse a bulk request's lines, nor cut it off: they set how fast lines are read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from gateway.access import Principal
from gateway.access.token_buckets import Excess, PrincipalLimits
from gateway.http.context import READING, HeaderList, Observed, OpenContext, RateSpending
from gateway.http.wire.codes import TryLater

REQUESTS: Final = "requests"
BODY_BYTES: Final = "body-bytes"
OPERATIONS: Final = "operations"

_UNITS: Final = {REQUESTS: "", BODY_BYTES: ';qu="content-bytes"', OPERATIONS: ';qu="operations"'}
_SETTINGS: Final = {
    REQUESTS: "principal_requests_per_s",
    BODY_BYTES: "principal_body_bytes_per_s",
    OPERATIONS: "principal_operations_per_s",
}
# How often a bulk request that waits checks whether it was closed meanwhile.
_LOOK_S: Final = 0.5


class RateLimits:
    """The rates of all principals, and the header that describes them."""

    def __init__(self, limits: PrincipalLimits) -> None:
        self._limits = limits
        self._policy = ", ".join(
            f'"{rate.name}";q={rate.quota}{_UNITS[rate.name]};w={rate.window_s}'
            for rate in limits.rates.values()
        )

    def spending_of(self, principal: Principal) -> RateSpending:
        return Spending(self._limits, principal.name, self._policy)


def admit(observed: Observed, spending: RateSpending) -> None:
    """Spend what each request of its kind costs. Raises TryLater."""
    amounts = {REQUESTS: 1}
    if observed.method not in READING and observed.route.endpoint != "bulk":
        amounts |= {OPERATIONS: 1, BODY_BYTES: observed.body_bytes or 0}
    spending.take(amounts)


class Spending:
    """One request's account with its principal's rates."""

    def __init__(self, limits: PrincipalLimits, principal: str, policy: str) -> None:
        self._limits = limits
        self._principal = principal
        self._policy = policy
        self._excess: Excess | None = None

    def take(self, amounts: dict[str, int]) -> None:
        """Spend all of ``amounts``, or nothing and raise TryLater."""
        excess = self._limits.take(self._principal, amounts)
        if excess is None:
            return
        self._excess = excess
        settings = ", ".join(_SETTINGS[name] for name in excess.names)
        raise TryLater(
            "rate_limited",
            f"principal {self._principal!r} is over its rate in this worker ({settings})",
            excess.wait_s,
            violated_policies=list(excess.names),
        )

    def spend(self, name: str, amount: int) -> None:
        """Spend what the request has used already, even if less is left."""
        self._limits.spend(self._principal, name, amount)

    def pace(self, name: str, amount: int, is_over: Callable[[], bool]) -> None:
        """Spend ``amount`` a second's worth at a time, each once the one before has come back. Stop
        if the request ``is_over`` meanwhile."""
        rate = self._limits.rates.get(name)
        if rate is None:
            return
        step = max(1, int(rate.per_s))
        while amount > 0:
            while debt_s := self._limits.debt_s(self._principal, name):
                if is_over():
                    return
                time.sleep(min(debt_s, _LOOK_S))
            self.spend(name, min(step, amount))
            amount -= step

    def fields(self) -> HeaderList:
        """The RateLimit headers of the answer."""
        levels = self._limits.levels(self._principal)
        excess = self._excess
        if excess is not None:
            within_s = max(1, math.ceil(excess.wait_s))
            levels = [
                level._replace(within_s=within_s)
                for level in levels
                if level.rate.name in excess.names
            ]
        left = ", ".join(
            f'"{level.rate.name}";r={level.available};t={level.within_s}' for level in levels
        )
        return [("RateLimit-Policy", self._policy), ("RateLimit", left)]


def spend_operations(context: OpenContext, count: int) -> None:
    """Spend ``count`` operations for the request; one was spent already when it was let in.

    Raises TryLater; then nothing of the request may be done.
    """
    if context.spending is not None and count > 1:
        # All are taken at once: more than the quota is allowed only if the bucket is full.
        context.spending.spend(OPERATIONS, -1)
        context.spending.take({OPERATIONS: count})


def spend_body_bytes(context: OpenContext, size: int) -> None:
    """Spend the ``size`` bytes of the body, unless its length was declared: then they are spent."""
    if context.spending is not None and context.observed.body_bytes is None:
        context.spending.spend(BODY_BYTES, size)

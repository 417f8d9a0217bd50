"""For how long tails are left to the workers that made them."""

from __future__ import annotations

from gateway.limits import ServiceLimits
from gateway.runtime import Runtime

# What a worker may take for each commit of its tail, on a busy machine.
_GRACE_PER_COMMIT_S = 0.002
# Sightings are only hints of how long a tail has been unfinished; forgetting them costs a wait.
_SIGHTINGS_MAX = 10_000


class Patience:
    """For how long tails have been left to the workers that made them. Not thread-safe."""

    def __init__(self, runtime: Runtime, limits: ServiceLimits) -> None:
        self._runtime = runtime
        self._grace_s = limits.write_out_grace_ms / 1000
        self._seen: dict[str, tuple[int, float]] = {}

    def is_over(self, catalog: str, revision: int, commits: int) -> bool:
        """Whether its makers had time for what they made up to ``revision``: so many commits."""
        grace_s = self._grace_s
        if grace_s:
            grace_s += _GRACE_PER_COMMIT_S * commits
        now = self._runtime.monotonic()
        seen, since = self._seen.get(catalog, (revision, now))
        if seen < revision:  # who asks for less shares the time of who asked for more
            seen, since = revision, now
        if now - since >= grace_s:
            self._seen.pop(catalog, None)
            return True
        if len(self._seen) > _SIGHTINGS_MAX:
            self._seen.clear()
        self._seen[catalog] = (seen, since)
        return False

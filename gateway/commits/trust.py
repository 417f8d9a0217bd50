"""Which catalogs a worker may take to be where it left them, without looking at the head."""

from __future__ import annotations

from gateway.commits.runtime import Runtime

# Long enough for the next batch of a busy catalog to come, short enough to stay a good guess.
_TRUST_S = 0.1
_TRUSTED_MAX = 100_000


class Trust:
    """A guess, never a proof: only a move that is won shows that it was right."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._until: dict[str, float] = {}

    def holds(self, catalog: str) -> bool:
        until = self._until.get(catalog)
        return until is not None and self._runtime.monotonic() < until

    def gained(self, catalog: str) -> None:
        """This worker has just moved the head, and nobody else seems to write the catalog."""
        if len(self._until) >= _TRUSTED_MAX:
            self._until.clear()
        self._until[catalog] = self._runtime.monotonic() + _TRUST_S

    def lost(self, catalog: str) -> None:
        self._until.pop(catalog, None)

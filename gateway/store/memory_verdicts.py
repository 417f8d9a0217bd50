"""The verdicts of the in-memory twin, and the heads that have nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic as _monotonic

from msgspec.structs import replace

from gateway.model import Head, Verdict
from gateway.store.memory_retention import MemoryRecords


class MemoryVerdicts(MemoryRecords):
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        super().__init__(monotonic)
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}
        self._expires: dict[tuple[str, str, str], int] = {}
        # By catalog without a commit, the time of its last verdict.
        self._uncommitted: dict[str, int] = {}

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        with self._lock:
            for each in verdicts:
                name = each.catalog, each.idempotency.principal, each.idempotency.key
                there = self._verdicts.get(name)
                if there is None or there.number < each.number:
                    self._verdicts[name] = each
                    self._expires[name] = each.time_us + kept_s * 1_000_000

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        with self._lock:
            found = sorted(
                (at_us, name) for name, at_us in self._uncommitted.items() if at_us < before_us
            )
            heads = [self._heads[name] for _, name in found[:limit]]
        return [replace(head, tail=None, verdicts=None) for head in heads]

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        with self._lock:
            kept = {catalog for catalog, _, _ in self._verdicts}
            for head in heads:
                there = self._heads.get(head.catalog)
                if head.revision or there is None or there.place != head.place:
                    continue
                if not there.verdicts and head.catalog not in kept:
                    del self._heads[head.catalog], self._uncommitted[head.catalog]

    def expire_verdicts(self, now_us: int) -> None:
        """Forget the verdicts that needn't be kept any more, as MongoDB does now and then."""
        with self._lock:
            for name in [name for name, at_us in self._expires.items() if at_us <= now_us]:
                del self._verdicts[name], self._expires[name]

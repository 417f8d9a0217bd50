"""Signals as one simulated worker gets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.store.contract import CommitSignals, StoreUnreachable

from .scheduler import Scheduler

_LOOK_EVERY_S = 0.25


class SimSignals:
    """See ``gateway.store.contract.CommitSignals``: looks now and then, as long as it has a way."""

    def __init__(
        self,
        inner: CommitSignals,
        scheduler: Scheduler,
        read: Callable[[Sequence[Callable[[], Mapping[str, int]]]], list[Mapping[str, int]]],
        is_down: Callable[[], bool],
    ) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._read = read
        self._is_down = is_down
        self._broken = False

    def next(self, timeout_s: float) -> Mapping[str, int]:
        deadline = self._scheduler.now + timeout_s
        try:
            told = self._look()
            while not told and self._scheduler.now < deadline:
                left_s = deadline - self._scheduler.now
                self._scheduler.sleep(min(left_s, _LOOK_EVERY_S))
                if self._is_down():
                    raise StoreUnreachable("simulated: the store is down")
                told = self._inner.next(0)
        except StoreUnreachable:
            self._broken = True
            self.close()
            raise
        return told

    def close(self) -> None:
        self._inner.close()

    def _look(self) -> Mapping[str, int]:
        if self._broken:
            raise StoreUnreachable("simulated: the signals have ended")
        return self._read([lambda: self._inner.next(0)])[0]

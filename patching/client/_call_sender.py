"""CallPolicy, made by the thread that asks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

from patching.client._batching import Batcher
from patching.client._blocking import each, exchanged, run
from patching.client._calls import CallPolicy
from patching.client._retry import Retry
from patching.client._steps import Listing, SendOnce, Steps
from patching.client.transport import Transport

_T = TypeVar("_T")


class CallSender(CallPolicy):
    """Carries plans out, and blocks meanwhile. Thread-safe. With a ``batcher``, writes that come
    with their edit go where other writes do, too."""

    def __init__(
        self,
        transport: Transport,
        retry: Retry,
        timeout_s: float,
        batcher: Batcher | None = None,
    ) -> None:
        super().__init__(retry, timeout_s, batches=batcher is not None)
        self.transport = transport
        self._batcher = batcher

    def run(self, plan: Steps[_T]) -> _T:
        return run(plan, self)

    def each(self, plan: Listing[_T]) -> Iterator[_T]:
        return each(plan, self)

    def exchange(self, step: SendOnce) -> Any:
        """As `Blocking`; a line goes with others, if there are any."""
        if self._batcher is None or step.line is None:
            return exchanged(self.transport, step)
        timeout_s = self.timeout_s if step.timeout_s is None else step.timeout_s
        alone = partial(exchanged, self.transport, step)
        return self._batcher.send(step.line, step.shared, timeout_s, alone)

    def sleep(self, seconds: float) -> object:
        return self.retry.sleep(seconds)

"""Plans carried out by a thread that waits; a `Transport` does each exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from urllib3.exceptions import HTTPError

from patching.client._calls import CallPolicy
from patching.client._retry import Retry
from patching.client._steps import Listing, Pause, Pieces, PlanItem, PlanProgress, SendOnce, Steps
from patching.client.transport import Transport, in_words

if TYPE_CHECKING:
    from patching.client._batching import Batcher

_T = TypeVar("_T")

_PIECE_BYTES_MAX: Final = 65_536


class Blocking:
    """Carries out plans, and blocks meanwhile: ``exchange`` returns the answer to a step, ``sleep``
    lets time pass."""

    def __init__(
        self, exchange: Callable[[SendOnce], Any], sleep: Callable[[float], object]
    ) -> None:
        self.exchange = exchange
        self._sleep = sleep

    def run(self, plan: Steps[_T]) -> _T:
        """The result of ``plan``."""
        progress = PlanProgress(plan)
        while not progress.is_over:
            self._carry_out(progress)
        return progress.result

    def each(self, plan: Listing[_T]) -> Iterator[_T]:
        """The items of ``plan``, as it is carried out."""
        progress = PlanProgress(plan)
        while not progress.is_over:
            if isinstance(progress.step, PlanItem):
                yield progress.step.value
                progress.answered(None)
            else:
                self._carry_out(progress)

    def _carry_out(self, progress: PlanProgress[Any]) -> None:
        step: SendOnce | Pause = progress.step
        try:
            done: Any = None
            if isinstance(step, SendOnce):
                done = self.exchange(step)
            elif step.seconds:
                self._sleep(step.seconds)
        except BaseException as error:  # noqa: BLE001 - the plan decides, even on Ctrl+C
            progress.failed(error)
        else:
            progress.answered(done)


def exchanged(transport: Transport, step: SendOnce, timeout_s: float | None = None) -> Any:
    """What came of ``step``, sent once. ``timeout_s`` replaces its own. Raises RequestError."""
    send = transport.request if step.takes == "whole" else transport.open
    answer: Any = send(
        step.method,
        step.path,
        query=step.query,
        body=step.body,
        headers=step.headers,
        read_timeout_s=step.timeout_s if timeout_s is None else timeout_s,
    )
    if step.takes != "lines":
        return answer
    pieces: list[bytes] = []
    try:
        # ``stream``, and a loop over ``answer``, lose some of what came before a break.
        while piece := answer.read1(_PIECE_BYTES_MAX):
            pieces.append(piece)
    except (HTTPError, OSError) as error:
        return Pieces(pieces, in_words(error))
    finally:
        answer.close()
    return Pieces(pieces, None)


class Alone(Blocking):
    """Sends each exchange as a request of its own, by ``transport``."""

    def __init__(self, transport: Transport, sleep: Callable[[float], object]) -> None:
        super().__init__(partial(exchanged, transport), sleep)


class CallSender(Blocking, CallPolicy):
    """Carries out the plans of calls. Thread-safe. With a ``batcher``, writes that come with their
    edit may share a request."""

    def __init__(
        self, transport: Transport, retry: Retry, timeout_s: float, batcher: Batcher | None = None
    ) -> None:
        CallPolicy.__init__(self, retry, timeout_s, batches=batcher is not None)
        exchange: Callable[[SendOnce], Any] = partial(exchanged, transport)
        if batcher is not None:
            exchange = partial(_shared, transport, batcher, timeout_s)
        # Not a method of its own: a bound one would make a cycle, which keeps the connections of a
        # client that nobody closed until it is collected.
        Blocking.__init__(self, exchange, retry.sleep)
        self.transport = transport


def _shared(transport: Transport, batcher: Batcher, usual_s: float, step: SendOnce) -> Any:
    """Sends ``step``, and a line with others, if any; returns what came of it."""
    if step.line is None:
        return exchanged(transport, step)
    timeout_s = usual_s if step.timeout_s is None else step.timeout_s
    return batcher.send(step.line, step.shared, timeout_s, partial(exchanged, transport, step))

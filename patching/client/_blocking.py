"""Plans carried out by a thread that waits: each exchange by a `Transport`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from urllib3.exceptions import HTTPError

from patching.client._calls import CallPolicy
from patching.client._retry import Retry
from patching.client._steps import Listing, Pause, Pieces, PlanItem, PlanProgress, SendOnce, Steps
from patching.client.transport import HttpAnswer, Transport, in_words

_T = TypeVar("_T")

_PIECE_BYTES_MAX: Final = 65_536


class Blocking(Protocol):
    """How this client carries a step out: an exchange's answer, and the passing of time."""

    def exchange(self, step: SendOnce) -> Any: ...

    def sleep(self, seconds: float) -> object: ...


class SharedRequests(Protocol):
    """Who sends writes of several threads in one request: a `Batcher`."""

    def send(
        self, text: bytes, prefer: str, timeout_s: float, alone: Callable[[float], HttpAnswer]
    ) -> HttpAnswer: ...


def run(plan: Steps[_T], by: Blocking) -> _T:
    """The result of ``plan``."""
    progress = PlanProgress(plan)
    while not progress.is_over:
        _carry_out(progress, by)
    return progress.result


def each(plan: Listing[_T], by: Blocking) -> Iterator[_T]:
    """What ``plan`` tells, as it is carried out."""
    progress = PlanProgress(plan)
    while not progress.is_over:
        if isinstance(progress.step, PlanItem):
            yield progress.step.value
            progress.answered(None)
        else:
            _carry_out(progress, by)


def _carry_out(progress: PlanProgress[Any], by: Blocking) -> None:
    step: SendOnce | Pause = progress.step
    try:
        done: Any = None
        if isinstance(step, SendOnce):
            done = by.exchange(step)
        elif step.seconds:
            by.sleep(step.seconds)
    except BaseException as error:  # noqa: BLE001 - the plan's to judge, Ctrl+C too
        progress.failed(error)
    else:
        progress.answered(done)


def exchanged(transport: Transport, step: SendOnce, timeout_s: float | None = None) -> Any:
    """What came of ``step``, sent once. ``timeout_s``: another than its own. RequestError."""
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
        # Neither ``stream`` nor the loop over ``answer`` tell all that came before it broke off.
        while piece := answer.read1(_PIECE_BYTES_MAX):
            pieces.append(piece)
    except (HTTPError, OSError) as error:
        return Pieces(pieces, in_words(error))
    finally:
        answer.close()
    return Pieces(pieces, None)


class Alone:
    """Each exchange is a request of its own, sent by ``transport``."""

    def __init__(self, transport: Transport, sleep: Callable[[float], object]) -> None:
        self._transport = transport
        self.sleep = sleep

    def exchange(self, step: SendOnce) -> Any:
        return exchanged(self._transport, step)

    def run(self, plan: Steps[_T]) -> _T:
        return run(plan, self)

    def each(self, plan: Listing[_T]) -> Iterator[_T]:
        return each(plan, self)


class CallSender(CallPolicy):
    """Carries plans out, and blocks meanwhile. Thread-safe. With a ``batcher``, writes that come
    with their edit go where other writes do, too."""

    def __init__(
        self,
        transport: Transport,
        retry: Retry,
        timeout_s: float,
        batcher: SharedRequests | None = None,
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

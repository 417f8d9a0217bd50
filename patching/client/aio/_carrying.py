"""Plans carried out by asyncio: each exchange by httpx2."""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import httpx2

from patching.client._calls import CallPolicy
from patching.client._retry import Retry
from patching.client._steps import Listing, Pause, Pieces, PlanItem, PlanProgress, SendOnce, Steps
from patching.client._wire import HttpAnswer, Outgoing, is_success, refusal, unreachable

_P = ParamSpec("_P")
_T = TypeVar("_T")

_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_LEAST_S: Final = 0.05


class AsyncTransport:
    """HTTP to a gateway, as `patching.client.transport.Transport`, for one event loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        headers: Mapping[str, str] | None = None,
        pool_size: int = 10,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 60.0,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        self._outgoing = Outgoing(url, token, headers)
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        trusted = ssl.create_default_context(cafile=ca_file)
        if certificate_file is not None:
            trusted.load_cert_chain(certificate_file, key_file)
        self._http = httpx2.AsyncClient(
            verify=trusted,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=pool_size),
            follow_redirects=False,
            trust_env=False,
        )
        self._http.headers.clear()  # what goes out is the wire's to say

    async def exchange(self, step: SendOnce) -> Any:
        """What came of ``step``, sent once. RequestError."""
        sent = self._outgoing.headers(step.headers)
        deadline = None if step.timeout_s is None else time.monotonic() + step.timeout_s
        left = self._outgoing.hosts
        while True:
            place, left = self._outgoing.place, left - 1
            url = self._outgoing.url(place, step.path, step.query)
            try:
                async with asyncio.timeout(None if step.takes == "stream" else _left_s(deadline)):
                    return await self._sent(step, url, sent, self._timeout(deadline))
            except (httpx2.RequestError, OSError) as error:
                self._outgoing.failed(place)
                is_unsent = isinstance(error, _UNSENT)
                if not left or not is_unsent:
                    why = _in_words(error)
                    raise unreachable(step.method, url, why, unsent=is_unsent) from None

    async def _sent(
        self, step: SendOnce, url: str, headers: dict[str, str], timeout: httpx2.Timeout
    ) -> Any:
        request = self._http.build_request(
            step.method, url, content=step.body, headers=headers, timeout=timeout
        )
        response = await self._http.send(request, stream=True)
        is_kept = False
        try:
            if not is_success(response.status_code):
                raise refusal(step.method, await _answer(response))
            if step.takes == "whole":
                return await _answer(response)
            if step.takes == "lines":
                return await _pieces(response)
            is_kept = True
            return response
        finally:
            if not is_kept:
                await response.aclose()

    def _timeout(self, deadline: float | None) -> httpx2.Timeout:
        left_s = _left_s(deadline)
        if left_s is None:
            return httpx2.Timeout(self._read_timeout_s, connect=self._connect_timeout_s)
        return httpx2.Timeout(left_s, connect=min(self._connect_timeout_s, left_s))

    async def close(self) -> None:
        await self._http.aclose()


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), _LEAST_S)


async def _answer(response: httpx2.Response) -> HttpAnswer:
    return HttpAnswer(response.status_code, response.headers, await response.aread())


async def _pieces(response: httpx2.Response) -> Pieces:
    pieces: list[bytes] = []
    try:
        async for piece in response.aiter_raw():
            pieces.append(piece)
    except (httpx2.RequestError, OSError) as error:
        return Pieces(pieces, _in_words(error))
    return Pieces(pieces, None)


def _in_words(error: BaseException) -> str:
    """Why a connection failed, for people."""
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return "timed out"
    return str(error) or type(error).__name__


class AsyncCalls(CallPolicy):
    """Carries plans out, and lets other tasks go on meanwhile. Of one event loop."""

    def __init__(self, transport: AsyncTransport, retry: Retry, timeout_s: float) -> None:
        super().__init__(retry, timeout_s)
        self._transport = transport

    async def run(self, plan: Steps[_T]) -> _T:
        progress = PlanProgress(plan)
        while not progress.is_over:
            await self._carry_out(progress)
        return progress.result

    async def each(self, plan: Listing[_T]) -> AsyncIterator[_T]:
        progress = PlanProgress(plan)
        while not progress.is_over:
            if isinstance(progress.step, PlanItem):
                yield progress.step.value
                progress.answered(None)
            else:
                await self._carry_out(progress)

    async def _carry_out(self, progress: PlanProgress[Any]) -> None:
        step: SendOnce | Pause = progress.step
        try:
            done: Any = None
            if isinstance(step, SendOnce):
                done = await self._transport.exchange(step)
            elif step.seconds:
                await self._pause(step.seconds)
        except GeneratorExit:  # nothing more can be awaited
            raise
        except BaseException as error:  # noqa: BLE001 - the plan's to judge, cancellation too
            progress.failed(error)
        else:
            progress.answered(done)

    async def _pause(self, seconds: float) -> None:
        """By the policy's own ``sleep``, if it has one; that may be a coroutine function."""
        sleep: Any = self.retry.sleep
        passing = (asyncio.sleep if sleep is time.sleep else sleep)(seconds)
        if inspect.isawaitable(passing):
            await passing


def awaited(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """The method of the client that blocks, for this one: the plan is the same."""
    plan = _plan(method)

    @functools.wraps(method)
    async def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = await self._calls.run(plan(self._same, *args, **kwargs))
        return result

    return call


def looped(
    method: Callable[Concatenate[Any, _P], Iterator[_T]],
) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """Likewise, of a method that is looped over."""
    plan = _plan(method)

    @functools.wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        told: AsyncIterator[_T] = self._calls.each(plan(self._same, *args, **kwargs))
        return told

    return call


def planned(
    method: Callable[Concatenate[Any, _P], Any], make: Callable[[AsyncCalls, Any], _T]
) -> Callable[Concatenate[Any, _P], _T]:
    """A method that makes something of the plan, and of what carries it out."""
    plan = _plan(method)

    @functools.wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return make(self._calls, plan(self._same, *args, **kwargs))

    return call


def _plan(method: Any) -> Callable[..., Any]:
    plan: Callable[..., Any] = method._plan
    return plan

"""The client for asyncio: the names of `patching.client`, with methods to be awaited.

    async with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = await catalog.get("orders")
        await catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

Both clients carry out the same plans, so they send the same requests, and send them again for the
same reasons after the same pauses. Values, terms and errors are those of `patching.client`. Needs
the extra ``asyncio``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, Unpack

try:
    import httpx2
except ImportError as _error:
    raise ImportError(
        "the client for asyncio needs httpx2: install metadata-gateway with its extra 'asyncio'"
    ) from _error

from patching.client import _documents, _gateway, _reading, _retention, uploads
from patching.client._calls import CallPolicy
from patching.client._feed import Followed, Following
from patching.client._retry import Retry
from patching.client._steps import Listing, Pause, Pieces, PlanItem, PlanProgress, SendOnce, Steps
from patching.client._wire import (
    READ_TIMEOUT_S,
    ConnectionSettings,
    ConnectionTerms,
    HttpAnswer,
    Outgoing,
    is_success,
    refusal,
    seconds_left,
    unreachable,
)
from patching.client.bulk_writer import (
    BulkAnswer,
    BulkLine,
    BulkTerms,
    LineWindows,
    bulk_lines,
    is_decided,
)
from patching.client.errors import Unreachable
from patching.client.results import Commit, Document, TransactionResult
from patching.client.routes import CatalogRoutes
from patching.client.terms import Tokens, WriteTerms
from patching.client.transactions import TransactionDraft

__all__ = ["Catalog", "Feed", "Gateway", "Pin", "Transaction", "Upload"]

_T = TypeVar("_T")
_P = ParamSpec("_P")

_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class AsyncTransport:
    """HTTP to a gateway, like `patching.client.transport.Transport`, for one event loop."""

    def __init__(self, url: str, **connection: Unpack[ConnectionTerms]) -> None:
        terms = ConnectionSettings(**connection)
        self._outgoing = Outgoing(url, terms)
        self._connect_timeout_s = terms.connect_timeout_s
        trusted = ssl.create_default_context(cafile=terms.ca_file)
        if terms.certificate_file is not None:
            trusted.load_cert_chain(terms.certificate_file, terms.key_file)
        self._http = httpx2.AsyncClient(
            verify=trusted,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=terms.pool_size),
            follow_redirects=False,
            trust_env=False,
        )
        self._http.headers.clear()  # `Outgoing` says what is sent

    async def exchange(self, step: SendOnce) -> Any:
        """Sends ``step`` once; returns what came of it. Raises RequestError."""
        sent = self._outgoing.headers(step.headers)
        deadline = None if step.timeout_s is None else time.monotonic() + step.timeout_s
        left = self._outgoing.hosts
        while True:
            place, left = self._outgoing.place, left - 1
            url = self._outgoing.url(place, step.path, step.query)
            try:
                left_s = seconds_left(deadline, time.monotonic())
                async with asyncio.timeout(None if step.takes == "stream" else left_s):
                    return await self._sent(step, url, sent, self._timeout(left_s))
            except (httpx2.RequestError, OSError, RuntimeError) as error:
                is_closed = self._http.is_closed
                if isinstance(error, RuntimeError) and not is_closed:
                    raise
                self._outgoing.failed(place)
                is_unsent = isinstance(error, (*_UNSENT, RuntimeError))
                if not left or not is_unsent or is_closed:
                    raise unreachable(
                        step.method, url, _in_words(error), unsent=is_unsent, is_closed=is_closed
                    ) from None

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
                await _closed(response)

    def _timeout(self, left_s: float | None) -> httpx2.Timeout:
        if left_s is None:
            return httpx2.Timeout(READ_TIMEOUT_S, connect=self._connect_timeout_s)
        return httpx2.Timeout(left_s, connect=min(self._connect_timeout_s, left_s))

    async def close(self) -> None:
        await self._http.aclose()


# A task to which only the event loop refers may be collected before it is done.
_closing: Final[set[asyncio.Task[None]]] = set()


async def _closed(response: httpx2.Response) -> None:
    """Close it, to the end even if the task is cancelled meanwhile; otherwise its pool would count
    the request as under way for ever."""
    if response.is_closed:  # it was read to its end
        return
    closing = asyncio.create_task(response.aclose())
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
    await asyncio.wait({closing})
    closing.result()


async def _answer(response: httpx2.Response) -> HttpAnswer:
    return HttpAnswer(response.status_code, response.headers, await response.aread())


async def _pieces(response: httpx2.Response) -> Pieces:
    pieces: list[bytes] = []
    try:
        async for piece in response.aiter_bytes():
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
    """Carries out plans while other tasks go on. For one event loop."""

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
        except BaseException as error:  # noqa: BLE001 - the plan decides, even on cancellation
            progress.failed(error)
        else:
            progress.answered(done)

    async def _pause(self, seconds: float) -> None:
        """Sleep by the policy's own ``sleep``, if it has one; it may be a coroutine function."""
        sleep: Any = self.retry.sleep
        passing = (asyncio.sleep if sleep is time.sleep else sleep)(seconds)
        if inspect.isawaitable(passing):
            await passing


def awaited(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """The blocking client's method as one to be awaited; the plan is the same."""
    plan = _plan(method)

    @functools.wraps(method)
    async def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = await self._calls.run(plan(self._same, *args, **kwargs))
        return result

    return call


def looped(
    method: Callable[Concatenate[Any, _P], Iterator[_T]],
) -> Callable[Concatenate[Any, _P], AsyncIterator[_T]]:
    """Likewise, for a method that returns an iterator."""
    return planned(method, lambda calls, plan: calls.each(plan))


def planned(
    method: Callable[Concatenate[Any, _P], Any], make: Callable[[AsyncCalls, Any], _T]
) -> Callable[Concatenate[Any, _P], _T]:
    """A method that returns what ``make`` makes of the plan and of the calls that carry it out."""
    plan = _plan(method)

    @functools.wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return make(self._calls, plan(self._same, *args, **kwargs))

    return call


def _plan(method: Any) -> Callable[..., Any]:
    plan: Callable[..., Any] = method._plan
    return plan


class Gateway:
    """The gateway at ``url``, for the tasks of one event loop. Like `patching.client.Gateway`, with
    methods to be awaited; it holds connections until ``close``, or until its ``async with`` ends.
    Its keywords are the same, except for ``batch_s``.

    If a `Retry` has its own ``sleep``, that may be a coroutine function.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        **connection: Unpack[ConnectionTerms],
    ) -> None:
        if not timeout_s > 0:  # refuses NaN, too
            raise ValueError("timeout_s must be more than 0")
        self.url = url.rstrip("/")
        self._transport = AsyncTransport(url, **connection)
        self._calls = AsyncCalls(self._transport, retry or Retry(), timeout_s)
        self._same = self

    catalogs = looped(_gateway.Gateway.catalogs)
    is_ready = awaited(_gateway.Gateway.is_ready)

    def catalog(self, name: str) -> Catalog:
        """The catalog of that name, which needn't exist: its first write creates it."""
        return Catalog(self._calls, name)

    async def bulk(
        self,
        lines: Iterable[BulkLine | Mapping[str, Any]] | AsyncIterable[BulkLine | Mapping[str, Any]],
        terms: BulkTerms | None = None,
    ) -> AsyncIterator[BulkAnswer]:
        """Like `patching.client.Gateway.bulk`; ``lines`` may be asynchronous."""
        windows = LineWindows(terms or BulkTerms(retry=self._calls.unbounded_retry))
        async for line in _each(lines):
            (made,) = bulk_lines([line], make_keys=self._calls.retry.make_keys)
            if (window := windows.take(made)) is not None:
                answers = await self._calls.run(windows.answers(window))
                for answer in answers:
                    yield answer
                if not is_decided(answers):
                    return
        if window := windows.rest():
            for answer in await self._calls.run(windows.answers(window)):
                yield answer

    async def close(self) -> None:
        """Close the connections: nothing can be asked any more."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Gateway {self.url}>"


class _Twin(Generic[_T]):
    """Has the methods of ``same``, an object of the blocking client, to be awaited."""

    def __init__(self, calls: AsyncCalls, same: _T) -> None:
        self._calls = calls
        self._same = same


class Part(_Twin[_documents.Part]):
    """Like that of `patching.client`: documents' contents, or their attributes."""

    get = awaited(_documents.Part.get)
    put = awaited(_documents.Part.put)
    patch = awaited(_documents.Part.patch)
    merge = awaited(_documents.Part.merge)
    update = awaited(_documents.Part.update)


class ExportStream:
    """Pairs of key and content, as the catalog had them at ``revision``, which is known once the
    ``async with`` is entered; iterated once::

        async with catalog.export() as export:
            contents = {key: content async for key, content in export}

    Raises Unreachable if it breaks off before its end: what came until then is right, but not all.
    """

    revision: int

    def __init__(self, calls: AsyncCalls, plan: Steps[_reading.ExportStream]) -> None:
        self._calls = calls
        self._plan = plan
        self._response: Any = None

    async def __aenter__(self) -> Self:
        opened = await self._calls.run(self._plan)
        self.revision, self._response = opened.revision, opened.response
        return self

    async def __aexit__(self, *_: object) -> None:
        await _closed(self._response)

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        import ijson  # here, since nothing else needs it

        try:
            pairs = ijson.kvitems_async(_Body(self._response), "metadata", use_float=True)
            async for key, content in pairs:
                yield key, content
        except (ijson.JSONError, httpx2.RequestError, OSError) as error:
            raise Unreachable(f"the export broke off: {_in_words(error)}", applied="no") from None


class _Body:
    """A response's body, as a file that is read by awaiting."""

    def __init__(self, response: Any) -> None:
        self._pieces = response.aiter_bytes()

    async def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        return await anext(self._pieces, b"")


class Feed(Following):
    """The feed that ``Catalog.changes`` returns: one task iterates over it. Like that of
    `patching.client`; it ends with ``close``, or with its ``async with``."""

    _asking: asyncio.Future[None] | None = None

    @property
    def documents(self) -> AsyncIterator[Document]:
        """The documents that a feed begins with (``initial``), by key; once."""
        found: Any = self._documents()
        documents: AsyncIterator[Document] = found
        return documents

    async def close(self) -> None:
        """End the iteration, even one that waits in another task."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Commit:
        if self._is_closed:
            raise StopAsyncIteration
        asked: Any = self._wait()
        self._asking = asyncio.ensure_future(asked)
        try:
            await self._asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_closed or (task is not None and task.cancelling()):
                self._asking.cancel()
                raise
            # `close` has ended the wait: the task isn't cancelled.
        finally:
            self._asking = None
        commit = self._take()
        if commit is None:
            await self.close()
            raise StopAsyncIteration
        return commit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _feeding(
    method: Callable[Concatenate[Any, _P], Any],
) -> Callable[Concatenate[Any, _P], Feed]:
    @functools.wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Feed:
        feed: Feed = method(self._same, *args, **kwargs)
        return feed

    return call


class Catalog(Part):
    """A catalog of the gateway; only its methods send requests. Like `patching.client.Catalog`."""

    _same: _gateway.Catalog

    def __init__(self, calls: AsyncCalls, name: str) -> None:
        def feed(catalog: str, asked: Followed) -> Any:  # not the one that blocks
            return Feed(calls, CatalogRoutes(None, catalog), calls.retry, asked)

        same = _gateway.Catalog(calls, feed, name)
        super().__init__(calls, same)
        self.name = name
        self.attributes = Part(calls, same.attributes)
        self.settings = SettingsPart(calls, same.settings)
        self.uploads = CatalogUploads(calls, same.uploads)

    delete = awaited(_gateway.Catalog.delete)
    transact = awaited(_gateway.Catalog.transact)
    touch = awaited(_gateway.Catalog.touch)
    delete_catalog = awaited(_gateway.Catalog.delete_catalog)
    compact = awaited(_gateway.Catalog.compact)
    revert = awaited(_gateway.Catalog.revert)
    apply = awaited(_gateway.Catalog.apply)
    owners = awaited(_gateway.Catalog.owners)
    let_go = awaited(_gateway.Catalog.let_go)
    give_back = awaited(_gateway.Catalog.give_back)
    lost_by = looped(_gateway.Catalog.lost_by)
    documents = looped(_gateway.Catalog.documents)
    keys = looped(_gateway.Catalog.keys)
    digests = looped(_gateway.Catalog.digests)
    several = awaited(_gateway.Catalog.several)
    commits = looped(_gateway.Catalog.commits)
    commit = awaited(_gateway.Catalog.commit)
    differences = looped(_gateway.Catalog.differences)
    outcome = awaited(_gateway.Catalog.outcome)
    read = awaited(_gateway.Catalog.read)
    pins = awaited(_gateway.Catalog.pins)
    export = planned(_gateway.Catalog.export, ExportStream)
    changes = _feeding(_gateway.Catalog.changes)

    def transaction(self) -> Transaction:
        """An empty transaction, to be filled and ``run``."""
        return Transaction(self)

    def pin(
        self, revision: int | None = None, seconds: int = 600, *, note: str | None = None
    ) -> Pin:
        """Hold ``revision`` (None: the head) against compaction, for an ``async with``, which
        renews the pin until it is left. Entering it raises Gone if it is compacted already."""
        return Pin(self._calls, self._same.pin(revision, seconds, note=note))

    def __repr__(self) -> str:
        return f"<Catalog {self.name!r}>"


class SettingsPart(_Twin[_gateway.SettingsPart]):
    """The settings of a catalog, as ``Catalog.settings``."""

    get = awaited(_gateway.SettingsPart.get)
    lists = awaited(_gateway.SettingsPart.lists)
    put = awaited(_gateway.SettingsPart.put)


class Upload(_Twin[uploads.Upload]):
    """An open upload. An ``async with`` drops it if it ends without a commit."""

    def __init__(self, calls: AsyncCalls, same: uploads.Upload) -> None:
        super().__init__(calls, same)
        self.id, self.key, self.expires = same.id, same.key, same.expires

    put_part = awaited(uploads.Upload.put_part)
    commit = awaited(uploads.Upload.commit)
    read = awaited(uploads.Upload.read)
    drop = awaited(uploads.Upload.drop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._calls.run(self._same.end())


async def _opened(calls: AsyncCalls, plan: Steps[uploads.Upload]) -> Upload:
    return Upload(calls, await calls.run(plan))


class CatalogUploads(_Twin[uploads.CatalogUploads]):
    """The uploads of a catalog, as ``Catalog.uploads``."""

    open = planned(uploads.CatalogUploads.open, _opened)
    resume = planned(uploads.CatalogUploads.resume, _opened)
    replace = awaited(uploads.CatalogUploads.replace)


class Transaction(TransactionDraft):
    """Like `patching.client.Transaction`; its ``run`` is awaited."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog

    async def run(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> TransactionResult:
        """``if_match``: a composite or the catalog's tag, for instance what `several` returned."""
        return await self._catalog.transact(self.body, if_match=if_match, **terms)


class Pin(_Twin[_retention.Pin]):
    """A pin, from ``Catalog.pin``, for an ``async with``; a task renews it meanwhile."""

    def __init__(self, calls: AsyncCalls, same: _retention.Pin) -> None:
        super().__init__(calls, same)
        self._renewal: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return repr(self._same)

    @property
    def revision(self) -> int:
        """The revision that is held. Raises RuntimeError before the pin is entered."""
        return self._same.revision

    @property
    def id(self) -> str:
        """The gateway's name for it. Raises RuntimeError before the pin is entered."""
        return self._same.id

    def check(self) -> None:
        """Raises PinLost if it doesn't hold any more."""
        self._same.check()

    take = awaited(_retention.Pin.take)
    keep = awaited(_retention.Pin.keep)

    async def __aenter__(self) -> Self:
        await self._calls.run(self._same.begin())
        self._renewal = asyncio.create_task(self._calls.run(self._same.renewing()), name="pin")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})  # raises nothing, however the renewal ends
        await self._calls.run(self._same.end())


async def _each(lines: Any) -> AsyncIterator[BulkLine | Mapping[str, Any]]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line

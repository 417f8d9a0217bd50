"""The client's entry for asyncio: the gateway, its catalogs, and what they give."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Self, Unpack

from patching import Json
from patching.client import _documents, _gateway, _reading, _retention, uploads
from patching.client._feed import Followed, Following, followed
from patching.client._retry import Retry
from patching.client._steps import Steps
from patching.client.aio._carrying import AsyncCalls, AsyncTransport, awaited, looped, planned
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

_P = ParamSpec("_P")


class Gateway:
    """The gateway at ``url``, for the tasks of one event loop. As `patching.client.Gateway`, with
    methods to be awaited; it holds connections until ``close``, or until its ``async with`` ends.

    ``sleep`` of a `Retry`, if it is given, may be a coroutine function.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        pool_size: int = 10,
        connect_timeout_s: float = 5.0,
    ) -> None:
        if timeout_s <= 0:
            raise ValueError("timeout_s is more than 0")
        self.url = url.rstrip("/")
        self._transport = AsyncTransport(
            url,
            token=token,
            headers=headers,
            pool_size=pool_size,
            connect_timeout_s=connect_timeout_s,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
        )
        self._calls = AsyncCalls(self._transport, retry or Retry(), timeout_s)
        self._same = self

    catalogs = looped(_gateway.Gateway.catalogs)
    is_ready = awaited(_gateway.Gateway.is_ready)

    def catalog(self, name: str) -> Catalog:
        """The catalog of that name, which needn't exist: its first write makes it."""
        return Catalog(self._calls, name)

    async def bulk(
        self,
        lines: Iterable[BulkLine | Mapping[str, Any]] | AsyncIterable[BulkLine | Mapping[str, Any]],
        terms: BulkTerms | None = None,
    ) -> AsyncIterator[BulkAnswer]:
        """As `patching.client.Gateway.bulk`."""
        retry = Retry(retries_max=None, on_retry=self._calls.retry.on_retry)
        windows = LineWindows(terms or BulkTerms(retry=retry))
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
        """Nothing can be asked any more."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Gateway {self.url}>"


class Part:
    """As the one of `patching.client`: documents' contents, or the attributes beside them."""

    def __init__(self, calls: AsyncCalls, same: _documents.Part) -> None:
        self._calls = calls
        self._same = same

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

    Unreachable where it breaks off before its end: what came until then is right, but not all.
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
        await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        import httpx2
        import ijson  # here, since nothing else needs it

        try:
            pairs = ijson.kvitems_async(_Body(self._response), "metadata", use_float=True)
            async for key, content in pairs:
                yield key, content
        except (ijson.JSONError, httpx2.RequestError, OSError) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"the export broke off: {why}", applied="no") from None


class _Body:
    """A response's body, as a file that is read by awaiting."""

    def __init__(self, response: Any) -> None:
        self._pieces = response.aiter_raw()

    async def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        return await anext(self._pieces, b"")


class Feed:
    """The feed that ``Catalog.changes`` returns: one task iterates over it. As the one of
    `patching.client`; it ends with ``close``, or with its ``async with``."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._asking: asyncio.Future[Commit | None] | None = None

    @property
    def settings(self) -> Json:
        return self._following.settings

    @property
    def time(self) -> datetime | None:
        return self._following.time

    @property
    def position(self) -> int:
        """The ``after`` to resume with."""
        return self._following.position

    @property
    def documents(self) -> AsyncIterator[Document]:
        """The documents that a feed begins with (``initial``), by key; once."""
        told: Any = self._following.documents()
        documents: AsyncIterator[Document] = told
        return documents

    async def close(self) -> None:
        """End the iteration, also one that waits in another task."""
        self._following.is_closed = True
        if self._asking is not None:
            self._asking.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Commit:
        if self._following.is_closed:
            raise StopAsyncIteration
        asked: Any = self._following.next()
        self._asking = asyncio.ensure_future(asked)
        try:
            commit = await self._asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._following.is_closed or (task is not None and task.cancelling()):
                self._asking.cancel()
                raise
            commit = None  # it is `close` that ended the wait, not somebody the task
        finally:
            self._asking = None
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
        ask: Callable[..., Followed] = followed
        asked = ask(*args, **kwargs)
        routes = CatalogRoutes(None, self.name)
        return Feed(Following(self._calls, routes, self._calls.retry, asked))

    return call


class Catalog(Part):
    """A catalog of the gateway; only its methods send requests. As `patching.client.Catalog`."""

    _same: _gateway.Catalog

    def __init__(self, calls: AsyncCalls, name: str) -> None:
        same = _gateway.Catalog(calls, _unconnected, name)
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
        renews it until it is left. Gone where it is compacted already."""
        return Pin(self._calls, self._same.pin(revision, seconds, note=note))

    def __repr__(self) -> str:
        return f"<Catalog {self.name!r}>"


class SettingsPart:
    """The settings of a catalog, as ``Catalog.settings``."""

    def __init__(self, calls: AsyncCalls, same: _gateway.SettingsPart) -> None:
        self._calls = calls
        self._same = same

    get = awaited(_gateway.SettingsPart.get)
    lists = awaited(_gateway.SettingsPart.lists)
    put = awaited(_gateway.SettingsPart.put)


class Upload:
    """An open upload. An ``async with`` drops it where it is left without a commit."""

    def __init__(self, calls: AsyncCalls, same: uploads.Upload) -> None:
        self._calls = calls
        self._same = same
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


class CatalogUploads:
    """The uploads of a catalog, as ``Catalog.uploads``."""

    def __init__(self, calls: AsyncCalls, same: uploads.CatalogUploads) -> None:
        self._calls = calls
        self._same = same

    open = planned(uploads.CatalogUploads.open, _opened)
    resume = planned(uploads.CatalogUploads.resume, _opened)
    replace = awaited(uploads.CatalogUploads.replace)


class Transaction(TransactionDraft):
    """As `patching.client.Transaction`; its ``run`` is awaited."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog

    async def run(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> TransactionResult:
        """``if_match``: a composite or the catalog's tag, for instance what `several` returned."""
        return await self._catalog.transact(self.body, if_match=if_match, **terms)


class Pin:
    """A pin, from ``Catalog.pin``, for an ``async with``; a task renews it meanwhile."""

    def __init__(self, calls: AsyncCalls, same: _retention.Pin) -> None:
        self._calls = calls
        self._same = same
        self._renewal: asyncio.Task[None] | None = None

    @property
    def revision(self) -> int:
        """The revision that is held. RuntimeError before it was entered."""
        return self._same.revision

    @property
    def id(self) -> str:
        """The gateway's name for it. RuntimeError before it was entered."""
        return self._same.id

    def check(self) -> None:
        """PinLost where it doesn't hold any more."""
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
            await asyncio.wait({self._renewal})  # whose own end isn't this task's
        await self._calls.run(self._same.end())


async def _each(lines: Any) -> AsyncIterator[BulkLine | Mapping[str, Any]]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


def _unconnected() -> Any:
    raise AssertionError("a plan opens no connections")

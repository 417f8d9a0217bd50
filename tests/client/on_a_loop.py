"""The client of asyncio, called as the one that blocks: its loop runs in a thread of its own. So
one suite holds both to the same promises."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from patching.client import aio

_OF_THE_CLIENT = (
    *(aio.Gateway, aio.Catalog, aio.Feed, aio.Pin, aio.Transaction, aio.Upload),
    *(aio.Part, aio.SettingsPart, aio.CatalogUploads),
    aio.ExportStream,
)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def gateway(self, *args: Any, **kwargs: Any) -> Any:
        """Of `patching.client.aio`, to be used as that of `patching.client`. Its connections aren't
        kept: a function that a plan calls uses it, too, on another loop."""
        return Blocked(aio.Gateway(*args, **{"pool_size": 0, **kwargs}), self)

    def do(self, awaitable: Any) -> Any:
        async def waited() -> Any:
            return await awaitable

        if threading.current_thread() is not self._thread:
            return asyncio.run_coroutine_threadsafe(waited(), self._loop).result()
        with ThreadPoolExecutor(1) as another:
            return another.submit(asyncio.run, waited()).result()

    def blocked(self, value: Any) -> Any:
        """``value``, or what has to be waited for or looped over by the loop, without that."""
        if inspect.isawaitable(value):
            value = self.do(value)
        if isinstance(value, _OF_THE_CLIENT):
            return Blocked(value, self)
        return self._told(value) if inspect.isasyncgen(value) else value

    def _told(self, values: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self.do(anext(values))
                except StopAsyncIteration:
                    return
        finally:
            self.do(values.aclose())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocked:
    """One of the client's objects."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self.__dict__.update(_inner=inner, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value) or isinstance(value, _OF_THE_CLIENT):
            return self._loop.blocked(value)
        return lambda *args, **kwargs: self._loop.blocked(value(*args, **kwargs))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._inner, name)

    def __iter__(self) -> Iterator[Any]:
        values = self._inner.__aiter__()
        while True:
            try:
                yield self._loop.do(anext(values))
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        try:
            return self._loop.do(anext(self._inner))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._loop.do(self._inner.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.do(self._inner.__aexit__(*raised))

    def __repr__(self) -> str:
        return repr(self._inner)

"""A catalog's commits as they are made, for a loop."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from patching import Json
from patching.client._retry import Retry
from patching.client.errors import RequestError
from patching.client.results import Commit, Document
from patching.client.routes import CatalogRoutes
from patching.client.transport import Closable, Query, Transport

_Page = TypeVar("_Page")

# An empty answer sooner than this is none that waited: asking again at once would be a busy loop.
_AT_ONCE_S: Final = 0.5


class Feed(Closable):
    """The feed that ``Catalog.changes`` returns: one thread iterates over it, any may close it.

    Every commit comes once, in order; after a failure the feed resumes where the last answer
    ended. It ends with ``close``, with ``follow=False`` at the head, or with a RequestError that
    won't pass or has lasted for ``outage_s``.

    One that begins with the state (``after`` None) has ``documents`` to be gone through first.
    ``settings`` are the catalog's, None where nothing was set, and ``time`` is that of its last
    commit, if known; both are there once the documents are.
    """

    settings: Json = None
    time: datetime | None = None

    def __init__(
        self,
        transport: Transport,
        retry: Retry,
        catalog: str,
        after: int | None,
        *,
        keys: tuple[str, ...],
        prefix: str,
        more: Query,
        follow: bool,
        poll_s: int,
        outage_s: float | None,
    ) -> None:
        if not 1 <= poll_s <= 60:
            raise ValueError("poll_s is from 1 to 60")
        self._transport = transport
        self._routes = CatalogRoutes(transport, catalog)
        self._closed = threading.Event()
        self._retry = replace(retry, retries_max=None, sleep=self._closed.wait)
        self._keys = keys
        self._prefix = prefix
        self._more = more
        self._follow = follow
        self._poll_s = poll_s
        self._outage_s = outage_s
        self._pending: deque[Commit] = deque()
        self._lists = after is None
        self._asked_after = after or 0
        self._position = after or 0

    @property
    def position(self) -> int:
        """Everything that was asked for up to this revision was handed out: the ``after`` to resume
        with. Moves on also past commits that are left out, and while there are none. Of the
        documents that a feed begins with, the revision; there is nothing to resume with before
        they are all there."""
        return self._position

    @property
    def documents(self) -> Iterator[Document]:
        """The documents, by key, as the catalog has them at one revision; once, where the feed
        begins with the state. The feed goes on above that revision.

        Gone where that was compacted away meanwhile, which happens only where the gateway couldn't
        be reached for minutes: begin anew.
        """
        position: str | None = None
        while self._lists and not self._closed.is_set():
            page = self._ask(partial(self._routes.state, position, prefix=self._prefix))
            if page is None:
                return
            if page.settings is not None:
                self.settings = page.settings
            position, self._position = page.position, page.revision
            yield from page.documents
            if page.is_last:
                self._asked_after, self.time, self._lists = page.revision, page.time, False

    def close(self) -> None:
        """End the iteration, also one that waits in another thread."""
        self._closed.set()
        self._transport.close()

    def __iter__(self) -> Iterator[Commit]:
        return self

    def __next__(self) -> Commit:
        if self._lists:
            raise ValueError("this feed begins with the state: go through its documents first")
        while not self._pending and not self._closed.is_set():
            self._position = self._asked_after
            if not self._fill():
                break
        if not self._pending or self._closed.is_set():
            self.close()
            raise StopIteration
        commit = self._pending.popleft()
        self._position = commit.revision
        return commit

    def _fill(self) -> bool:
        """Ask once, until there is an answer; False where that is all."""
        asked = time.monotonic()
        page = self._ask(
            lambda: self._routes.changes(
                self._asked_after,
                timeout_s=self._poll_s if self._follow else 0,
                prefix=self._prefix,
                keys=self._keys,
                more=self._more,
            )
        )
        if page is None:
            return False
        self._pending.extend(page.commits)
        self._asked_after = max(self._asked_after, page.revision)
        if not page.commits and self._follow and time.monotonic() - asked < _AT_ONCE_S:
            self._closed.wait(_AT_ONCE_S)
        return self._follow or bool(page.commits)

    def _ask(self, page: Callable[[], _Page]) -> _Page | None:
        """The page, once there is an answer; None where the feed was closed before."""
        tries = self._retry.tries(math.inf if self._outage_s is None else self._outage_s)
        while not self._closed.is_set():
            try:
                return page()
            except RequestError as error:
                if not self._closed.is_set() and not tries.again(error):
                    raise
        return None

"""A catalog's commits as they are made, for a loop."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from patching import Json
from patching.client._blocking import Alone
from patching.client._retry import Retry
from patching.client._steps import Listing, Pause, PlanItem, Query, Steps, called, listed, plan_of
from patching.client.errors import RequestError
from patching.client.results import Commit, Document
from patching.client.routes import CatalogRoutes
from patching.client.transport import Closable, Transport

_Page = TypeVar("_Page")

# An empty answer sooner than this didn't wait, and asking again at once would be a busy loop.
_AT_ONCE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a feed asks for: the keywords of ``Catalog.changes``; ``more``: further parameters.

    Raises ValueError for what can't be asked.
    """

    after: int | None
    commit_id: str | None
    keys: tuple[str, ...]
    prefix: str
    more: Query
    follow: bool
    poll_s: int
    outage_s: float | None

    def __post_init__(self) -> None:
        if self.commit_id is not None and self.after is None:
            raise ValueError("commit_id needs 'after', the revision of that commit")
        if not 1 <= self.poll_s <= 60:
            raise ValueError("poll_s must be from 1 to 60")


class Following:
    """What a feed asks for, and where it is: what `Feed` and that of asyncio have in common.
    ``calls`` carry out its plans.

    ``position``: the ``after`` to resume with. All that was asked for up to this revision was
    handed out; it also moves past commits that are left out, and while there are none. During the
    documents that a feed begins with, it is their revision; before they are all there, nothing can
    be resumed. ``commit_id`` is the id of the commit there, None if unknown. ``settings`` are the
    catalog's, None if nothing was set, and ``time`` is that of its last commit, if known; both are
    there once the documents are.
    """

    settings: Json = None
    time: datetime | None = None
    position: int
    commit_id: str | None

    def __init__(self, calls: Any, routes: CatalogRoutes, retry: Retry, asked: Followed) -> None:
        self._calls = calls
        self._routes = routes
        self._retry = replace(retry, retries_max=None)
        self._asked = asked
        self._pending: deque[Commit] = deque()
        self._lists = asked.after is None
        self._asked_after = asked.after or 0
        self._last = asked.commit_id  # the id of the commit there, if it is known
        self._is_closed = False
        self.position, self.commit_id = self._asked_after, self._last

    @listed
    def _documents(self) -> Listing[Document]:
        position: str | None = None
        while self._lists and not self._is_closed:
            page = yield from self._ask(
                partial(plan_of(self._routes.state), position, prefix=self._asked.prefix)
            )
            if page is None:
                return
            if page.settings is not None:
                self.settings = page.settings
            position, self.position = page.position, page.revision
            yield from map(PlanItem, page.documents)
            if page.is_last:
                self._asked_after, self.time, self._lists = page.revision, page.time, False
                self._last = self.commit_id = page.commit_id

    @called
    def _wait(self) -> Steps[None]:
        """Wait until there is a commit to take, or the feed is at its end."""
        self._require_listed()
        while not self._pending and not self._is_closed:
            self.position, self.commit_id = self._asked_after, self._last
            if not (yield from self._fill()):
                break

    @called
    def _page(self) -> Steps[list[Commit] | None]:
        """The commits of the next answer; None at the end."""
        self._require_listed()
        found, is_open = [*self._pending], True
        if not found and not self._is_closed:
            is_open = yield from self._fill()
            found = [*self._pending]
        if self._is_closed or not (found or is_open):
            return None
        self._pending.clear()
        self.position, self.commit_id = self._asked_after, self._last
        return found

    def _take(self) -> Commit | None:
        """The next commit; None at the end. Not a step: a task that is cancelled while it waits has
        taken none."""
        if not self._pending or self._is_closed:
            return None
        commit = self._pending.popleft()
        self.position, self.commit_id = commit.revision, commit.commit_id
        return commit

    def _require_listed(self) -> None:
        if self._lists:
            raise ValueError("this feed begins with the state: read its documents first")

    def _fill(self) -> Steps[bool]:
        """Ask until there is an answer. False if that was all."""
        asked = self._retry.clock()
        page = yield from self._ask(
            partial(
                plan_of(self._routes.changes),
                self._asked_after,
                timeout_s=self._asked.poll_s if self._asked.follow else 0,
                prefix=self._asked.prefix,
                keys=self._asked.keys,
                more=self._asked.more,
                commit_id=self._last,
            )
        )
        if page is None:
            return False
        self._pending.extend(page.commits)
        if page.revision > self._asked_after or page.commit_id is not None:
            self._last = page.commit_id
        self._asked_after = max(self._asked_after, page.revision)
        if not page.commits and self._asked.follow and self._retry.clock() - asked < _AT_ONCE_S:
            yield Pause(_AT_ONCE_S)
        return self._asked.follow or bool(page.commits)

    def _ask(self, page: Callable[[], Steps[_Page]]) -> Steps[_Page | None]:
        """The page, once there is an answer; None if the feed was closed before."""
        outage_s = self._asked.outage_s
        tries = self._retry.tries(math.inf if outage_s is None else outage_s)
        while not self._is_closed:
            try:
                return (yield from page())
            except RequestError as error:
                if self._is_closed:
                    break
                pause_s = tries.pause_after(error)
                if pause_s is None:
                    raise
                yield Pause(pause_s)
        return None


class Feed(Following, Closable):
    """The feed that ``Catalog.changes`` returns: one thread iterates over it, any may close it.

    Every commit comes once, in order; after a failure the feed resumes where the last answer ended.
    It ends with ``close``, at the head with ``follow=False``, or with a RequestError that won't
    pass or has lasted for ``outage_s``. If it begins with the state (``initial``), go through its
    ``documents`` first.
    """

    def __init__(self, transport: Transport, retry: Retry, catalog: str, asked: Followed) -> None:
        self._transport = transport
        self._closed = threading.Event()
        calls = Alone(transport, self._closed.wait)
        super().__init__(calls, CatalogRoutes(transport, catalog), retry, asked)

    @property
    def documents(self) -> Iterator[Document]:
        """The documents, once and by key, as the catalog has them at one revision, if the feed
        begins with the state. The feed continues above that revision.

        Raises Gone if that was compacted meanwhile, which happens only if the gateway couldn't be
        reached for minutes: begin again.
        """
        return self._documents()

    def pages(self) -> Iterator[list[Commit]]:
        """The commits by answer instead of one by one; an empty list if there were none for a while
        (``poll_s``). Each moves `position`: for callers that save it although the commits that they
        want are rare."""
        while (page := self._page()) is not None:
            yield page
        self.close()

    def close(self) -> None:
        """End the iteration, even one that waits in another thread."""
        self._is_closed = True
        self._closed.set()
        self._transport.close()

    def __iter__(self) -> Iterator[Commit]:
        return self

    def __next__(self) -> Commit:
        self._wait()
        commit = self._take()
        if commit is None or self._closed.is_set():
            self.close()
            raise StopIteration
        return commit

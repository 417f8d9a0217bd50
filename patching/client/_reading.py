"""Reads of a catalog's state and history: many documents at one revision, commits, the feed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import urllib3
from urllib3.exceptions import HTTPError

from patching.client._calls import CallPolicy
from patching.client._documents import Part, time_query
from patching.client._feed import Feed, Followed
from patching.client._retention import list_pins
from patching.client._steps import Listing, PlanItem, Query, Steps, called, listed
from patching.client._wire import segment
from patching.client.errors import NotFound, OverLimit, Unreachable
from patching.client.results import (
    CatalogState,
    Commit,
    Difference,
    Document,
    DocumentDigest,
    PinState,
    Several,
    expecting,
    parse_commit,
    parse_difference,
    parse_listed,
    parse_state,
    unquoted,
    value_of,
)
from patching.client.transport import Closable, in_words

_T = TypeVar("_T")

# The most keys in one request, and a query that is no longer than servers and proxies take.
_KEYS_MAX: Final = 1000
_QUERY_BYTES_MAX: Final = 3500


class Readable(Part):
    """The half of `Catalog` that changes nothing."""

    def __init__(self, calls: CallPolicy, feed: Callable[[str, Followed], Feed], name: str) -> None:
        super().__init__(calls, name, "documents")
        self.name = name
        self._feed = feed

    @listed
    def documents(
        self,
        *,
        prefix: str = "",
        contains: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
        page_size: int = 200,
    ) -> Listing[Document]:
        """All documents whose keys begin with ``prefix`` and contain the text ``contains``, in
        upper or lower case, by key, as the catalog has them at one revision: that of the first
        page, or ``revision``, or that at the time ``at``. Reads ``page_size`` of them at a time.

        Raises Gone if that revision is compacted meanwhile: hold a `pin` if it must not be.
        """
        asked = _asked(None, page_size, prefix, contains)
        yield from self._each("page of documents", parse_listed, asked, time_query(revision, at))

    @listed
    def keys(
        self,
        *,
        prefix: str = "",
        contains: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
        page_size: int = 10_000,
    ) -> Listing[str]:
        """Like `documents`, but only their keys."""
        asked = _asked("key", page_size, prefix, contains)
        when = time_query(revision, at)
        yield from self._each("page of keys", lambda shape, _: shape["key"], asked, when)

    @listed
    def digests(
        self,
        *,
        prefix: str = "",
        contains: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
        manager: str | None = None,
        page_size: int = 10_000,
    ) -> Listing[DocumentDigest]:
        """Like `documents`, but only their tokens and digests; equal documents have equal digests
        (`patching.digest`). So you find out what differs without reading it.

        With `manager`, the documents of which it owns anything, and the digest of that: if it
        equals the `patching.part_digests.part_digest` of what the manager wants, applying this
        again would change nothing."""
        asked = _asked("digest", page_size, prefix, contains)
        asked += [] if manager is None else [("manager", manager)]
        yield from self._each("page of digests", _digest, asked, time_query(revision, at))

    def _each(
        self, what: str, parse: Callable[[Any, int], _T | None], asked: Query, when: Query
    ) -> Listing[_T]:
        """What ``parse`` makes of each listed shape and its page's revision, page by page."""
        following: Query | None = when
        while following is not None:
            content = yield from self._ask("/documents", [*asked, *following])
            with expecting("page of documents"):
                listed, at_revision = list(content["documents"]), content["revision"]
                following = None
                if content["next"] is not None:
                    following = [(name, content["next"][name]) for name in ("after", "revision")]
            for shape in listed:
                with expecting(what):
                    value = parse(shape, at_revision)
                if value is not None:
                    yield PlanItem(value)

    @called
    def several(
        self,
        keys: Iterable[str],
        *,
        revision: int | None = None,
        at: datetime | str | None = None,
    ) -> Steps[Several]:
        """These documents at one revision, with one token for all. ValueError if there is no
        key."""
        found: dict[str, Document | None] = {}
        tags: list[str] = []
        query: list[tuple[str, str | int]] = time_query(revision, at)
        at_revision = 0
        chunks = deque(key_chunks(dict.fromkeys(keys)))
        while chunks:
            chunk = chunks.popleft()
            asked: Query = [("key", key) for key in chunk]
            path = f"{self._catalog_path}/documents"
            try:
                answer = yield from self._calls.get(path, [*asked, *query])
            except OverLimit as error:
                if len(chunk) == 1 or error.problem.get("limit") != "several_bytes_max":
                    raise
                half = len(chunk) // 2  # together, they are too large for an answer
                chunks.extendleft((chunk[half:], chunk[:half]))
                continue
            content = answer.json()
            with expecting("selection of documents"):
                at_revision = content["revision"]
                for shape in content["documents"]:
                    found[shape["key"]] = parse_listed(shape, at_revision)
                tags.append(unquoted(answer.headers["ETag"]))
            query = [("revision", at_revision)]  # further requests are for the first one's revision
        if not tags:
            raise ValueError("give at least one key")
        return Several(at_revision, found, ";".join(tags))

    @called
    def export(
        self,
        *,
        prefix: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
    ) -> Steps[ExportStream]:
        """The contents of all documents at one revision, streamed: a context manager whose
        ``revision`` is known at once and which is iterated once, for pairs of key and content::

            with catalog.export() as export:
                contents = dict(export)
        """
        query = time_query(revision, at)
        if prefix:
            query.append(("prefix", prefix))
        response = yield from self._calls.open(f"{self._catalog_path}/export", query)
        with expecting("export"):
            return ExportStream(response, int(response.headers["Catalog-Revision"]))

    @listed
    def commits(
        self,
        *,
        after: int = 0,
        key: str | None = None,
        author: str | None = None,
        page_size: int = 100,
    ) -> Listing[Commit]:
        """The commits above revision ``after``, ascending, up to the newest; with ``key``, those
        that changed this document; with ``author``, those by this one. Raises Gone if they were
        compacted."""
        position: int | None = after
        while position is not None:
            query: list[tuple[str, str | int]] = [("after", position), ("limit", page_size)]
            if key is not None:
                query.append(("key", key))
            if author is not None:
                query.append(("author", author))
            content = yield from self._ask("/commits", query)
            with expecting("page of commits"):
                page = [parse_commit(shape) for shape in content["commits"]]
                position = content["next"]
            yield from map(PlanItem, page)

    @called
    def commit(self, revision: int) -> Steps[Commit]:
        """The commit that made ``revision``. Raises NotFound, Gone."""
        return parse_commit((yield from self._ask(f"/commits/{revision}")))

    @listed
    def differences(
        self,
        before: int,
        after: int | None = None,
        *,
        prefix: str = "",
        page_size: int = 100,
    ) -> Listing[Difference]:
        """How revision ``after`` (None: now) differs from ``before``, by key: the settings first,
        unless there is a ``prefix``. Either may be the later one.

        Raises NotFound above the head, Gone below the floor.
        """
        query: list[tuple[str, str | int]] = [("from", before), ("limit", page_size)]
        if prefix:
            query.append(("prefix", prefix))
        more: list[tuple[str, str | int]] | None = [] if after is None else [("to", after)]
        while more is not None:
            content = yield from self._ask("/differences", [*query, *more])
            with expecting("page of differences"):
                page = [parse_difference(shape) for shape in content["differences"]]
                more = None if content["next"] is None else list(content["next"].items())
            yield from map(PlanItem, page)

    @called
    def outcome(self, idempotency_key: str) -> Steps[Commit | None]:
        """The commit that was made under the key. None: the request was decided without one, or
        nothing has been decided so far; a request that is still on its way may yet make one."""
        try:
            content = yield from self._ask(f"/outcomes/{segment(idempotency_key)}")
            with expecting("outcome"):
                return parse_commit(content) if content["applied"] else None
        except NotFound as error:
            if error.code not in ("outcome_not_found", "catalog_not_found"):
                raise
            return None

    def changes(
        self,
        after: int | None = None,
        *,
        commit_id: str | None = None,
        keys: Iterable[str] = (),
        prefix: str = "",
        authors: Iterable[str] = (),
        managers: Iterable[str] = (),
        include: Iterable[str] = (),
        initial: bool = False,
        follow: bool = True,
        poll_s: int = 20,
        outage_s: float | None = None,
    ) -> Feed:
        """Every commit above ``after``, in order, each once, as it is made; with ``keys`` or
        ``prefix`` those that change such a document; of these, the ones by one of ``authors``, or
        with such a change by one of ``managers``. Returns an iterator and context manager::

            with catalog.changes(after=41) as feed:
                for commit in feed: ...      # feed.position is what to resume with

        ``include`` "before" and "value": changes have the content before and after the commit;
        "settings": the settings' changes are included. With ``initial`` it begins with the
        documents, whose keys begin with ``prefix``, instead of ``after``::

            with catalog.changes(initial=True, prefix="tables/") as feed:
                copy = {each.key: each.value for each in feed.documents}
                for commit in feed: ...      # every one since

        It survives restarts of the gateway, up to ``outage_s`` seconds long (None: any). A poll
        takes up to ``poll_s`` seconds (1 to 60). ``follow=False``: it ends when there is nothing
        more for the moment. ``commit_id``: that of the commit at ``after``, an earlier feed's
        ``feed.commit_id``. Raises Gone if the commits were compacted; NotFound if an older
        database was restored; ValueError unless either ``after`` or ``initial``.
        """
        if initial == (after is not None):
            raise ValueError("give either 'after', a revision, or 'initial'")
        named = {"author": authors, "manager": managers, "include": include}
        asked = Followed(
            after=after,
            commit_id=commit_id,
            keys=tuple(keys),
            prefix=prefix,
            more=[(name, each) for name, given in named.items() for each in given],
            follow=follow,
            poll_s=poll_s,
            outage_s=outage_s,
        )
        return self._feed(self.name, asked)

    @called
    def read(self) -> Steps[CatalogState]:
        """The catalog's state and settings. NotFound if it was never written or is deleted."""
        return parse_state((yield from self._ask("")))

    @called
    def pins(self) -> Steps[list[PinState]]:
        """The pins that hold now, by revision."""
        return (yield from list_pins(self._calls, self._catalog_path))

    def _ask(self, rest: str, query: Query = ()) -> Steps[Any]:
        answer = yield from self._calls.get(self._catalog_path + rest, query)
        return answer.json()


def key_chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    """Chunks of as many keys as one request can name."""
    chunk: list[str] = []
    size = 0
    for key in keys:
        key_bytes = len(quote(key, safe="")) + len("&key=")
        if chunk and (len(chunk) == _KEYS_MAX or size + key_bytes > _QUERY_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(key)
        size += key_bytes
    if chunk:
        yield chunk


class ExportStream(Closable):
    """Pairs of key and content, as the catalog had them at ``revision``; iterated once.

    Raises Unreachable if it breaks off before its end: what came until then is right, but not all.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, revision: int) -> None:
        self.revision = revision
        self.response = response

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        import ijson  # here, since nothing else needs it

        try:
            yield from ijson.kvitems(self.response, "metadata", use_float=True)
        except (ijson.JSONError, HTTPError, OSError) as error:
            raise Unreachable(f"the export broke off: {in_words(error)}", applied="no") from None
        finally:
            self.close()

    def close(self) -> None:
        self.response.close()


def _asked(
    select: str | None, page_size: int, prefix: str, contains: str
) -> list[tuple[str, str | int]]:
    texts = {"select": select, "prefix": prefix, "contains": contains}
    return [("limit", page_size), *((name, text) for name, text in texts.items() if text)]


def _digest(shape: Any, at_revision: int) -> DocumentDigest | None:
    """None: the manager owns nothing of it."""
    if shape["digest"] is None:
        return None
    return value_of(DocumentDigest, shape, catalog_revision=at_revision)

"""The client's entry: a gateway, its catalogs, and everything that can be asked of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Unpack

from patching.client._batching import Batcher
from patching.client._blocking import CallSender
from patching.client._calls import Call, CallPolicy
from patching.client._documents import Owning, Part, Reverting
from patching.client._feed import Feed, Followed
from patching.client._follower import Follower
from patching.client._reading import Readable
from patching.client._retention import Pin
from patching.client._retry import Retry
from patching.client._steps import Listing, PlanItem, SendOnce, Steps, called, listed, plan_of
from patching.client._wire import ConnectionTerms
from patching.client.bulk_writer import BulkAnswer, BulkLine, BulkTerms, BulkWriter, bulk_lines
from patching.client.errors import Problem
from patching.client.results import (
    CatalogHead,
    CatalogState,
    CatalogWritten,
    Compaction,
    TransactionResult,
    Written,
    expecting,
    parse_catalog_written,
    parse_transaction,
    value_of,
)
from patching.client.terms import Tokens, WriteTerms, encoded
from patching.client.transactions import Transaction
from patching.client.transport import Closable, Transport
from patching.client.uploads import CatalogUploads
from patching.list_declarations import ListDeclarations, parse_declarations


class Gateway(Closable):
    """The gateway at ``url``. Thread-safe; holds connections until ``close``.

    ``token`` is sent as a bearer token; a callable is called before each request, so that it can be
    renewed. It is in no repr and no error, and goes nowhere else: redirects aren't followed.
    ``timeout_s`` is the deadline of each call in seconds, all its retries included. ``retry`` says
    what is sent again, and when: what the gateway calls retryable, and what got lost, if sending it
    again can't apply it twice. What is sent again keeps its preconditions.

    ``batch_s``: concurrent writes of documents are sent as lines of one bulk request. Each waits up
    to ``batch_s`` seconds for others, up to ten times as long while an earlier request is being
    answered, and not at all if no other write is under way. 0.002 is a good choice if many threads
    write. None: each write is a request. Answers, errors, keys and time limits are the same.

    ``ca_file``: certificates to trust instead of the system's, for a gateway with TLS;
    ``certificate_file`` and ``key_file``: the client's own, for one that asks for it. ``headers``
    are sent with each request. ``pool_size`` connections (10) are kept for the next requests; a new
    one may take ``connect_timeout_s`` (5 seconds).
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        batch_s: float | None = None,
        **connection: Unpack[ConnectionTerms],
    ) -> None:
        if not timeout_s > 0:  # refuses NaN, too
            raise ValueError("timeout_s must be more than 0")
        if batch_s is not None and batch_s < 0:
            raise ValueError("batch_s can't be negative")
        self.url = url.rstrip("/")
        self._open = partial(Transport, url, **connection)
        # Its own, and those of its feeds and followers, which other threads may open meanwhile.
        self._connections: weakref.WeakValueDictionary[int, Transport]
        self._connections = weakref.WeakValueDictionary()
        self._is_closed = False
        self._transport = self._connect()
        self._batcher = None if batch_s is None else Batcher(self._transport, batch_s)
        self._calls = CallSender(self._transport, retry or Retry(), timeout_s, self._batcher)

    def _connect(self) -> Transport:
        transport = self._open()
        self._connections[id(transport)] = transport
        if self._is_closed:
            transport.close()
        return transport

    def catalog(self, name: str) -> Catalog:
        """The catalog of that name, which needn't exist: its first write creates it."""
        return Catalog(self._calls, self._feed, name)

    def _feed(self, catalog: str, asked: Followed) -> Feed:
        return Feed(self._connect(), self._calls.retry, catalog, asked)

    @listed
    def catalogs(self, *, prefix: str = "", page_size: int = 200) -> Listing[CatalogHead]:
        """The readable catalogs whose names begin with ``prefix``, by name."""
        after = ""
        while True:
            query: list[tuple[str, str | int]] = [("limit", page_size)]
            query += [(name, text) for name, text in (("prefix", prefix), ("after", after)) if text]
            answer = yield from self._calls.get("/v1/catalogs", query)
            content = answer.json()
            with expecting("page of catalogs"):
                heads = [
                    value_of(CatalogHead, shape, name=shape["catalog"])
                    for shape in content["catalogs"]
                ]
                following = content["next"]
            yield from map(PlanItem, heads)
            if following is None:
                return
            after = following

    def bulk(
        self, lines: Iterable[BulkLine | Mapping[str, Any]], terms: BulkTerms | None = None
    ) -> Iterator[BulkAnswer]:
        """Send many independent writes to any catalogs; returns their answers in order, by
        `BulkWriter`.

        A line is a mapping with the contract's members (``catalog``, ``op``, ``key``, …), returned
        as ``answer.line.subject``. Without ``idempotency_key`` it gets one, by ``retry.make_keys``.
        """
        made = bulk_lines(lines, make_keys=self._calls.retry.make_keys)
        terms = terms or BulkTerms(retry=self._calls.unbounded_retry)
        return BulkWriter(self._transport, terms).write(made)

    def follower(self, catalog: str, **options: Any) -> Follower:
        """A `Follower` of ``catalog``, not started yet; it has connections of its own. ``options``
        are the keywords of `Follower`."""
        options = {"retry": self._calls.unbounded_retry} | options
        return Follower(self.url, catalog, connect=self._connect, **options)

    @called
    def is_ready(self, *, timeout_s: float = 5.0) -> Steps[bool]:
        """Whether its database answers and takes writes. Raises Unreachable if the gateway itself
        doesn't answer."""
        try:
            yield SendOnce("GET", "/readyz", timeout_s=timeout_s)
        except Problem:
            return False
        return True

    def close(self) -> None:
        """Stop the followers, and let pins expire. Calls under way in other threads, and later
        ones, end with Unreachable, including those of its feeds. With ``batch_s``, the writes under
        way are first sent and answered."""
        if self._batcher is not None:
            self._batcher.close()
        self._is_closed = True
        for reference in self._connections.valuerefs():
            if (transport := reference()) is not None:
                transport.close()

    def __repr__(self) -> str:
        return f"<Gateway {self.url}>"


class Catalog(Owning, Readable, Reverting):
    """A catalog of the gateway; only its methods send requests. Thread-safe.

    ``get``, ``put``, ``patch``, ``merge`` and ``update`` are about documents' contents;
    ``attributes`` has the same methods for their attributes, under the same tokens. ``apply``,
    ``owners``, ``let_go``, ``give_back`` and ``lost_by`` are about managers, who own what they
    send. ``settings`` has ``get`` and ``put``, ``uploads`` replaces large documents in two phases.

    Every write takes the keywords of `WriteTerms`. Every method raises RequestError; a refusal is a
    `Problem`.
    """

    def __init__(self, calls: CallPolicy, feed: Callable[[str, Followed], Feed], name: str) -> None:
        super().__init__(calls, feed, name)
        self.attributes = Part(calls, name, "attributes")
        self.settings = SettingsPart(self)
        self.uploads = CatalogUploads(calls, self._catalog_path)

    def __repr__(self) -> str:
        return f"<Catalog {self.name!r}>"

    @called
    def delete(
        self, key: str, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> Steps[Written]:
        """Delete the document. If there is none, nothing changes, unless ``if_match`` demands one
        (PreconditionFailed)."""
        return (yield from self._write("DELETE", key, None, "", if_match, False, terms))

    def transaction(self) -> Transaction:
        """An empty transaction, to be filled and ``run``."""
        return Transaction(self.transact)

    @called
    def transact(
        self,
        body: Mapping[str, Any],
        *,
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> Steps[TransactionResult]:
        """Run a transaction given as the contract's JSON: ``compare``, ``then`` and ``else``. If a
        compare is false and there is no ``else``, raises PreconditionFailed, whose problem has the
        ``failed_compares``."""
        asked = dict(body)
        if asked.pop("dry_run", False) is True:
            terms["dry_run"] = True
        answer = yield from self._calls.write(
            "POST",
            self._catalog_path,
            "/transactions",
            terms,
            body=encoded(asked),
            if_match=if_match,
        )
        return parse_transaction(answer)

    @called
    def touch(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> Steps[CatalogWritten]:
        """Make a commit that changes no document: followers see a new revision."""
        return (yield from self._write_catalog("POST", "/touch", if_match, terms))

    @called
    def delete_catalog(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> Steps[CatalogWritten]:
        """Delete all documents and the settings in one commit. The history stays."""
        return (yield from self._write_catalog("DELETE", "", if_match, terms, once=False))

    def pin(
        self, revision: int | None = None, seconds: int = 600, *, note: str | None = None
    ) -> Pin:
        """Hold ``revision`` (None: the head) against compaction. Returns a context manager that
        renews the pin, for ``seconds`` at a time, until it is left. Entering it raises Gone if the
        revision is compacted already. ``note`` is for people who read `pins`."""
        return Pin(self._calls, self._catalog_path, revision, seconds, note)

    @called
    def compact(self, revision: int, *, timeout_s: float | None = None) -> Steps[Compaction]:
        """Make ``revision`` the oldest one that can be read. Raises Conflict if a pin holds a lower
        one, or the floor is that high already (``snapshot_exists``)."""
        call = Call(
            method="POST",
            path=f"{self._catalog_path}/compactions",
            body=encoded({"revision": revision}),
            headers={"Content-Type": "application/json"},
        )
        answer = yield from self._calls.send(call, timeout_s)
        return value_of(Compaction, answer.json())

    def _write_catalog(
        self, method: str, rest: str, if_match: Tokens | None, given: WriteTerms, **more: Any
    ) -> Steps[CatalogWritten]:
        path = self._catalog_path
        answer = yield from self._calls.write(method, path, rest, given, if_match=if_match, **more)
        return parse_catalog_written(self.name, answer)


class SettingsPart:
    """The settings of a catalog, as ``Catalog.settings``."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._calls = catalog._calls

    @called
    def get(self) -> Steps[CatalogState]:
        """The catalog's state. Its ``settings`` are None if nothing was set; its ``etag`` is the
        settings' token. Raises NotFound if there is no catalog."""
        return (yield from plan_of(self._catalog.read)())

    @called
    def lists(self) -> Steps[ListDeclarations]:
        """The lists that the catalog declares, for `Catalog.update` and `patching.diff`: those of a
        document are ``lists().lists_of(key)``. Raises NotFound if there is no catalog."""
        settings = (yield from plan_of(self.get)()).settings or {}
        return parse_declarations(settings.get("arrays", []))

    @called
    def put(
        self,
        value: Mapping[str, Any],
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        check_documents: bool = True,
        **terms: Unpack[WriteTerms],
    ) -> Steps[CatalogWritten]:
        """Replace all settings; what is left out is unset. Creates the catalog if there is none.
        The conditions are about the settings.

        Refused if documents break the lists that it declares: the problem's ``documents``. With
        ``check_documents=False`` nobody looks, as a very large catalog may need."""
        plan = self._catalog._write_catalog(
            "PUT",
            "",
            if_match,
            terms,
            body=encoded(value),
            if_absent=if_absent,
            query=() if check_documents else [("check_documents", "false")],
        )
        return (yield from plan)

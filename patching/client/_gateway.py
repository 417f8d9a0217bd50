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

    ``token`` goes out as a bearer token; a callable is asked for each request, so that it can be
    renewed. It is in no repr and no error, and goes nowhere else: redirects aren't followed.
    ``timeout_s`` is the deadline of each call, all its retries included. ``retry`` says what is
    sent again, and when: what the gateway calls retryable, and what got lost where sending it again
    can't do it twice. No precondition is ever left out of what is sent again.

    ``batch_s``: concurrent writes of documents go as lines of one bulk request; each waits so many
    seconds at most for others, one that no other meets for none. 0.002 is a good choice where many
    threads write. None: each write is a request. Answers, errors, keys and time limits are the
    same.

    ``ca_file``: certificates to trust instead of the system's, for a gateway with TLS;
    ``certificate_file`` and ``key_file``: the client's own, for one that asks for it. ``headers``
    go out with each request. ``pool_size`` connections (10) are kept for the next requests; a new
    one may take ``connect_timeout_s`` (5).
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
        if not timeout_s > 0:  # nor is NaN
            raise ValueError("timeout_s is more than 0")
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
        """The catalog of that name, which needn't exist: its first write makes it."""
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
        """Many independent writes to any catalogs, answered in order, as `BulkWriter` does it.

        A line is a mapping with the contract's members (``catalog``, ``op``, ``key``, …), which
        comes back as ``answer.line.subject``. One without ``idempotency_key`` is given one, as
        ``retry.make_keys`` says.
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
        """Whether its database answers. Unreachable where the gateway itself doesn't."""
        try:
            yield SendOnce("GET", "/readyz", timeout_s=timeout_s)
        except Problem:
            return False
        return True

    def close(self) -> None:
        """Calls under way in other threads end with Unreachable, and so do later ones, those of its
        feeds among them; followers are stopped, and pins left to expire. With ``batch_s``, the
        writes under way are sent and answered before."""
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
    ``attributes`` has the same methods for the attributes beside them, under the same tokens.
    ``apply``, ``owners``, ``let_go``, ``give_back`` and ``lost_by`` are about managers, who own
    what they send.
    ``settings`` has ``get`` and ``put``, ``uploads`` replaces large documents in two phases.

    Every write takes the keywords of `WriteTerms`. Every method raises RequestError; a refusal is
    a `Problem`.
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
        """Delete the document. Where there is none that is done already, unless ``if_match``
        demands one (PreconditionFailed)."""
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
        """Run a transaction that is given as the contract writes it: ``compare``, ``then`` and
        ``else``. PreconditionFailed, where a compare is false and there is no ``else``, has the
        ``failed_compares`` in its problem."""
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
        """Make a commit that changes nothing: followers see a new revision."""
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
        """Hold ``revision`` (None: the head) against compaction: a context manager that renews it
        until it is left. Gone where it is compacted already. ``note`` is for people who look at
        `pins`."""
        return Pin(self._calls, self._catalog_path, revision, seconds, note)

    @called
    def compact(self, revision: int, *, timeout_s: float | None = None) -> Steps[Compaction]:
        """Make ``revision`` the oldest one that can be read. Conflict: a pin holds what is below,
        or it is done that far already (``snapshot_exists``)."""
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
        """The catalog's state, whose ``settings`` are None where nothing was set and whose ``etag``
        is the settings' token. NotFound where there is no catalog."""
        return (yield from plan_of(self._catalog.read)())

    @called
    def lists(self) -> Steps[ListDeclarations]:
        """The lists that the catalog declares, for `Documents.update` and `patching.diff`: those of
        a document are ``lists().lists_of(key)``. NotFound where there is no catalog."""
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
        """Set all of them; what is left out is as if it had never been set. Makes the catalog where
        there is none. The conditions are about the settings.

        Refused, naming ``documents`` in its problem, where they break the lists that it declares;
        without ``check_documents`` nobody looks, as a very large catalog may need."""
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

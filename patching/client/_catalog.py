"""A catalog: its documents, its history, and what can be done with it as a whole.

A catalog's settings, which are a document of their own.

What was committed, and whether a request was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Unpack

from patching.client._calls import Calls
from patching.client._documents import Part, write_call
from patching.client._errors import NotFound
from patching.client._feed import Feed
from patching.client._listing import ExportStream, documents, open_export, several
from patching.client._results import (
    CatalogState,
    CatalogWritten,
    Commit,
    Compaction,
    Document,
    Several,
    TransactionResult,
    Written,
    expecting,
    parse_catalog_written,
    parse_commit,
    parse_state,
)
from patching.client._retention import Pin, PinState, compact, list_pins
from patching.client._terms import Terms, Tokens, WriteTerms, condition_headers, encoded, is_final
from patching.client._transactions import Transaction, run_transaction
from patching.client._transport import Transport, segment
from patching.client._uploads import Uploads


class Catalog(Part):
    """What ``Gateway.catalog`` returns; nothing is asked until a method is called. Thread-safe.

    ``get``, ``put``, ``patch``, ``merge`` and ``update`` are about documents' contents;
    ``attributes`` has the same ones for the attributes beside them, under the same tokens.
    ``settings`` has ``get`` and ``put``, ``uploads`` replaces large documents in two phases.

    Every write takes the keywords of `WriteTerms`. Every method raises RequestError; what was
    refused is a `Problem`.
    """

    def __init__(self, calls: Calls, connect: Callable[[], Transport], name: str) -> None:
        super().__init__(calls, name, "documents")
        self.name = name
        self._connect = connect
        self.attributes = Part(calls, name, "attributes")
        self.settings = Settings(calls, name, self._catalog_path)
        self.uploads = Uploads(calls, self._catalog_path)

    def __repr__(self) -> str:
        return f"<Catalog {self.name!r}>"

    # Documents, beside get, put, patch, merge and update

    def delete(
        self, key: str, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> Written:
        """Delete the document. Where there is none that is done already, unless ``if_match``
        demands one (PreconditionFailed)."""
        return self._write("DELETE", key, None, None, if_match, False, terms)

    def documents(
        self,
        *,
        prefix: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
        page_size: int = 200,
    ) -> Iterator[Document]:
        """All documents whose keys begin with ``prefix``, by key, as the catalog has them at one
        revision: that of the first page, or ``revision`` or ``at``. Read page by page.

        Gone where that revision is compacted away meanwhile: hold a `pin` where it must not be.
        """
        return documents(self._calls, self._catalog_path, prefix, revision, at, page_size)

    def several(
        self,
        keys: Iterable[str],
        *,
        revision: int | None = None,
        at: datetime | str | None = None,
    ) -> Several:
        """These documents at one revision, and the token of all of them together. ValueError where
        there is no key."""
        return several(self._calls, self._catalog_path, list(keys), revision, at)

    def export(
        self,
        *,
        prefix: str = "",
        revision: int | None = None,
        at: datetime | str | None = None,
    ) -> ExportStream:
        """The contents of all documents at one revision, streamed: a context manager whose
        ``revision`` is known at once and which is iterated once, for pairs of key and content::

            with catalog.export() as export:
                contents = dict(export)
        """
        return open_export(self._calls, self._catalog_path, prefix, revision, at)

    # Together

    def transaction(self) -> Transaction:
        """An empty transaction, to be filled and ``run``."""
        return Transaction(self.transact)

    def transact(
        self,
        body: Mapping[str, Any],
        *,
        if_match: Tokens | None = None,
        **terms: Unpack[WriteTerms],
    ) -> TransactionResult:
        """Run a transaction that is given as the contract writes it: ``compare``, ``then`` and
        ``else``. PreconditionFailed, where a compare is false and there is no ``else``, has the
        ``failed_compares`` in its problem."""
        return run_transaction(self._calls, self._catalog_path, body, if_match, terms)

    # History

    def commits(
        self, *, after: int = 0, key: str | None = None, page_size: int = 100
    ) -> Iterator[Commit]:
        """The commits above revision ``after``, ascending, up to the last there is; with ``key``,
        those that changed this document. Gone where they were compacted away."""
        return commits(self._calls, self._catalog_path, after, key, page_size)

    def commit(self, revision: int) -> Commit:
        """The commit that made ``revision``. NotFound, Gone."""
        return read_commit(self._calls, self._catalog_path, revision)

    def outcome(self, idempotency_key: str) -> Commit | None:
        """The commit that was made under the key; None: none up to now, but a request that still
        is on its way may yet make one."""
        return outcome(self._calls, self._catalog_path, idempotency_key)

    def changes(
        self,
        after: int,
        *,
        keys: Iterable[str] = (),
        prefix: str = "",
        follow: bool = True,
        poll_s: int = 20,
        outage_s: float | None = None,
    ) -> Feed:
        """Every commit above ``after``, in order, each once, as it is made; with ``keys`` or
        ``prefix`` those that change such a document. An iterator and a context manager::

            with catalog.changes(after=41) as feed:
                for commit in feed: ...      # feed.position is what to resume with

        It outlives restarts of the gateway; ``outage_s``: until it has failed for so long.
        ``follow=False``: it ends where there is nothing more for the moment. Gone where the commits
        were compacted away.
        """
        return Feed(
            self._connect(),
            self._calls.retry,
            self.name,
            after,
            keys=tuple(keys),
            prefix=prefix,
            follow=follow,
            poll_s=poll_s,
            outage_s=outage_s,
        )

    # As a whole

    def read(self) -> CatalogState:
        """Where it is, and its settings. NotFound where it was never written or is deleted."""
        return read_state(self._calls, self._catalog_path)

    def touch(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> CatalogWritten:
        """A commit that changes nothing: whoever follows sees a new revision."""
        return self._write_catalog("POST", "/touch", if_match, terms)

    def delete_catalog(
        self, *, if_match: Tokens | None = None, **terms: Unpack[WriteTerms]
    ) -> CatalogWritten:
        """Delete all documents and the settings in one commit. The history stays."""
        return self._write_catalog("DELETE", "", if_match, terms)

    def pin(
        self, revision: int | None = None, seconds: int = 600, *, note: str | None = None
    ) -> Pin:
        """Hold ``revision`` (None: the head) against compaction: a context manager that renews it
        until it is left. Gone where it is compacted already. ``note`` is for people who look at
        `pins`."""
        return Pin(self._calls, self._catalog_path, revision, seconds, note)

    def pins(self) -> list[PinState]:
        """The pins that hold now, by revision."""
        return list_pins(self._calls, self._catalog_path)

    def compact(self, revision: int, *, timeout_s: float | None = None) -> Compaction:
        """Make ``revision`` the oldest one that can be read. Conflict: a pin holds what is below,
        or it is done that far already (``snapshot_exists``)."""
        return compact(self._calls, self._catalog_path, revision, timeout_s)

    def _write_catalog(
        self, method: str, rest: str, if_match: Tokens | None, given: WriteTerms
    ) -> CatalogWritten:
        terms = Terms(**given)
        call = write_call(
            self._calls,
            method,
            self._catalog_path,
            self._catalog_path + rest,
            terms,
            headers=condition_headers(if_match, False),
            final=is_final(if_match, terms.resource_version),
        )
        return parse_catalog_written(self.name, self._calls.send(call, terms.timeout_s))


class Settings:
    """What ``Catalog.settings`` is."""

    def __init__(self, calls: Calls, catalog: str, catalog_path: str) -> None:
        self._calls = calls
        self._catalog = catalog
        self._path = catalog_path

    def get(self) -> CatalogState:
        """The catalog's state, whose ``settings`` are None where nothing was set and whose ``etag``
        is the settings' token. NotFound where there is no catalog."""
        return read_state(self._calls, self._path)

    def put(
        self,
        value: Mapping[str, Any],
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        **terms: Unpack[WriteTerms],
    ) -> CatalogWritten:
        """Set all of them; what is left out is as if it had never been set. Makes the catalog where
        there is none. The conditions are about the settings."""
        asked = Terms(**terms)
        headers = {"Content-Type": "application/json", **condition_headers(if_match, if_absent)}
        call = write_call(
            self._calls,
            "PUT",
            self._path,
            self._path,
            asked,
            body=encoded(value),
            headers=headers,
            final=is_final(if_match, asked.resource_version, if_absent=if_absent),
        )
        return parse_catalog_written(self._catalog, self._calls.send(call, asked.timeout_s))


def read_state(calls: Calls, catalog_path: str) -> CatalogState:
    return parse_state(calls.get(catalog_path).json())


def commits(
    calls: Calls, catalog_path: str, after: int, key: str | None, page_size: int
) -> Iterator[Commit]:
    """See `Catalog.commits`."""
    position: int | None = after
    while position is not None:
        query: list[tuple[str, str | int]] = [("after", position), ("limit", page_size)]
        if key is not None:
            query.append(("key", key))
        content = calls.get(f"{catalog_path}/commits", query).json()
        with expecting("page of commits"):
            page = [parse_commit(shape) for shape in content["commits"]]
            position = content["next"]
        yield from page


def read_commit(calls: Calls, catalog_path: str, revision: int) -> Commit:
    content = calls.get(f"{catalog_path}/commits/{revision}").json()
    return parse_commit(content)


def outcome(calls: Calls, catalog_path: str, idempotency_key: str) -> Commit | None:
    """See `Catalog.outcome`."""
    try:
        content = calls.get(f"{catalog_path}/outcomes/{segment(idempotency_key)}").json()
    except NotFound as error:
        if error.code not in ("outcome_not_found", "catalog_not_found"):
            raise
        return None
    return parse_commit(content)

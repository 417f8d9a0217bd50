"""`/v1/catalogs/{catalog}/documents` and `…/export`: several documents at one revision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from marshmallow import fields

from gateway import memory
from gateway.access import Role
from gateway.cpu import interruptible
from gateway.decide.conditions import CatalogTag, Composite, Tag
from gateway.errors import AboveLimit, GatewayError
from gateway.http.context import Context, Environ, Recheck
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.routes.documents import requested_revision
from gateway.http.wire import query
from gateway.http.wire.conditions import is_not_modified, refuse_conditions
from gateway.http.wire.headers import JSON, require_key
from gateway.http.wire.responses import (
    Answer,
    Stream,
    StreamAnswer,
    body_answer,
    empty_answer,
    encode,
    in_pieces,
    state_headers,
)
from gateway.http.wire.shapes import document_shape
from gateway.limits import MIB
from gateway.model import DocumentRecord
from gateway.read.digests import KeyDigest, KeyDigestPage, Names
from gateway.read.listing import ListingPage
from gateway.read.partitions import KeySpan
from gateway.read.visibility import Viewer

_log = logging.getLogger(__name__)

_KEYS_MAX = 1_000
_LIMIT_MAX = 1_000
# Of documents whose keys contain a text: how many are read at once, and the bytes of a page.
_AT_ONCE = 50
_PAGE_BYTES = 4 * MIB


def _selected(text: str) -> str:
    if text not in ("digest", "key"):
        raise ValueError("it must be 'digest' or 'key', or be left out")
    return text


# A whole catalog, or the part of it whose keys begin with ``prefix``.
_EXPORT_PARAMETERS: Final = query.takes(**query.READ_AS_OF, prefix=query.TEXT)
# A page of documents with keys above ``after``, perhaps only those whose keys contain a text; or
# the documents under the ``key`` parameters. ``select``: only their digests or keys, of which a
# page may have more; then ``delimiter`` groups keys into folders. ``manager``: digests of the parts
# that it owns.
_DOCUMENTS_PARAMETERS: Final = query.takes(
    **query.READ_AS_OF,
    prefix=query.TEXT,
    after=query.TEXT,
    limit=query.number(1, 10_000, load_default=100),
    key=fields.List(fields.String(), load_default=None),
    select=query.Parameter(_selected, load_default=None),
    manager=query.Parameter(query.manager_name, load_default=None),
    contains=query.TEXT,
    delimiter=query.TEXT,
)
# At most ``count`` key ranges of the keys above ``after`` up to ``until``.
_PARTITIONS_PARAMETERS: Final = query.takes(
    **query.READ_AS_OF,
    count=query.number(1, 1000, load_default=1),
    prefix=query.TEXT,
    after=query.TEXT,
    until=fields.String(load_default=None),
)


class ListingRoutes(Routes):
    @route("GET", f"{CATALOG}/documents", "list_documents", Role.READ)
    def page(self, context: Context, catalog: str) -> Answer:
        """Documents by key, or those under the ``key`` parameters, all at one revision."""
        params = query.parameters(context.environ, _DOCUMENTS_PARAMETERS)
        keys = params.pop("key")
        revision = requested_revision(self._gateway, context, catalog, params)
        names = _names(params, by_key=keys is not None)
        if keys is not None:
            return self._several(context, catalog, keys, params, revision)
        viewer = self._gateway.acls.viewer(context.by, catalog)
        page: ListingPage[msgspec.Raw] | KeyDigestPage
        documents: Sequence[msgspec.Raw | dict[str, Any]]
        folders: dict[str, Any] = {}
        select = params.pop("select")
        if select is None and params["limit"] > _LIMIT_MAX:
            query.refuse_parameter("limit", f"it must be a whole number from 1 to {_LIMIT_MAX}")
        if select is None and not names.contain:
            del params["manager"]
            page = self._gateway.listing.page(
                catalog, _encoded, revision=revision, viewer=viewer, **params
            )
            documents = page.documents
            more = page.next_after
        else:
            page = self._gateway.digests.page(
                catalog,
                revision=revision,
                viewer=viewer,
                names=names,
                digests=select == "digest",
                **params,
            )
            more = page.next_after
            if select is None:
                documents, more = self._with_contents(catalog, page, viewer)
            else:
                shape = _digest_shape if select == "digest" else _key_shape
                documents = [shape(each) for each in page.documents]
            folders = {"folders": page.folders} if names.delimiter else {}
        return _answer(
            context.environ,
            CatalogTag(page.revision),
            page.revision,
            {
                "catalog": catalog,
                "revision": page.revision,
                "documents": documents,
                **folders,
                "next": None if more is None else {"after": more, "revision": page.revision},
            },
        )

    def _with_contents(
        self, catalog: str, page: KeyDigestPage, viewer: Viewer | None
    ) -> tuple[list[msgspec.Raw], str | None]:
        """The documents of a page of digests, as many as an answer may hold, and the key after
        which the next page begins."""
        keys = [each.key for each in page.documents]
        shapes: list[msgspec.Raw] = []
        done, at_once, size_bytes = 0, _AT_ONCE, 0
        with memory.account().holding(memory.REPLY_BYTES):
            while done < len(keys) and size_bytes < _PAGE_BYTES:
                some = keys[done : done + at_once]
                try:
                    _, found = self._gateway.listing.several(
                        catalog, some, _encoded, revision=page.revision, viewer=viewer
                    )
                except AboveLimit:
                    if len(some) == 1:
                        raise
                    at_once = len(some) // 2
                    continue
                there = [each for key in some if (each := found[key]) is not None]
                shapes += there
                size_bytes += sum(memoryview(each).nbytes for each in there)
                done += len(some)
        return shapes, page.next_after if done == len(keys) else keys[done - 1]

    def _several(
        self,
        context: Context,
        catalog: str,
        keys: list[str],
        params: dict[str, Any],
        revision: int | None,
    ) -> Answer:
        for name in ("prefix", "after"):  # not a limit: generated clients send its default
            if params[name]:
                query.refuse_parameter("key", f"it can't be given together with '{name}'")
        for key in keys:
            require_key(key, self._limits)
        keys = list(dict.fromkeys(keys))
        if len(keys) > _KEYS_MAX:
            query.refuse_parameter("key", f"at most {_KEYS_MAX} keys can be read at once")
        viewer = self._gateway.acls.viewer(context.by, catalog)
        found: Mapping[str, KeyDigest | _TaggedShape | None]
        shape: Callable[[Any], Any] = attrgetter("shape")
        if params["select"] is None:
            at, found = self._gateway.listing.several(
                catalog, keys, _with_token, revision=revision, viewer=viewer
            )
        else:
            shape = _key_shape if params["select"] == "key" else _digest_shape
            at, found = self._gateway.digests.several(
                catalog, keys, revision=revision, viewer=viewer, manager=params["manager"]
            )
        tokens = tuple((key, item.token if (item := found[key]) else None) for key in keys)
        documents = [
            {"key": key, "etag": None} if (item := found[key]) is None else shape(item)
            for key in keys
        ]
        content = {"catalog": catalog, "revision": at, "documents": documents, "next": None}
        return _answer(context.environ, Composite(tokens), at, content)

    @route("GET", f"{CATALOG}/export", "export", Role.READ)
    def export(self, context: Context, catalog: str) -> Answer:
        """The whole catalog at one revision, streamed."""
        params = query.parameters(context.environ, _EXPORT_PARAMETERS)
        revision = requested_revision(self._gateway, context, catalog, params)
        export = self._gateway.listing.export(
            catalog,
            _export_line,
            owner=context.by.name,
            prefix=params["prefix"],
            revision=revision,
            viewer=self._gateway.acls.viewer(context.by, catalog),
        )
        tag = CatalogTag(export.revision)
        headers = state_headers(tag, export.revision)
        sending = False
        try:
            if is_not_modified(context.environ, tag, "the catalog"):
                return empty_answer(headers, 304)
            headers.append(("Content-Type", JSON))
            if context.observed.method == "HEAD":
                return empty_answer(headers, 200)
            sending = True
        finally:
            if not sending:
                export.close()
        lines = _export_lines(export.revision, export.pages)
        body = Stream(_pieces(lines, context.require_still_let_in, export.renew), export.close)
        return StreamAnswer(body, headers)

    @route("GET", f"{CATALOG}/partitions", "plan_partitions", Role.READ)
    def plan(self, context: Context, catalog: str) -> Answer:
        """The revision, and the keys that end its key ranges."""
        refuse_conditions(context.environ)
        params = query.parameters(context.environ, _PARTITIONS_PARAMETERS)
        revision = requested_revision(self._gateway, context, catalog, params)
        span = KeySpan(params["prefix"], params["after"], params["until"])
        viewer = self._gateway.acls.viewer(context.by, catalog)
        found = self._gateway.partitions.plan(
            catalog, params["count"], span, revision=revision, viewer=viewer
        )
        content = {"catalog": catalog, "revision": found.revision, "bounds": found.bounds}
        return body_answer(encode(content), [("Catalog-Revision", str(found.revision))])


def _answer(environ: Environ, tag: Tag, revision: int, content: dict[str, Any]) -> Answer:
    headers = state_headers(tag, revision)
    if is_not_modified(environ, tag, "the listing"):
        return empty_answer(headers, 304)
    return body_answer(encode(content), headers)


class _TaggedShape(NamedTuple):
    token: str
    shape: msgspec.Raw


def _with_token(document: DocumentRecord) -> _TaggedShape:
    return _TaggedShape(document.token, _encoded(document))


@interruptible
def _encoded(document: DocumentRecord) -> msgspec.Raw:
    return msgspec.Raw(encode(document_shape(document)))


def _digest_shape(each: KeyDigest) -> dict[str, Any]:
    return {**_key_shape(each), "digest": each.digest}


def _key_shape(each: KeyDigest) -> dict[str, Any]:
    return {"key": each.key, "etag": each.token, "revision": each.revision}


def _names(params: dict[str, Any], *, by_key: bool) -> Names:
    """The names to list, removed from ``params``. Refuses parameters that don't go together."""
    names = Names(params.pop("contains"), params.pop("delimiter"))
    if names.contain and by_key:
        query.refuse_parameter("contains", "it can't be given together with 'key'")
    if names.delimiter and (params["select"] is None or by_key):
        query.refuse_parameter("delimiter", "it needs 'select=digest' or 'select=key'")
    if params["manager"] is not None and params["select"] != "digest":
        query.refuse_parameter("manager", "it needs 'select=digest'")
    if all(names):
        query.refuse_parameter("delimiter", "it can't be given together with 'contains'")
    return names


@interruptible
def _export_line(document: DocumentRecord) -> bytes:
    """A document as a member of the export, after a comma and a line end."""
    return b",\n" + encode(document.key) + b":" + encode(document.content)


def _export_lines(revision: int, pages: Iterator[Sequence[bytes]]) -> Iterator[bytes]:
    """The parts of the export. A page that waits counts as unsent: it is bytes, no objects."""
    yield b'{"resource_version":%d,"metadata":{' % revision
    is_first = True
    for page in pages:
        memory.account().keep(sum(map(len, page)))
        for line in page:
            yield line[1:] if is_first else line
            is_first = False
        page, line = (), b""  # freed before the next page is read
    yield b"\n}}\n"


def _pieces(lines: Iterable[bytes], recheck: Recheck, renew: Callable[[], None]) -> Iterator[bytes]:
    """The ``lines`` joined into pieces worth a system call each, until the reader isn't let in.

    An error breaks the connection off, so that the client sees that the export isn't whole.
    """
    try:
        for piece in in_pieces(lines):
            recheck()
            renew()
            yield piece
    except GatewayError as error:
        _log.warning("an export was broken off: %s", error)
        raise

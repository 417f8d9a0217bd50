"""Many documents at one revision, and many catalogs.

A catalog's export, read document by document while it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import urllib3
from urllib3.exceptions import HTTPError

from patching.client._calls import Calls
from patching.client._documents import time_query
from patching.client._errors import Unreachable
from patching.client._results import (
    CatalogHead,
    Document,
    Several,
    expecting,
    parse_listed,
    unquoted,
    value_of,
)
from patching.client._transport import Closable, Query, in_words

# So many keys in one request at most, and a line no longer than servers and proxies take.
_KEYS_MAX: Final = 1000
_QUERY_BYTES_MAX: Final = 3500


def documents(
    calls: Calls,
    catalog_path: str,
    prefix: str,
    revision: int | None,
    at: datetime | str | None,
    page_size: int,
) -> Iterator[Document]:
    """See `Catalog.documents`."""
    first: list[tuple[str, str | int]] = time_query(revision, at)
    always: list[tuple[str, str | int]] = [("limit", page_size)]
    if prefix:
        always.append(("prefix", prefix))
    query = first
    while True:
        content = calls.get(f"{catalog_path}/documents", [*always, *query]).json()
        with expecting("page of documents"):
            told_at = int(content["revision"])
            found = [parse_listed(shape, told_at) for shape in content["documents"]]
            following = content["next"]
        yield from (document for document in found if document is not None)
        if following is None:
            return
        with expecting("page of documents"):
            query = [("after", following["after"]), ("revision", following["revision"])]


def several(
    calls: Calls,
    catalog_path: str,
    keys: Sequence[str],
    revision: int | None,
    at: datetime | str | None,
) -> Several:
    """See `Catalog.several`. What one request can't hold is read at the first one's revision."""
    if not keys:
        raise ValueError("there has to be a key")
    found: dict[str, Document | None] = {}
    tags: list[str] = []
    query: list[tuple[str, str | int]] = time_query(revision, at)
    told_at = 0
    for chunk in key_chunks(dict.fromkeys(keys)):
        asked: Query = [("key", key) for key in chunk]
        answer = calls.get(f"{catalog_path}/documents", [*asked, *query])
        content = answer.json()
        with expecting("selection of documents"):
            told_at = int(content["revision"])
            for shape in content["documents"]:
                found[shape["key"]] = parse_listed(shape, told_at)
            tags.append(unquoted(answer.headers["ETag"]))
        query = [("revision", told_at)]
    return Several(told_at, found, ";".join(tags))


def key_chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    """As many at a time as one request can name."""
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


def catalogs(calls: Calls, prefix: str, page_size: int) -> Iterator[CatalogHead]:
    """See `Gateway.catalogs`."""
    after = ""
    while True:
        query: list[tuple[str, str | int]] = [("limit", page_size)]
        if prefix:
            query.append(("prefix", prefix))
        if after:
            query.append(("after", after))
        content = calls.get("/v1/catalogs", query).json()
        with expecting("page of catalogs"):
            heads = [
                value_of(CatalogHead, shape, name=shape["catalog"]) for shape in content["catalogs"]
            ]
            following = content["next"]
        yield from heads
        if following is None:
            return
        after = following


class ExportStream(Closable):
    """Pairs of key and content, as the catalog had them at ``revision``; iterated once.

    Unreachable where it breaks off before its end: what came until then is right, but not all.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, revision: int) -> None:
        self.revision = revision
        self._response = response

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        import ijson  # here, since nothing else needs it

        try:
            yield from ijson.kvitems(self._response, "metadata", use_float=True)
        except (ijson.JSONError, HTTPError, OSError) as error:
            raise Unreachable(f"the export broke off: {in_words(error)}", applied="no") from error
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()


def open_export(
    calls: Calls,
    catalog_path: str,
    prefix: str,
    revision: int | None,
    at: datetime | str | None,
) -> ExportStream:
    """See `Catalog.export`."""
    query = time_query(revision, at)
    if prefix:
        query.append(("prefix", prefix))
    response = calls.open(f"{catalog_path}/export", query)
    with expecting("export"):
        return ExportStream(response, int(response.headers["Catalog-Revision"]))

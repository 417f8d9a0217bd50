"""Many documents at one revision, and many catalogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import quote

from .calls import Calls
from .commits import expecting, whole
from .documents import time_query
from .results import CatalogHead, Document, Several, parse_head, parse_listed, unquoted
from .transport import Query

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
            told_at = whole(content["revision"])
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
    for chunk in _chunks(list(dict.fromkeys(keys))):
        asked: Query = [("key", key) for key in chunk]
        answer = calls.get(f"{catalog_path}/documents", [*asked, *query])
        content = answer.json()
        with expecting("selection of documents"):
            told_at = whole(content["revision"])
            for shape in content["documents"]:
                found[shape["key"]] = parse_listed(shape, told_at)
            tags.append(unquoted(answer.headers["ETag"]))
        query = [("revision", told_at)]
    return Several(told_at, found, ";".join(tags))


def _chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for key in keys:
        key_bytes = len(quote(key, safe="")) + len("&key=")
        if chunk and (len(chunk) == _KEYS_MAX or size + key_bytes > _QUERY_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(key)
        size += key_bytes
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
            heads = [parse_head(shape) for shape in content["catalogs"]]
            following = content["next"]
        yield from heads
        if following is None:
            return
        after = following

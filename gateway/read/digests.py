"""Digests of documents at one revision: what tells them apart, without their contents.

A document is stored with its digest, unless it is large. It is made anew where there is none, and
where the document was changed after the revision that is asked for: of its state then, rebuilt from
history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, cast

from gateway.model import Digested, Document
from gateway.read.listing import Listing, not_overtaken
from gateway.read.visibility import Sight
from gateway.state.heads import as_unavailable
from gateway.store.contract import Store
from patching import Json, digest

# How many contents are read for a page, and their size; it ends before the next one.
_CONTENTS_MAX = 500
_CONTENTS_BYTES_MAX = 4 * 1024 * 1024


class KeyDigest(NamedTuple):
    key: str
    token: str
    digest: str


def key_digest(document: Document) -> KeyDigest:
    """Of a live document."""
    return KeyDigest(document.key, document.token, digest(cast(Json, document.content)))


@dataclass(frozen=True, slots=True)
class DigestPage:
    """Live documents by key, as ``revision`` had them; ``next_after`` None: that was the last."""

    revision: int
    documents: Sequence[KeyDigest]
    next_after: str | None


class DigestListing:
    def __init__(self, store: Store, listing: Listing) -> None:
        self._store = store
        self._listing = listing

    def page(
        self,
        catalog: str,
        *,
        prefix: str,
        after: str,
        limit: int,
        revision: int | None,
        sight: Sight | None = None,
    ) -> DigestPage:
        """Like ``Listing.page``, whose errors it has; fewer where contents have to be read."""

        def page() -> DigestPage:
            at = self._listing.readable(catalog, revision)
            return self._page(catalog, prefix, after, limit, at, sight)

        with as_unavailable():
            return not_overtaken(revision, page)

    def _page(
        self, catalog: str, prefix: str, after: str, limit: int, at: int, sight: Sight | None
    ) -> DigestPage:
        found: list[KeyDigest] = []
        more: Sequence[Digested] = ()
        while not found:
            records = self._store.scan_digests(catalog, after, prefix, limit)
            if not records:
                break
            records = _within_bounds(records, at)
            contents = self._contents(catalog, records, at)
            for record in records:
                if record.revision <= at and record.digest is not None:
                    if sight is None or sight.sees_past(record, record):
                        found.append(KeyDigest(record.key, record.token, record.digest))
                elif (document := contents.get(record.key)) and (
                    sight is None or sight.sees_past(document, record)
                ):
                    found.append(key_digest(document))
            after = records[-1].key
        self._listing.require_above_floor(catalog, at)
        if found:
            more = self._store.scan_digests(catalog, after, prefix, 1)
        return DigestPage(at, found, after if more else None)

    def _contents(
        self, catalog: str, records: Sequence[Digested], at: int
    ) -> Mapping[str, Document]:
        """By key, the live documents at ``at`` of those records that don't tell its digest."""
        keys = [each.key for each in records if each.revision <= at and _lacks_digest(each)]
        stored = self._store.documents({catalog: keys}) if keys else {}
        found = {
            document.key: self._listing.as_of(catalog, document.key, document, at)
            for document in stored.values()
        }
        for each in records:
            if each.revision > at:
                found[each.key] = self._listing.rebuilt(catalog, each.key, at)
        return {key: document for key, document in found.items() if document is not None}


def _lacks_digest(record: Digested) -> bool:
    return record.exists and record.digest is None


def _within_bounds(records: Sequence[Digested], at: int) -> Sequence[Digested]:
    """The first of ``records``, one at least, for which few contents have to be read."""
    contents = size_bytes = 0
    for number, record in enumerate(records):
        if record.revision > at or _lacks_digest(record):
            contents += 1
            size_bytes += record.size_bytes
            if contents > 1 and (contents > _CONTENTS_MAX or size_bytes > _CONTENTS_BYTES_MAX):
                return list(islice(records, number))
    return records

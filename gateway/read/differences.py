"""Differences: the documents that two revisions of a catalog have differently.

Worked example. Between revisions 10 and 12, commit 11 changed a and created b, and commit 12
deleted c. The records that were changed above 10 are found: a, b and the tombstone of c. Each is
rebuilt from history at both revisions. From 12 to 10, the differences are the same the other way
round: b is deleted, c is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway import cpu, memory
from gateway.cpu import interruptible
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY, WITHHELD, BareDocument, DocumentRecord, living
from gateway.read.listing import Listing, growing
from gateway.read.visibility import Viewer
from gateway.state.replay import (
    HistoryIncomplete,
    rebuild,
    rebuild_both,
    scanned_digests,
    stored_bare_documents,
    stored_documents,
)
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable
from patching import ABSENT, equal


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """The live documents under ``key`` at the two revisions; they differ. None: there is none."""

    key: str
    before: DocumentRecord | None
    after: DocumentRecord | None

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in (self.before, self.after) if each is not None)


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class DifferencePage(Generic[_Item]):
    """What ``encode`` made of differences, by key; the settings, whose key is "", come first.
    ``next_after`` None: this is the last page."""

    before: int
    after: int
    documents: Sequence[_Item]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """Two revisions of a catalog, in either order, and the documents that are compared."""

    catalog: str
    before: int
    after: int
    prefix: str = ""

    @property
    def low(self) -> int:
        return min(self.before, self.after)

    @property
    def high(self) -> int:
        return max(self.before, self.after)


class DifferenceReads:
    """Reads differences. Every method raises StoreUnavailable, CatalogNotFound (never written),
    RevisionNotFound (above the head) and RevisionCompacted (below the floor)."""

    def __init__(self, store: Store, listing: Listing, limits: ServiceLimits) -> None:
        self._store = store
        self._listing = listing
        self._page_bytes_max = limits.listing_page_bytes_max

    def span(self, catalog: str, before: int | None, after: int | None, prefix: str = "") -> Span:
        """The span between two revisions that can be read; None: the head."""
        with as_unavailable():
            first, second = (self._listing.readable(catalog, each) for each in (before, after))
            return Span(catalog, first, second, prefix)

    def page(
        self,
        span: Span,
        encode: Callable[[DocumentDifference], _Item],
        *,
        after: str,
        limit: int,
        viewer: Viewer | None = None,
    ) -> DifferencePage[_Item]:
        """The differences of keys above ``after``, from at most ``limit`` documents that were
        changed. There are fewer, or none, if documents are equal again, are large or take long.

        A document hidden from ``viewer`` counts as none. Only one difference at a time is made and
        given to ``encode``.
        """
        found: list[_Item] = []
        seen: str | None = None
        with as_unavailable(), memory.account().holding(memory.REPLY_BYTES):
            if not after and not span.prefix:
                for item, _ in self._of_settings(span, encode):
                    found += item
            left, left_bytes = limit, self._page_bytes_max
            is_begun = False  # there is a key after which the next page can begin
            for step in growing(limit):
                records = scanned_digests(
                    self._store, span.catalog, after, span.prefix, step, above=span.low
                )
                shown = [each for each in records if not _is_beyond(span, each, viewer)]
                current = self.current(span, [each.key for each in shown])
                for record in shown:
                    if left_bytes < 0 or not left or (is_begun and cpu.is_half_used()):
                        break
                    is_begun = viewer is None
                    for item, size_bytes in self._of_record(span, record, current, encode, viewer):
                        found += item
                        left -= 1
                        left_bytes -= size_bytes
                        seen, is_begun = record.key, True
                    after = record.key
                else:
                    after = records[-1].key if records else after
                is_last = records.is_whole and (not records or after == records[-1].key)
                # With a viewer, the next page may begin only after a key that the reader sees.
                if is_last or viewer is None or seen is not None:
                    break
            self.require_retained(span)
        more = after if viewer is None else seen
        return DifferencePage(span.before, span.after, found, None if is_last else more)

    def _of_settings(
        self, span: Span, encode: Callable[[DocumentDifference], _Item]
    ) -> Iterator[tuple[Sequence[_Item], int]]:
        name = (span.catalog, SETTINGS_KEY)
        record = stored_bare_documents(self._store, [name])[0].get(name)
        if record is not None and record.revision > span.low:
            yield from self._of_record(span, record, {}, encode, None)

    def _of_record(
        self,
        span: Span,
        record: BareDocument,
        current: Mapping[str, DocumentRecord],
        encode: Callable[[DocumentDifference], _Item],
        viewer: Viewer | None,
    ) -> Iterator[tuple[Sequence[_Item], int]]:
        """What ``encode`` makes of the record's difference, and its size: () and 0 if the states
        are equal. Nothing is yielded if there is none that ``viewer`` sees."""
        with memory.account().holding():
            low, high = self.states(span, record.key, current)
            seen = [
                each if each is None or viewer is None or viewer.sees_past(each, record) else None
                for each in (living(low), living(high))
            ]
            before, after = seen if span.before < span.after else reversed(seen)
            if not same_state(before, after):
                difference = DocumentDifference(record.key, before, after)
                yield (encode(difference),), difference.size_bytes
            elif before is not None:
                yield (), 0

    def current(self, span: Span, keys: Sequence[str]) -> Mapping[str, DocumentRecord]:
        """The documents and tombstones under ``keys`` that haven't changed since the later
        revision.

        They are read in one call and needn't be rebuilt. Large ones are left out. Raises
        StoreUnreachable.
        """
        if not keys:
            return {}
        few_bytes = self._page_bytes_max // len(keys)
        stored = stored_documents(self._store, {span.catalog: keys}, content_bytes_max=few_bytes)
        return {
            each.key: each
            for each in stored.values()
            if each.revision <= span.high and each.content is not WITHHELD
        }

    def states(
        self, span: Span, key: str, current: Mapping[str, DocumentRecord]
    ) -> tuple[DocumentRecord | None, DocumentRecord | None]:
        """The document or tombstone under ``key`` at the lower and the higher revision of ``span``.
        ``current`` has documents of the higher one."""
        if key not in current:
            return self.records(span.catalog, key, span.low, span.high)
        try:
            return rebuild(self._store, span.catalog, key, span.low), current[key]
        except HistoryIncomplete:
            self.require_retained(span)
            raise

    def records(
        self, catalog: str, key: str, low: int, high: int
    ) -> tuple[DocumentRecord | None, DocumentRecord | None]:
        """The documents or tombstones under ``key`` at two revisions, which are written out.

        Raises RevisionCompacted and StoreUnreachable.
        """
        try:
            return rebuild_both(self._store, catalog, key, low, high)
        except HistoryIncomplete:
            self._listing.require_above_floor(catalog, low)
            raise

    def require_retained(self, span: Span) -> None:
        """Raise RevisionCompacted if the floor has passed one of the revisions meanwhile."""
        self._listing.require_above_floor(span.catalog, span.low)


def _is_beyond(span: Span, record: BareDocument, viewer: Viewer | None) -> bool:
    """Whether the present record already shows that nothing of ``span`` under this key is visible.
    Then nothing else has to be read for it; there may be many such documents."""
    created = record.create_revision
    is_of_one_life = created <= span.low or (span.low == 0 and created <= span.high)
    return viewer is not None and is_of_one_life and not viewer.sees_past(record, record)


@interruptible
def same_state(one: DocumentRecord | None, other: DocumentRecord | None) -> bool:
    """Whether two live documents have equal content and attributes, or both are None."""
    if one is None or other is None:
        return one is other
    assert one.content is not ABSENT
    assert other.content is not ABSENT
    return equal(one.attributes or {}, other.attributes or {}) and equal(one.content, other.content)

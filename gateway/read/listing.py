"""Several documents at one revision: pages of a catalog, named documents, and a whole export.

Worked example. A page of catalog c is asked for at its head, 7; while it is read, somebody
commits 8, which changes key b. The records of a, b and c are read in one go: a was last changed
at 3 and c at 7, so they are what 7 had; b is at 8 already and is rebuilt from history as 7 had
it. The next page is asked for at revision 7 too, however far the head has moved.

Where history was compacted beyond the revision meanwhile, what was read may lack tombstones that
were purged; so the floor is looked at last, and the answer given up if it has passed. Who asked
for the head is answered at a newer one then: the present is never compacted away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from gateway.errors import (
    CatalogNotFound,
    OverLimit,
    RevisionCompacted,
    RevisionNotFound,
    StoreUnavailable,
)
from gateway.limits import ServiceLimits
from gateway.model import WITHHELD, Document, Head, Pin, living
from gateway.read.visibility import Sight
from gateway.runtime import Runtime
from gateway.state.heads import Settler, as_unavailable
from gateway.state.replay import HistoryIncomplete, read_large, rebuild
from gateway.store.contract import Store, Unreachable

_Answer = TypeVar("_Answer")

# The maximum size of several documents by key, and of those that are read at once.
SEVERAL_BYTES_MAX = 16 * 1024 * 1024
_SMALL_BYTES = 1024 * 1024
_OVERTAKEN_MAX = 20
# An export holds its revision while it runs; renewed well before it would end.
_EXPORT_PIN_S = 120
_EXPORT_RENEW_S = 30


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Live documents by key, as ``revision`` had them; ``next_after`` None: that was the last."""

    revision: int
    documents: Sequence[Document]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Export:
    """A whole catalog as ``revision`` had it; ``documents`` can be gone through once.

    ``close`` lets the revision go that was held for it: needed where nobody goes to the end.
    """

    revision: int
    documents: Iterator[Document]
    close: Callable[[], None]


class _Scan(NamedTuple):
    """Which documents are gone through: see ``Listing``."""

    catalog: str
    prefix: str
    sight: Sight | None


class Listing:
    """Every method raises StoreUnavailable, CatalogNotFound (never written), RevisionNotFound
    (above the head) and RevisionCompacted (below the floor).

    ``sight`` is what somebody sees of the catalog; None: everything. Documents beyond it are left
    out where they weren't asked for by their keys.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: ServiceLimits,
        refuse_more_pins: Callable[[str, str], None],
    ) -> None:
        """``refuse_more_pins``: see ``HistoryRetention``."""
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._page_bytes_max = limits.listing_page_bytes_max
        self._export_page = limits.listing_page_documents
        self._refuse_more_pins = refuse_more_pins
        self._large_reads = runtime.lock()

    def catalogs(self, *, after: str, prefix: str, limit: int) -> Sequence[Head]:
        """Heads of catalogs, by name ascending (UTF-8), those of deleted ones among them."""
        with as_unavailable():
            return self._store.list_heads(after, prefix, limit)

    def head(self, catalog: str) -> Head:
        """The catalog's head, read now. CatalogNotFound also for a deleted one, and without a
        commit."""
        with as_unavailable():
            head = self._store.heads([catalog]).get(catalog)
        if head is None or head.deleted or not head.revision:
            raise CatalogNotFound(catalog, 0 if head is None else head.revision)
        return head

    def page(
        self,
        catalog: str,
        *,
        prefix: str,
        after: str,
        limit: int,
        revision: int | None,
        sight: Sight | None = None,
    ) -> DocumentPage:
        """The live documents with keys above ``after`` that begin with ``prefix``, ascending.

        At most ``limit``; fewer where they are large, but one at least if any is left.
        """

        scan = _Scan(catalog, prefix, sight)
        return self.read_at(catalog, revision, lambda at: self._page(scan, after, limit, at))

    def several(
        self,
        catalog: str,
        keys: Collection[str],
        *,
        revision: int | None,
        sight: Sight | None = None,
    ) -> tuple[int, dict[str, Document | None]]:
        """The documents under ``keys`` (None: no live one) at one revision, which comes first.

        Raises DocumentForbidden where one of them is beyond ``sight``, and OverLimit where several
        take more than an answer may hold. Who asks for large ones waits for others who do: parsed,
        they take many times their size.
        """
        return self.read_at(catalog, revision, lambda at: self._several(catalog, keys, at, sight))

    def _several(
        self, catalog: str, keys: Collection[str], at: int, sight: Sight | None
    ) -> tuple[int, dict[str, Document | None]]:
        few_bytes = _SMALL_BYTES // max(len(keys), 1)
        stored = dict(self._store.documents({catalog: keys}, content_bytes_max=few_bytes))
        large = [each for each in stored.values() if each.content is WITHHELD]
        with self._large_reads if large else nullcontext():
            if large:
                _refuse_heavy(stored.values())
                stored |= read_large(self._store, [(catalog, each) for each in large])
            return at, self._several_as_of(catalog, keys, stored, at, sight)

    def _several_as_of(
        self,
        catalog: str,
        keys: Collection[str],
        stored: Mapping[tuple[str, str], Document],
        at: int,
        sight: Sight | None,
    ) -> dict[str, Document | None]:
        found: dict[str, Document | None] = {}
        for key in keys:
            record = stored.get((catalog, key))
            found[key] = self.as_of(catalog, key, record, at)
            if record is not None and record.revision > at:  # it may have been larger then
                _refuse_heavy(each for each in found.values() if each is not None)
        if sight is not None:
            for key, document in found.items():
                if document is not None and not sight.sees_past(document, stored[catalog, key]):
                    sight.refuse(key)
        self.require_above_floor(catalog, at)
        return found

    def export(
        self,
        catalog: str,
        *,
        owner: str,
        prefix: str = "",
        revision: int | None = None,
        sight: Sight | None = None,
    ) -> Export:
        """All live documents by key ascending, read page by page while they are gone through.

        Memory doesn't grow with the catalog. Where it takes more than a page, the revision is
        pinned meanwhile, as one of the pins of the principal ``owner``: OverLimit where it has too
        many. The iterator raises what ``page`` raises.
        """
        pin = Pin(self._runtime.new_id(), 0, 0, owner, "export")
        scan = _Scan(catalog, prefix, sight)

        def begin(at: int) -> DocumentPage:
            page = self._page(scan, "", self._export_page, at)
            if page.next_after is not None:
                self._refuse_more_pins(catalog, owner)
                # Now: who is told of the revision finds it there, or is told that it is not.
                self._pin(catalog, pin, at)
            return page

        first = self.read_at(catalog, revision, begin)
        if first.next_after is None:
            return Export(first.revision, iter(first.documents), lambda: None)
        documents = self._pages(scan, first, pin)

        def close() -> None:
            documents.close()
            self._unpin(catalog, pin.id)  # which one that never began doesn't

        return Export(first.revision, documents, close)

    def _pages(self, scan: _Scan, page: DocumentPage, pin: Pin) -> Generator[Document]:
        """The pages of a revision that was just pinned."""
        pinned_at = self._runtime.monotonic()
        try:
            while True:
                now = self._runtime.monotonic()
                if now - pinned_at > _EXPORT_RENEW_S:
                    self._pin(scan.catalog, pin, page.revision)
                    pinned_at = now
                yield from page.documents
                if page.next_after is None:
                    return
                with as_unavailable():
                    page = self._page(scan, page.next_after, self._export_page, page.revision)
        finally:
            self._unpin(scan.catalog, pin.id)

    def _unpin(self, catalog: str, pin_id: str) -> None:
        with suppress(Unreachable):  # it expires by itself
            self._store.drop_pin(catalog, pin_id)

    def _pin(self, catalog: str, pin: Pin, revision: int) -> None:
        expires_us = self._runtime.now_us() + _EXPORT_PIN_S * 1_000_000
        with as_unavailable():
            pin = replace(pin, revision=revision, expires_us=expires_us)
            if not self._store.set_pin(catalog, pin):
                self.require_above_floor(catalog, revision)

    def _page(self, scan: _Scan, after: str, limit: int, revision: int) -> DocumentPage:
        catalog, prefix, sight = scan
        live: list[Document] = []
        while True:
            records = self._store.scan_documents(
                catalog, after, prefix, limit, self._page_bytes_max
            )
            for record in records:
                document = self.as_of(catalog, record.key, record, revision)
                if document is not None and (sight is None or sight.sees_past(document, record)):
                    live.append(document)
            if not records:
                break
            after = records[-1].key
            if live:
                break
        self.require_above_floor(catalog, revision)
        more = live and self._store.scan_documents(catalog, after, prefix, 1, 1)
        return DocumentPage(revision, live, after if more else None)

    def read_at(
        self, catalog: str, revision: int | None, read: Callable[[int], _Answer]
    ) -> _Answer:
        """What ``read`` finds at the revision to read at: see ``readable``, ``not_overtaken``."""
        with as_unavailable():
            return not_overtaken(revision, lambda: read(self.readable(catalog, revision)))

    def as_of(
        self, catalog: str, key: str, record: Document | None, revision: int
    ) -> Document | None:
        """The live document at ``revision``, given its record, which may be newer."""
        if record is not None and record.revision > revision:
            return self.rebuilt(catalog, key, revision)
        return record if record is not None and record.exists else None

    def rebuilt(self, catalog: str, key: str, revision: int) -> Document | None:
        """The live document at ``revision``, from history."""
        try:
            return living(rebuild(self._store, catalog, key, revision))
        except HistoryIncomplete:
            self.require_above_floor(catalog, revision)
            raise

    def readable(self, catalog: str, revision: int | None) -> int:
        """The revision to read at, up to which everything is written out."""
        standing = self._settler.settle(catalog)
        if standing.revision == 0:
            raise CatalogNotFound(catalog, 0)
        if revision is None:
            return standing.revision
        if revision > standing.revision:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {standing.revision}",
                standing.revision,
            )
        if revision < standing.floor:
            raise RevisionCompacted(revision, standing.floor)
        return revision

    def require_above_floor(self, catalog: str, revision: int) -> None:
        head = self._store.heads([catalog]).get(catalog)
        if head is not None and revision < head.floor:
            raise RevisionCompacted(revision, head.floor)


def not_overtaken(revision: int | None, read: Callable[[], _Answer]) -> _Answer:
    """``read``, once more where compaction passes a head (``revision`` None) while it is read."""
    for _ in range(_OVERTAKEN_MAX):
        try:
            return read()
        except RevisionCompacted:
            if revision is not None:
                raise
    raise StoreUnavailable("the catalog is compacted faster than it can be read")


def _refuse_heavy(documents: Iterable[Document]) -> None:
    sizes = [document.size_bytes for document in documents]
    if sum(sizes) > SEVERAL_BYTES_MAX and len(sizes) > 1:
        raise OverLimit(
            f"the documents take {sum(sizes)} bytes, more than the {SEVERAL_BYTES_MAX} that are"
            " answered at once: ask for fewer",
            limit="several_bytes_max",
            maximum=SEVERAL_BYTES_MAX,
            actual=sum(sizes),
        )

"""Several documents at one revision: pages of a catalog, named documents, and a whole export.

Worked example. A client asks for a page of catalog c at its head, 7; while it is read, somebody
commits 8, which changes key b. The records of a, b and c are read in one go: a was last changed
at 3 and c at 7, so they are as 7 had them; b is at 8 already, and is rebuilt from history as of 7.
The client asks for the next page at revision 7, too, however far the head has moved.

If compaction has passed the revision meanwhile, tombstones may have been purged before they were
read. So the floor is read last, and the page is dropped if the floor has passed the revision. A
client that asked for the head then gets the page of a newer one: the present is never compacted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from gateway import cpu, memory
from gateway.access import Principal, Role
from gateway.errors import (
    AboveLimit,
    CatalogNotFound,
    RevisionCompacted,
    RevisionNotFound,
    StoreUnavailable,
)
from gateway.limits import MIB, ServiceLimits
from gateway.model import WITHHELD, DocumentRecord, Head, PinRecord, living
from gateway.read.history import map_records
from gateway.read.visibility import Viewer
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.replay import HistoryIncomplete, instead_of, rebuild, stored_documents
from gateway.store.contract import Store, StoreUnreachable
from gateway.store.unreachable import as_unavailable

_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")
RefuseMorePins = Callable[[str, str, str, Callable[[], None]], None]
# Makes the answer's part about a live document. Only one document at a time is held for it.
Encode = Callable[[DocumentRecord], _Item]

# The most bytes of several documents by key, and of those that are read by one call.
SEVERAL_BYTES_MAX = 16 * MIB
_SMALL_BYTES = MIB
# The most bytes that a document's attributes and owners take.
_BESIDE_BYTES = MIB
# How often a read begins again because compaction has passed its head.
_OVERTAKEN_MAX = 20
# The most records that one call scans while none of them is visible.
_EXAMINED_MAX = 1_000
# The most heads of catalogs that one call reads for a principal that may not read all of them.
_HEADS_AT_ONCE = 1_000
# How long the pin of an export lasts, and after how many seconds it is renewed.
_EXPORT_PIN_S = 120
_EXPORT_RENEW_S = 30


@dataclass(frozen=True, slots=True)
class ListingPage(Generic[_Item]):
    """What ``encode`` made of the live documents at ``revision``, by key. ``next_after`` None: this
    is the last page."""

    revision: int
    documents: Sequence[_Item]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class CatalogExport(Generic[_Item]):
    """A whole catalog at ``revision``; ``pages`` can be iterated once.

    ``close`` releases the pin of the revision; call it if you don't iterate to the end. ``renew``
    renews the pin; call it now and then if you take long over a page. ``next_after`` is the key
    after which the second page begins; None: there is only one.
    """

    revision: int
    pages: Iterator[Sequence[_Item]]
    close: Callable[[], None]
    renew: Callable[[], None]
    next_after: str | None


class _Scan(NamedTuple):
    """Which documents to scan: see ``Listing``. ``is_export``: to the end, however long that
    takes. ``shows_ends``: a client sees where pages end."""

    catalog: str
    prefix: str
    viewer: Viewer | None
    require_time: Callable[[], None]
    is_export: bool = False
    shows_ends: bool = True


def as_is(document: DocumentRecord) -> DocumentRecord:
    """The document itself, as an ``Encode``: for callers that have few documents."""
    return document


def _nothing_held() -> None:
    """Does nothing: nothing is pinned for a single page."""


def _any_time() -> None:
    """Does nothing: the reader may take as long as it needs."""


class Listing:
    """Reads documents at one revision. Every method raises StoreUnavailable, CatalogNotFound (never
    written), RevisionNotFound (above the head) and RevisionCompacted (below the floor).

    ``viewer`` is who reads; None: one that sees everything. Documents hidden from it are left out,
    unless they are asked for by key; and no page begins after the key of such a document.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        limits: ServiceLimits,
        refuse_more_pins: RefuseMorePins,
    ) -> None:
        """``refuse_more_pins``: see ``HistoryRetention``."""
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._page_bytes_max = limits.listing_page_bytes_max
        self._export_page = limits.listing_page_documents
        self._refuse_more_pins = refuse_more_pins

    def catalogs(self, *, after: str, prefix: str, limit: int) -> Sequence[Head]:
        """Heads of catalogs, including deleted ones, by name ascending (UTF-8)."""
        with as_unavailable():
            return self._store.list_heads(after, prefix, limit)

    def head(self, catalog: str) -> Head:
        """The catalog's head, read now. Raises CatalogNotFound also if the catalog is deleted or
        has no commit."""
        with as_unavailable():
            head = self._store.heads([catalog]).get(catalog)
        if head is None or head.deleted or not head.revision:
            raise CatalogNotFound(catalog, 0 if head is None else head.revision)
        return head

    def page(
        self,
        catalog: str,
        encode: Encode[_Item],
        *,
        prefix: str,
        after: str,
        limit: int,
        revision: int | None,
        viewer: Viewer | None = None,
    ) -> ListingPage[_Item]:
        """The live documents with keys above ``after`` that begin with ``prefix``, ascending.

        At most ``limit``; fewer, or none, if they are large or take long to find. With a
        ``viewer``, the page has at least one document if any is left: otherwise there might be no
        key after which the next page may begin.
        """

        scan = _Scan(catalog, prefix, viewer, _any_time)
        return self.read_at(
            catalog, revision, lambda at: self._page(scan, encode, after, limit, at)
        )

    def several(
        self,
        catalog: str,
        keys: Collection[str],
        encode: Encode[_Item],
        *,
        revision: int | None,
        viewer: Viewer | None = None,
    ) -> tuple[int, dict[str, _Item | None]]:
        """A revision, and by key what ``encode`` makes of the documents at that revision; None:
        there is no live one.

        Raises DocumentForbidden if one of them is hidden from ``viewer``, and AboveLimit if several
        documents take more than SEVERAL_BYTES_MAX.
        """

        def read(at: int) -> tuple[int, dict[str, _Item | None]]:
            return at, self.several_at(at, catalog, keys, encode, viewer)

        return self.read_at(catalog, revision, read)

    def several_at(
        self,
        at: int,
        catalog: str,
        keys: Collection[str],
        encode: Encode[_Item],
        viewer: Viewer | None = None,
    ) -> dict[str, _Item | None]:
        """``several``, at a revision that can be read.

        Large documents are read one by one: ``encode`` gets each before the next one is read.
        """
        encoded: dict[str, _Item | None] = dict.fromkeys(keys)
        sizes: list[int] = []
        account = memory.account()
        few_bytes = _SMALL_BYTES // max(len(keys), 1)
        reply_bytes = min(memory.REPLY_BYTES, _SMALL_BYTES + _BESIDE_BYTES * len(keys))
        account.take(reply_bytes)
        stored = stored_documents(self._store, {catalog: keys}, content_bytes_max=few_bytes)
        account.give_back(reply_bytes)
        found_bytes = [each.size_bytes for each in stored.values()]
        _refuse_heavy(found_bytes)
        with account.holding(sum(found_bytes)):
            for (_, key), record in stored.items():
                with account.holding():
                    document = self.as_of(catalog, key, self._read(catalog, record, at), at)
                    if document is None:
                        continue
                    if viewer is not None and not viewer.sees_past(document, record):
                        viewer.refuse(key)
                    sizes.append(document.size_bytes)
                    _refuse_heavy(sizes)  # at that revision, they may have been larger than now
                    encoded[key] = encode(document)
                    del document  # before the next one is read
            self.require_above_floor(catalog, at)
        return encoded

    def _read(self, catalog: str, record: DocumentRecord, at: int) -> DocumentRecord | None:
        """The record, with its content even if that was withheld, unless it is newer than
        ``at``."""
        if record.content is not WITHHELD or record.revision > at:
            return record
        return stored_documents(self._store, {catalog: [record.key]}).get((catalog, record.key))

    def export(
        self,
        catalog: str,
        encode: Encode[_Item],
        *,
        owner: str,
        prefix: str = "",
        revision: int | None = None,
        viewer: Viewer | None = None,
        require_time: Callable[[], None] = _any_time,
        after: str = "",
        page_documents: int | None = None,
        resumable: bool = False,
    ) -> CatalogExport[_Item]:
        """All live documents by key ascending, read page by page during the iteration.

        Memory doesn't grow with the catalog. If there is more than one page, the revision is pinned
        meanwhile, as one of the pins of the principal ``owner``: raises AboveLimit if it has too
        many. The iterator raises what ``page`` raises, and what ``require_time`` raises, which is
        called before each record.

        If a ``resumable`` export stops, it can be resumed ``after`` its last key for _EXPORT_PIN_S:
        the id of its pin comes from owner, revision and prefix. Only ``close`` drops that pin.
        ``page_documents``: the client sees the pages, which have at most so many.
        """
        shows_ends = page_documents is not None
        scan = _Scan(catalog, prefix, viewer, require_time, True, shows_ends)
        limit = page_documents or self._export_page
        hold = _Hold(self, self._store, self._runtime, catalog, prefix, owner, resumable=resumable)

        def begin(at: int) -> ListingPage[_Item]:
            page = self._page(scan, encode, after, limit, at)
            if page.next_after is not None or after:
                # Pinned before the revision is returned, so it can be read, or this raises.
                hold.begin(at, self._refuse_more_pins)
            return page

        first = self.read_at(catalog, revision, begin)
        if not hold.is_held:
            pages = iter([first.documents])
            return CatalogExport(first.revision, pages, _nothing_held, _nothing_held, None)
        more = self._pages(scan, encode, limit, first, hold)

        def close() -> None:
            more.close()
            hold.end()  # a generator that was never started doesn't run its ``finally``

        return CatalogExport(first.revision, more, close, hold.renew, first.next_after)

    def _pages(
        self,
        scan: _Scan,
        encode: Encode[_Item],
        limit: int,
        page: ListingPage[_Item],
        hold: _Hold,
    ) -> Generator[Sequence[_Item]]:
        """The pages of a revision that was just pinned, beginning with ``page``."""
        try:
            while True:
                hold.renew()
                revision, after = page.revision, page.next_after
                yield page.documents
                del page  # it was sent; the next one needs its memory
                if after is None:
                    return
                with as_unavailable():
                    page = self._page(scan, encode, after, limit, revision)
        finally:
            if not hold.resumable:
                hold.end()

    def _page(
        self, scan: _Scan, encode: Encode[_Item], after: str, limit: int, revision: int
    ) -> ListingPage[_Item]:
        catalog, prefix = scan.catalog, scan.prefix
        page: list[_Item] = []
        last = after  # with a viewer, a visible key: the answer may reveal no other
        more, ends, steps = True, False, growing(limit)
        left_bytes = self._page_bytes_max
        with memory.account().holding(memory.REPLY_BYTES):
            while more and not ends:
                records = self._store.scan_documents(
                    catalog, after, prefix, next(steps), self._page_bytes_max
                )
                for key, size_bytes, encoded in map_records(
                    records,
                    self._encoder(scan, encode, revision),
                    partial(instead_of, self._store),
                ):
                    after = key
                    page += encoded
                    last = key if encoded or scan.viewer is None else last
                    left_bytes -= size_bytes
                    if scan.is_export and cpu.is_half_used():
                        cpu.renew()
                    is_long = cpu.is_half_used() and bool(page or scan.viewer is None)
                    # At that revision, documents may have been larger than now.
                    ends = is_long or left_bytes <= 0 or len(page) == limit
                    if ends:
                        break
                # Hidden documents don't end a page that a client sees: it would show their sizes.
                ends = ends or bool(page and (scan.viewer is None or not scan.shows_ends))
                more = bool(records)
            self.require_above_floor(catalog, revision)
            more = more and bool(self._store.scan_documents(catalog, after, prefix, 1, 1))
        return ListingPage(revision, page, last if more else None)

    def _encoder(
        self, scan: _Scan, encode: Encode[_Item], revision: int
    ) -> Callable[[DocumentRecord], tuple[str, int, Sequence[_Item]]]:
        """A function from a record to its key, the size of its document at ``revision``, and what
        ``encode`` makes of that; 0 and () if there was no document, or it isn't visible."""
        catalog, viewer = scan.catalog, scan.viewer

        def encoded(record: DocumentRecord) -> tuple[str, int, Sequence[_Item]]:
            scan.require_time()
            document = self.as_of(catalog, record.key, record, revision)
            if document is None or (viewer is not None and not viewer.sees_past(document, record)):
                return record.key, 0, ()
            return record.key, document.size_bytes, (encode(document),)

        return encoded

    def read_at(
        self, catalog: str, revision: int | None, read: Callable[[int], _Answer]
    ) -> _Answer:
        """The result of ``read`` at ``revision``; None: the head. See ``readable`` and
        ``not_overtaken``."""
        with as_unavailable():
            return not_overtaken(revision, lambda: read(self.readable(catalog, revision)))

    def as_of(
        self, catalog: str, key: str, record: DocumentRecord | None, revision: int
    ) -> DocumentRecord | None:
        """The live document at ``revision``, given its stored record, which may be newer."""
        if record is not None and record.revision > revision:
            return self.rebuilt(catalog, key, revision)
        return record if record is not None and record.exists else None

    def image(self, catalog: str, key: str, revision: int) -> DocumentRecord | None:
        """The live document at a revision whose commit was already sent. Raises RevisionCompacted,
        StoreUnavailable, MemoryFull and AboveLimit."""
        with as_unavailable(), memory.account().holding(memory.REPLY_BYTES):
            document = self.rebuilt(catalog, key, revision)
            self.require_above_floor(catalog, revision)
        return document

    def rebuilt(self, catalog: str, key: str, revision: int) -> DocumentRecord | None:
        """The live document at ``revision``, from history."""
        try:
            return living(rebuild(self._store, catalog, key, revision))
        except HistoryIncomplete:
            self.require_above_floor(catalog, revision)
            raise

    def readable(self, catalog: str, revision: int | None) -> int:
        """The revision to read at (None: the head), once everything up to it is written out."""
        head = self._settler.settle(catalog)
        if head.revision == 0:
            raise CatalogNotFound(catalog, 0)
        if revision is None:
            return head.revision
        if revision > head.revision:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {head.revision}",
                head.revision,
            )
        if revision < head.floor:
            raise RevisionCompacted(revision, head.floor)
        return revision

    def require_above_floor(self, catalog: str, revision: int) -> None:
        head = self._store.heads([catalog]).get(catalog)
        if head is not None and revision < head.floor:
            raise RevisionCompacted(revision, head.floor)


def readable_catalogs(
    listing: Listing, by: Principal, *, after: str, prefix: str, limit: int
) -> tuple[Sequence[Head], str | None]:
    """A page by name ascending, and the ``after`` of the next one.

    That ``after`` is a catalog that ``by`` may read, so it reveals no other name. Only names that
    begin like one of the grants are read.
    """
    if any(grant.pattern == "*" for grant in by.grants):
        heads = listing.catalogs(after=after, prefix=prefix, limit=limit)
        page = [head for head in heads if not head.deleted]
        return page, heads[-1].catalog if len(heads) == limit else None
    found = list(islice(_readable(listing, by, after, prefix), limit))
    return found, found[-1].catalog if len(found) == limit else None


def _readable(listing: Listing, by: Principal, after: str, prefix: str) -> Iterator[Head]:
    for beginning in _beginnings(by):
        if not beginning.startswith(prefix) and not prefix.startswith(beginning):
            continue
        common = max(beginning, prefix, key=len)
        for head in _heads(listing, after, common):
            if not head.deleted and by.may(Role.READ, head.catalog):
                yield head


def _heads(listing: Listing, after: str, prefix: str) -> Iterator[Head]:
    while True:
        heads = listing.catalogs(after=after, prefix=prefix, limit=_HEADS_AT_ONCE)
        yield from heads
        if len(heads) < _HEADS_AT_ONCE:
            return
        after = heads[-1].catalog


def _beginnings(by: Principal) -> list[str]:
    """The texts before the first star of the grants, ascending; none is a prefix of another.

    So all names that begin with one of them come before all that begin with the next.
    """
    kept: list[str] = []
    for beginning in sorted({grant.pattern.partition("*")[0] for grant in by.grants}):
        if not kept or not beginning.startswith(kept[-1]):
            kept.append(beginning)
    return kept


def growing(limit: int) -> Iterator[int]:
    """How many records to scan at a time as long as none of them is visible: at first ``limit``,
    then twice as many each time. With a limit of 1, a million invisible documents would otherwise
    be a million calls."""
    while True:
        yield limit
        limit = max(limit, min(2 * limit, _EXAMINED_MAX))


class _Hold:
    """The pin of an export."""

    def __init__(
        self,
        listing: Listing,
        store: Store,
        runtime: Runtime,
        catalog: str,
        prefix: str,
        owner: str,
        *,
        resumable: bool,
    ) -> None:
        self.resumable = resumable
        self._listing = listing
        self._store = store
        self._runtime = runtime
        self._catalog = catalog
        self._prefix = prefix
        self._pin = PinRecord("", 0, 0, owner, "feed" if resumable else "export")
        self._renewed_at = 0.0

    @property
    def is_held(self) -> bool:
        return bool(self._pin.id)

    def begin(self, revision: int, refuse_more_pins: RefuseMorePins) -> None:
        """Pin the revision. Raises RevisionCompacted, AboveLimit and StoreUnreachable."""
        owner, pin_id = self._pin.owner, self._runtime.new_id()
        if self.resumable:
            named = f"{owner}\0{revision}\0{self._prefix}"
            pin_id = hashlib.sha256(named.encode()).hexdigest()[:32]
        pin = replace(self._pin, id=pin_id, revision=revision)
        refuse_more_pins(self._catalog, owner, pin_id, lambda: self._set(pin))
        self._pin = pin

    def renew(self) -> None:
        """Renew the pin if it is old enough; else this costs nothing. Raises RevisionCompacted and
        StoreUnavailable."""
        if self._runtime.monotonic() - self._renewed_at > _EXPORT_RENEW_S:
            self._set(self._pin)

    def end(self) -> None:
        with suppress(StoreUnreachable):  # it expires by itself
            self._store.drop_pin(self._catalog, self._pin.id)

    def _set(self, pin: PinRecord) -> None:
        expires_us = self._runtime.now_us() + _EXPORT_PIN_S * 1_000_000
        pin = replace(pin, expires_us=expires_us)
        with as_unavailable():
            if not self._store.set_pin(self._catalog, pin):
                self._listing.require_above_floor(self._catalog, pin.revision)
        self._renewed_at = self._runtime.monotonic()


def not_overtaken(revision: int | None, read: Callable[[], _Answer]) -> _Answer:
    """The result of ``read``, which begins again if ``revision`` is None and compaction passes the
    head that it reads at."""
    for _ in range(_OVERTAKEN_MAX):
        try:
            return read()
        except RevisionCompacted:
            if revision is not None:
                raise
    raise StoreUnavailable("the catalog is compacted faster than it can be read")


def _refuse_heavy(sizes: Sequence[int]) -> None:
    if sum(sizes) > SEVERAL_BYTES_MAX and len(sizes) > 1:
        raise AboveLimit(
            f"the documents take {sum(sizes)} bytes; the limit for one answer is"
            f" {SEVERAL_BYTES_MAX}: ask for fewer",
            limit="several_bytes_max",
            maximum=SEVERAL_BYTES_MAX,
            actual=sum(sizes),
        )

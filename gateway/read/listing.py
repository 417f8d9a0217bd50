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

import hashlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from gateway import cpu, memory
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
from gateway.read.visibility import Sight
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.replay import HistoryIncomplete, instead_of, rebuild, stored_documents
from gateway.store.contract import Store, StoreUnreachable
from gateway.store.unreachable import as_unavailable

_Answer = TypeVar("_Answer")
_Told = TypeVar("_Told")
RefuseMorePins = Callable[[str, str, str, Callable[[], None]], None]
# What is told of a live document: it is made of one after the other, and none is kept.
Tell = Callable[[DocumentRecord], _Told]

# The maximum size of several documents by key, and of those that are read at once.
SEVERAL_BYTES_MAX = 16 * MIB
_SMALL_BYTES = MIB
# What a document's attributes and owners take beside its content, at most.
_BESIDE_BYTES = MIB
_OVERTAKEN_MAX = 20
_LOOKED_AT_MAX = 1_000
# An export holds its revision while it runs; renewed well before it would end.
_EXPORT_PIN_S = 120
_EXPORT_RENEW_S = 30


@dataclass(frozen=True, slots=True)
class ListingPage(Generic[_Told]):
    """What is told of live documents, by key, as ``revision`` had them; ``next_after`` None: that
    was the last."""

    revision: int
    documents: Sequence[_Told]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class CatalogExport(Generic[_Told]):
    """A whole catalog as ``revision`` had it; ``pages`` can be gone through once.

    ``close`` lets the revision go that was held for it: needed where nobody goes to the end.
    ``renew`` holds it on: to be called now and then by who takes long over a page. ``next_after``
    is where the second page begins; None: there is one alone.
    """

    revision: int
    pages: Iterator[Sequence[_Told]]
    close: Callable[[], None]
    renew: Callable[[], None]
    next_after: str | None


class _Scan(NamedTuple):
    """Which documents are gone through: see ``Listing``. ``is_export``: to their end, however long
    that takes."""

    catalog: str
    prefix: str
    sight: Sight | None
    require_time: Callable[[], None]
    is_export: bool = False


def whole(document: DocumentRecord) -> DocumentRecord:
    """The document itself is told: for who needs it, and has few of them."""
    return document


def _nothing_held() -> None:
    """Nothing is pinned for a single page."""


def _any_time() -> None:
    """Whoever reads may take as long as it takes."""


class Listing:
    """Every method raises StoreUnavailable, CatalogNotFound (never written), RevisionNotFound
    (above the head) and RevisionCompacted (below the floor).

    ``sight`` is what somebody sees of the catalog; None: everything. Documents beyond it are left
    out where they weren't asked for by their keys, and no page goes on behind the key of one.
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
        tell: Tell[_Told],
        *,
        prefix: str,
        after: str,
        limit: int,
        revision: int | None,
        sight: Sight | None = None,
    ) -> ListingPage[_Told]:
        """The live documents with keys above ``after`` that begin with ``prefix``, ascending.

        At most ``limit``; fewer, also none, where they are large or take long to find. Where
        ``sight`` is narrow there is one at least if any is left: there may be no key to go on
        behind.
        """

        scan = _Scan(catalog, prefix, sight, _any_time)
        return self.read_at(catalog, revision, lambda at: self._page(scan, tell, after, limit, at))

    def several(
        self,
        catalog: str,
        keys: Collection[str],
        tell: Tell[_Told],
        *,
        revision: int | None,
        sight: Sight | None = None,
    ) -> tuple[int, dict[str, _Told | None]]:
        """What is told of the documents under ``keys`` (None: no live one) at one revision, which
        comes first.

        Raises DocumentForbidden where one of them is beyond ``sight``, and AboveLimit where several
        take more than an answer may hold.
        """

        def read(at: int) -> tuple[int, dict[str, _Told | None]]:
            return at, self.several_at(at, catalog, keys, tell, sight)

        return self.read_at(catalog, revision, read)

    def several_at(
        self,
        at: int,
        catalog: str,
        keys: Collection[str],
        tell: Tell[_Told],
        sight: Sight | None = None,
    ) -> dict[str, _Told | None]:
        """``several``, at a revision that can be read.

        Large ones are read one after the other, and told before the next one is read.
        """
        told: dict[str, _Told | None] = dict.fromkeys(keys)
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
                    if sight is not None and not sight.sees_past(document, record):
                        sight.refuse(key)
                    sizes.append(document.size_bytes)
                    _refuse_heavy(sizes)  # they may have been larger then
                    told[key] = tell(document)
                    del document  # before the next one is read
            self.require_above_floor(catalog, at)
        return told

    def _read(self, catalog: str, record: DocumentRecord, at: int) -> DocumentRecord | None:
        """The record with its content, where that was left out and is that of ``at``."""
        if record.content is not WITHHELD or record.revision > at:
            return record
        return stored_documents(self._store, {catalog: [record.key]}).get((catalog, record.key))

    def export(
        self,
        catalog: str,
        tell: Tell[_Told],
        *,
        owner: str,
        prefix: str = "",
        revision: int | None = None,
        sight: Sight | None = None,
        require_time: Callable[[], None] = _any_time,
        after: str = "",
        page_documents: int | None = None,
        resumable: bool = False,
    ) -> CatalogExport[_Told]:
        """All live documents by key ascending, read page by page while they are gone through.

        Memory doesn't grow with the catalog. Where it takes more than a page, the revision is
        pinned meanwhile, as one of the pins of the principal ``owner``: AboveLimit where it has too
        many. The iterator raises what ``page`` raises, and what ``require_time`` raises, which is
        asked before each record.

        A ``resumable`` one that is broken off can be gone on with ``after`` the last key for
        _EXPORT_PIN_S: its pin is the owner's, for this revision and prefix. Only ``close`` drops
        it.
        """
        scan = _Scan(catalog, prefix, sight, require_time, is_export=True)
        limit = page_documents or self._export_page
        hold = _Hold(self, self._store, self._runtime, catalog, prefix, owner, resumable=resumable)

        def begin(at: int) -> ListingPage[_Told]:
            page = self._page(scan, tell, after, limit, at)
            if page.next_after is not None or after:
                # Now: who is told of the revision finds it there, or is told that it is not.
                hold.begin(at, self._refuse_more_pins)
            return page

        first = self.read_at(catalog, revision, begin)
        if not hold.is_held:
            pages = iter([first.documents])
            return CatalogExport(first.revision, pages, _nothing_held, _nothing_held, None)
        more = self._pages(scan, tell, limit, first, hold)

        def close() -> None:
            more.close()
            hold.end()  # which one that never began doesn't

        return CatalogExport(first.revision, more, close, hold.renew, first.next_after)

    def _pages(
        self,
        scan: _Scan,
        tell: Tell[_Told],
        limit: int,
        page: ListingPage[_Told],
        hold: _Hold,
    ) -> Generator[Sequence[_Told]]:
        """The pages of a revision that was just pinned."""
        try:
            while True:
                hold.renew()
                revision, after = page.revision, page.next_after
                yield page.documents
                del page  # it was sent: the next one needs its room
                if after is None:
                    return
                with as_unavailable():
                    page = self._page(scan, tell, after, limit, revision)
        finally:
            if not hold.resumable:
                hold.end()

    def _page(
        self, scan: _Scan, tell: Tell[_Told], after: str, limit: int, revision: int
    ) -> ListingPage[_Told]:
        catalog, prefix = scan.catalog, scan.prefix
        page: list[_Told] = []
        last = after  # of what is told: nobody learns the key of what is beyond his sight
        more, ends, steps = True, False, growing(limit)
        with memory.account().holding(memory.REPLY_BYTES):
            while not (page or ends) and more:
                records = self._store.scan_documents(
                    catalog, after, prefix, next(steps), self._page_bytes_max
                )
                left_bytes = self._page_bytes_max
                for key, size_bytes, told in map_records(
                    records,
                    self._teller(scan, tell, revision),
                    partial(instead_of, self._store),
                ):
                    after = key
                    page += told
                    last = key if told or scan.sight is None else last
                    left_bytes -= size_bytes
                    if scan.is_export and cpu.is_half_used():
                        cpu.renew()
                    ends = cpu.is_half_used() and bool(page or scan.sight is None)
                    # They may have been larger then.
                    if ends or left_bytes <= 0 or len(page) == limit:
                        break
                more = bool(records)
            self.require_above_floor(catalog, revision)
            more = bool((page or ends) and self._store.scan_documents(catalog, after, prefix, 1, 1))
        return ListingPage(revision, page, last if more else None)

    def _teller(
        self, scan: _Scan, tell: Tell[_Told], revision: int
    ) -> Callable[[DocumentRecord], tuple[str, int, Sequence[_Told]]]:
        """What makes of a record its key, the size of what it was, and what is told of that; with
        nothing of what wasn't there then, or can't be seen."""
        catalog, sight = scan.catalog, scan.sight

        def told(record: DocumentRecord) -> tuple[str, int, Sequence[_Told]]:
            scan.require_time()
            document = self.as_of(catalog, record.key, record, revision)
            if document is None or (sight is not None and not sight.sees_past(document, record)):
                return record.key, 0, ()
            return record.key, document.size_bytes, (tell(document),)

        return told

    def read_at(
        self, catalog: str, revision: int | None, read: Callable[[int], _Answer]
    ) -> _Answer:
        """What ``read`` finds at the revision to read at: see ``readable``, ``not_overtaken``."""
        with as_unavailable():
            return not_overtaken(revision, lambda: read(self.readable(catalog, revision)))

    def as_of(
        self, catalog: str, key: str, record: DocumentRecord | None, revision: int
    ) -> DocumentRecord | None:
        """The live document at ``revision``, given its record, which may be newer."""
        if record is not None and record.revision > revision:
            return self.rebuilt(catalog, key, revision)
        return record if record is not None and record.exists else None

    def image(self, catalog: str, key: str, revision: int) -> DocumentRecord | None:
        """The live document at a revision whose commit was told. Raises RevisionCompacted,
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


def growing(limit: int) -> Iterator[int]:
    """How many records to look at, as long as nothing can be told of those before: by pages of one,
    a million that somebody may not see would be a million questions."""
    while True:
        yield limit
        limit = max(limit, min(2 * limit, _LOOKED_AT_MAX))


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
        """Raises RevisionCompacted, AboveLimit and StoreUnreachable."""
        owner, pin_id = self._pin.owner, self._runtime.new_id()
        if self.resumable:
            named = f"{owner}\0{revision}\0{self._prefix}"
            pin_id = hashlib.sha256(named.encode()).hexdigest()[:32]
        pin = replace(self._pin, id=pin_id, revision=revision)
        refuse_more_pins(self._catalog, owner, pin_id, lambda: self._set(pin))
        self._pin = pin

    def renew(self) -> None:
        """Cheap: it is called often. Raises RevisionCompacted and StoreUnavailable."""
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
    """``read``, once more where compaction passes a head (``revision`` None) while it is read."""
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
            f"the documents take {sum(sizes)} bytes, more than the {SEVERAL_BYTES_MAX} that are"
            " answered at once: ask for fewer",
            limit="several_bytes_max",
            maximum=SEVERAL_BYTES_MAX,
            actual=sum(sizes),
        )

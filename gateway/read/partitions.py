"""Partitions: where to cut a catalog's keys, for readers who share it at one revision.

Only keys are read, from the index, and only so many, whatever the catalog has. Up to _KEYS_MAX are
gone through, and every nth of them is kept; where there are more, it is estimated from probes how
they are spread (``key_ranges``).

Keys count as they are now: a deleted document, or one newer than the revision, is counted as well.
That may tip the balance; every document is in one range all the same.

Who doesn't see all documents is told of keys that he sees, and of texts made of these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway import memory
from gateway.read.key_ranges import cuts, evenly
from gateway.read.listing import Listing
from gateway.read.visibility import Sight
from gateway.state.heads import as_unavailable
from gateway.store.contract import Store

# How many keys are gone through, and how many at a time.
_KEYS_MAX = 100_000
_PAGE = 10_000
# At least so many of them are kept for each range, or of those that may be out of sight.
_KEPT_PER_RANGE = 16
_KEPT_FOR_SIGHT = 4_000
# How many keys a probe goes through for one that isn't out of sight.
_PROBED_FOR_SIGHT = 64


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys above ``after`` up to ``until`` (None: to the end) that begin with ``prefix``."""

    prefix: str = ""
    after: str = ""
    until: str | None = None

    def holds(self, key: str) -> bool:
        return key > self.after and (self.until is None or key <= self.until)


@dataclass(frozen=True, slots=True)
class Partition:
    """``bounds`` ascend. The first range has the keys up to the first of them, each next one those
    above it up to the next, the last one the rest."""

    revision: int
    bounds: Sequence[str]


class Partitions:
    def __init__(self, store: Store, listing: Listing) -> None:
        self._store = store
        self._listing = listing

    def plan(
        self,
        catalog: str,
        count: int,
        span: KeySpan,
        *,
        revision: int | None,
        sight: Sight | None = None,
    ) -> Partition:
        """At most ``count`` ranges of ``span``. Raises what ``Listing`` raises."""
        with as_unavailable():
            at = self._listing.readable(catalog, revision)
            if count == 1:
                return Partition(at, ())
            keys = _Keys(self._store, catalog, span, sight)
            with memory.account().holding(memory.REPLY_BYTES):
                kept = keys.every_nth(_KEPT_FOR_SIGHT if sight else count * _KEPT_PER_RANGE)
                found = cuts(keys.probe, count) if kept is None else evenly(kept, count)
            return Partition(at, [bound for bound in found if span.holds(bound)])


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of ``span``, of which those beyond ``sight`` aren't told."""

    store: Store
    catalog: str
    span: KeySpan
    sight: Sight | None

    def every_nth(self, at_least: int) -> list[str] | None:
        """The nth, the 2nth and so on: so many at least, or all, and less than twice as many. None
        where there are too many to go through."""
        kept: list[str] = []
        step, passed, after = 1, 0, self.span.after
        while passed < _KEYS_MAX:
            page = self.store.scan_keys(self.catalog, after, self.span.prefix, _PAGE)
            inside = [key for key in page if self.span.holds(key)]
            kept += inside[(step - 1 - passed) % step :: step]
            passed += len(inside)
            while len(kept) >= 2 * at_least:
                kept, step = kept[1::2], 2 * step
            if len(page) < _PAGE or len(inside) < len(page):
                return self._seen(kept)
            after = page[-1]
        return None

    def probe(self, after: str, limit: int) -> Sequence[str]:
        """The first keys above a text, for ``cuts``; none where there may be one far off."""
        after = max(after, self.span.after)
        some = limit if self.sight is None else _PROBED_FOR_SIGHT
        page = self.store.scan_keys(self.catalog, after, self.span.prefix, some)
        return self._seen([key for key in page if self.span.holds(key)])[:limit]

    def _seen(self, keys: list[str]) -> list[str]:
        return keys if self.sight is None else self.sight.seen(keys)

"""What a batch asks of ranges, at the revision of its view.

Like a single document, a range is read behind the head: what is stored, with the tail laid over it.
A document that is newer than the view says that the head has moved, and so does a tombstone: the
view is given up, and the revision to decide at found again. A range that was read partly before and
partly after a commit can't pass for one state: what the commit changed is newer than the view, and
where the commit came after it was read, the move of the head is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from gateway.decide.ranges import (
    DOCUMENTS_MAX,
    Changed,
    Listed,
    RangeListed,
    RangeLook,
    Ranges,
    RangeUnchanged,
    is_under,
    listed_for,
)
from gateway.decide.request import Request, View
from gateway.meters import Meters
from gateway.model import WITHHELD, BareDocument, CommitRecord, DocumentRecord
from gateway.state.cache import Cache
from gateway.state.replay import HistoryIncomplete, WrongBase, bare_after, bare_rebuilt
from gateway.store.contract import Scanned, Store

# Looks at ranges for one view; those of a single request are bounded where it is made.
_LOOKS_MAX = 128
# Documents that are listed for one view.
_LISTED_MAX = 4 * DOCUMENTS_MAX


def add_ranges(
    store: Store, cache: Cache, views: dict[str, View], batches: Mapping[str, Sequence[Request]]
) -> None:
    """Add what the requests ask of ranges. A view is cut where that is too much for one batch, and
    dropped where the head has moved on. Raises StoreUnreachable."""
    for catalog, view in list(views.items()):
        requests = batches[catalog][: view.requests]
        if not any(request.ranges for request in requests):
            continue
        try:
            read = _read(store, cache, view, requests)
        except HistoryIncomplete:
            # It was written out and compacted meanwhile.
            cache.forget(catalog)
            read = None
        if read is None:
            del views[catalog]
            continue
        ranges, asked, count = read
        cut = count if count < len(requests) else view.requests
        documents = {**_bare_documents(ranges, asked), **view.documents}
        views[catalog] = replace(view, ranges=ranges, requests=cut, documents=documents)


def _bare_documents(ranges: Ranges, asked: Iterable[RangeLook]) -> dict[str, DocumentRecord]:
    """The documents of ranges that may be edited, to be deleted: without content, nor a token."""
    listed = [ranges.listed[each.prefix] for each in asked if isinstance(each, RangeListed)]
    return {
        key: DocumentRecord(
            key, WITHHELD, each.revision, each.create_revision, "", 0, attributes=each.attributes
        )
        for of_range in listed
        for key, each in of_range.documents.items()
    }


def _ranges_asked(requests: Sequence[Request]) -> tuple[list[RangeLook], int]:
    """What the first requests ask, in order, and how many these are. One that may change a whole
    range is the last of its batch: how much it takes away from others isn't known."""
    asked: list[RangeLook] = []
    for index, request in enumerate(requests):
        more = list(dict.fromkeys((*asked, *request.ranges)))
        if index and len(more) > _LOOKS_MAX:
            return asked, index
        asked = more
        if any(isinstance(look, RangeListed) for look in request.ranges):
            return asked, index + 1
    return asked, len(requests)


def _read(
    store: Store, cache: Cache, view: View, requests: Sequence[Request]
) -> tuple[Ranges, list[RangeLook], int] | None:
    """The ranges, and what of the first requests, how many, they are for. None: the head has moved
    on. Raises HistoryIncomplete."""
    asked, count = _ranges_asked(requests)
    wanted: dict[str, int] = {}
    changes: dict[tuple[str, int], Changed] = {}
    for look in asked:
        if not isinstance(look, RangeUnchanged):
            wanted[look.prefix] = max(wanted.get(look.prefix, 0), listed_for(look))
        else:
            changes[look.prefix, look.since] = changed_since(store, cache, view, look)
    keys = {key for request in requests[:count] for key in request.keys}
    keys.update(_changed_keys(view.tail))
    listed: dict[str, Listed] = {}
    # A whole catalog may be larger.
    whole = [look.most for look in asked if isinstance(look, RangeListed) and look.most]
    room = max(_LISTED_MAX, *whole) + 1 if whole else _LISTED_MAX
    for prefix, needed in wanted.items():
        # Each of these may take one away of what is listed.
        limit = needed + sum(is_under(key, prefix) for key in keys)
        if limit > room and count > 1:
            return _read(store, cache, view, requests[:1])
        found = _listed(store, cache.meters, view, prefix, min(limit, room))
        if found is None:
            return None
        room -= len(found.documents)
        listed[prefix] = found
    return Ranges(changes, listed), asked, count


def changed_since(store: Store, cache: Cache, view: View, compare: RangeUnchanged) -> Changed:
    """What is known of a range's changes up to the view; earlier requests of the batch may reach
    the revision that is asked about."""
    prefix, since = compare.prefix, compare.since
    if since > view.revision:
        return Changed(None)
    known, at = cache.changed_under(view.catalog, prefix, since, view.revision)
    if known:
        return Changed(at)
    for commit in reversed(view.tail):
        if commit.revision > since and any(is_under(c.key, prefix) for c in commit.changes):
            return Changed(commit.revision)
    written = view.revision - len(view.tail)
    if since >= written:
        return Changed(None)
    at = store.range_changed(view.catalog, prefix, since, written)
    # The floor is looked at last: what was read above it had no gap.
    head = store.heads([view.catalog]).get(view.catalog)
    return Changed(at, 0 if head is None else head.floor)


def _changed_keys(tail: Iterable[CommitRecord]) -> set[str]:
    return {change.key for commit in tail for change in commit.changes}


def _listed(store: Store, meters: Meters, view: View, prefix: str, limit: int) -> Listed | None:
    """None: the head has moved on. Raises HistoryIncomplete."""
    found: Scanned[BareDocument] = Scanned(is_whole=False)
    if limit:
        found = store.list_range(view.catalog, prefix, view.revision, limit)
    if any(document.revision > view.revision for document in found):
        return None
    is_whole = found.is_whole
    live = {document.key: document for document in found}
    for key in _changed_keys(view.tail):
        if is_under(key, prefix):
            try:
                after = overlaid(live.pop(key, None), key, view.tail)
            except HistoryIncomplete:
                if is_whole:
                    raise
                continue  # it is behind what was listed
            except WrongBase as error:
                after = bare_rebuilt(store, meters, view.catalog, key, view.tail, error)
            if after is not None and after.exists:
                live[key] = after
    return Listed(live, is_whole)


def overlaid(
    stored: BareDocument | None, key: str, tail: Sequence[CommitRecord]
) -> BareDocument | None:
    """The document as the tail leaves it. A tombstone isn't listed, so that what the tail did
    before it ends or begins the document is left out."""
    for index in range(len(tail) - 1, -1, -1):
        commit = tail[index]
        for change in commit.changes:
            if change.key == key and (
                change.action == "delete" or change.begins_at(commit.revision)
            ):
                return bare_after(stored, key, tail[index:])
    return bare_after(stored, key, tail)

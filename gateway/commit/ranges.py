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
    Changed,
    Listed,
    RangeCompare,
    Ranges,
    RangeUnchanged,
    is_under,
    listed_for,
)
from gateway.decide.request import Request, View
from gateway.model import BareDocument, Commit
from gateway.state.cache import Cache
from gateway.state.replay import HistoryIncomplete, bare_after
from gateway.store.contract import Store

# Looks at ranges for one view; those of a single request are bounded where it is made.
_LOOKS_MAX = 128


def add_ranges(
    store: Store, cache: Cache, views: dict[str, View], batches: Mapping[str, Sequence[Request]]
) -> None:
    """Add what the requests ask of ranges. A view is cut where that is too much for one batch, and
    dropped where the head has moved on. Raises Unreachable."""
    for catalog, view in list(views.items()):
        requests = batches[catalog][: view.requests]
        if not any(request.ranges for request in requests):
            continue
        asked, count = _asked(requests)
        ranges = _read(store, cache, view, asked, requests[:count])
        if ranges is None:
            del views[catalog]
        else:
            cut = count if count < len(requests) else view.requests
            views[catalog] = replace(view, ranges=ranges, requests=cut)


def _asked(requests: Sequence[Request]) -> tuple[set[RangeCompare], int]:
    """What the first requests ask, and how many these are."""
    asked: set[RangeCompare] = set()
    for index, request in enumerate(requests):
        more = asked.union(request.ranges)
        if index and len(more) > _LOOKS_MAX:
            return asked, index
        asked = more
    return asked, len(requests)


def _read(
    store: Store,
    cache: Cache,
    view: View,
    asked: Iterable[RangeCompare],
    requests: Sequence[Request],
) -> Ranges | None:
    """None: the head has moved on."""
    wanted: dict[str, int] = {}
    changes: dict[tuple[str, int], Changed] = {}
    for compare in asked:
        if not isinstance(compare, RangeUnchanged):
            needed = max(wanted.get(compare.prefix, 0), listed_for(compare))
            wanted[compare.prefix] = needed
        else:
            changes[compare.prefix, compare.since] = changed_since(store, cache, view, compare)
    keys = {key for request in requests for key in request.keys}
    listed: dict[str, Listed] = {}
    for prefix, needed in wanted.items():
        # Each of these may take one away of what is listed.
        slack = sum(is_under(key, prefix) for key in keys.union(_changed_keys(view.tail)))
        found = _listed(store, view, prefix, needed + slack)
        if found is None:
            cache.forget(view.catalog)
            return None
        listed[prefix] = found
    return Ranges(changes, listed)


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


def _changed_keys(tail: Iterable[Commit]) -> set[str]:
    return {change.key for commit in tail for change in commit.changes}


def _listed(store: Store, view: View, prefix: str, limit: int) -> Listed | None:
    """None: the head has moved on, or what the tail goes on from was compacted."""
    found = store.list_range(view.catalog, prefix, view.revision, limit)
    if any(document.revision > view.revision for document in found):
        return None
    is_whole = len(found) < limit
    live = {document.key: document for document in found}
    for key in _changed_keys(view.tail):
        if is_under(key, prefix):
            try:
                after = overlaid(live.pop(key, None), key, view.tail)
            except HistoryIncomplete:
                if is_whole:
                    return None
                continue  # it is behind what was listed
            if after is not None and after.exists:
                live[key] = after
    return Listed(live, is_whole)


def overlaid(stored: BareDocument | None, key: str, tail: Sequence[Commit]) -> BareDocument | None:
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

"""The inputs of a decision: documents, ranges and earlier replies of a catalog, at one revision.

An earlier reply is what a request's idempotency key decided before.

Like a single document, a range is read after the head: what is stored, with the tail applied to it.
If a document, or a tombstone, is newer than the view, the head has moved: the view is discarded,
and the revision to decide at is found again. So a range that was read partly before and partly
after a commit never counts as one state: what the commit changed is newer than the view or, if that
was read before it changed, the move of the head is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from gateway.cpu import work_for
from gateway.decide.guards import refuse_forbidden
from gateway.decide.ranges import (
    DOCUMENTS_MAX,
    KnownChange,
    ListedRange,
    RangeChange,
    RangeListing,
    RangeQuery,
    Ranges,
    RangeUnchanged,
    documents_to_list,
)
from gateway.decide.rebase import REBASE_TOKENS_MAX
from gateway.decide.recording import refused_too_heavy
from gateway.decide.request import DOCUMENTS_BYTES_MAX, Request, View
from gateway.errors import AboveLimit, DocumentForbidden, MemoryFull, untraced
from gateway.limits import MIB
from gateway.memory import Account
from gateway.meters import Meters
from gateway.model import (
    OWN_KEYS,
    WITHHELD,
    BareDocument,
    CommitRecord,
    DocumentRecord,
    Head,
    Keys,
    Reply,
    token_revision,
)
from gateway.runtime import Runtime
from gateway.state.cache import Cache
from gateway.state.replay import (
    Changes,
    HistoryIncomplete,
    WrongBase,
    bare_after,
    bare_rebuilt,
    changes_by_key,
    laid_over,
    listed_range,
    read_large,
    rebuild,
    stored_documents,
)
from gateway.store.contract import (
    NEAR_COMMITS,
    ForeignRecord,
    Scanned,
    Store,
    StoreUnreachable,
)

# The most old states of documents that are rebuilt for the rebases of one round.
_BASES_MAX = 16
# Up to this many documents are read whole, whatever their size. The contents of more, some of which
# may not be needed, share _SMALL_BYTES at first.
_FEW = 4
_SMALL_BYTES = 16 * MIB
# The most commits, and documents in them, that are checked for a request that declares lists.
_CHANGED_COMMITS_MAX = 1_000
_CHANGED_MAX = 256
# A call that is broken off at its time limit may end this much before it.
_LATE_S = 0.1
# The most results of reading ahead that are remembered, for requests that come together.
_KNOWN_MAX = 1_000
# The most ranges that are read for one view; those of a single request are bounded when it is made.
_RANGES_MAX = 128
# The most documents that are listed for one view.
_LISTED_MAX = 4 * DOCUMENTS_MAX


class ReadAhead:
    """Finds out whether ranges have changed since revisions of long ago, for requests that come
    together.

    The requests' own thread does this, because it may take seconds, and all requests share the
    leaders.
    """

    def __init__(self, store: Store, cache: Cache, runtime: Runtime) -> None:
        self._store = store
        self._cache = cache
        self._runtime = runtime
        self._known: dict[tuple[str, RangeUnchanged], KnownChange] = {}

    def fill(self, request: Request) -> Request:
        """The request with what was found. If its time isn't enough for that, the deadline of the
        result is in the past. If the database can't be read, the leader that decides the request
        will find that out and report it."""
        catalog = request.catalog
        compares = [each for each in request.ranges if isinstance(each, RangeUnchanged)]
        cached = self._cache.view(catalog)
        if cached is not None:
            compares = [each for each in compares if each.since < cached.revision - NEAR_COMMITS]
        if not compares:
            return request
        oldest = 0 if cached is None else cached.written - NEAR_COMMITS
        new = [each for each in compares if not self._is_known(catalog, each, oldest)]
        deadline = request.deadline
        if new and not self._is_read_in_time(catalog, new, deadline):
            deadline = float("-inf")
        found = (self._known.get((catalog, each)) for each in compares)
        read_ahead = tuple(each for each in found if each is not None)
        return replace(request, read_ahead=read_ahead, deadline=deadline)

    def _is_known(self, catalog: str, compare: RangeUnchanged, oldest: int) -> bool:
        known = self._known.get((catalog, compare))
        return known is not None and known.through >= oldest

    def _is_read_in_time(
        self, catalog: str, compares: Sequence[RangeUnchanged], deadline: float
    ) -> bool:
        own = work_for(None)  # MongoDB's answers are short
        try:
            return self._read_log(catalog, compares, deadline)
        except StoreUnreachable:
            return self._runtime.monotonic() < deadline - _LATE_S
        except ForeignRecord:
            return True
        finally:
            work_for(own)

    def _read_log(self, catalog: str, compares: Sequence[RangeUnchanged], deadline: float) -> bool:
        """Read the log for ``compares``, and return whether the time was enough. Raises
        StoreUnreachable and ForeignRecord."""
        head = self._store.heads([catalog]).get(catalog) or Head(catalog)
        through, found = head.written, list[tuple[RangeUnchanged, int | None]]()
        far = [each for each in compares if each.since < through - NEAR_COMMITS]
        for compare in far:
            left_s = deadline - self._runtime.monotonic()
            if left_s <= 0:
                break
            span = (compare.prefix, compare.since, through)
            found.append((compare, self._store.range_changed(catalog, *span, left_s)))
        if not found:
            return not far
        # The floor is read last: what was read above it has no gap.
        floor = (self._store.heads([catalog]).get(catalog) or head).floor
        if len(self._known) + len(found) > _KNOWN_MAX:
            self._known.clear()
        for compare, at in found:
            change = RangeChange(at, floor)
            known = KnownChange(compare, change, through, head.revision, head.last)
            self._known[catalog, compare] = known
        return len(found) == len(far)


def read_views(
    store: Store, cache: Cache, batches: Mapping[str, Sequence[Request]], account: Account
) -> dict[str, View]:
    """By catalog, the view at the cache's revision, with every key and reply the batch needs.

    A catalog is left out if the cache lost its entry, or a stored document is newer than the cache:
    then the revision to decide at must be found again. If the documents are too large together, or
    take too much memory, a view is only for the first requests, or its catalog is left out.
    ``account`` is this thread's. Raises StoreUnreachable.
    """
    held = account.held
    try:
        return _views(store, cache, batches)
    except (AboveLimit, MemoryFull) as error:
        refused = untraced(error)  # the frames of its traceback hold what was read
    account.give_back(account.held - held)
    catalog, requests = next(iter(batches.items()))
    alone = {catalog: requests[:1]}
    if len(batches) > 1 or len(requests) > 1:
        views = read_views(store, cache, alone, account)
        return {catalog: replace(view, requests=1) for catalog, view in views.items()}
    if isinstance(refused, MemoryFull):
        return {}
    views = _views(store, cache, alone, whole=False)
    return {c: replace(view, requests=1, too_heavy=refused) for c, view in views.items()}


def _views(
    store: Store,
    cache: Cache,
    batches: Mapping[str, Sequence[Request]],
    *,
    whole: bool = True,
) -> dict[str, View]:
    """See ``read_views``. ``whole``: documents that aren't cached are read with their contents."""
    views: dict[str, View] = {}
    absent: dict[str, set[str]] = {}
    for catalog, requests in batches.items():
        keys = set(requests[0].keys).union(*(request.keys for request in requests[1:]))
        since, changed, through = _keys_to_check(store, cache, catalog, requests)
        keys |= changed
        cached = cache.view(catalog, keys)
        if cached is None:
            continue
        if cached.revision != through:  # the cache has moved on between the two reads
            since = None
        views[catalog] = View(
            catalog,
            cached.revision,
            cached.time_us,
            cached.documents,
            tail=cached.tail,
            judged=cached.judged,
            verdicts=cached.verdicts,
            last=cached.last,
            last_verdict=cached.last_verdict,
            deleted=cached.deleted,
            changed_since=since,
            changed=changed,
        )
        if len(cached.documents) < len(keys):
            absent[catalog] = keys - cached.documents.keys()
    if absent:
        _read_documents(store, cache, views, absent, batches, whole=whole)
    if not whole:
        return views
    if any(request.ranges for c in views for request in batches[c]):
        _add_ranges(store, cache, views, batches)
    if any(request.rebase for c in views for request in batches[c]):
        _add_bases(store, views, batches)
    replies = earlier_replies(store, {c: batches[c] for c in views})
    for catalog, view in views.items():
        found = replies.get(catalog, {}) | replies_in((*view.verdicts, *view.tail))
        if found:
            views[catalog] = replace(view, replies=found)
    return views


def _keys_to_check(
    store: Store, cache: Cache, catalog: str, requests: Sequence[Request]
) -> tuple[int | None, frozenset[str], int]:
    """For requests that declare lists: the lowest revision from which they want to know what was
    written since, the keys of that, and the revision up to which these are all. The first is None
    if no request wants to know it, or too much was written."""
    nothing = None, frozenset[str](), 0
    checked = [each.lists_checked for each in requests if each.lists_checked is not None]
    cached = cache.view(catalog) if checked else None
    if cached is None:
        return nothing
    since = min(checked)
    commits = list(cached.tail)
    written = cached.revision - len(commits)
    if since < written:
        if written - since > _CHANGED_COMMITS_MAX:
            return nothing
        log = store.commits({catalog: (since, written)}).get(catalog, ())
        if not log or log[-1].revision != written:
            return nothing
        commits += log
    changed = {change.key for c in commits if c.revision > since for change in c.changes}
    return nothing if len(changed) > _CHANGED_MAX else (since, frozenset(changed), cached.revision)


def _read_documents(
    store: Store,
    cache: Cache,
    views: dict[str, View],
    absent: Mapping[str, set[str]],
    batches: Mapping[str, Sequence[Request]],
    *,
    whole: bool,
) -> None:
    """Add the documents that the cache lacks to the views, or drop views.

    With many documents, or some of which only the token may be needed, the first read leaves out
    large contents. A second one reads those that are needed, for as many requests as there is room.
    """
    count = sum(map(len, absent.values()))
    tokens_alone = any(r.token_keys for catalog in absent for r in batches[catalog])
    if not whole:
        stored = dict(stored_documents(store, absent, content_bytes_max=0))
    elif count <= _FEW and not tokens_alone:
        stored = dict(stored_documents(store, absent))
    else:
        stored = dict(stored_documents(store, absent, content_bytes_max=_SMALL_BYTES // count))
        large: dict[str, set[str]] = {}
        left_bytes = DOCUMENTS_BYTES_MAX
        for catalog in absent:
            requests = batches[catalog]
            left_bytes -= _choose_large(catalog, stored, large, views, requests, left_bytes)
        stored |= read_large(store, [(c, stored[c, k]) for c in large for k in sorted(large[c])])
    for catalog, keys in absent.items():
        if catalog in views:
            found = {key: stored.get((catalog, key)) for key in keys}
            _add_documents(store, cache, views, catalog, found)


def _choose_large(
    catalog: str,
    stored: Mapping[tuple[str, str], DocumentRecord],
    large: dict[str, set[str]],
    views: dict[str, View],
    requests: Sequence[Request],
    left_bytes: int,
) -> int:
    """Add to ``large`` the keys of withheld contents, for as many ``requests`` as fit into
    ``left_bytes``; return their bytes.

    If they don't fit even for the first request, the view is dropped; or, if no room would be
    enough for it, the request is too heavy.
    """
    chosen: set[str] = set()
    size_bytes = 0
    for index, request in enumerate(requests):
        more = [
            stored[catalog, key]
            for key in request.keys - request.token_keys - chosen
            if (catalog, key) in stored and stored[catalog, key].content is WITHHELD
        ]
        more_bytes = sum(document.size_bytes for document in more)
        if size_bytes + more_bytes > left_bytes:
            if index:
                views[catalog] = replace(views[catalog], requests=index)
            elif more_bytes > DOCUMENTS_BYTES_MAX:
                refused = refused_too_heavy(more_bytes)
                views[catalog] = replace(views[catalog], requests=1, too_heavy=refused)
            else:
                del views[catalog]
            break
        size_bytes += more_bytes
        chosen.update(document.key for document in more)
    if chosen:
        large[catalog] = chosen
    return size_bytes


def _add_documents(
    store: Store,
    cache: Cache,
    views: dict[str, View],
    catalog: str,
    found: Mapping[str, DocumentRecord | None],
) -> None:
    view = views[catalog]
    if any(d is not None and d.revision > view.revision for d in found.values()):
        del views[catalog]
        return
    try:
        found = laid_over(store, cache.meters, catalog, found, view.tail)
    except (HistoryIncomplete, WrongBase):
        # It was written out and compacted meanwhile, or somebody edited the log by hand.
        cache.forget(catalog)
        del views[catalog]
        return
    whole = {key: d for key, d in found.items() if d is None or d.content is not WITHHELD}
    cache.learn(catalog, view.revision, whole)
    views[catalog] = replace(view, documents={**view.documents, **found})


def earlier_replies(
    store: Store, batches: Mapping[str, Sequence[Request]]
) -> dict[str, dict[tuple[str, str], Reply]]:
    """By catalog, what the requests' idempotency keys have decided, by principal and key.

    Called after the views' revisions were chosen. So a key that is neither found nor in a view's
    tail was unused at that revision.
    """
    wanted: dict[str, set[tuple[str, str]]] = {}
    for catalog, requests in batches.items():
        for request in requests:
            if request.idempotency is not None:
                name = (request.idempotency.principal, request.idempotency.key)
                wanted.setdefault(catalog, set()).add(name)
    replies: dict[str, dict[tuple[str, str], Reply]] = {}
    if wanted:
        for (catalog, principal, key), reply in store.replies(wanted).items():
            replies.setdefault(catalog, {})[principal, key] = reply
    return replies


def replies_in(tail: Sequence[Reply]) -> dict[tuple[str, str], Reply]:
    """By (principal, key), what the idempotency keys in ``tail`` have decided."""
    return {
        (reply.idempotency.principal, reply.idempotency.key): reply
        for reply in tail
        if reply.idempotency is not None
    }


def _add_bases(
    store: Store, views: dict[str, View], batches: Mapping[str, Sequence[Request]]
) -> None:
    """Add the documents that rebased patches were made for, as far as history has them.

    A view is cut, or dropped, at the request that exceeds the maximum of a round. Nothing is read
    if the principal may not see the document, because the decision refuses the request.
    """
    left = _BASES_MAX
    for catalog, view in list(views.items()):
        rebuilt: dict[tuple[str, int], DocumentRecord | None] = {}
        edited: set[str] = set()
        for index, request in enumerate(batches[catalog][: view.requests]):
            stale = _stale_revisions(request, view, moves=request.key in edited)
            wanted = {(request.key, revision) for revision in stale} - rebuilt.keys()
            forbidden = bool(wanted) and _is_forbidden(request, view)
            too_many = not forbidden and len(wanted) > left and left < _BASES_MAX
            # An earlier request of the batch may lift the acl that forbids it.
            if too_many or (forbidden and request.key in edited):
                if index:
                    views[catalog] = replace(view, requests=index)
                else:
                    del views[catalog]
                break
            if not forbidden:
                rebuilt |= {name: _rebuilt(store, view, *name) for name in wanted}
                left -= len(wanted)
            edited.update(each.key for each in request.edits)
        if rebuilt and catalog in views:
            bases = {(b.key, b.token): b for b in rebuilt.values() if b is not None and b.exists}
            views[catalog] = replace(views[catalog], bases=bases)


def _stale_revisions(request: Request, view: View, *, moves: bool) -> set[int]:
    """The revisions of the tokens that ``request`` can be rebased from; none if it needn't be.

    ``moves``: an earlier request of the batch may change the document, so that a token that is
    current now no longer is.
    """
    if not request.rebase:
        return set()
    tokens = [tag for tag in request.conditions.if_match or () if isinstance(tag, str)]
    document = view.documents[request.key]
    if document is not None and document.token in tokens and not moves:
        return set()
    revisions = {revision for token in tokens if (revision := token_revision(token))}
    return set(sorted(each for each in revisions if 0 < each <= view.revision)[-REBASE_TOKENS_MAX:])


def _is_forbidden(request: Request, view: View) -> bool:
    try:
        refuse_forbidden(request, view.documents.__getitem__)
    except DocumentForbidden:
        return True
    return False


def _rebuilt(store: Store, view: View, key: str, revision: int) -> DocumentRecord | None:
    try:
        return rebuild(store, view.catalog, key, revision, view.tail)
    except HistoryIncomplete:
        return None


def _add_ranges(
    store: Store, cache: Cache, views: dict[str, View], batches: Mapping[str, Sequence[Request]]
) -> None:
    """Add what the requests ask of ranges. A view is cut if that is too much for one batch, and
    dropped if the head has moved on. Raises StoreUnreachable."""
    for catalog, view in list(views.items()):
        requests = batches[catalog][: view.requests]
        if not any(request.ranges for request in requests):
            continue
        try:
            read = _read_ranges(store, cache, view, requests)
        except HistoryIncomplete:
            # It was written out and compacted meanwhile.
            cache.forget(catalog)
            read = None
        if read is None:
            del views[catalog]
            continue
        ranges, queries, count = read
        cut = count if count < len(requests) else view.requests
        documents = {**_bare_documents(ranges, queries), **view.documents}
        views[catalog] = replace(view, ranges=ranges, requests=cut, documents=documents)


def _bare_documents(ranges: Ranges, queries: Iterable[RangeQuery]) -> dict[str, DocumentRecord]:
    """The documents of ranges that may be edited, without content and token: enough to delete
    them."""
    listed = [ranges.listed[each.prefix] for each in queries if isinstance(each, RangeListing)]
    return {
        key: DocumentRecord(
            key, WITHHELD, each.revision, each.create_revision, "", 0, attributes=each.attributes
        )
        for of_range in listed
        for key, each in of_range.documents.items()
    }


def _queries(requests: Sequence[Request]) -> tuple[list[RangeQuery], int]:
    """What the first requests ask of ranges, in order, and the number of these requests. A request
    that may change a whole range is the last one: how many documents it removes isn't known."""
    queries: list[RangeQuery] = []
    for index, request in enumerate(requests):
        more = list(dict.fromkeys((*queries, *request.ranges)))
        if index and len(more) > _RANGES_MAX:
            return queries, index
        queries = more
        if any(isinstance(query, RangeListing) for query in request.ranges):
            return queries, index + 1
    return queries, len(requests)


def _read_ranges(
    store: Store, cache: Cache, view: View, requests: Sequence[Request]
) -> tuple[Ranges, list[RangeQuery], int] | None:
    """The ranges for the first requests, what these ask, and their number. None: the head has moved
    on. Raises HistoryIncomplete."""
    queries, count = _queries(requests)
    wanted: dict[str, int] = {}
    changes: dict[tuple[str, int], RangeChange] = {}
    ahead = _valid_ahead(store, view, requests[:count])
    tail = _TailRanges(view.tail)
    for query in queries:
        if not isinstance(query, RangeUnchanged):
            wanted[query.prefix] = max(wanted.get(query.prefix, 0), documents_to_list(query))
        else:
            change = changed_since(store, cache, view, tail, query, ahead.get(query))
            changes[query.prefix, query.since] = change
    keys = _documents(chain(tail.changes, *(request.keys for request in requests[:count])))
    listed: dict[str, ListedRange] = {}
    # The deletion of a whole catalog may be of more documents.
    whole = [query.most for query in queries if isinstance(query, RangeListing) and query.most]
    room = max(_LISTED_MAX, *whole) + 1 if whole else _LISTED_MAX
    for prefix, needed in wanted.items():
        # Each of these keys may turn out to be a listed document that is gone.
        limit = needed + len(keys.under(prefix))
        if limit > room and count > 1:
            return _read_ranges(store, cache, view, requests[:1])
        found = _list(store, cache.meters, view, tail, prefix, min(limit, room))
        if found is None:
            return None
        room -= len(found.documents)
        listed[prefix] = found
    return Ranges(changes, listed), queries, count


def _valid_ahead(
    store: Store, view: View, requests: Sequence[Request]
) -> dict[RangeUnchanged, KnownChange]:
    """What was found out ahead, as far as it belongs to the history of ``view``: the database may
    have been put back since."""
    read_ahead = [each for request in requests for each in request.read_ahead]
    ids: dict[int, str | None] = {commit.revision: commit.id for commit in view.tail}
    ids[view.revision] = view.last
    for at in {each.at for each in read_ahead if each.at < view.revision} - ids.keys():
        ids[at] = store.commit_id(view.catalog, at)
    return {each.compare: each for each in read_ahead if ids.get(each.at) == each.last}


def _documents(keys: Iterable[str]) -> Keys:
    return Keys.of(key for key in keys if key not in OWN_KEYS)


class _TailRanges:
    """The changes of a tail, by key and by range."""

    def __init__(self, tail: Sequence[CommitRecord]) -> None:
        self.changes = changes_by_key(tail)
        self.keys = _documents(self.changes)
        self._of_commits = [
            (commit.revision, _documents(change.key for change in commit.changes))
            for commit in reversed(tail)
        ]

    def newest_under(self, prefix: str, since: int) -> int | None:
        """The newest revision above ``since`` that changed the range; None without one."""
        for revision, keys in self._of_commits:
            if revision > since and keys.has_under(prefix):
                return revision
        return None


def changed_since(
    store: Store,
    cache: Cache,
    view: View,
    tail: _TailRanges,
    compare: RangeUnchanged,
    ahead: KnownChange | None,
) -> RangeChange:
    """What is known of a range's changes since the compare's revision, up to the view. That
    revision may be above the view's, because earlier requests of the batch may reach it.
    ``ahead``: what was found out ahead."""
    prefix, since = compare.prefix, compare.since
    if since > view.revision:
        return RangeChange(None)
    if ahead is not None:
        if ahead.change.at is not None or ahead.change.floor > since:
            return ahead.change
        since = ahead.through
    known, at = cache.changed_under(view.catalog, prefix, since, view.revision)
    if known:
        return RangeChange(at)
    at = tail.newest_under(prefix, since)
    if at is not None:
        return RangeChange(at)
    written = view.revision - len(view.tail)
    if since >= written:
        return RangeChange(None)
    at = store.range_changed(view.catalog, prefix, since, written)
    # The floor is read last: what was read above it has no gap.
    head = store.heads([view.catalog]).get(view.catalog)
    return RangeChange(at, head.floor if head is not None and head.floor > since else 0)


def _list(
    store: Store, meters: Meters, view: View, tail: _TailRanges, prefix: str, limit: int
) -> ListedRange | None:
    """The range's documents as of the view, at most ``limit`` of those stored. None: the head has
    moved on. Raises HistoryIncomplete."""
    found: Scanned[BareDocument] = Scanned(is_whole=False)
    if limit:
        found = listed_range(store, view.catalog, prefix, view.revision, limit)
    if any(document.revision > view.revision for document in found):
        return None
    is_whole = found.is_whole
    live = {document.key: document for document in found}
    for key in tail.keys.under(prefix):
        try:
            after = overlaid(live.pop(key, None), tail.changes[key])
        except HistoryIncomplete:
            if is_whole:
                raise
            continue  # its key is beyond those that were listed
        except WrongBase as error:
            after = bare_rebuilt(store, meters, view.catalog, key, view.tail, error)
        if after is not None and after.exists:
            live[key] = after
    return ListedRange(live, is_whole)


def overlaid(stored: BareDocument | None, changes: Changes) -> BareDocument | None:
    """The document as its ``changes`` in the tail leave it. What came before its last deletion or
    beginning is left out, because a stored tombstone isn't listed."""
    for index in range(len(changes) - 1, -1, -1):
        commit, change = changes[index]
        if change.action == "delete" or change.begins_at(commit.revision):
            return bare_after(stored, changes[index:])
    return bare_after(stored, changes)

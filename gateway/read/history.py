"""History: documents at an earlier revision or time, commits, and the outcomes of requests.

Records are decoded one after the other, only while they are turned into the answer, because objects
take much memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, TypeVar

from gateway import memory
from gateway.errors import DocumentNotFound, RevisionCompacted, RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.model import CommitRecord, DocumentRecord, Reply
from gateway.runtime import Runtime
from gateway.state.heads import HeadReader, ObservedHead, Settler
from gateway.state.replay import HistoryIncomplete, rebuild
from gateway.store.contract import ForeignRecord, Store, Undecoded

# How many revisions a page of one author's commits reads: there is no index on authors. It counts
# the commits of its span, to see if any is missing; so does a page of a single key's feed.
COUNTED_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Filter:
    """Which commits to list: those below revision ``before``, by ``author``, made at or after
    ``since_us`` and at or before ``until_us``, each if given; ``newest_first``: descending.
    """

    before: int | None = None
    author: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    newest_first: bool = False


EVERY = Filter()


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class HistoryPage(Generic[_Item]):
    """What ``encode`` made of commits, by revision. ``next_after`` is the next page's ``after``, or
    its ``before`` if the newest come first; None: this is the last page.
    """

    commits: Sequence[_Item]
    head_revision: int
    next_after: int | None


@dataclass(frozen=True, slots=True)
class RevisionAt:
    """The revision of the last commit made at or before a time.

    ``is_final``: no later commit can change this answer. A commit gets its time before it moves the
    head, perhaps seconds before. So for a time above that of the newest commit, a commit may still
    come.
    """

    revision: int
    is_final: bool


# (after, through, limit, bytes_max) -> commits: see ``Store.list_commits``.
_Listed = Callable[[int, int, int, int], Sequence[CommitRecord]]
_Page = list[tuple[int, _Item]]


class HistoryReads:
    """Reads history. Every answer covers all commits up to a head that was read after the call
    began.

    The floor is read last. If compaction has passed what was read, that may have gaps, and isn't
    returned. All methods raise StoreUnreachable.
    """

    def __init__(
        self,
        store: Store,
        head_reader: HeadReader,
        settler: Settler,
        runtime: Runtime,
        limits: ServiceLimits,
    ) -> None:
        self._store = store
        self._head_reader = head_reader
        self._settler = settler
        self._runtime = runtime
        self._page_bytes_max = limits.history_page_bytes_max

    def document_at_revision(self, catalog: str, key: str, revision: int) -> DocumentRecord:
        """The live document at the catalog's ``revision``.

        Raises RevisionNotFound above the head, RevisionCompacted below the floor, and
        DocumentNotFound if there was none. Costs at most K changes, however old the state is.
        """
        head = self._settler.settle(catalog)
        if revision > head.revision or revision < 0:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {head.revision}",
                head.revision,
            )
        if revision < head.floor:
            raise RevisionCompacted(revision, head.floor)
        account = memory.account()
        try:
            account.take(memory.REPLY_BYTES)
            document = rebuild(self._store, catalog, key, revision)
            account.give_back(memory.REPLY_BYTES)
        except HistoryIncomplete:
            self._require_retained(catalog, revision)
            raise
        self._require_retained(catalog, revision)
        if document is None or not document.exists:
            raise DocumentNotFound(catalog, key)
        return document

    def revision_at(self, catalog: str, time_us: int) -> RevisionAt:
        """The catalog's revision at that time.

        Raises RevisionNotFound also for a time in the future: later than this process's clock and
        than the newest commit. Raises RevisionCompacted below the floor.
        """
        while True:
            head = self._settler.settle(catalog)
            if time_us > max(self._runtime.now_us(), head.time_us):
                raise RevisionNotFound("that time is in the future", head.revision)
            commit = self._store.commit_at(catalog, time_us)
            revision = 0 if commit is None else commit.revision
            floor = self._floor(catalog)
            if revision >= floor:
                break
            if floor <= head.floor:
                raise RevisionCompacted(revision, floor)
            # Compaction passed the commit while it was looked up: a later one may be the right one.
        if commit is None:
            raise RevisionNotFound("the catalog has no commit that old", head.revision)
        return RevisionAt(commit.revision, final_at(time_us, head))

    def commits(
        self, catalog: str, *, after: int, limit: int, key: str | None, only: Filter = EVERY
    ) -> HistoryPage[CommitRecord]:
        """Like ``encoded_commits``, with the commits themselves."""
        return self.encoded_commits(catalog, list, after=after, limit=limit, key=key, only=only)

    def encoded_commits(
        self,
        catalog: str,
        encode: EncodeCommits[_Item],
        *,
        after: int,
        limit: int,
        key: str | None,
        only: Filter = EVERY,
    ) -> HistoryPage[_Item]:
        """What ``encode`` makes of at most ``limit`` commits above revision ``after``, of one
        ``key`` if given.

        A page has fewer commits if they are large, but at least one if there is one. With an
        author, a page covers COUNTED_MAX revisions, and may be empty although more follow.

        Raises RevisionCompacted if the page would begin below the floor; if the newest come first,
        it ends at the floor. Raises ForeignRecord if commits are missing from the log, unless only
        a key is given.
        """
        head = self._settler.settle(catalog)
        after, through = self._span(catalog, after, head.revision, only)
        beginning = through if only.newest_first else after
        if beginning < head.floor:
            raise RevisionCompacted(beginning, head.floor)
        listed = self._lister(catalog, key, only)

        def page(after: int, through: int) -> _Page[_Item]:
            return [*map_commits(listed(after, through, limit, self._page_bytes_max), encode)]

        examined = head.revision if only.author is None else COUNTED_MAX
        # Once for the commits as they are stored, once for what ``encode`` makes of them.
        with memory.account().holding(2 * memory.REPLY_BYTES):
            if only.newest_first:
                after = max(after, head.floor)
                encoded, more = self._descending(page, listed, after, through, examined)
                floor = self._floor(catalog)
                retained = [each for each in encoded if each[0] > floor]
                if len(retained) < len(encoded):  # compaction passed some: the page ends there
                    encoded, more = retained, None
                span = (max(after, floor) if more is None else more - 1, through)
            else:
                encoded, more = self._ascending(page, listed, after, through, examined)
                self._require_retained(catalog, after)
                span = (after, through if more is None else more)
        if only.author is not None:
            self._require_counted(catalog, *span)
        elif key is None:
            require_all(catalog, sorted(each[0] for each in encoded), *span)
        return HistoryPage([each for _, each in encoded], head.revision, more)

    def _lister(self, catalog: str, key: str | None, only: Filter) -> _Listed:
        def listed(after: int, through: int, limit: int, bytes_max: int) -> Sequence[CommitRecord]:
            return self._store.list_commits(
                catalog,
                after,
                through,
                limit,
                key,
                bytes_max,
                author=only.author,
                newest_first=only.newest_first,
            )

        return listed

    def _span(self, catalog: str, after: int, head: int, only: Filter) -> tuple[int, int]:
        """The revisions that ``only`` allows: above the first and up to the second."""
        through = head if only.before is None else min(head, only.before - 1)
        if only.since_us is not None:
            last = self._store.commit_at(catalog, only.since_us - 1)
            after = max(after, 0 if last is None else last.revision)
        if only.until_us is not None:
            last = self._store.commit_at(catalog, only.until_us)
            through = min(through, 0 if last is None else last.revision)
        return after, through

    def _ascending(
        self,
        page: Callable[[int, int], _Page[_Item]],
        listed: _Listed,
        after: int,
        through: int,
        examined: int,
    ) -> tuple[_Page[_Item], int | None]:
        """A page, and the revision after which the next one begins; None: there is none."""
        end = min(through, after + examined)
        encoded = page(after, end)
        last = encoded[-1][0] if encoded else end
        if last < end and listed(last, end, 1, 1):
            return encoded, last
        return encoded, end if end < through else None

    def _descending(
        self,
        page: Callable[[int, int], _Page[_Item]],
        listed: _Listed,
        after: int,
        through: int,
        examined: int,
    ) -> tuple[_Page[_Item], int | None]:
        end = max(after, through - examined)
        encoded = page(end, through)
        last = encoded[-1][0] if encoded else end + 1
        if last - 1 > end and listed(end, last - 1, 1, 1):
            return encoded, last
        return encoded, end + 1 if end > after else None

    def encoded_commit(self, catalog: str, revision: int, encode: EncodeCommits[_Item]) -> _Item:
        """What ``encode`` makes of the commit that made ``revision``. Raises RevisionCompacted and
        RevisionNotFound."""
        head = self._settler.settle(catalog)
        if 0 < revision <= head.floor:
            raise RevisionCompacted(revision, head.floor)
        with memory.account().holding(memory.REPLY_BYTES):
            found = self._store.list_commits(catalog, revision - 1, revision, 1, None, 1)
            encoded = [each for _, each in map_commits(found, encode)]
        floor = self._floor(catalog)
        if 0 < revision <= floor:
            raise RevisionCompacted(revision, floor)
        if not encoded:
            raise RevisionNotFound(f"there is no commit {revision}", head.revision)
        return encoded[0]

    def reply(self, catalog: str, principal: str, idempotency_key: str) -> Reply | None:
        """The reply under an idempotency key; None proves that nothing has been decided under it so
        far."""
        head = self._head_reader.observe([catalog])[catalog]
        for reply in chain[Reply](head.tail, head.verdicts):
            asked = reply.idempotency
            if asked is not None and (asked.principal, asked.key) == (principal, idempotency_key):
                return reply
        with memory.account().holding(memory.REPLY_BYTES):
            replies = self._store.replies({catalog: [(principal, idempotency_key)]})
        return replies.get((catalog, principal, idempotency_key))

    def _require_retained(self, catalog: str, revision: int) -> None:
        """Raise RevisionCompacted if the floor has passed the revision meanwhile."""
        floor = self._floor(catalog)
        if revision < floor:
            raise RevisionCompacted(revision, floor)

    def _require_counted(self, catalog: str, after: int, through: int) -> None:
        count = self._store.count_commits(catalog, after, through)
        if count < through - after and self._floor(catalog) <= after:
            require_count(catalog, count, after, through)

    def _floor(self, catalog: str) -> int:
        head = self._store.heads([catalog]).get(catalog)
        return 0 if head is None else head.floor


def final_at(time_us: int, head: ObservedHead) -> bool:
    """Whether the answer for this time is final: commit times increase, so later commits have later
    times than the newest one in ``head``."""
    return time_us <= head.time_us


def require_all(catalog: str, found: Sequence[int], after: int, through: int) -> None:
    """Raise ForeignRecord unless these are all revisions above ``after`` up to ``through``, in
    order: an answer that lacks commits would look as if they had never been made."""
    missing = after + 1
    for revision in [*found, through + 1]:
        if revision > missing:
            last = f" to {revision - 1}" if revision - 1 > missing else ""
            raise ForeignRecord(catalog, None, f"the log has no commit {missing}{last}")
        missing = revision + 1


def require_count(catalog: str, count: int, after: int, through: int) -> None:
    """Raise ForeignRecord unless ``count``, that of the commits of this span, is that of all."""
    if missing := through - after - count:
        span = f"the revisions {after + 1} to {through}"
        raise ForeignRecord(catalog, None, f"the log lacks {missing} of the commits of {span}")


_Record = TypeVar("_Record")


def map_records(
    records: Sequence[_Record],
    encode: Callable[[_Record], _Item],
    otherwise: Callable[[ForeignRecord], _Record] | None = None,
) -> Iterator[_Item]:
    """What ``encode`` makes of each record. The request's account holds only one decoded record at
    a time. ``otherwise`` returns a substitute for a record that can't be read.

    Raises what these raise, AboveLimit and MemoryFull.
    """
    if not isinstance(records, Undecoded):
        yield from map(encode, records)
        return
    account = memory.account()
    for index in range(len(records)):
        with account.holding():
            try:
                record = records[index]
            except ForeignRecord as error:
                if otherwise is None:
                    raise
                record = otherwise(error)
            encoded = encode(record)
        yield encoded


# How many bytes of changes are decoded and given to ``encode`` at a time: the acls of their
# documents are looked up together.
_CHUNK_BYTES = 512 * 1024
EncodeCommits = Callable[[Sequence[CommitRecord]], Sequence[_Item]]


def map_commits(
    commits: Sequence[CommitRecord], encode: EncodeCommits[_Item]
) -> Iterator[tuple[int, _Item]]:
    """Each commit's revision, and what ``encode`` makes of it. ``encode`` gets several commits at a
    time. Raises what ``encode`` raises, ForeignRecord, AboveLimit and MemoryFull."""
    account = memory.account()
    start = 0
    while start < len(commits):
        end, size_bytes = start, 0
        while end < len(commits) and (end == start or size_bytes < _CHUNK_BYTES):
            size_bytes += commits.size_of(end) if isinstance(commits, Undecoded) else 0
            end += 1
        with account.holding():
            some = list(commits[start:end])
            encoded = list(zip((each.revision for each in some), encode(some), strict=True))
            del some
        yield from encoded
        start = end

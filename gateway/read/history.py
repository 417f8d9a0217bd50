"""History: documents at an earlier revision or time, commits, and the outcomes of requests.

Records are decoded one after the other, as they are told: none is kept as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from gateway import memory
from gateway.errors import DocumentNotFound, RevisionCompacted, RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.model import CommitRecord, DocumentRecord, Reply
from gateway.runtime import Runtime
from gateway.state.heads import HeadReader, Settler, Standing
from gateway.state.replay import HistoryIncomplete, rebuild
from gateway.store.contract import ForeignRecord, Store, Undecoded

# How many revisions a page by an author looks at: there is no index on authors.
_AUTHORED_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Which:
    """Which commits are asked for, besides those above a revision.

    Those below revision ``before``, by ``author``, made at or after ``since_us`` and at or before
    ``until_us``, each if given; ``newest_first``: descending.
    """

    before: int | None = None
    author: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    newest_first: bool = False


EVERY = Which()


_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class HistoryPage(Generic[_Told]):
    """What is told of commits, by revision; the next page begins behind ``next_after``, None: that
    was the last.

    It is the next page's ``after``, and its ``before`` where the newest come first.
    """

    commits: Sequence[_Told]
    head_revision: int
    next_after: int | None


@dataclass(frozen=True, slots=True)
class RevisionAt:
    """The revision of the last commit made at or before a time.

    ``is_final``: none will ever be made that changes it. A commit's time is taken before its head
    moves, which may be seconds later: so above the time of the newest commit there may yet be one.
    """

    revision: int
    is_final: bool


# Commits above a revision and up to another, at most so many, and so many bytes of changes.
_Listed = Callable[[int, int, int, int], Sequence[CommitRecord]]
_Page = list[tuple[int, _Told]]


class HistoryReads:
    """Every answer covers all commits up to a head read after the question came.

    The floor is looked at last: what compaction has overtaken isn't answered, for what was read
    of it may have had gaps. All methods raise StoreUnreachable.
    """

    def __init__(
        self,
        store: Store,
        observer: HeadReader,
        settler: Settler,
        runtime: Runtime,
        limits: ServiceLimits,
    ) -> None:
        self._store = store
        self._observer = observer
        self._settler = settler
        self._runtime = runtime
        self._page_bytes_max = limits.history_page_bytes_max

    def document_at_revision(self, catalog: str, key: str, revision: int) -> DocumentRecord:
        """The live document as the catalog's ``revision`` had it.

        Raises RevisionNotFound above the head, RevisionCompacted below the floor and
        DocumentNotFound where there was none. Costs at most K changes, however old it is.
        """
        standing = self._settler.settle(catalog)
        if revision > standing.revision or revision < 0:
            raise RevisionNotFound(
                f"revision {revision} doesn't exist; the head is {standing.revision}",
                standing.revision,
            )
        if revision < standing.floor:
            raise RevisionCompacted(revision, standing.floor)
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
        """Which revision it was at that time.

        RevisionNotFound also for a time that is still to come, by this clock: above the newest
        commit. What was then can't be told.
        """
        while True:
            standing = self._settler.settle(catalog)
            if time_us > max(self._runtime.now_us(), standing.time_us):
                raise RevisionNotFound("that time is in the future", standing.revision)
            commit = self._store.commit_at(catalog, time_us)
            revision = 0 if commit is None else commit.revision
            floor = self._floor(catalog)
            if revision >= floor:
                break
            if floor <= standing.floor:
                raise RevisionCompacted(revision, floor)
            # Compaction overtook the look: by then a later commit may have been the one.
        if commit is None:
            raise RevisionNotFound("the catalog has no commit that old", standing.revision)
        return RevisionAt(commit.revision, final_at(time_us, standing))

    def commits(
        self, catalog: str, *, after: int, limit: int, key: str | None, which: Which = EVERY
    ) -> HistoryPage[CommitRecord]:
        """``told`` of the commits themselves."""
        return self.told(catalog, list, after=after, limit=limit, key=key, which=which)

    def told(
        self,
        catalog: str,
        tell: TellCommits[_Told],
        *,
        after: int,
        limit: int,
        key: str | None,
        which: Which = EVERY,
    ) -> HistoryPage[_Told]:
        """At most ``limit`` commits above revision ``after``, of one ``key`` if given.

        A page may hold fewer where its commits are large, but at least one if there is one; by an
        author it looks at _AUTHORED_MAX revisions, and may be empty though there are more.

        Raises RevisionCompacted where it would begin below the floor; newest first it ends there.
        ForeignRecord where it would have all commits, and some are missing from the log.
        """
        standing = self._settler.settle(catalog)
        after, through = self._span(catalog, after, standing.revision, which)
        beginning = through if which.newest_first else after
        if beginning < standing.floor:
            raise RevisionCompacted(beginning, standing.floor)

        listed = self._lister(catalog, key, which)

        def page(after: int, through: int) -> _Page[_Told]:
            return [*map_commits(listed(after, through, limit, self._page_bytes_max), tell)]

        looked_at = standing.revision if which.author is None else _AUTHORED_MAX
        # The commits as they are stored, and what is told of them.
        with memory.account().holding(2 * memory.REPLY_BYTES):
            if which.newest_first:
                after = max(after, standing.floor)
                told, more = self._descending(page, listed, after, through, looked_at)
                floor = self._floor(catalog)
                retained = [each for each in told if each[0] > floor]
                if len(retained) < len(told):  # compaction overtook the look: there it ends now
                    told, more = retained, None
                span = (max(after, floor) if more is None else more - 1, through)
            else:
                told, more = self._ascending(page, listed, after, through, looked_at)
                self._require_retained(catalog, after)
                span = (after, through if more is None else more)
        if key is None and which.author is None:
            require_all(catalog, sorted(revision for revision, _ in told), *span)
        return HistoryPage([each for _, each in told], standing.revision, more)

    def _lister(self, catalog: str, key: str | None, which: Which) -> _Listed:
        def listed(after: int, through: int, limit: int, bytes_max: int) -> Sequence[CommitRecord]:
            return self._store.list_commits(
                catalog,
                after,
                through,
                limit,
                key,
                bytes_max,
                author=which.author,
                newest_first=which.newest_first,
            )

        return listed

    def _span(self, catalog: str, after: int, head: int, which: Which) -> tuple[int, int]:
        """The revisions asked for: above the first and up to the second."""
        through = head if which.before is None else min(head, which.before - 1)
        if which.since_us is not None:
            last = self._store.commit_at(catalog, which.since_us - 1)
            after = max(after, 0 if last is None else last.revision)
        if which.until_us is not None:
            last = self._store.commit_at(catalog, which.until_us)
            through = min(through, 0 if last is None else last.revision)
        return after, through

    def _ascending(
        self,
        page: Callable[[int, int], _Page[_Told]],
        listed: _Listed,
        after: int,
        through: int,
        looked_at: int,
    ) -> tuple[_Page[_Told], int | None]:
        """A page, and what the next one begins behind."""
        end = min(through, after + looked_at)
        told = page(after, end)
        last = told[-1][0] if told else end
        if last < end and listed(last, end, 1, 1):
            return told, last
        return told, end if end < through else None

    def _descending(
        self,
        page: Callable[[int, int], _Page[_Told]],
        listed: _Listed,
        after: int,
        through: int,
        looked_at: int,
    ) -> tuple[_Page[_Told], int | None]:
        end = max(after, through - looked_at)
        told = page(end, through)
        last = told[-1][0] if told else end + 1
        if last - 1 > end and listed(end, last - 1, 1, 1):
            return told, last
        return told, end + 1 if end > after else None

    def told_commit(self, catalog: str, revision: int, tell: TellCommits[_Told]) -> _Told:
        """What is told of the commit that made ``revision``."""
        standing = self._settler.settle(catalog)
        if 0 < revision <= standing.floor:
            raise RevisionCompacted(revision, standing.floor)
        with memory.account().holding(memory.REPLY_BYTES):
            found = self._store.list_commits(catalog, revision - 1, revision, 1, None, 1)
            told = [each for _, each in map_commits(found, tell)]
        floor = self._floor(catalog)
        if 0 < revision <= floor:
            raise RevisionCompacted(revision, floor)
        if not told:
            raise RevisionNotFound(f"there is no commit {revision}", standing.revision)
        return told[0]

    def reply(self, catalog: str, principal: str, idempotency_key: str) -> Reply | None:
        """What the key decided; None proves that it decided nothing up to now."""
        standing = self._observer.observe([catalog])[catalog]
        for reply in chain[Reply](standing.tail, standing.verdicts):
            asked = reply.idempotency
            if asked is not None and (asked.principal, asked.key) == (principal, idempotency_key):
                return reply
        with memory.account().holding(memory.REPLY_BYTES):
            replies = self._store.replies({catalog: [(principal, idempotency_key)]})
        return replies.get((catalog, principal, idempotency_key))

    def _require_retained(self, catalog: str, revision: int) -> None:
        """Raise RevisionCompacted where the floor has passed the revision meanwhile."""
        floor = self._floor(catalog)
        if revision < floor:
            raise RevisionCompacted(revision, floor)

    def _floor(self, catalog: str) -> int:
        head = self._store.heads([catalog]).get(catalog)
        return 0 if head is None else head.floor


def final_at(time_us: int, standing: Standing) -> bool:
    """Times increase: whatever is committed above the standing is later than it."""
    return time_us <= standing.time_us


def require_all(catalog: str, found: Sequence[int], after: int, through: int) -> None:
    """Raise ForeignRecord unless these are all revisions above ``after`` up to ``through``, in
    order: a log without some of its commits would be told as if they had never been made."""
    missing = after + 1
    for revision in [*found, through + 1]:
        if revision > missing:
            last = f" to {revision - 1}" if revision - 1 > missing else ""
            raise ForeignRecord(catalog, None, f"the log has no commit {missing}{last}")
        missing = revision + 1


_Record = TypeVar("_Record")


def map_records(
    records: Sequence[_Record],
    tell: Callable[[_Record], _Told],
    otherwise: Callable[[ForeignRecord], _Record] | None = None,
) -> Iterator[_Told]:
    """What ``tell`` makes of each, which the request's account holds meanwhile; ``otherwise`` gives
    what stands for one that can't be read.

    Raises what these do, AboveLimit and MemoryFull.
    """
    if not isinstance(records, Undecoded):
        yield from map(tell, records)
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
            told = tell(record)
        yield told


# Of so much of their text commits are told at once, for their acls are looked up together.
_CHUNK_BYTES = 512 * 1024
TellCommits = Callable[[Sequence[CommitRecord]], Sequence[_Told]]


def map_commits(
    commits: Sequence[CommitRecord], tell: TellCommits[_Told]
) -> Iterator[tuple[int, _Told]]:
    """What ``tell`` makes of each, some at a time, with its revision; else as ``map_records``."""
    account = memory.account()
    start = 0
    while start < len(commits):
        end, size_bytes = start, 0
        while end < len(commits) and (end == start or size_bytes < _CHUNK_BYTES):
            size_bytes += commits.size_of(end) if isinstance(commits, Undecoded) else 0
            end += 1
        with account.holding():
            some = list(commits[start:end])
            told = list(zip((each.revision for each in some), tell(some), strict=True))
            del some
        yield from told
        start = end

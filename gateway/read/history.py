"""History: documents at an earlier revision or time, commits, and the outcomes of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from gateway.errors import DocumentNotFound, RevisionCompacted, RevisionNotFound
from gateway.limits import ServiceLimits
from gateway.model import Commit, Document, Reply
from gateway.runtime import Runtime
from gateway.state.heads import Observer, Settler, Standing
from gateway.state.replay import HistoryIncomplete, rebuild
from gateway.store.contract import Store


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Commits ascending by revision; ``next_after`` continues, None where nothing is left."""

    commits: Sequence[Commit]
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


class History:
    """Every answer covers all commits up to a head read after the question came.

    The floor is looked at last: what compaction has overtaken isn't answered, for what was read
    of it may have had gaps. All methods raise Unreachable.
    """

    def __init__(
        self,
        store: Store,
        observer: Observer,
        settler: Settler,
        runtime: Runtime,
        limits: ServiceLimits,
    ) -> None:
        self._store = store
        self._observer = observer
        self._settler = settler
        self._runtime = runtime
        self._page_bytes_max = limits.history_page_bytes_max

    def document_at_revision(self, catalog: str, key: str, revision: int) -> Document:
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
        try:
            document = rebuild(self._store, catalog, key, revision)
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
                raise RevisionNotFound("that time is still to come", standing.revision)
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

    def commits(self, catalog: str, *, after: int, limit: int, key: str | None) -> CommitPage:
        """At most ``limit`` commits above revision ``after``, of one ``key`` if given.

        A page may hold fewer where its commits are large, but at least one if there is one.
        """
        standing = self._settler.settle(catalog)
        if after < standing.floor:
            raise RevisionCompacted(after, standing.floor)
        head = standing.revision
        page = self._store.list_commits(catalog, after, head, limit, key, self._page_bytes_max)
        last = page[-1].revision if page else head
        more = last < head and self._store.list_commits(catalog, last, head, 1, key, 1)
        self._require_retained(catalog, after)
        return CommitPage(page, head, last if more else None)

    def commit(self, catalog: str, revision: int) -> Commit:
        """The commit that made ``revision``."""
        standing = self._settler.settle(catalog)
        if 0 < revision <= standing.floor:
            raise RevisionCompacted(revision, standing.floor)
        found = self._store.commits({catalog: (revision - 1, revision)}).get(catalog, ())
        floor = self._floor(catalog)
        if 0 < revision <= floor:
            raise RevisionCompacted(revision, floor)
        if not found:
            raise RevisionNotFound(f"there is no commit {revision}", standing.revision)
        return found[0]

    def reply(self, catalog: str, principal: str, idempotency_key: str) -> Reply | None:
        """What the key decided; None proves that it decided nothing up to now."""
        standing = self._observer.observe([catalog])[catalog]
        for reply in chain[Reply](standing.tail, standing.verdicts):
            asked = reply.idempotency
            if asked is not None and (asked.principal, asked.key) == (principal, idempotency_key):
                return reply
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

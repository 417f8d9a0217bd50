"""Rebuilds a head from the log: one that can't be read, is gone, or isn't where its log ends.

Commits are in the log once they are written out; until then, they are only in the head. The old
head may still show that the log, with what can be read of the tail, has all commits. If it doesn't,
later commits may be lost, and clients may remember them. Then the new head passes over their
revisions, as after a restore: it is at a far higher revision, with a commit of its own, which is
also the floor.

The floor of the lost head is kept if it can be read. Otherwise, it is 0 if the log has every commit
from the first one on as it was made. If not, the floor is at the head: nothing shows which
revisions can still be rebuilt from a log that compaction has reduced.

Verdicts that weren't written out are lost: refusals, and requests that changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.limits import MIB, PASSED_OVER
from gateway.model import CommitRecord, Head, follows
from gateway.runtime import Runtime
from gateway.store.contract import ForeignRecord, LostHead, Mending, Store

_COMMITS_AT_ONCE = 1_000
_PAGE_BYTES_MAX = 8 * MIB
_LAST = 2**63 - 1
_AUTHOR = "gateway repair"
_MESSAGE = "passes over the revisions that a lost head may have had"


@dataclass(frozen=True, slots=True)
class MendedHead:
    """The new head. ``advance``: its commit, if it passes over lost ones. ``behind``: the commits
    that only the lost head has, and that follow the log. ``dropped``: commits of its tail that
    don't fit the log."""

    lost: LostHead
    head: Head
    advance: CommitRecord | None
    behind: tuple[CommitRecord, ...]
    dropped: tuple[CommitRecord, ...]


class HeadRepair:
    """Finds and rebuilds wrong heads. Every method raises StoreUnreachable."""

    def __init__(self, store: Store, mending: Mending, runtime: Runtime) -> None:
        self._store = store
        self._mending = mending
        self._runtime = runtime

    def fault(self, catalog: str) -> str | None:
        """What is wrong with the head. None: nothing, or it is the log that can't be read, or there
        is neither a head nor a log."""
        try:
            head = self._store.tails([catalog]).get(catalog)
            self._store.retention(catalog)
        except ForeignRecord as error:
            return error.detail
        if head is None:
            return None
        if head.floor > head.revision:
            return f"the head is at {head.revision}, below its floor {head.floor}"
        try:
            wrong = self._is_elsewhere(head)
        except ForeignRecord:  # it is about the log; a verification finds it
            return None
        now = self._store.heads([catalog]).get(catalog)
        return wrong if now is not None and now.position == head.position else None

    def _is_elsewhere(self, head: Head) -> str | None:
        catalog, revision = head.catalog, head.revision
        if above := self._store.list_commits(catalog, revision, _LAST, 1, None, 1):
            return f"the log has commit {above[0].revision}, but the head is at {revision}"
        if head.tail:
            end = head.tail[-1]
            if end.revision != revision or not follows(end.id, head.last):
                return f"the head's tail doesn't end at {revision}"
            for commit in self._logged_otherwise(head.tail):
                return f"the log's commit {commit.revision} isn't that of the head's tail"
            return None
        last = self._store.list_commits(catalog, 0, _LAST, 1, None, 1, newest_first=True)
        if not last or (last[0].revision == revision and follows(last[0].id, head.last)):
            return None
        if last[0].revision < revision and last[0].id != head.last:
            return None  # the end of the log is gone; the head may be right
        return f"the head's last commit isn't commit {revision} of the log"

    def _logged_otherwise(self, tail: Sequence[CommitRecord]) -> Iterator[CommitRecord]:
        """The commits of a tail at whose revisions the log has other commits."""
        of_tail = {commit.revision: commit for commit in tail}
        if not of_tail:
            return
        after, last = min(of_tail) - 1, max(of_tail)
        while commits := self._store.list_commits(
            tail[0].catalog, after, last, _COMMITS_AT_ONCE, None, _PAGE_BYTES_MAX
        ):
            after = commits[-1].revision
            for logged in commits:
                commit = of_tail.get(logged.revision)
                if commit is not None and commit.id != logged.id:
                    yield commit

    def mended(self, catalog: str) -> MendedHead:
        """The head as it should be. Raises ForeignRecord if the log can't be read either, or isn't
        whole."""
        lost = self._mending.lost_head(catalog)
        end, is_untouched = self._followed(catalog, lost.floor)
        tail, dropped = _behind(end, lost)
        if otherwise := tuple(self._logged_otherwise(lost.tail or ())):
            tail, dropped = (), (*otherwise, *tail, *dropped)
        last = tail[-1] if tail else end
        if last is None:
            raise ForeignRecord(catalog, None, "its log has no commits")
        floor = lost.floor
        if floor is None or floor > last.revision:
            floor = 0 if is_untouched else last.revision
        judged = lost.judged + 1
        head = Head(
            catalog=catalog,
            revision=last.revision,
            time_us=last.time_us,
            written=end.revision if end else 0,
            floor=floor,
            deleted=last.deletes_catalog,
            tail=tail,
            judged=judged,
            judged_written=judged,
            last=last.id,
            last_verdict=self._runtime.new_id(),
        )
        if _is_all(lost, last):
            return MendedHead(lost, head, None, tail, dropped)
        return self._passing_over(lost, head, dropped)

    def put(self, mended: MendedHead) -> bool:
        """Replace the lost head; False if somebody has changed it meanwhile."""
        if mended.advance is not None and mended.behind:
            # These are below the floor, but the repair of documents needs them.
            self._store.write_commits(mended.behind)
        return self._mending.put_head(mended.lost, mended.head, mended.advance)

    def _followed(self, catalog: str, floor: int | None) -> tuple[CommitRecord | None, bool]:
        """The last commit of the log, and whether the log has all commits as they were made. Raises
        ForeignRecord, also for a gap above the floor; below it, compaction leaves gaps."""
        end: CommitRecord | None = None
        is_untouched = True
        after = 0
        while commits := self._store.list_commits(
            catalog, after, _LAST, _COMMITS_AT_ONCE, None, _PAGE_BYTES_MAX
        ):
            for commit in commits:
                before, after = after, commit.revision
                if fault := _fault_between(end, commit):
                    is_untouched = False
                    gap_end = commit.revision - 1
                    if floor is not None and (gap_end > floor or before >= floor):
                        raise ForeignRecord(catalog, None, fault)
                is_untouched &= not any(change.is_reduced for change in commit.changes)
                end = commit
        return end, is_untouched

    def _passing_over(
        self, lost: LostHead, head: Head, dropped: tuple[CommitRecord, ...]
    ) -> MendedHead:
        revision = head.revision
        if lost.revision is not None and lost.revision < PASSED_OVER:
            revision = max(revision, lost.revision)
        commit = CommitRecord(
            catalog=head.catalog,
            revision=revision + PASSED_OVER,
            time_us=max(self._runtime.now_us(), head.time_us + 1),
            id=self._runtime.new_id(),
            author=_AUTHOR,
            message=_MESSAGE,
            idempotency=None,
            attempts=1,
            changes=(),
            deletes_catalog=head.deleted,
            parent=head.last,
        )
        above = replace(
            head,
            revision=commit.revision,
            time_us=commit.time_us,
            written=commit.revision,
            floor=commit.revision,
            tail=(),
            last=commit.id,
        )
        return MendedHead(lost, above, commit, head.tail or (), dropped)


def _fault_between(before: CommitRecord | None, commit: CommitRecord) -> str | None:
    expected = 1 if before is None else before.revision + 1
    if commit.revision != expected:
        return f"the log has no commit between {expected - 1} and {commit.revision}"
    if before is not None and not follows(before.id, commit.parent):
        return f"commit {commit.revision} doesn't follow the one before it"
    return None


def _behind(
    end: CommitRecord | None, lost: LostHead
) -> tuple[tuple[CommitRecord, ...], tuple[CommitRecord, ...]]:
    """The commits of the lost tail above the log: those that directly follow it, and the rest."""
    above = [each for each in lost.tail or () if end is None or each.revision > end.revision]
    for number, commit in enumerate(above):
        if _fault_between(end, commit):
            return tuple(above[:number]), tuple(above[number:])
        end = commit
    return tuple(above), ()


def _is_all(lost: LostHead, last: CommitRecord) -> bool:
    """Whether what is left of the head shows that ``last`` was its last commit."""
    if lost.last:
        return lost.last == last.id
    if lost.revision is not None:
        return lost.revision == last.revision
    tail = lost.tail or ()
    return bool(tail) and tail[-1].id == last.id

"""Reading heads: every answer starts from a head that was read after the question came.

*Catching up*, a worked example. The cache has catalog c at revision 7. The head says 9, written out
up to 6, with the commits 7 to 9 for its tail: so the cache moves on by 8 and 9, and needs nothing
else. Where the tail begins above the cached revision, the commits between are in the log. A reader
of one document lays the tail over what is stored; whoever needs the log, or many documents at one
revision, has the tail written out first (``Settler``).

*Going back.* A head that is read now is no older than what was known before the call (see the
store's contract). One that can't follow that, behind it or by other commits, is of a database that
was put back to an earlier state; then nothing that was remembered of the catalog is true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from gateway import cpu, memory
from gateway.limits import ServiceLimits
from gateway.model import Claim, CommitRecord, Head, HeadPosition, Verdict
from gateway.runtime import Runtime, moment
from gateway.state.cache import Cache
from gateway.state.replay import HistoryIncomplete, WrongBase
from gateway.state.write_out import Patience, Tail, WentBack, write_out
from gateway.store.contract import Store

_HINTS_MAX = 10_000
_LOOK_AGAIN_S = 0.002


class Standing(NamedTuple):
    """Where a catalog stood at a moment after it was asked for.

    ``last`` is the id of the commit there, "" if it isn't known; ``deleted``: that one deleted the
    catalog. ``tail`` are the commits up to there, and ``verdicts`` the verdicts, that may not be
    written out.
    """

    revision: int
    time_us: int
    floor: int = 0
    deleted: bool = False
    tail: tuple[CommitRecord, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    claims: tuple[Claim, ...] = ()
    last: str = ""


class HeadReader:
    """Reads heads and brings the cache up to them."""

    def __init__(self, store: Store, cache: Cache, limits: ServiceLimits) -> None:
        self._store = store
        self._catch_up_max = limits.catch_up_commits_max
        self._cache = cache
        # Catalogs that others have moved on since they were last looked at: with one of them, all
        # tails are read at once, not after the bare heads.
        self._moving: set[str] = set()

    def observe(
        self,
        catalogs: Collection[str],
        read: Callable[[Collection[str]], Mapping[str, Head]] | None = None,
    ) -> dict[str, Standing]:
        """Where each catalog stands now; the cache stands there or further on.

        Raises StoreUnreachable. A bounded cache may have dropped its entry again. ``read`` reads
        heads with their tails in another way than the store.
        """
        standings: dict[str, Standing] = {}
        known: dict[str, HeadPosition] = {}
        if read is None and self._moving.isdisjoint(catalogs):
            known = self._cache.places(catalogs)
        moved = set(catalogs).difference(known)
        if known:
            heads = self._store.heads(known)
            for catalog, before in known.items():
                standing = self._cached(heads.get(catalog) or Head(catalog), before)
                if standing is None:
                    moved.add(catalog)
                    self._expect_moves(catalog)
                else:
                    standings[catalog] = standing
        while moved:
            before_all = self._cache.places(moved)
            found = (read or self._store.tails)(moved)
            heads = {c: found.get(c) or Head(c, tail=(), verdicts=()) for c in moved}
            for catalog, before in before_all.items():
                if not before.is_of(heads[catalog].place):
                    self._cache.went_back(catalog, before, str(heads[catalog].place))
            between = self._between(heads)
            for catalog, head in heads.items():
                standing = self._catch_up(head, between.get(catalog))
                if standing is not None:
                    standings[catalog] = standing
                    moved.discard(catalog)
        return standings

    def _expect_moves(self, catalog: str) -> None:
        if len(self._moving) >= _HINTS_MAX:
            self._moving.clear()
        self._moving.add(catalog)

    def _cached(self, head: Head, before: HeadPosition) -> Standing | None:
        """The standing at ``head``, whose tail wasn't read; None where the cache isn't as far.

        ``before``: where the cache was before the head was read.
        """
        if not before.is_of(head.place):
            self._cache.went_back(head.catalog, before, str(head.place))
            return None
        tails = self._cache.tails_at(head)
        return None if tails is None else _standing(head, *tails)

    def _between(self, heads: Mapping[str, Head]) -> dict[str, Sequence[CommitRecord]]:
        """By catalog, the commits that the cache lacks up to the beginning of the tail; none if
        some are gone. Catalogs that lack too many, or compacted ones, are forgotten."""
        spans: dict[str, tuple[int, int]] = {}
        for catalog, head in heads.items():
            known = self._cache.revision(catalog)
            if known is None or known >= head.written:
                continue
            if head.written - known > self._catch_up_max or known < head.floor:
                self._cache.forget(catalog)
            else:
                spans[catalog] = known, head.written
        if not spans:
            return {}
        between = self._store.commits(spans)
        # The floor is looked at last: what was read above it had no gap.
        bare = self._store.heads(spans)
        return {
            catalog: between.get(catalog, ())
            if catalog in bare and known >= bare[catalog].floor
            else ()
            for catalog, (known, _) in spans.items()
        }

    def _catch_up(
        self, head: Head, between: Sequence[CommitRecord] | None = None
    ) -> Standing | None:
        """The standing at ``head``, read with its tail; None where it must be read again.

        ``between``: the commits before the tail that the cache lacks, if it does.
        """
        assert head.tail is not None
        catalog, tail = head.catalog, head.tail
        if self._cache.revision(catalog) == head.revision:
            self._moving.discard(catalog)
        if between is not None:
            if not between:
                self._cache.forget(catalog)
                return None
            self._cache.advance(catalog, between)
            if between[-1].revision < head.written:
                return None
        self._cache.advance(catalog, tail)
        self._cache.begin(head)
        self._cache.wrote(catalog, max(head.written, head.floor), head.judged_written)
        return _standing(head, tail, head.verdicts or ())._replace(claims=head.claims)


def _standing(
    head: Head, tail: tuple[CommitRecord, ...], verdicts: tuple[Verdict, ...]
) -> Standing:
    return Standing(
        head.revision, head.time_us, head.floor, head.deleted, tail, verdicts, last=head.last
    )


class Settler:
    """Makes sure that tails are written out where the log is needed, or many documents at once."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        observer: HeadReader,
        runtime: Runtime,
        limits: ServiceLimits,
        hurry: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``hurry`` is called with each catalog whose tail is waited for."""
        self._store = store
        self._cache = cache
        self._observer = observer
        self._runtime = runtime
        self._hurry = hurry
        self._patience = Patience(runtime, limits)
        self._taking_over: set[str] = set()
        self._late_s = limits.retention.late_s
        self._kept_s = limits.replies_kept_s

    def settle(self, catalog: str) -> Standing:
        """A standing of the catalog, at a head read within this call, that is written out.

        Waits for its tail to be written out, or does it.
        """
        standing = self._observer.observe([catalog])[catalog]
        if standing.tail:
            self._settle_at(catalog, standing)
        return standing._replace(tail=())

    def settle_to(self, catalog: str, revision: int) -> None:
        """See to it that everything up to ``revision``, which a head has reached, is written out.

        No I/O where this process knows that it is.
        """
        if self._cache.written(catalog) < revision:
            self.settle(catalog)

    def _settle_at(self, catalog: str, standing: Standing) -> None:
        while not self.is_written(catalog, standing.revision):
            self._hurry(catalog)
            if not self.take_over(catalog, standing):
                self._runtime.sleep(_LOOK_AGAIN_S)

    def finish(self, catalog: str, revision: int, judged: int = 0) -> bool:
        """Whether everything up to ``revision``, and to verdict ``judged``, is written out, by this
        call where it is time."""
        if self._cache.judged_written(catalog) >= judged and self.is_written(catalog, revision):
            return True
        standing = self._observer.observe([catalog])[catalog]
        if not standing.tail and not (judged and standing.verdicts):
            return True
        return self.take_over(catalog, standing)

    def is_written(self, catalog: str, revision: int) -> bool:
        """Whether everything up to ``revision`` is written out, as far as it can be seen now."""
        if self._cache.written(catalog) >= revision:
            return True
        if not self._store.last_written({catalog: [revision]}):
            # Compaction takes commits away, at or below the floor alone.
            head = self._store.heads([catalog]).get(catalog)
            if head is None or max(head.written, head.floor) < revision:
                return False
        self._cache.wrote(catalog, revision)
        return True

    def take_over(self, catalog: str, standing: Standing) -> bool:
        """Write a tail out, unless its writers still have time for it.

        Returns whether it is written out. One call of the process does it at a time: of many that
        wait for it each would hold its documents.
        """
        if not self._patience.is_over(catalog, standing.revision, len(standing.tail)):
            return False
        if catalog in self._taking_over:
            return False
        self._taking_over.add(catalog)
        try:
            return self._taken_over(catalog, standing)
        finally:
            self._taking_over.discard(catalog)

    def _taken_over(self, catalog: str, standing: Standing) -> bool:
        read_at = moment(self._runtime)
        head = self._store.tails([catalog]).get(catalog)
        if head is None or not (head.tail or head.verdicts):
            return True
        tail = Tail(read_at, head.written, list(head.tail or ()), list(head.verdicts or ()))
        own, held = cpu.work_for(None), memory.work_for(None)  # it isn't what the request asks for
        try:
            write_out(
                self._store,
                self._runtime,
                {catalog: tail},
                self._late_s,
                self._kept_s,
                self._cache.meters,
            )
        except WentBack:
            self._cache.forget(catalog)
            return False
        except (HistoryIncomplete, WrongBase):
            # Where others have finished it meanwhile, what it was to be applied to may be gone.
            if not self.is_written(catalog, standing.revision):
                raise
        finally:
            cpu.work_for(own)
            memory.work_for(held)
        self._cache.wrote(catalog, head.revision, head.judged)
        return True

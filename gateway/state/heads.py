"""Reading heads: every answer starts from a head that was read after the request came.

*Catching up*, a worked example. The cache has catalog c at revision 7. The head is at 9, written
out up to 6, with the commits 7 to 9 as its tail: the cache moves on by 8 and 9, and needs nothing
else. If the tail begins above the next revision, the commits in between are in the log. A reader of
one document applies the tail to what is stored. A reader that needs the log, or many documents at
one revision, has the tail written out first (``Settler``).

*Going back.* A head is never older than what was known before it was read (see the store's
contract). If it is behind that, or has other commits, the database was put back to an earlier
state. Then nothing that was remembered of the catalog is true.
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
_CHECK_AGAIN_S = 0.002


class ObservedHead(NamedTuple):
    """The position of a catalog's head at a moment after the request for it.

    ``last`` is the id of the commit at ``revision``, "" if it isn't known; ``deleted``: this commit
    deleted the catalog. ``tail`` and ``verdicts`` are the commits and verdicts up to there that may
    not be written out.
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
        # Catalogs that others moved on since their heads were last read. If one of them is
        # observed, the heads are read with their tails at once, instead of without them first.
        self._moving: set[str] = set()

    def observe(
        self,
        catalogs: Collection[str],
        read: Callable[[Collection[str]], Mapping[str, Head]] | None = None,
    ) -> dict[str, ObservedHead]:
        """Where each catalog stands now; the cache stands there or further on, unless it had to
        drop the entry again.

        ``read`` reads heads with their tails instead of the store. Raises StoreUnreachable.
        """
        result: dict[str, ObservedHead] = {}
        known: dict[str, HeadPosition] = {}
        if read is None and self._moving.isdisjoint(catalogs):
            known = self._cache.positions(catalogs)
        moved = set(catalogs).difference(known)
        if known:
            heads = self._store.heads(known)
            for catalog, before in known.items():
                observed = self._cached(heads.get(catalog) or Head(catalog), before)
                if observed is None:
                    moved.add(catalog)
                    self._expect_moves(catalog)
                else:
                    result[catalog] = observed
        while moved:
            before_all = self._cache.positions(moved)
            found = (read or self._store.tails)(moved)
            heads = {c: found.get(c) or Head(c, tail=(), verdicts=()) for c in moved}
            for catalog, before in before_all.items():
                if not before.is_of(heads[catalog].position):
                    self._cache.went_back(catalog, before, str(heads[catalog].position))
            between = self._between(heads)
            for catalog, head in heads.items():
                observed = self._catch_up(head, between.get(catalog))
                if observed is not None:
                    result[catalog] = observed
                    moved.discard(catalog)
        return result

    def _expect_moves(self, catalog: str) -> None:
        if len(self._moving) >= _HINTS_MAX:
            self._moving.clear()
        self._moving.add(catalog)

    def _cached(self, head: Head, before: HeadPosition) -> ObservedHead | None:
        """The state at ``head``, whose tail wasn't read; None if the cache is behind it.

        ``before`` is the cache's position before the head was read.
        """
        if not before.is_of(head.position):
            self._cache.went_back(head.catalog, before, str(head.position))
            return None
        tails = self._cache.tails_at(head)
        return None if tails is None else _observed(head, *tails)

    def _between(self, heads: Mapping[str, Head]) -> dict[str, Sequence[CommitRecord]]:
        """By catalog, the commits that the cache lacks before the tail; an empty sequence if some
        of them are gone. Catalogs that lack too many, or compacted ones, are forgotten."""
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
        # The floor is read last: what was read above it has no gap.
        bare = self._store.heads(spans)
        return {
            catalog: between.get(catalog, ())
            if catalog in bare and known >= bare[catalog].floor
            else ()
            for catalog, (known, _) in spans.items()
        }

    def _catch_up(
        self, head: Head, between: Sequence[CommitRecord] | None = None
    ) -> ObservedHead | None:
        """The state at ``head``, which was read with its tail; None if it must be read again.

        ``between``: the commits before the tail that the cache lacks; None if it lacks none.
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
        self._cache.mark_written(catalog, max(head.written, head.floor), head.judged_written)
        return _observed(head, tail, head.verdicts or ())._replace(claims=head.claims)


def _observed(
    head: Head, tail: tuple[CommitRecord, ...], verdicts: tuple[Verdict, ...]
) -> ObservedHead:
    return ObservedHead(
        head.revision, head.time_us, head.floor, head.deleted, tail, verdicts, last=head.last
    )


class Settler:
    """Makes sure that tails are written out, for readers of the log or of many documents."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        head_reader: HeadReader,
        runtime: Runtime,
        limits: ServiceLimits,
        hurry: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``hurry`` is called with each catalog whose tail somebody waits for."""
        self._store = store
        self._cache = cache
        self._head_reader = head_reader
        self._runtime = runtime
        self._hurry = hurry
        self._patience = Patience(runtime, limits)
        self._taking_over: set[str] = set()
        self._late_s = limits.retention.late_s
        self._kept_s = limits.replies_kept_s

    def settle(self, catalog: str) -> ObservedHead:
        """The catalog at a head that was read within this call, all written out.

        Waits until the tail is written out, or writes it out.
        """
        observed = self._head_reader.observe([catalog])[catalog]
        if observed.tail:
            self._settle_at(catalog, observed)
        return observed._replace(tail=())

    def settle_to(self, catalog: str, revision: int) -> None:
        """Make sure that everything up to ``revision``, which the head has reached, is written out.

        No I/O if this process knows that it is.
        """
        if self._cache.written(catalog) < revision:
            self.settle(catalog)

    def _settle_at(self, catalog: str, observed: ObservedHead) -> None:
        while not self.is_written(catalog, observed.revision):
            self._hurry(catalog)
            if not self.take_over(catalog, observed):
                self._runtime.sleep(_CHECK_AGAIN_S)

    def finish(self, catalog: str, revision: int, judged: int = 0) -> bool:
        """Whether everything up to ``revision``, and up to verdict ``judged``, is written out. This
        call writes it out unless its makers still have time for that."""
        # First: it drops what the cache knows of a catalog that went back.
        observed = self._head_reader.observe([catalog])[catalog]
        if not observed.tail and not (judged and observed.verdicts):
            return True
        if self._cache.judged_written(catalog) >= judged and self.is_written(catalog, revision):
            return True
        return self.take_over(catalog, observed)

    def is_written(self, catalog: str, revision: int) -> bool:
        """Whether everything up to ``revision`` is known to be written out, or found to be now."""
        if self._cache.written(catalog) >= revision:
            return True
        if not self._store.last_written({catalog: [revision]}):
            # The commit may have been compacted, which happens only at or below the floor.
            head = self._store.heads([catalog]).get(catalog)
            if head is None or max(head.written, head.floor) < revision:
                return False
        self._cache.mark_written(catalog, revision)
        return True

    def take_over(self, catalog: str, observed: ObservedHead) -> bool:
        """Write a tail out, unless its makers still have time for that. Return whether it is
        written out.

        In a process, only one call does this at a time for a catalog: otherwise, each of the many
        that wait for the tail would hold its documents.
        """
        if not self._patience.is_over(catalog, observed.revision, len(observed.tail)):
            return False
        if catalog in self._taking_over:
            return False
        self._taking_over.add(catalog)
        try:
            return self._taken_over(catalog, observed)
        finally:
            self._taking_over.discard(catalog)

    def _taken_over(self, catalog: str, observed: ObservedHead) -> bool:
        read_at = moment(self._runtime)
        head = self._store.tails([catalog]).get(catalog)
        if head is None or not (head.tail or head.verdicts):
            return True
        tail = Tail(read_at, head.written, list(head.tail or ()), list(head.verdicts or ()))
        own, held = cpu.work_for(None), memory.work_for(None)  # not charged to the request
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
            # If others wrote it out meanwhile, the states that it applies to may be gone.
            if not self.is_written(catalog, observed.revision):
                raise
        finally:
            cpu.work_for(own)
            memory.work_for(held)
        self._cache.mark_written(catalog, head.revision, head.judged)
        return True

"""Reading heads, and writing out the batches in them: every answer starts from a head that was read
after the question came, and nobody acts on a batch that isn't written out.

*Catching up*, a worked example. The cache has catalog c at revision 7. The head says 9, its last
batch being 8 and 9. The commits above 7 are read: if 9 is among them, the batch is written out and
the cache moves on to 9. If not, the writer of 8 and 9 died or is still at it: the batch is read
from the head and reported as ``unfinished``. A reader of one document lays it over what is stored;
anybody else has it written out first (``Settler``).

*Writing out* copies the last batch of a head, which alone decides what is committed, to where it
is read and kept: documents first, commits last. It may be done twice, or by two workers at once:
each document is guarded by "the stored one is older", each commit is inserted once, so nothing is
undone. A commit's presence proves that its batch's documents are all written. ``late`` tells what
becomes of it where history was compacted meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gateway.errors import StoreUnavailable
from gateway.limits import ServiceLimits
from gateway.model import Commit, Document, Head
from gateway.runtime import Runtime
from gateway.state.cache import Cache
from gateway.state.late import GuardedWrites, Moment, Writes, moment
from gateway.state.replay import advance_all
from gateway.store.contract import Store, Unreachable
from patching import PatchError

# Sightings are only hints of how long a batch has been unfinished; forgetting them costs a wait.
_FIRST_SEEN_MAX = 10_000
_LOOK_AGAIN_S = 0.002
# What a writer may take for each commit of its batch, on a busy machine.
_GRACE_PER_COMMIT_S = 0.002


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a catalog stood at a moment after it was asked for.

    ``deleted``: the catalog was deleted at ``revision``. ``finished``: the last batch is written
    out, and the cache has an entry at ``revision`` or later. Otherwise ``unfinished`` is that
    batch, if it was asked for, and ``batch_commits`` how many commits are in it.
    """

    revision: int
    time_us: int
    floor: int = 0
    deleted: bool = False
    finished: bool = True
    unfinished: tuple[Commit, ...] = ()
    batch_commits: int = 0


def _standing(head: Head) -> Standing:
    return Standing(head.revision, head.time_us, head.floor, head.deleted)


class Observer:
    """Reads heads and brings the cache up to them."""

    def __init__(self, store: Store, cache: Cache, limits: ServiceLimits) -> None:
        self._store = store
        self._catch_up_max = limits.catch_up_commits_max
        self._cache = cache

    def observe(self, catalogs: Collection[str], *, batches: bool = True) -> dict[str, Standing]:
        """Where each catalog stands now. Raises Unreachable.

        Without ``batches``, a last batch that isn't written out is told but not read.
        """
        standings: dict[str, Standing] = {}
        left = set(catalogs)
        while left:
            heads = self._store.heads(left)
            behind: dict[str, Head] = {}
            for catalog in left:
                head = heads.get(catalog) or Head(catalog)
                if self._is_known(head):
                    standings[catalog] = _standing(head)
                else:
                    behind[catalog] = head
            if behind:
                standings.update(self._catch_up(behind, batches))
            left = left - standings.keys()
        return standings

    def knows(self, catalog: str, revision: int) -> bool:
        """Whether the cache stands at ``revision`` or later: all up to there is written out."""
        known = self._cache.revision(catalog)
        return known is not None and known >= revision

    def _is_known(self, head: Head) -> bool:
        known = self._cache.revision(head.catalog)
        if known is None and head.revision == 0:
            self._cache.begin(head.catalog, 0, 0)
            return True
        return known is not None and known >= head.revision

    def _catch_up(self, behind: dict[str, Head], batches: bool) -> dict[str, Standing]:
        """Standings of catalogs whose heads the cache hasn't reached; none where it moved again."""
        spans = {catalog: (self._start(head), head.revision) for catalog, head in behind.items()}
        commits = self._store.commits(spans)
        standings: dict[str, Standing] = {}
        for catalog, head in behind.items():
            found = commits.get(catalog, ())
            if found:
                self._cache.advance(catalog, found)
            if found and found[-1].revision == head.revision:
                self._cache.begin(catalog, head.revision, head.time_us)
                standings[catalog] = _standing(head)
                continue
            if (found[-1].revision if found else spans[catalog][0]) < head.base_revision:
                # Too much to catch up with: start again from the documents as they are.
                self._cache.forget(catalog)
                continue
            batch = self.last_batch(catalog, head.revision) if batches else ()
            if batch is not None:
                standings[catalog] = replace(
                    _standing(head),
                    finished=False,
                    unfinished=batch,
                    batch_commits=head.revision - head.base_revision,
                )
        return standings

    def follow(self, catalogs: Collection[str]) -> None:
        """Bring cached catalogs up to the commits written out, without looking at the heads.

        Half the cost of ``observe``, and no proof of anything until a move is won: then the head
        was where the cache stood, and the commit found there had shown that it was written out.
        """
        behind = self._known(catalogs)
        if len(behind) > 1:
            # Of many catalogs few have moved: whether each has a next commit is one cheap look,
            # where as many ranges would take the database several times as long.
            moved = self._advance_over({c: (known, known + 1) for c, known in behind.items()})
            behind = self._known(moved)
        if behind:
            self._advance_over({c: (r, r + self._catch_up_max) for c, r in behind.items()})

    def _known(self, catalogs: Collection[str]) -> dict[str, int]:
        revisions = {catalog: self._cache.revision(catalog) for catalog in catalogs}
        return {catalog: known for catalog, known in revisions.items() if known is not None}

    def _advance_over(self, spans: Mapping[str, tuple[int, int]]) -> list[str]:
        """Bring the cache on by the commits there are in ``spans``; the catalogs that had some."""
        found = self._store.commits(spans)
        for catalog, commits in found.items():
            self._cache.advance(catalog, commits)
        return [catalog for catalog, commits in found.items() if commits]

    def last_batch(self, catalog: str, revision: int) -> tuple[Commit, ...] | None:
        """The batch in the catalog's head, None where the head isn't at ``revision`` any more."""
        head = self._store.head_with_batch(catalog)
        if head is None or head.revision != revision:
            return None
        return head.batch or ()

    def _start(self, head: Head) -> int:
        """Above which revision to read commits: the cached one, where catching up is worth it."""
        known = self._cache.revision(head.catalog)
        worth_it = (
            known is not None
            and known >= head.floor
            and head.revision - known <= self._catch_up_max
        )
        return known if known is not None and worth_it else head.revision - 1


class Settler:
    """Makes sure that last batches are written out before anybody acts on them."""

    def __init__(
        self, store: Store, observer: Observer, runtime: Runtime, limits: ServiceLimits
    ) -> None:
        self._store = store
        self._observer = observer
        self._runtime = runtime
        # How long a batch is left to its own writer at least; a long one is left to it for longer.
        self.grace_s = limits.write_out_grace_ms / 1000
        self._first_seen: dict[str, tuple[int, float]] = {}

    def settle(self, catalog: str) -> Standing:
        """A standing of the catalog, at a head read within this call, that is written out.

        Waits for one batch at the most, or writes it out: once the head has moved on from it, it
        is written out, for nobody moves a head before. On a busy catalog the head is not chased.
        """
        first = standing = self._observer.observe([catalog], batches=False)[catalog]
        while not standing.finished and standing.revision == first.revision:
            if not self.take_over(catalog, standing.revision, standing.batch_commits):
                self._runtime.sleep(_LOOK_AGAIN_S)
            standing = self._observer.observe([catalog], batches=False)[catalog]
        return replace(first, finished=True)

    def settle_to(self, catalog: str, revision: int) -> None:
        """See to it that everything up to ``revision``, which a head has reached, is written out.

        No I/O where this process knows that it is.
        """
        if not self._observer.knows(catalog, revision):
            self.settle(catalog)

    def take_over(self, catalog: str, revision: int, commits: int) -> bool:
        """Write the batch of head ``revision`` out, unless its writer still has time for it, which
        goes by how many ``commits`` it holds.

        Returns whether the batch is written out, or the head has moved on: look again at once.
        """
        grace_s = self.grace_s
        if grace_s:
            grace_s += _GRACE_PER_COMMIT_S * commits
        now = self._runtime.monotonic()
        seen, since = self._first_seen.get(catalog, (revision, now))
        if seen != revision:
            since = now
        if now - since < grace_s:
            if len(self._first_seen) > _FIRST_SEEN_MAX:
                self._first_seen.clear()
            self._first_seen[catalog] = (revision, since)
            return False
        read_at = moment(self._runtime)
        batch = self._observer.last_batch(catalog, revision)
        try:
            if batch is not None:
                write_out_for(self._store, self._runtime, catalog, batch, read_at)
        except PatchError:
            # Where the head has moved on, what it was to be applied to may be gone by now.
            if self._observer.last_batch(catalog, revision) is not None:
                raise
        self._first_seen.pop(catalog, None)
        return True


def write_out(
    store: Writes,
    batches: Mapping[str, Sequence[Commit]],
    documents: Mapping[str, Sequence[Document]],
) -> None:
    """Write out batches of this worker, by catalog, with the documents they leave."""
    store.write_documents(documents)
    store.write_commits([commit for batch in batches.values() for commit in batch])


def write_out_for(
    store: Store, runtime: Runtime, catalog: str, batch: Sequence[Commit], since: Moment
) -> None:
    """Write out a batch that another worker put into the head and did not finish.

    It was the head's last one at some time after ``since``. The batch says what changed, the
    stored documents what it changed: each of them is either as it was before the whole batch, or
    already as the batch (or something later) left it.
    """
    keys = {change.key for commit in batch for change in commit.changes}
    stored = store.documents({catalog: keys})
    changed = []
    for key in sorted(keys):
        before = stored.get((catalog, key))
        after = advance_all(before, key, batch)
        if after is not None and after is not before:
            changed.append(after)
    writes = GuardedWrites(store, runtime, {catalog: batch}, since, alone_s=0.0)
    try:
        write_out(writes, {catalog: batch}, {catalog: changed})
        writes.finish()
    except Unreachable:
        writes.give_up()
        raise


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Raises StoreUnavailable where what is done inside raises Unreachable.

    What the database's driver says is the cause's, and not told: it names hosts and their state.
    """
    try:
        yield
    except Unreachable as error:
        raise StoreUnavailable("the database can't be reached") from error

"""One round of the commit loop: catch up, decide, move the heads, write out, answer.

A worked example. Catalog c is at 7; requests p and q wait for it. The leader reads c's head (7,
written out: nothing to catch up), decides p and q on the state at 7 (p becomes commit 8; q's
condition is false on the state that p left), and moves the head from 7 to 8, with commit 8 in it.

* The move is won: c was at 7 until then and is at 8 now, so q's refusal was true right after p.
  Commit 8 is written out, then p and q are answered.
* The move is lost: somebody else made 8. Nothing that this round decided is true any more; p and
  q go back, are joined by what has arrived since, and are decided on the new state.
* The connection breaks: ``resolve`` finds out which of the two it was.

The first try of a cached catalog doesn't read the head: it is enough to read the commits above the
cached revision, or nothing at all where this worker alone seems to write the catalog (``guesses``).
A won move proves that the cache was at the head, written out. A batch without a commit proves
nothing, so its refusals and no-ops are decided once more, on a head read now, before anybody is
answered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from gateway.commit.inputs import read_views
from gateway.commit.queue import Pending, Queue
from gateway.commit.resolve import move_until_known
from gateway.decide.decide import decide
from gateway.decide.request import Applied, Decision, Refused, Rules, Unknown
from gateway.errors import StoreUnavailable
from gateway.meters import NO_METERS, Meters, RoundTimes
from gateway.model import Head
from gateway.runtime import Runtime
from gateway.state.cache import Cache, Guesses
from gateway.state.heads import Observer, Settler, Standing, write_out
from gateway.state.late import GuardedWrites, Moment, moment
from gateway.state.sharing import halves
from gateway.store.contract import Move, Moved, Store, Unreachable, Unsent
from patching import PatchError

_log = logging.getLogger(__name__)

_PAUSE_UNREACHABLE_S = 0.05
# For a primary; then the requests go back, so that those whose time is over are told why.
_PATIENCE_S = 1.0
_PAUSE_UNFINISHED_S = 0.003
_WRITE_OUT_TRIES = 3


@dataclass(frozen=True, slots=True)
class RoundParts:
    """What a round works with; put together in ``gateway.service``."""

    store: Store
    runtime: Runtime
    cache: Cache
    observer: Observer
    settler: Settler
    queue: Queue
    rules: Rules
    meters: Meters = NO_METERS


class Round:
    """Owns the batches it was given until each has been answered or has gone back."""

    def __init__(
        self, parts: RoundParts, guesses: Guesses, batches: Mapping[str, Sequence[Pending]]
    ) -> None:
        self._parts = parts
        self._guesses = guesses
        self._batches = dict(batches)
        self._moving = False
        self._times = RoundTimes(taken=parts.runtime.monotonic())
        for batch in batches.values():
            for pending in batch:
                pending.times = self._times
                if pending.taken is None:
                    pending.taken = self._times.taken

    def run(self) -> None:
        try:
            self._meet()
            guessed = {catalog for catalog in self._batches if self._may_guess(catalog)}
            self._parts.observer.follow([c for c in guessed if not self._guesses.holds(c)])
            decisions = self.decisions(self._batches.keys() - guessed, guessed)
            unproven = {c for c in guessed if c not in decisions or not decisions[c].commits}
            for catalog in unproven:
                decisions.pop(catalog, None)
            decisions |= self.decisions(unproven, ())
        except Unreachable as error:
            self._give_back(error)
            return
        for catalog, decision in list(decisions.items()):
            if catalog in self._batches and not decision.commits:
                self._answer(catalog, decision)
                del decisions[catalog]
        self._times.decided = self._parts.runtime.monotonic()
        if decisions:
            self._commit(decisions)

    def _meet(self) -> None:
        """Wait for a primary; whoever's time is over meanwhile leaves. Raises Unreachable."""
        self._parts.store.await_reachable(_PATIENCE_S)
        now = self._parts.runtime.monotonic()
        for catalog, batch in list(self._batches.items()):
            for pending in batch:
                pending.deciding = now
            left = [pending for pending in batch if not pending.gone]
            if left:
                self._batches[catalog] = left
            else:
                self._end(catalog)

    def _give_back(self, error: Unreachable) -> None:
        """Nothing was sent for any of the batches: they are tried again while there is time."""
        _log.warning("the database can't be reached: %s", error)
        for catalog in list(self._batches):
            self._guesses.lost(catalog)
            self._end_unreachable(catalog)

    def _may_guess(self, catalog: str) -> bool:
        """Whether the cache may be at the head: it has an entry, and this is the first try."""
        batch = self._batches[catalog]
        first_try = all(each.attempts == 0 and not each.unreachable for each in batch)
        return first_try and self._parts.cache.revision(catalog) is not None

    def halved(self) -> tuple[Round, ...]:
        """After a defect: two rounds of what is left, where it may be of one catalog alone.

        Empty where there are no two catalogs, or the heads may have moved. Nothing is remembered.
        """
        if self._moving or len(self._batches) < 2:
            return ()
        for catalog in self._batches:
            self._parts.cache.forget(catalog)
            self._guesses.lost(catalog)
        return tuple(
            Round(self._parts, self._guesses, {name: self._batches[name] for name in half})
            for half in halves(list(self._batches))
        )

    def abandon(self) -> None:
        """After a defect: what is still owned is answered and forgotten.

        From when the heads are moved on, nobody knows what became of it; before that, nothing.
        """
        refused = Refused(StoreUnavailable("the gateway failed before anything was tried"))
        for catalog, batch in list(self._batches.items()):
            for pending in batch:
                moved = Unknown(pending.request.commit_id)
                pending.answer(moved if self._moving else refused)
            self._parts.cache.forget(catalog)
            self._guesses.lost(catalog)
            self._end(catalog)

    def decisions(self, fresh: Collection[str], guessed: Collection[str]) -> dict[str, Decision]:
        """Decide the batches of these catalogs.

        Of those that can't be decided yet, the fresh ones go back and the guessed ones are kept.
        """
        settled = self.settled(fresh)
        wanted = {
            catalog: [pending.request for pending in self._batches[catalog]]
            for catalog in (*settled, *guessed)
        }
        views = read_views(self._parts.store, self._parts.cache, wanted)
        now_us = self._parts.runtime.now_us()
        decisions: dict[str, Decision] = {}
        for catalog, requests in wanted.items():
            view = views.get(catalog)
            # Behind a slow reader's back an entry can be dropped and begun at an older revision.
            if view is None or view.revision < settled.get(catalog, 0):
                self._guesses.lost(catalog)
                if catalog not in guessed:
                    self._end(catalog, self._batches[catalog])
                continue
            attempts = [pending.attempts + 1 for pending in self._batches[catalog]]
            decisions[catalog] = decide(
                view, requests, attempts, now_us=now_us, rules=self._parts.rules
            )
        return decisions

    def settled(self, catalogs: Collection[str]) -> dict[str, int]:
        """Those whose last batch is written out, with the revision of a head read just now."""
        settled: dict[str, int] = {}
        if not catalogs:
            return settled
        standings = self._parts.observer.observe(catalogs, batches=False)
        for catalog, standing in standings.items():
            if standing.finished:
                settled[catalog] = standing.revision
            else:
                self._take_over(catalog, standing)
        return settled

    def _take_over(self, catalog: str, standing: Standing) -> None:
        """Have another worker's batch written out if it is time; the requests go back meanwhile.

        One catalog's trouble is no other's: a batch that can't be written out (somebody edited
        the documents by hand) keeps its own catalog from being written, and says so in the log.
        """
        batch, about = self._batches[catalog], {"catalog": catalog}
        try:
            done = self._parts.settler.take_over(catalog, standing.revision, standing.batch_commits)
        except Unreachable as error:
            _log.warning(
                "the last batch of %r was not written out: %s", catalog, error, extra=about
            )
            self._end_unreachable(catalog)
        except PatchError:
            _log.exception("the last batch of %r does not fit what is stored", catalog, extra=about)
            self._end_unreachable(catalog)
        else:
            self._end(catalog, batch, pause_s=0.0 if done else _PAUSE_UNFINISHED_S)

    def _end_unreachable(self, catalog: str) -> None:
        batch = self._batches[catalog]
        for pending in batch:
            pending.unreachable = True
        self._end(catalog, batch, pause_s=_PAUSE_UNREACHABLE_S)

    def _commit(self, decisions: Mapping[str, Decision]) -> None:
        """Move the heads, write out what won, answer; what lost goes back.

        So does a batch that a request has left, whose time was over: the others are decided anew.
        """
        held = self._parts.queue.hold({catalog: self._batches[catalog] for catalog in decisions})
        for catalog in decisions.keys() - held:
            self._end(catalog, self._batches[catalog])
        decisions = {c: d for c, d in decisions.items() if c in held}
        if not decisions:
            return
        moves = [Move(_head_after(decision)) for decision in decisions.values()]
        self._moving = True
        since = moment(self._parts.runtime)
        try:
            moved = move_until_known(
                self._parts.store, self._parts.runtime, moves, self._latest_deadline
            )
        except Unsent as error:
            self._moving = False
            self._give_back(error)
            return
        won = {c: d for c, d in decisions.items() if moved.get(c) is Moved.WON}
        self._measure_moves(won, sum(race is Moved.LOST for race in moved.values()))
        for catalog in decisions.keys() - won.keys():
            batch = self._batches[catalog]
            self._guesses.lost(catalog)
            if catalog in moved:
                for pending in batch:
                    pending.attempts += 1
                self._end(catalog, batch, race=Moved.LOST)
            else:
                self._parts.cache.forget(catalog)
                self._end(catalog, in_doubt(batch, decisions[catalog]))
        if won:
            self._write_out(won, since)
        for catalog, decision in won.items():
            self._answer(catalog, decision, race=Moved.WON)

    def _measure_moves(self, won: Mapping[str, Decision], lost: int) -> None:
        times = self._times
        times.moved = self._parts.runtime.monotonic()
        if won:
            batches = [len(decision.commits) for decision in won.values()]
            self._parts.meters.heads_moved(batches, times.moved - times.taken)
        if lost:
            self._parts.meters.races_lost(lost)

    def _write_out(self, won: Mapping[str, Decision], since: Moment) -> None:
        """Write out the batches that are in their heads, since a moment after ``since``.

        They are committed whatever happens here: where the database can't be reached any more,
        the next one who reads such a head writes its batch out.
        """
        batches = {catalog: decision.commits for catalog, decision in won.items()}
        documents = {c: list(decision.documents.values()) for c, decision in won.items()}
        store, runtime = self._parts.store, self._parts.runtime
        alone_s = self._parts.settler.grace_s
        writes = GuardedWrites(store, runtime, batches, since, alone_s)
        for _ in range(_WRITE_OUT_TRIES):
            try:
                write_out(writes, batches, documents)
                writes.finish()
            except Unreachable as error:
                _log.warning("writing out was broken off: %s", error)
                self._parts.runtime.sleep(_PAUSE_UNREACHABLE_S)
                continue
            for catalog, decision in won.items():
                first, last = decision.commits[0], decision.commits[-1]
                self._parts.cache.replace(
                    catalog, first.revision - 1, last.revision, last.time_us, decision.documents
                )
                if not self._parts.queue.is_contended(catalog):
                    self._guesses.gained(catalog)
            self._times.written = runtime.monotonic()
            self._parts.meters.written_out(self._times.written - self._times.moved)
            return
        writes.give_up()
        for catalog in won:
            self._guesses.lost(catalog)

    def _answer(self, catalog: str, decision: Decision, race: Moved | None = None) -> None:
        """Answer a batch whose decision is true; the requests it left undecided go back."""
        batch = self._batches[catalog]
        for pending, outcome in zip(batch, decision.outcomes, strict=False):
            pending.answer(outcome)
        self._end(catalog, batch[len(decision.outcomes) :], race=race)

    def _end(
        self,
        catalog: str,
        left: Sequence[Pending] = (),
        *,
        pause_s: float = 0.0,
        race: Moved | None = None,
    ) -> None:
        del self._batches[catalog]
        self._parts.queue.end_batch(catalog, left, pause_s=pause_s, race=race)

    def _latest_deadline(self, catalog: str) -> float:
        return max(pending.request.deadline for pending in self._batches[catalog])


def in_doubt(batch: Sequence[Pending], decision: Decision) -> list[Pending]:
    """Answer those whose commits may have been made, or yet be; return those that have none.

    A replay of such a commit is in doubt with it: both are one request to whoever sent it twice.
    """
    made = {commit.id for commit in decision.commits}
    left = []
    for pending, outcome in zip_longest(batch, decision.outcomes):
        if isinstance(outcome, Applied):
            in_doubt = outcome.commit.id in made
            pending.answer(Unknown(outcome.commit.id) if in_doubt else outcome)
        else:
            pending.unreachable = True
            left.append(pending)
    return left


def _head_after(decision: Decision) -> Head:
    first, last = decision.commits[0], decision.commits[-1]
    return Head(
        catalog=last.catalog,
        revision=last.revision,
        time_us=last.time_us,
        base_revision=first.revision - 1,
        deleted=last.deletes_catalog,
        batch=decision.commits,
    )

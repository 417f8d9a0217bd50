"""One round of the commit loop: catch up, decide, move the heads, answer.

A worked example. Catalog c is at 7; requests p and q wait for it. The leader reads c's head (7,
where the cache is: nothing to catch up), decides p and q on the state at 7 (p becomes commit 8; q's
condition is false on the state that p left), and moves the head from 7 to 8, with commit 8 in it.

* The move is won: c was at 7 until then and is at 8 now, so q's refusal was true right after p.
  p and q are answered, and ``WriteOut`` is told to write commit 8 out behind them.
* The move is lost: somebody else made 8, or stands in line before this worker (``claims``). Nothing
  that this round decided counts any more; p and q go back, are joined by what has arrived since,
  and are decided on the new state.
* The connection breaks: ``resolve`` finds out which of the two it was.

Where this worker alone seems to write the catalog (``Guesses``), the first try doesn't read the
head. A won move proves that the cache was at it. A batch without a commit proves nothing, so its
refusals and no-ops are decided once more, on a head read now, before anybody is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, zip_longest

from gateway.commit.claims import Claims
from gateway.commit.inputs import read_views
from gateway.commit.pending import Pending
from gateway.commit.queue import Queue
from gateway.commit.resolve import move_until_known
from gateway.decide.decide import decide
from gateway.decide.request import Applied, Decision, Refused, Rules, Unknown, View
from gateway.errors import StoreUnavailable
from gateway.meters import NO_METERS, Meters, RoundTimes
from gateway.model import Commit, Move, Reply, Verdict
from gateway.runtime import Runtime
from gateway.state.cache import Cache, Guesses
from gateway.state.heads import Observer, Standing
from gateway.state.sharing import halves
from gateway.state.tail import moment
from gateway.state.write_out import WriteOut
from gateway.store.contract import Moved, Store, Unreachable, Unsent

_log = logging.getLogger(__name__)

_PAUSE_UNREACHABLE_S = 0.05
# For a primary; then the requests go back, so that those whose time is over are told why.
_PATIENCE_S = 1.0
_PAUSE_FULL_S = 0.003


@dataclass(frozen=True, slots=True)
class RoundParts:
    """What a round works with; put together in ``gateway.service``."""

    store: Store
    runtime: Runtime
    cache: Cache
    observer: Observer
    write_out: WriteOut
    queue: Queue
    claims: Claims
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
        self._since = moment(parts.runtime)
        self._views: Mapping[str, View] = {}
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
            decisions = self.decisions(self._batches.keys() - guessed, guessed)
            unproven = {c for c in guessed if c not in decisions or not decisions[c].moves}
            for catalog in unproven:
                decisions.pop(catalog, None)
            decisions |= self.decisions(unproven, ())
        except Unreachable as error:
            self._give_back(error)
            return
        decisions = self._held(decisions)
        for catalog, decision in list(decisions.items()):
            if not decision.moves:
                self._answer(catalog, decision)
                del decisions[catalog]
        self._times.decided = self._parts.runtime.monotonic()
        if decisions:
            self._commit(decisions)

    def _held(self, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
        """Those whose requests all are still there, and can't leave any more; the batches of the
        others, which a request left whose time was over, go back to be decided anew."""
        held = self._parts.queue.hold({catalog: self._batches[catalog] for catalog in decisions})
        for catalog in decisions.keys() - held:
            self._end(catalog, self._batches[catalog])
        return {c: decision for c, decision in decisions.items() if c in held}

    def _meet(self) -> None:
        """Wait for a primary; whoever's time is over meanwhile leaves. Raises Unreachable."""
        self._parts.store.await_reachable(_PATIENCE_S)
        now = self._parts.runtime.monotonic()
        for catalog, batch in list(self._batches.items()):
            for pending in batch:
                pending.deciding = now
            left = [each for each in batch if not each.gone and not each.is_held_back()]
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
        """Whether the cache is likely to be at the head, and this is the first try."""
        batch = self._batches[catalog]
        first_try = all(each.attempts == 0 and not each.unreachable for each in batch)
        is_shared = catalog in self._parts.claims.shared
        return first_try and not is_shared and self._guesses.holds(catalog)

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

    def decisions(self, fresh: AbstractSet[str], guessed: Collection[str]) -> dict[str, Decision]:
        """Decide the batches of these catalogs.

        Of those that can't be decided yet, the fresh ones go back and the guessed ones are kept.
        """
        seen = self.observed(fresh)
        wanted = {
            catalog: [pending.request for pending in self._batches[catalog]]
            for catalog in (*seen, *guessed)
        }
        views = read_views(self._parts.store, self._parts.cache, wanted)
        self._views = {**self._views, **views}
        now_us = self._parts.runtime.now_us()
        decisions: dict[str, Decision] = {}
        for catalog, requests in wanted.items():
            view = views.get(catalog)
            # Behind a slow reader's back an entry can be dropped and begun at an older revision.
            if view is None or view.revision < seen.get(catalog, 0):
                self._guesses.lost(catalog)
                if catalog not in guessed:
                    self._look_again(catalog)
                continue
            attempts = [pending.attempts + 1 for pending in self._batches[catalog]]
            decisions[catalog] = decide(
                view, requests, attempts, now_us=now_us, rules=self._parts.rules
            )
        return decisions

    def observed(self, catalogs: AbstractSet[str]) -> dict[str, int]:
        """By catalog, the revision of a head read just now."""
        claims = self._parts.claims
        standings: dict[str, Standing] = {}
        claimed = catalogs & claims.shared.keys()
        if catalogs - claimed:
            standings |= self._parts.observer.observe(catalogs - claimed)
        if claimed:
            standings |= self._parts.observer.observe(claimed, claims.heads)
        for catalog in claimed:
            if pause_s := claims.pause_s(catalog, standings[catalog].claims):
                del standings[catalog]
                self._end(catalog, self._batches[catalog], pause_s=pause_s)
        return {catalog: standing.revision for catalog, standing in standings.items()}

    def _look_again(self, catalog: str) -> None:
        """The batch goes back: there is nothing that it could be decided on. Others may have moved
        the head meanwhile; or the cache had no room."""
        batch = self._batches[catalog]
        for pending in batch:
            pending.looks += 1
        self._parts.claims.lost(catalog, max(each.races for each in batch))
        self._end(catalog, batch)

    def _end_unreachable(self, catalog: str) -> None:
        batch = self._batches[catalog]
        for pending in batch:
            pending.unreachable = True
        self._end(catalog, batch, pause_s=_PAUSE_UNREACHABLE_S)

    def _commit(self, decisions: Mapping[str, Decision]) -> None:
        """Move the heads, answer, have what won written out; what lost goes back."""
        for catalog in [c for c, d in decisions.items() if not self._has_room(c, d)]:
            self._write_out_first(catalog)
        decisions = {c: d for c, d in decisions.items() if c in self._batches}
        if not decisions:
            return
        moves = {catalog: self._move(catalog, decision) for catalog, decision in decisions.items()}
        self._moving = True
        try:
            moved = move_until_known(
                self._parts.store,
                self._parts.runtime,
                list(moves.values()),
                self._latest_deadline,
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
                self._parts.claims.lost(catalog, max(each.races for each in batch))
                self._end(catalog, batch, lost=True)
            else:
                self._parts.cache.forget(catalog)
                self._end(catalog, in_doubt(batch, decisions[catalog]))
        for catalog, decision in won.items():
            if catalog in self._parts.claims.shared:
                self._parts.claims.won(catalog, moves[catalog].base, moves[catalog].reached[0])
            self._parts.cache.replace(moves[catalog], decision.documents)
            if not self._parts.queue.is_contended(catalog):
                self._guesses.gained(catalog)
            self._parts.write_out.add(
                self._since, moves[catalog], *self._carried(catalog), decision.documents
            )
            self._answer(catalog, decision)

    def _move(self, catalog: str, decision: Decision | None) -> Move:
        """The move that a decision asks for; without one, a move of nothing."""
        view = self._views[catalog]
        tail, verdicts = self._carried(catalog)
        return Move(
            catalog,
            view.revision,
            decision.commits if decision else (),
            view.revision - len(tail),
            view.judged,
            decision.verdicts if decision else (),
            view.judged - len(verdicts),
            self._parts.claims.past(catalog) if catalog in self._parts.claims.shared else (),
        )

    def _carried(self, catalog: str) -> tuple[list[Commit], list[Verdict]]:
        """The tail that a move carries along: of the view's, what isn't written out by now."""
        view, cache = self._views[catalog], self._parts.cache
        written, judged = cache.written(catalog), cache.judged_written(catalog)
        return (
            [commit for commit in view.tail if commit.revision > written],
            [verdict for verdict in view.verdicts if verdict.number > judged],
        )

    def _has_room(self, catalog: str, decision: Decision) -> bool:
        """Whether the decision fits into the head beside the tail that it joins."""
        carried: list[Reply] = [*chain[Reply](*self._carried(catalog))]
        joined = (*carried, *decision.commits, *decision.verdicts)
        size_bytes = sum(each.size_bytes for each in joined)
        return not carried or size_bytes <= self._parts.rules.limits.head_bytes_max

    def _write_out_first(self, catalog: str) -> None:
        """The batch goes back until the tail, which leaves it no room, is written out."""
        carried = self._carried(catalog)
        if not self._parts.write_out.moves(catalog):
            self._parts.write_out.add(self._since, self._move(catalog, None), *carried)
        self._guesses.lost(catalog)
        self._end(catalog, self._batches[catalog], pause_s=_PAUSE_FULL_S)

    def _measure_moves(self, won: Mapping[str, Decision], lost: int) -> None:
        times = self._times
        times.moved = self._parts.runtime.monotonic()
        if won:
            batches = [len(decision.commits) for decision in won.values()]
            self._parts.meters.heads_moved(batches, times.moved - times.taken)
        if lost:
            self._parts.meters.races_lost(lost)

    def _answer(self, catalog: str, decision: Decision) -> None:
        """Answer a batch whose decision is true; the requests it left undecided go back."""
        batch = self._batches[catalog]
        for pending, outcome in zip(batch, decision.outcomes, strict=False):
            pending.answer(outcome)
        self._end(catalog, batch[len(decision.outcomes) :])

    def _end(
        self,
        catalog: str,
        left: Sequence[Pending] = (),
        *,
        pause_s: float = 0.0,
        lost: bool = False,
    ) -> None:
        del self._batches[catalog]
        if not left and catalog in self._parts.claims.shared:
            self._parts.claims.give_up(catalog)
        self._parts.queue.end_batch(catalog, left, pause_s=pause_s, lost=lost)

    def _latest_deadline(self, catalog: str) -> float:
        return max(pending.deadline for pending in self._batches[catalog])


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

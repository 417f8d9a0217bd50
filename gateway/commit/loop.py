"""The commit loop: leaders run rounds, each of which catches up, decides, moves the heads, answers.

A worked example. Catalog c is at 7; requests p and q wait for it. The leader reads c's head (7, as
the cache: nothing to catch up), decides p and q on the state at 7 (p becomes commit 8; q's
condition is false on the state that p left), and moves the head from 7 to 8, with commit 8 in it.

* The move is won: c was at 7 until then and is at 8 now, so q's refusal was true right after p.
  p and q are answered, and then ``WriteOut`` writes commit 8 out.
* The move is lost: another worker made 8, or is before this worker in line (``claims``). The
  decisions of this round are void. p and q go back to their lane, and are decided on the new state,
  together with the requests that have arrived since.
* The connection breaks, or the database can't answer for c: the move may have happened, or may
  still happen later on the server. The same move is sent again, with the same commit ids, until
  the answer is definite: it requires the same head as before, so it can win only once. If the head
  is elsewhere by then, the commit at the first revision of the batch, or its first verdict, shows
  who made it. Meanwhile the round's other catalogs are answered, and its leader continues.
* The database refuses the move itself: nothing was applied. p and q are tried one by one, and one
  that the database refuses even then is refused.

If this worker seems to be the only one that writes the catalog (``Guesses``), the first try doesn't
read the head. A won move proves that the cache was at the head. A batch without a commit proves
nothing, so its refusals and no-ops are decided again, on a head read now, before any answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest

from msgspec.structs import replace

from gateway import memory
from gateway.commit.claims import ClaimKeeper
from gateway.commit.handover import HandOver
from gateway.commit.inputs import ReadAhead, read_views
from gateway.commit.messages import PeerAnswer
from gateway.commit.queue import Pending, Queue
from gateway.commit.series import Callers, Series
from gateway.cpu import CpuAccount, conclude, own_account
from gateway.decide.decide import decide
from gateway.decide.request import (
    Applied,
    Decision,
    Outcome,
    Refused,
    Request,
    Rules,
    Unknown,
    View,
)
from gateway.errors import (
    CatalogRestored,
    Contradiction,
    MemoryFull,
    QueueFull,
    StoreUnavailable,
    UnreachableLog,
    to_log,
)
from gateway.memory import Memory
from gateway.meters import NO_METERS, Meters, RoundTimes, WriteEnded
from gateway.model import HeadMove, Reply
from gateway.runtime import Runtime, moment
from gateway.state.cache import Cache, Carried, Guesses
from gateway.state.heads import HeadReader, ObservedHead
from gateway.state.write_out import WriteOut
from gateway.store.contract import (
    BeingRestored,
    Moved,
    MoveResult,
    Rejected,
    Store,
    StoreUnreachable,
    Unsent,
)
from gateway.store.unreachable import write_refused

_log = logging.getLogger(__name__)

# The leaders for suspects and moves in doubt. Each waits for one catalog at a time.
_LEADERS_APART = 8
# The pauses between the tries of a move in doubt.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_PAUSE_UNREACHABLE_S = 0.05
# How long to wait for a primary. Then the requests go back to the queue, so that those whose time
# is over get their answers.
_PATIENCE_S = 1.0
# After this many batches of a catalog in a row that a defect has ended, the whole batch is refused.
# Fewer are enough to find one request by halving.
_DEFECTS_MAX = 16
# The pause of a catalog whose tail leaves no room for the batch.
_PAUSE_FULL_S = 0.003


def _longer_pause(pause_s: float) -> float:
    """The pause before the next try, after one of ``pause_s``."""
    return min(2 * pause_s, _LONGEST_PAUSE_S)


def moved_once_more(store: Store, move: HeadMove) -> Moved | None:
    """Send a move in doubt again, and return its result; None if it still isn't known.

    If the store refuses this copy, that says nothing about the first copy. Raises StoreUnreachable.
    """
    # The first copy may still win once another worker leaves the line. So a move that is sent again
    # passes all claims: it is lost only if the head is elsewhere.
    result = store.move_heads([replace(move, passes_all=True)]).get(move.catalog)
    if result is Moved.LOST:
        return _was_made(store, move)
    return result if result is Moved.WON else None


def _was_made(store: Store, move: HeadMove) -> Moved | None:
    """Whether the move was won: its first commit, or verdict, is looked up by its id.

    None if that can't be found out any more, because its revision was compacted meanwhile.
    """
    if not move.commits:
        return _was_made_by_verdict(store, move)
    ours = move.commits[0]
    head = store.tails([ours.catalog]).get(ours.catalog)
    if head is not None and any(commit.id == ours.id for commit in head.tail or ()):
        return Moved.WON
    span = {ours.catalog: (ours.revision - 1, ours.revision)}
    written = store.commits(span).get(ours.catalog, ())
    if written:
        return Moved.WON if written[0].id == ours.id else Moved.LOST
    # Read again: the floor may have risen after the head was read.
    floor = max((each.floor for each in store.heads([ours.catalog]).values()), default=0)
    return None if floor >= ours.revision else Moved.LOST


def _was_made_by_verdict(store: Store, move: HeadMove) -> Moved | None:
    ours = move.verdicts[0]
    head = store.tails([move.catalog]).get(move.catalog)
    found = {each.number: each for each in (head.verdicts if head else None) or ()}
    if ours.number in found:
        return Moved.WON if found[ours.number].id == ours.id else Moved.LOST
    if head is None or head.judged < ours.number:
        return Moved.LOST
    asked = ours.idempotency
    replies = store.replies({move.catalog: [(asked.principal, asked.key)]})
    reply = replies.get((move.catalog, asked.principal, asked.key))
    return Moved.WON if reply is not None and reply.id == ours.id else Moved.LOST


def answered_unknown(batch: Sequence[Pending], decision: Decision) -> list[Pending]:
    """Answer the requests whose commits may have been made, or may yet be made; return the others.

    A replay of such a commit is in doubt, too: to its client, both are one request.
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


@dataclass(frozen=True, slots=True)
class RoundParts:
    """The parts that a round works with; assembled in ``gateway.service``."""

    store: Store
    runtime: Runtime
    cache: Cache
    head_reader: HeadReader
    write_out: WriteOut
    queue: Queue
    claims: ClaimKeeper
    rules: Rules
    meters: Meters = NO_METERS
    memory: Memory | None = None  # of the process; None: it isn't counted
    unreachable: UnreachableLog = field(default_factory=lambda: UnreachableLog(_log))


def _needs_move(decision: Decision) -> bool:
    """Whether the decision has commits or verdicts for the head."""
    return bool(decision.commits or decision.verdicts)


class Round:
    """One pass over the given batches. It keeps each of them until it is answered or goes back,
    also while its move is in doubt."""

    def __init__(
        self,
        parts: RoundParts,
        guesses: Guesses,
        batches: Mapping[str, Sequence[Pending]],
        account: memory.Account,
    ) -> None:
        """``account`` is the leader's; what the round reads is charged to it."""
        self._parts = parts
        self._guesses = guesses
        self._account = account
        self._batches = dict(batches)
        self._decisions: Mapping[str, Decision] = {}
        self._moves: Mapping[str, HeadMove] = {}  # those that were sent, or are about to be
        self._pauses: dict[str, float] = {}  # between the tries of moves in doubt
        self._known: set[str] = set()  # catalogs whose heads could be read
        self._made: set[str] = set()  # those whose moves were won
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
            unproven = {c for c in guessed if c not in decisions or not _needs_move(decisions[c])}
            for catalog in unproven:
                decisions.pop(catalog, None)
            if unproven:
                decisions |= self.decisions(unproven, ())
        except BeingRestored as error:
            self._refuse_restored(error.catalog)
            return
        except StoreUnreachable as error:
            self._give_back(error)
            return
        except Exception as error:  # noqa: BLE001 - a leader must outlive any defect
            self._fail(error)
            return
        decisions = self._held(decisions)
        for catalog, decision in list(decisions.items()):
            if not _needs_move(decision):
                self._guarded(catalog, partial(self._answer, catalog, decision))
                del decisions[catalog]
        self._times.decided = self._parts.runtime.monotonic()
        if decisions:
            self._commit(decisions)

    def _fail(self, error: Exception) -> None:
        """Handle a defect before any head was moved. It may concern only one catalog, or one
        request: try each catalog again separately, then half of its batch, and forget the cached
        states. A request that fails alone is refused. A whole batch is refused if its catalog's
        head can't be read, or if too many in a row have failed for one request to be the cause.
        """
        alone = len(self._batches) == 1
        queue = self._parts.queue
        queue.suspects.note_failure(self._batches)
        for catalog, batch in list(self._batches.items()):
            is_whole = catalog not in self._known or queue.defects(catalog) >= _DEFECTS_MAX
            if alone and (len(batch) == 1 or is_whole):
                self._abandon(catalog, error)
                continue
            self._parts.cache.forget(catalog)
            self._guesses.remove(catalog)
            self._end(catalog, batch, most=len(batch) // 2 if alone else None, defect=True)

    def _guarded(self, catalog: str, go_on: Callable[[], None]) -> None:
        """Call ``go_on``; a defect in it affects only this catalog, whose requests are answered."""
        try:
            go_on()
        except Exception as error:  # noqa: BLE001
            self._abandon(catalog, error)

    def _held(self, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
        """The decisions of batches whose requests are all still there, and can't leave any more.

        The other batches, which lost a request whose time was over, go back to be decided again."""
        held = self._parts.queue.hold({catalog: self._batches[catalog] for catalog in decisions})
        for catalog in decisions.keys() - held:
            self._end(catalog, self._batches[catalog])
        return {c: decision for c, decision in decisions.items() if c in held}

    def _meet(self) -> None:
        """Wait for a primary; requests whose time is over leave. Raises StoreUnreachable."""
        self._parts.store.await_reachable(_PATIENCE_S)
        for catalog, batch in list(self._batches.items()):
            if left := self._parts.queue.to_decide(batch):
                self._batches[catalog] = left
            else:
                self._end(catalog)

    def _give_back(self, error: StoreUnreachable) -> None:
        """Put the batches back, because nothing was sent for any of them. They are tried again
        while there is time; if one of them may be at fault, each is tried alone."""
        self._parts.unreachable.note(error, self._parts.runtime.monotonic())
        pause_s = _PAUSE_UNREACHABLE_S
        if not isinstance(error, Unsent):  # then no catalog is at fault
            self._parts.queue.suspects.note_failure(self._batches)
            if len(self._batches) > 1:
                pause_s = 0.0
        for catalog, batch in list(self._batches.items()):
            self._guesses.remove(catalog)
            for pending in batch:
                pending.unreachable = True
            self._end(catalog, batch, pause_s=pause_s)

    def _refuse_restored(self, restored: str) -> None:
        """Refuse the requests for a catalog that is being restored; the others are tried again at
        once."""
        for catalog, batch in list(self._batches.items()):
            self._guesses.remove(catalog)
            if catalog == restored:
                for pending in batch:
                    pending.answer(Refused(CatalogRestored(catalog)))
            self._end(catalog, () if catalog == restored else batch)

    def _may_guess(self, catalog: str) -> bool:
        """Whether the cache is likely to be at the head, and this is the first try."""
        batch = self._batches[catalog]
        first_try = all(each.attempts == 0 and not each.unreachable for each in batch)
        is_shared = catalog in self._parts.claims.shared
        return first_try and not is_shared and self._guesses.has(catalog)

    def abandon(self, error: Exception) -> None:
        """After a defect, answer and forget the batches of this round, or, if nothing was sent, try
        them again; moves in doubt continue."""
        if not self._moves:
            self._fail(error)
            return
        _log.error("a round of the commit loop failed", exc_info=error)
        for catalog in self._batches.keys() - self._pauses.keys():
            self._abandon(catalog, error)

    def _abandon(self, catalog: str, error: Exception) -> None:
        """Answer and end the catalog's batch after a defect: with its outcomes if the head has
        moved, as unknown if it may have moved, and with refusals otherwise."""
        about = {"catalog": catalog}
        said, traced = to_log(error)
        _log.error("writing to %r failed%s", catalog, said, exc_info=traced, extra=about)
        if catalog not in self._batches:
            return
        self._parts.cache.forget(catalog)
        self._guesses.remove(catalog)
        if catalog in self._made:
            self._answer(catalog, self._decisions[catalog])
            return
        detail = "the gateway has a defect; it was logged, and nothing was applied"
        if isinstance(error, Contradiction):
            detail = f"nothing was applied: {error.public_detail}"
        refused = Refused(StoreUnavailable(detail))
        if isinstance(error, MemoryError):
            refused = Refused(MemoryFull("this worker has no memory left to decide the request"))
        for pending in self._batches[catalog]:
            moved = Unknown(pending.request.commit_id)
            pending.answer(moved if catalog in self._moves else refused)
        self._end(catalog, defect=True)

    def decisions(self, fresh: AbstractSet[str], guessed: Collection[str]) -> dict[str, Decision]:
        """Decide the batches of these catalogs.

        Of those that can't be decided yet, the fresh ones go back and the guessed ones are kept.
        """
        began = self._parts.runtime.monotonic()
        revisions = self.observed(fresh)
        wanted = {
            catalog: [pending.request for pending in self._batches[catalog]]
            for catalog in (*revisions, *guessed)
        }
        self._known.update(wanted)
        views = read_views(self._parts.store, self._parts.cache, wanted, self._account)
        if revisions:
            self._parts.queue.suspects.note_success(revisions, began)
        self._views = {**self._views, **views}
        now_us = self._parts.runtime.now_us()
        decisions: dict[str, Decision] = {}
        for catalog, requests in wanted.items():
            view = views.get(catalog)
            # While a slow reader reads, the entry may be dropped and begun at an older revision.
            if view is None or view.revision < revisions.get(catalog, 0):
                self._guesses.remove(catalog)
                if catalog not in guessed:
                    self._read_again(catalog)
                continue
            batch = self._batches[catalog]
            decisions[catalog] = decide(
                view,
                requests,
                [pending.attempts + 1 for pending in batch],
                now_us=now_us,
                rules=self._parts.rules,
                accounts=[pending.account for pending in batch],
            )
        return decisions

    def observed(self, catalogs: AbstractSet[str]) -> dict[str, int]:
        """By catalog, the revision of its head, read within this call. Catalogs that have to wait
        for another worker's claim are left out; their batches go back."""
        claims = self._parts.claims
        heads: dict[str, ObservedHead] = {}
        claimed = catalogs & claims.shared.keys()
        if catalogs - claimed:
            heads |= self._parts.head_reader.observe(catalogs - claimed)
        if claimed:
            heads |= self._parts.head_reader.observe(claimed, claims.heads)
        for catalog in claimed:
            if pause_s := claims.pause_s(catalog, heads[catalog].claims):
                del heads[catalog]
                self._end(catalog, self._batches[catalog], pause_s=pause_s)
        return {catalog: head.revision for catalog, head in heads.items()}

    def _read_again(self, catalog: str) -> None:
        """Put the batch back, because there is no view to decide it on: others may have moved the
        head meanwhile, or the cache had no room."""
        batch = self._batches[catalog]
        for pending in batch:
            pending.vain_reads += 1
        self._parts.claims.note_lost(catalog, max(each.races for each in batch))
        self._end(catalog, batch)

    def _commit(self, decisions: Mapping[str, Decision]) -> None:
        """Move the heads. Batches whose moves won are answered and written out; those that lost go
        back."""
        carried = {catalog: self._carried(catalog) for catalog in decisions}
        for catalog, decision in decisions.items():
            if not self._has_room(decision, carried[catalog]):
                self._write_out_first(catalog)
        self._decisions = {c: d for c, d in decisions.items() if c in self._batches}
        if not self._decisions:
            return
        parts, began = self._parts, self._parts.runtime.monotonic()
        self._moves = {c: self._move(c, d, carried[c]) for c, d in self._decisions.items()}
        moved: Mapping[str, MoveResult] = {}
        try:
            moved = parts.store.move_heads(list(self._moves.values()))
        except Unsent as error:
            self._moves = {}
            self._give_back(error)
            return
        except Exception as error:
            if len(self._moves) == 1 and not isinstance(error, StoreUnreachable | MemoryError):
                raise
            _log.warning("it isn't known whether heads have moved: %r", error)
            parts.queue.suspects.note_failure(self._moves)
        else:
            parts.queue.suspects.note_success(moved, began)
        self._times.moved = parts.runtime.monotonic()
        for catalog in self._moves:
            self._guarded(catalog, partial(self._settle, catalog, moved.get(catalog)))
        self._measure_moves(moved)

    def _settle(self, catalog: str, result: MoveResult | None) -> None:
        if result is Moved.WON:
            self._won(catalog)
        elif result is Moved.LOST:
            self._lost(catalog)
        elif result is None:
            self._doubt(catalog)
        else:
            self._rejected(catalog, result)

    def _won(self, catalog: str) -> None:
        parts, move, decision = self._parts, self._moves[catalog], self._decisions[catalog]
        view = self._views[catalog]
        self._made.add(catalog)
        if catalog in parts.claims.shared:
            parts.claims.note_won(catalog, move.base, move.reached[0])
        is_contended = parts.queue.is_contended(catalog)
        parts.cache.replace(move, decision.documents)
        if not is_contended:
            self._guesses.add(catalog)
        carried = parts.cache.unwritten(catalog, view.tail, view.verdicts)
        parts.write_out.add(self._since, move, *carried, decision.documents)
        self._answer(catalog, decision)

    def _lost(self, catalog: str) -> None:
        batch = self._batches[catalog]
        self._guesses.remove(catalog)
        for pending in batch:
            pending.attempts += 1
        self._parts.claims.note_lost(catalog, max(each.races for each in batch))
        self._end(catalog, batch, lost=True)

    def _rejected(self, catalog: str, rejected: Rejected) -> None:
        """Handle a refused move: nothing was applied. The tail may be too large, or one request."""
        batch = self._batches[catalog]
        if rejected.too_large and any(self._carried(catalog)):
            self._write_out_first(catalog)
            return
        self._guesses.remove(catalog)
        if len(batch) > 1:
            self._end(catalog, batch, most=len(batch) // 2)
            return
        about = {"catalog": catalog}
        _log.warning(
            "the database refused a write to %r: %s", catalog, rejected.reason, extra=about
        )
        batch[0].answer(Refused(write_refused(rejected.reason)))
        self._end(catalog)

    def _doubt(self, catalog: str) -> None:
        """Have the move sent again until its outcome is known, or the batch's time is over."""
        runtime = self._parts.runtime
        self._parts.queue.suspects.note_failure([catalog])
        self._guesses.remove(catalog)
        if runtime.monotonic() < max(pending.deadline for pending in self._batches[catalog]):
            pause_s = self._pauses.get(catalog, _FIRST_PAUSE_S)
            self._pauses[catalog] = _longer_pause(pause_s)
            go_on = partial(self._guarded, catalog, partial(self._go_on, catalog))
            self._parts.queue.in_doubt(catalog, go_on, pause_s)
            return
        batch = self._batches[catalog]
        self._parts.cache.forget(catalog)
        left = answered_unknown(batch, self._decisions[catalog])
        self._end(catalog, left, most=max(1, len(batch) // 2))

    def _go_on(self, catalog: str) -> None:
        began = self._parts.runtime.monotonic()
        try:
            result = moved_once_more(self._parts.store, self._moves[catalog])
        except StoreUnreachable:
            result = None
        else:
            self._parts.queue.suspects.note_success([catalog], began)
        self._times.moved = self._parts.runtime.monotonic()
        self._settle(catalog, result)
        if result is not None:
            self._measure_moves({catalog: result})

    def _move(self, catalog: str, decision: Decision | None, carried: Carried) -> HeadMove:
        """The move that a decision asks for; without one, a move of nothing."""
        view = self._views[catalog]
        tail, verdicts = carried
        return HeadMove(
            catalog,
            view.revision,
            decision.commits if decision else (),
            view.revision - len(tail),
            view.judged,
            decision.verdicts if decision else (),
            view.judged - len(verdicts),
            self._parts.claims.passed(catalog) if catalog in self._parts.claims.shared else (),
            view.last,
            view.last_verdict,
        )

    def _carried(self, catalog: str) -> Carried:
        """The tail that a move carries along: the part of the view's that isn't written out yet."""
        view = self._views[catalog]
        return self._parts.cache.unwritten(catalog, view.tail, view.verdicts)

    def _has_room(self, decision: Decision, carried: Carried) -> bool:
        """Whether the decision fits into the head together with the tail."""
        if not any(carried):
            return True
        joined = chain[Reply](*carried, decision.commits, decision.verdicts)
        size_bytes = sum(each.size_bytes for each in joined)
        return size_bytes <= self._parts.rules.limits.head_bytes_max

    def _write_out_first(self, catalog: str) -> None:
        """Put the batch back until the tail is written out, because it doesn't fit into the head
        with it."""
        carried = self._carried(catalog)
        if not self._parts.write_out.moves(catalog):
            self._parts.write_out.add(self._since, self._move(catalog, None, carried), *carried)
        self._guesses.remove(catalog)
        self._end(catalog, self._batches[catalog], pause_s=_PAUSE_FULL_S)

    def _measure_moves(self, moved: Mapping[str, MoveResult]) -> None:
        times, meters = self._times, self._parts.meters
        won = [catalog for catalog, result in moved.items() if result is Moved.WON]
        lost = list(moved.values()).count(Moved.LOST)
        if won:
            batches = [len(self._decisions[catalog].commits) for catalog in won]
            meters.heads_moved(batches, times.moved - times.taken)
        if lost:
            meters.races_lost(lost)

    def _answer(self, catalog: str, decision: Decision) -> None:
        """Answer a batch whose decision holds; the requests that it left undecided go back."""
        self._end(catalog, self._batches[catalog], decision.outcomes)

    def _end(
        self,
        catalog: str,
        batch: Sequence[Pending] = (),
        outcomes: Sequence[Outcome] = (),
        *,
        pause_s: float = 0.0,
        lost: bool = False,
        most: int | None = None,
        defect: bool = False,
    ) -> None:
        """End a batch: its first requests get these ``outcomes``, the others go back. For the
        keywords see ``Queue.end_batch``."""
        for pending, outcome in zip(batch, outcomes, strict=False):
            pending.answer(outcome)
        left = batch[len(outcomes) :]
        del self._batches[catalog]
        if not left and catalog in self._parts.claims.shared:
            self._parts.claims.give_up(catalog)
        self._parts.queue.end_batch(
            catalog, left, pause_s=pause_s, lost=lost, most=most, defect=defect
        )


class CommitLoop:
    """Commits requests. ``commit`` is called by many threads; ``leaders`` threads of its own run
    the rounds."""

    def __init__(self, parts: RoundParts, hand_over: HandOver, leaders: int) -> None:
        self._parts = parts
        self._hand_over = hand_over
        self._queue = parts.queue
        self._runtime = parts.runtime
        self._guesses = Guesses(parts.runtime)
        self._leaders = leaders
        self._callers = Callers(parts.runtime)
        self._request_cpu_s = parts.rules.limits.request_cpu_ms / 1000
        self._started = False
        self._start_lock = parts.runtime.lock()

    def commit(self, request: Request) -> tuple[Outcome, int]:
        """The request's outcome and the number of attempts it took. Raises QueueFull.

        Returns at the request's deadline at the latest, unless its commit was sent by then: then it
        waits for the outcome.
        """
        if self._hand_over.is_used:
            answer = self._hand_over.hand_over(request)
            if answer is not None:
                conclude()
                return answer
            self._hand_over.note_request(request.catalog)
        return self._committed(request)

    def commit_for(self, request: Request, worker: int) -> PeerAnswer:
        """``commit`` of a request that another worker of this machine hands over."""
        self._hand_over.note_request(request.catalog, worker)
        try:
            outcome, attempts = self._committed(request)
        except QueueFull as full:
            return PeerAnswer(None, 1, goes_on=True, error=full)
        goes_on = self._hand_over.goes_on(request.catalog, worker, outcome)
        return PeerAnswer(outcome, attempts, goes_on)

    def _committed(self, request: Request) -> tuple[Outcome, int]:
        self._start()
        if request.ranges:
            request = self._read_ahead().fill(request)
        # A request from another worker comes without an account and gets one.
        account = own_account() or CpuAccount(self._request_cpu_s)
        now = self._runtime.monotonic()
        pending = Pending(request, self._runtime.event(), now, account=account)
        try:
            self._queue.put(pending)
        except QueueFull as full:
            refused = WriteEnded(full.code, 1, pending.queued, None, None)
            self._parts.meters.writes_ended([refused])
            raise
        try:
            self._queue.until_answered(pending)
        finally:
            self._queue.departed(pending)
        conclude()
        self._parts.meters.writes_ended([pending.ended()])
        assert pending.outcome is not None
        return pending.outcome, pending.attempts + 1

    def series(self, principal: str) -> Series:
        """A series for requests that the principal sends together."""
        self._start()
        parts = self._parts
        return Series(
            self._queue,
            self._runtime,
            parts.meters,
            self._callers,
            principal,
            self._request_cpu_s,
            self._read_ahead(),
        )

    def _read_ahead(self) -> ReadAhead:
        return ReadAhead(self._parts.store, self._parts.cache, self._runtime)

    def _start(self) -> None:
        """Start the leaders at the first request, because by then the server has forked."""
        if self._started:
            return
        with self._start_lock:
            if not self._started:
                self._queue.when_apart(self._start_apart)
                for number in range(self._leaders):
                    self._runtime.spawn(self._lead, f"leader-{number}")
                self._parts.write_out.start()
                self._started = True

    def _lead(self) -> None:
        account = self._account()
        while True:
            self._run(self._queue.take(), account)

    def _account(self) -> memory.Account:
        """The account for the memory that this leader holds; it is closed after each round."""
        if self._parts.memory is not None:
            memory.work_for(self._parts.memory.own_account())
        return memory.account()

    def _start_apart(self) -> None:
        for number in range(_LEADERS_APART):
            self._runtime.spawn(self._lead_apart, f"leader-apart-{number}")

    def _lead_apart(self) -> None:
        account = self._account()
        while True:
            taken = self._queue.take_apart()
            if isinstance(taken, dict):
                self._run(taken, account)
            else:
                taken()
                self._leave_lines()

    def _run(self, taken: Mapping[str, list[Pending]], account: memory.Account) -> None:
        current: Round | None = None
        try:
            current = Round(self._parts, self._guesses, taken, account)
            current.run()
        except Exception as error:  # noqa: BLE001 - a leader must outlive any defect
            if current is None:  # for lack of memory, for example
                _log.exception("a round of the commit loop can't begin")
                for catalog, batch in taken.items():
                    with suppress(MemoryError):
                        self._queue.end_batch(catalog, batch, pause_s=_PAUSE_UNREACHABLE_S)
            else:
                current.abandon(error)
        if account.held:
            account.close()
        self._leave_lines()

    def _leave_lines(self) -> None:
        if not self._parts.claims.given_up:
            return
        try:
            self._parts.claims.leave()
        except Exception:  # noqa: BLE001 - it is a hint, and a leader must outlive any defect
            _log.exception("claims can't be given up")

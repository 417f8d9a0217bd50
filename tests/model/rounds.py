"""A request's way through a worker: the head, the document, the decision, the move, the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import store
from .parts import (
    UNREAD_ALL,
    Parts,
    Step,
    as_text,
    is_refused,
    move_text,
    name_of_worker,
    with_worker,
)
from .values import (
    KEYS,
    NOTHING,
    UNREAD,
    Cache,
    Change,
    Commit,
    Head,
    Held,
    Move,
    Refused,
    Round,
    State,
    Verdict,
    Worker,
    Wrong,
    above,
    put_in,
    replayed,
    replayed_all,
    truth,
)


class Rounds(Parts):
    """Each step is at most one call of the store, with what the worker makes of its answer."""

    def _take(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        for request, status in enumerate(state.asked):
            if status or self._waits_for_twin(state, request):
                continue
            round_ = Round(request, state.head.revision, "look")
            begun = state._replace(asked=put_in(state.asked, request, 1))
            what = f"{name_of_worker(number)} takes {self._told(request)}"
            if self._may("guess") and worker.cache:
                for text, after in self._documents(begun, number, worker, round_, guess=True):
                    yield f"{what} and assumes that nobody has moved the head{text}", after
            looked = self._look(begun, number, worker, round_)
            if not self._may("rounds"):
                yield f"{what}, decides it and moves the head", self._at_once(looked, number)
                continue
            yield f"{what}, {self._look_text(state)}", looked
            if self._may("hand"):
                yield from self._hand(begun, number, worker, round_, what)

    def _waits_for_twin(self, state: State, request: int) -> bool:
        """Of requests that are alike, the first one comes first: any order is the same."""
        alike = self._world.requests[request]
        return any(
            alike == self._world.requests[each] and not state.asked[each] for each in range(request)
        )

    def _told(self, request: int) -> str:
        act, on, key = self._world.requests[request]
        return f"#{request + 1} ({act} {KEYS[on]}{' under key ' + key if key else ''})"

    @staticmethod
    def _look_text(state: State) -> str:
        tail = ", ".join(str(commit.revision) for commit in state.head.tail)
        return f"reads the head: {state.head.revision}, tail [{tail}]"

    def _hand(
        self, state: State, number: int, worker: Worker, round_: Round, what: str
    ) -> Iterator[Step]:
        for other, their in enumerate(state.workers):
            if other != number and not their.round:
                after = with_worker(
                    state, number, worker._replace(round=round_._replace(step="handed"))
                )
                after = with_worker(after, other, their._replace(round=round_))
                yield f"{what} and hands it over to {name_of_worker(other)}", after

    def _at_once(self, state: State, number: int) -> State:
        """The whole of a round, without a step of anybody between."""
        while state.workers[number].round:
            ((_, state),) = self._round(state, number, state.workers[number])
        return state

    def _round(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        round_ = worker.round
        name = name_of_worker(number)
        if round_.step == "look":
            text = f"{name} {self._look_text(state)}"
            yield text, self._look(state, number, worker, round_)
        elif round_.step in ("log", "floor"):
            yield from self._catch_up(state, number, worker, round_)
        elif round_.step == "document":
            for text, after in self._documents(state, number, worker, round_, read=True):
                yield f"{name}{text}", after
        elif round_.step == "replies":
            for text, after in self._replies(state, number, worker, round_):
                yield f"{name}{text}", after
        elif round_.step == "move":
            yield from self._move(state, number, worker, round_)
        elif round_.step == "handed":
            yield from self._handed(state, number, worker, round_)
        else:
            yield from self._doubt(state, number, worker, round_)

    def _look(self, state: State, number: int, worker: Worker, round_: Round) -> State:
        """What the worker makes of the head that it reads with its tail."""
        head, cache, round_ = state.head, worker.cache, round_._replace(late=False)
        if cache and cache.head.revision > head.revision and self._has("goes-on"):
            cache = NOTHING  # it went back
        if not cache:
            return self._standing(state, number, worker, round_, Cache(head, UNREAD_ALL))
        if cache.head.revision < head.written:
            after = round_._replace(step="log", found=(head,))
            return with_worker(state, number, worker._replace(round=after))
        return self._standing(
            state, number, worker, round_, self._brought_up(cache, head, head.tail)
        )

    def _catch_up(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """The log above the cache's revision, and then the floor."""
        name, cache, head = name_of_worker(number), worker.cache, round_.found[0]
        known = cache.head.revision
        if round_.step == "log":
            log = store.between(state, known, head.written)
            after = round_._replace(step="floor", found=(head, log))
            text = f"{name} reads the log above {known}"
            if self._has("floor-last"):
                yield text, with_worker(state, number, worker._replace(round=after))
                return
            worker = worker._replace(round=after)
            yield text, self._caught_up(state, number, worker, after, head.floor)
            return
        text = f"{name} looks at the floor: {state.head.floor}"
        yield text, self._caught_up(state, number, worker, round_, state.head.floor)

    def _caught_up(
        self, state: State, number: int, worker: Worker, round_: Round, floor: int
    ) -> State:
        head, log = round_.found
        cache = worker.cache
        if floor > cache.head.revision or cache.head.revision + len(log) < head.written:
            fresh = worker._replace(cache=NOTHING, round=round_._replace(step="look", found=()))
            return with_worker(state, number, fresh)
        return self._standing(
            state, number, worker, round_, self._brought_up(cache, head, (*log, *head.tail))
        )

    def _brought_up(self, cache: Cache, head: Head, commits: tuple[Commit, ...]) -> Cache:
        """The cache at the head, by the commits above it."""
        known = cache.head
        if known.revision > head.revision:
            return cache
        new = above(commits, known.revision)
        follows = new[0].parent if new else head.last
        if self._has("parent-named") and follows != known.last:
            return Cache(head, UNREAD_ALL)
        documents = list(cache.documents)
        try:
            for key, document in enumerate(documents):
                if document != UNREAD:
                    documents[key] = replayed_all(document, key, new, self._has)
        except Refused as error:
            if self._may("restore"):
                return Cache(head, UNREAD_ALL)
            raise Wrong(f"a worker that catches up is refused: {error}") from None
        written = max(known.written, head.written)
        judged_written = max(known.judged_written, head.judged_written)
        at_head = head._replace(
            written=written,
            tail=above(head.tail, written),
            judged_written=judged_written,
            verdicts=above(head.verdicts, judged_written),
        )
        return Cache(at_head, tuple(documents))

    def _standing(
        self, state: State, number: int, worker: Worker, round_: Round, cache: Cache
    ) -> State:
        """The head was read, and the cache is there."""
        worker = worker._replace(cache=cache, round=round_._replace(step="document", found=()))
        key = self._world.requests[round_.request].on
        if cache.documents[key] == UNREAD:
            return with_worker(state, number, worker)
        ((_, after),) = self._documents(state, number, worker, worker.round)
        return after

    def _documents(
        self,
        state: State,
        number: int,
        worker: Worker,
        round_: Round,
        *,
        read: bool = False,
        guess: bool = False,
    ) -> Iterator[Step]:
        """With the document at hand, or ``read``: a reply is looked for, or it is decided."""
        request = self._world.requests[round_.request]
        document = worker.cache.documents[request.on]
        text = ""
        if read:
            document = state.documents[request.on]
            text = f" reads {KEYS[request.on]}, {as_text(document)}"
            head = worker.cache.head
            again = worker._replace(round=round_._replace(step="look", found=()))
            if document and document.revision > head.revision:
                yield f"{text}: newer than its head", with_worker(state, number, again)
                return
            if self._has("tail-overlay"):
                try:
                    document = replayed_all(document, request.on, head.tail, self._has)
                except Refused:
                    # It was written out and purged meanwhile.
                    yield (
                        f"{text}: not what it was",
                        with_worker(state, number, again._replace(cache=NOTHING)),
                    )
                    return
            documents = put_in(worker.cache.documents, request.on, document)
            worker = worker._replace(cache=worker.cache._replace(documents=documents))
        elif document == UNREAD:
            return
        if request.key:
            yield (
                text,
                with_worker(state, number, worker._replace(round=round_._replace(step="replies"))),
            )
            return
        yield from self._decided(state, number, worker, round_, text, guess=guess)

    def _replies(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """What was decided under the key, by the view's tail and verdicts, and what is stored."""
        key = self._world.requests[round_.request].key
        head = worker.cache.head
        there = [*above([c for c in state.log if c], 0), *state.kept]
        if self._has("keys-in-tail"):
            there += [*head.tail, *head.verdicts]
        text = f" looks for key {key}"
        if any(each.key == key for each in there):
            yield (
                f"{text}, finds it and answers with the first outcome",
                self._answered(state, number, worker, round_),
            )
            return
        yield from self._decided(state, number, worker, round_, text)

    def _decided(
        self,
        state: State,
        number: int,
        worker: Worker,
        round_: Round,
        text: str,
        *,
        guess: bool = False,
    ) -> Iterator[Step]:
        """Answered, or ready to move the head."""
        request = self._world.requests[round_.request]
        document = worker.cache.documents[request.on]
        refused = request.act == "read" or is_refused(request.act, document)
        if not refused or request.key:
            moving = worker._replace(round=round_._replace(step="move", found=()))
            yield text, with_worker(state, number, moving)
            return
        if guess and self._has("fresh-head"):
            return
        what = "answers" if request.act == "read" else "refuses"
        worker = worker._replace(round=round_)
        yield f"{text}, {what}: {as_text(document)}", self._told_of(state, number, worker, document)

    def _told_of(self, state: State, number: int, worker: Worker, document: Any) -> State:
        """An answer about a document, which must have been true since the request came."""
        round_ = worker.round
        on = self._world.requests[round_.request].on
        since = min(round_.since, len(state.made) - 1)
        known = [truth(state.made[: 1 + at])[on] for at in range(since, len(state.made))]
        gone = state.gone[on]
        if document not in known and not (
            document == NOTHING and any(each and each.revision <= gone for each in known)
        ):
            asked = f"{name_of_worker(number)} answers #{round_.request + 1}, {as_text(document)}"
            raise Wrong(f"an answer was never true: {asked}; the request came at {since}")
        return self._answered(state, number, worker, round_)

    def _answered(self, state: State, number: int, worker: Worker, round_: Round) -> State:
        asked = put_in(state.asked, round_.request, 2)
        state = with_worker(state._replace(asked=asked), number, worker._replace(round=NOTHING))
        for other, their in enumerate(state.workers):  # who handed it over tells it as well
            if their.round and their.round.request == round_.request:
                state = with_worker(state, other, their._replace(round=NOTHING))
        return state

    # Moving the head.

    def _move_of(self, worker: Worker) -> Move:
        """Of the decision that the worker's documents ask for, on its head."""
        round_, (head, documents) = worker.round, worker.cache
        act, on, key = self._world.requests[round_.request]
        id_ = round_.request + 1
        base = (head.revision, head.last, head.judged, head.ruling)
        written, judged_written = head.written, head.judged_written
        if not self._has("drops-only-written"):
            written = head.revision
        if not self._has("verdicts-stay"):
            judged_written = head.judged
        if is_refused(act, documents[on]):
            verdict = Verdict(head.judged + 1, id_, key)
            return Move(*base, (), (verdict,), written, judged_written)
        made_from = documents[on].id if act == "patch" else -1
        change = Change(on, "put" if act == "create" else act, made_from)
        commit = Commit(head.revision + 1, id_, (change,), key, head.last)
        return Move(*base, (commit,), (), written, judged_written)

    def _move(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        move = self._move_of(worker)
        name = name_of_worker(number)
        what = f"{name} moves the head {move_text(move)}"
        if store.takes(state.head, move, self._has):
            won = store.win(state, move)
            yield f"{what}: won, answers", self._won(won, number, move)
            if self._may("lost"):
                doubt = worker._replace(round=round_._replace(step="doubt", found=move))
                yield f"{what}: won, but the answer is lost", with_worker(won, number, doubt)
        else:
            yield f"{what}: lost", self._lost(state, number, worker)
        if self._may("lost") and len(state.strays) < 1:
            doubt = worker._replace(round=round_._replace(step="doubt", found=move))
            sent = state._replace(strays=(*state.strays, move))
            yield f"{what}: no answer, it is still on its way", with_worker(sent, number, doubt)

    @staticmethod
    def _lost(state: State, number: int, worker: Worker) -> State:
        again = worker.round._replace(step="look", found=())
        return with_worker(state, number, worker._replace(round=again))

    def _won(self, state: State, number: int, move: Move) -> State:
        """The cache goes on, what was moved is to be written out, the client is answered."""
        worker = state.workers[number]
        round_, cache = worker.round, worker.cache
        documents = list(cache.documents)
        for commit in move.commits:
            if commit not in state.made:
                raise Wrong(f"#{commit.id} is answered as applied, but isn't in the history")
            for change in commit.changes:
                before = documents[change.key]
                documents[change.key] = replayed(before, commit, change, lambda _: False)
        head = cache.head
        carried = above(head.tail, move.written)
        judged = above(head.verdicts, move.judged_written)
        if (head.revision, head.judged) == (move.base, move.judged):
            at = store.moved(head, move)
            cache = Cache(at, tuple(documents))
        if not self._has("whole-tail"):
            carried = ()
        held = self._held(worker, move, carried, judged, tuple(documents))
        worker = worker._replace(cache=cache, held=held)
        return self._answered(with_worker(state, number, worker), number, worker, round_)

    @staticmethod
    def _held(
        worker: Worker,
        move: Move,
        carried: tuple[Commit, ...],
        judged: tuple[Verdict, ...],
        documents: tuple[Any, ...],
    ) -> Held:
        held = worker.held or Held((), (), UNREAD_ALL, (), worker.round.late)
        commits = above(held.commits, move.written)
        verdicts = above(held.verdicts, move.judged_written)
        known = commits[-1].revision if commits else move.written
        judged_known = verdicts[-1].number if verdicts else move.judged_written
        own = (*(r for r in held.own if r > move.written), *(c.revision for c in move.commits))
        mine = list(held.documents)
        for commit in move.commits:
            for change in commit.changes:
                mine[change.key] = documents[change.key]
        return held._replace(
            commits=(*commits, *above(carried, known), *move.commits),
            verdicts=(*verdicts, *above(judged, judged_known), *move.verdicts),
            documents=tuple(mine),
            own=own,
        )

    def _doubt(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """The same move once more; where it is lost then, whose the commit is that is there."""
        name, move = name_of_worker(number), round_.found
        if round_.step == "doubt":
            what = f"{name} sends its move again"
            if store.takes(state.head, move, self._has):
                yield f"{what}: won, answers", self._won(store.win(state, move), number, move)
            elif not self._has("commit-id-lookup"):
                yield f"{what}: lost", self._lost(state, number, worker)
            else:
                step = round_._replace(step="whose tail")
                yield f"{what}: lost", with_worker(state, number, worker._replace(round=step))
            if self._has("unknown-is-not-lost"):
                gone = worker._replace(cache=NOTHING)
                text = f"{name} gives up and answers that the outcome is unknown"
                yield text, self._answered(state, number, gone, round_)
            else:
                yield f"{name} gives up and decides again", self._lost(state, number, worker)
            return
        yield from self._whose(state, number, worker, round_)

    def _whose(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        name, move = name_of_worker(number), round_.found
        (ours,) = move.commits or move.verdicts
        tail_first = self._has("tail-before-log")
        in_tail = any(e.id == ours.id for e in (*state.head.tail, *state.head.verdicts))
        if move.commits:
            log = state.log[ours.revision : ours.revision + 1]
            in_log = bool(log and log[0] and log[0].id == ours.id)
        else:
            in_log = any(each.id == ours.id for each in state.kept)
        first, second = (in_tail, in_log) if tail_first else (in_log, in_tail)
        if round_.step == "whose tail":
            where = "the tail" if tail_first else "the log"
            if first:
                yield f"{name} finds its id in {where}, answers", self._won(state, number, move)
            else:
                step = worker._replace(round=round_._replace(step="whose log"))
                yield f"{name} doesn't find its id in {where}", with_worker(state, number, step)
            return
        where = "the log" if tail_first else "the tail"
        if second:
            yield f"{name} finds its id in {where}, answers", self._won(state, number, move)
        elif move.commits and state.head.floor >= ours.revision and not (log and log[0]):
            gone = worker._replace(cache=NOTHING)
            text = f"{name} finds that history was compacted, so the outcome is unknown"
            yield text, self._answered(state, number, gone, round_)
        else:
            text = f"{name} doesn't find its id in {where} either: lost"
            yield text, self._lost(state, number, worker)

    def _arrive(self, state: State, index: int, move: Move) -> Iterator[Step]:
        rest = state._replace(strays=state.strays[:index] + state.strays[index + 1 :])
        what = f"the move {move_text(move)} that was on its way arrives"
        if store.takes(state.head, move, self._has):
            yield f"{what}: won", store.win(rest, move)
        else:
            yield f"{what}: lost", rest

    def _handed(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """Whoever has it may have died."""
        name = name_of_worker(number)
        if any(
            other.round and other.round.request == round_.request
            for index, other in enumerate(state.workers)
            if index != number
        ):
            return
        if self._has("handed-once"):
            text = f"{name} hears nothing and answers that the outcome is unknown"
            yield text, self._answered(state, number, worker, round_)
        else:
            again = worker._replace(round=round_._replace(step="look"))
            yield f"{name} hears nothing and decides it itself", with_worker(state, number, again)

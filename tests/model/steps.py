"""What may happen next: the steps of workers, of compaction and of those who run the database.

Each step is at most one call of the store, with what its worker makes of the answer. Between two
steps anything else may happen, for any time: that is all that "late", "slow" or "asleep" mean here.
Time is in it at one place alone. History is swept a while after the floor was raised; by then each
write-out is *late*, and no call of one is under way (``time_passes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import store
from .store import Has
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
    Writing,
    Wrong,
    above,
    put_in,
    replayed,
    replayed_all,
    truth,
)
from .worlds import World

Step = tuple[str, State]
_UNREAD = (UNREAD,) * len(KEYS)


class Steps:
    """The steps of one world, where the protocol ``has`` some rules and not others."""

    def __init__(self, world: World, has: Has) -> None:
        self._world = world
        self._has = has
        self._may = world.happens.__contains__

    def of(self, state: State) -> Iterator[Step]:
        """Each step that is possible, as text and the state that it leaves. Raises Wrong."""
        for number, worker in enumerate(state.workers):
            if worker.round:
                yield from self._round(state, number, worker)
            else:
                yield from self._take(state, number, worker)
            if worker.writing:
                yield from self._write(state, number, worker)
            else:
                yield from self._begin_writing(state, number, worker)
            if self._may("crash") and worker != Worker():
                yield f"{_name(number)} dies", self._die(state, number, worker)
        for index, move in enumerate(state.strays):
            yield from self._arrive(state, index, move)
        if self._may("ends") and state.head.tail and self._all_written(state):
            yield "the janitor ends the tail", store.end_tail(state)
        if self._may("compact"):
            yield from self._compact(state)
        if self._may("restore"):
            yield from self._put_back(state)

    # A request on its way.

    def _take(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        for request, status in enumerate(state.asked):
            if status or self._waits_for_twin(state, request):
                continue
            round_ = Round(request, state.head.revision, "look")
            begun = state._replace(asked=put_in(state.asked, request, 1))
            what = f"{_name(number)} takes {self._told(request)}"
            if self._may("guess") and worker.cache:
                for text, after in self._documents(begun, number, worker, round_, guess=True):
                    yield f"{what} and takes it that nobody has moved the head{text}", after
            looked = self._look(begun, number, worker, round_)
            if not self._may("rounds"):
                yield f"{what}, decides it and moves the head", self._at_once(looked, number)
                continue
            yield f"{what}, {self._look_text(state)}", looked
            if self._may("hand"):
                yield from self._hand(begun, number, worker, round_, what)

    def _waits_for_twin(self, state: State, request: int) -> bool:
        """Of requests that are alike, the first one comes first: the other way round is the same."""
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
                after = _with(state, number, worker._replace(round=round_._replace(step="handed")))
                after = _with(after, other, their._replace(round=round_))
                yield f"{what} and hands it over to {_name(other)}", after

    def _at_once(self, state: State, number: int) -> State:
        """The whole of a round, without a step of anybody between."""
        while state.workers[number].round:
            ((_, state),) = self._round(state, number, state.workers[number])
        return state

    def _round(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        round_ = worker.round
        name = _name(number)
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
            return self._standing(state, number, worker, round_, Cache(head, _UNREAD))
        if cache.head.revision < head.written:
            after = round_._replace(step="log", found=(head,))
            return _with(state, number, worker._replace(round=after))
        return self._standing(
            state, number, worker, round_, self._brought_up(cache, head, head.tail)
        )

    def _catch_up(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """The log above the cache's revision, and then the floor."""
        name, cache, head = _name(number), worker.cache, round_.found[0]
        known = cache.head.revision
        if round_.step == "log":
            log = store.between(state, known, head.written)
            after = round_._replace(step="floor", found=(head, log))
            text = f"{name} reads the log above {known}"
            if self._has("floor-last"):
                yield text, _with(state, number, worker._replace(round=after))
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
            return _with(state, number, fresh)
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
            return Cache(head, _UNREAD)
        documents = list(cache.documents)
        try:
            for key, document in enumerate(documents):
                if document != UNREAD:
                    documents[key] = replayed_all(document, key, new, self._has)
        except Refused as error:
            if self._may("restore"):
                return Cache(head, _UNREAD)
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
            return _with(state, number, worker)
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
            text = f" reads {KEYS[request.on]}, {_told(document)}"
            head = worker.cache.head
            again = worker._replace(round=round_._replace(step="look", found=()))
            if document and document.revision > head.revision:
                yield f"{text}: newer than its head", _with(state, number, again)
                return
            if self._has("tail-overlay"):
                try:
                    document = replayed_all(document, request.on, head.tail, self._has)
                except Refused:
                    # It was written out and purged meanwhile.
                    yield (
                        f"{text}: not what it was",
                        _with(state, number, again._replace(cache=NOTHING)),
                    )
                    return
            documents = put_in(worker.cache.documents, request.on, document)
            worker = worker._replace(cache=worker.cache._replace(documents=documents))
        elif document == UNREAD:
            return
        if request.key:
            yield text, _with(state, number, worker._replace(round=round_._replace(step="replies")))
            return
        yield from self._decided(state, number, worker, round_, text, guess=guess)

    def _replies(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """What was decided under the key, in the view's tail and verdicts and what is written out."""
        key = self._world.requests[round_.request].key
        head = worker.cache.head
        there = [*above([c for c in state.log if c], 0), *state.kept]
        if self._has("keys-in-tail"):
            there += [*head.tail, *head.verdicts]
        text = f" looks for key {key}"
        if any(each.key == key for each in there):
            yield (
                f"{text}, finds it and tells the first outcome",
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
        refused = request.act == "read" or _is_refused(request.act, document)
        if not refused or request.key:
            moving = worker._replace(round=round_._replace(step="move", found=()))
            yield text, _with(state, number, moving)
            return
        if guess and self._has("fresh-head"):
            return
        what = "answers" if request.act == "read" else "refuses"
        worker = worker._replace(round=round_)
        yield f"{text}, {what}: {_told(document)}", self._told_of(state, number, worker, document)

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
            asked = f"{_name(number)} answers #{round_.request + 1}, {_told(document)}"
            raise Wrong(f"an answer was never true: {asked}; the request came at {since}")
        return self._answered(state, number, worker, round_)

    def _answered(self, state: State, number: int, worker: Worker, round_: Round) -> State:
        asked = put_in(state.asked, round_.request, 2)
        state = _with(state._replace(asked=asked), number, worker._replace(round=NOTHING))
        for other, their in enumerate(state.workers):  # who handed it over tells it as well
            if their.round and their.round.request == round_.request:
                state = _with(state, other, their._replace(round=NOTHING))
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
        if _is_refused(act, documents[on]):
            verdict = Verdict(head.judged + 1, id_, key)
            return Move(*base, (), (verdict,), written, judged_written)
        made_from = documents[on].id if act == "patch" else -1
        change = Change(on, "put" if act == "create" else act, made_from)
        commit = Commit(head.revision + 1, id_, (change,), key, head.last)
        return Move(*base, (commit,), (), written, judged_written)

    def _move(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        move = self._move_of(worker)
        name = _name(number)
        what = f"{name} moves the head {_moving(move)}"
        if store.takes(state.head, move, self._has):
            won = store.win(state, move)
            yield f"{what}: won, answers", self._won(won, number, move)
            if self._may("lost"):
                doubt = worker._replace(round=round_._replace(step="doubt", found=move))
                yield f"{what}: won, but the answer is lost", _with(won, number, doubt)
        else:
            yield f"{what}: lost", self._lost(state, number, worker)
        if self._may("lost") and len(state.strays) < 1:
            doubt = worker._replace(round=round_._replace(step="doubt", found=move))
            sent = state._replace(strays=(*state.strays, move))
            yield f"{what}: no answer, it is still on its way", _with(sent, number, doubt)

    @staticmethod
    def _lost(state: State, number: int, worker: Worker) -> State:
        again = worker.round._replace(step="look", found=())
        return _with(state, number, worker._replace(round=again))

    def _won(self, state: State, number: int, move: Move) -> State:
        """The cache goes on, what was moved is to be written out, the client is answered."""
        worker = state.workers[number]
        round_, cache = worker.round, worker.cache
        documents = list(cache.documents)
        for commit in move.commits:
            if commit not in state.made:
                raise Wrong(f"#{commit.id} is told as done, and isn't in the history")
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
        return self._answered(_with(state, number, worker), number, worker, round_)

    @staticmethod
    def _held(
        worker: Worker,
        move: Move,
        carried: tuple[Commit, ...],
        judged: tuple[Verdict, ...],
        documents: tuple[Any, ...],
    ) -> Held:
        held = worker.held or Held((), (), _UNREAD, (), worker.round.late)
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
        name, move = _name(number), round_.found
        if round_.step == "doubt":
            what = f"{name} sends its move again"
            if store.takes(state.head, move, self._has):
                yield f"{what}: won, answers", self._won(store.win(state, move), number, move)
            elif not self._has("commit-id-lookup"):
                yield f"{what}: lost", self._lost(state, number, worker)
            else:
                step = round_._replace(step="whose tail")
                yield f"{what}: lost", _with(state, number, worker._replace(round=step))
            if self._has("unknown-is-not-lost"):
                gone = worker._replace(cache=NOTHING)
                text = f"{name} gives up and tells its client that it doesn't know"
                yield text, self._answered(state, number, gone, round_)
            else:
                yield f"{name} gives up and decides again", self._lost(state, number, worker)
            return
        yield from self._whose(state, number, worker, round_)

    def _whose(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        name, move = _name(number), round_.found
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
                yield f"{name} doesn't find its id in {where}", _with(state, number, step)
            return
        where = "the log" if tail_first else "the tail"
        if second:
            yield f"{name} finds its id in {where}, answers", self._won(state, number, move)
        elif move.commits and state.head.floor >= ours.revision and not (log and log[0]):
            gone = worker._replace(cache=NOTHING)
            text = f"{name} finds that history was compacted, and doesn't know"
            yield text, self._answered(state, number, gone, round_)
        else:
            text = f"{name} doesn't find its id in {where} either: lost"
            yield text, self._lost(state, number, worker)

    def _arrive(self, state: State, index: int, move: Move) -> Iterator[Step]:
        rest = state._replace(strays=state.strays[:index] + state.strays[index + 1 :])
        what = f"the move {_moving(move)} that was on its way arrives"
        if store.takes(state.head, move, self._has):
            yield f"{what}: won", store.win(rest, move)
        else:
            yield f"{what}: lost", rest

    def _handed(self, state: State, number: int, worker: Worker, round_: Round) -> Iterator[Step]:
        """Whoever has it may have died."""
        name = _name(number)
        if any(
            other.round and other.round.request == round_.request
            for index, other in enumerate(state.workers)
            if index != number
        ):
            return
        if self._has("handed-once"):
            text = f"{name} hears nothing and tells its client that it doesn't know"
            yield text, self._answered(state, number, worker, round_)
        else:
            again = worker._replace(round=round_._replace(step="look"))
            yield f"{name} hears nothing and decides it itself", _with(state, number, again)

    # Writing out.

    def _begin_writing(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        name, held = _name(number), worker.held
        if held:
            commits, through = held.commits, 0
            foreign = [c.revision for c in commits if c.revision not in held.own]
            if foreign:
                there = store.written_through(state)
                last = max((revision for revision in foreign if revision <= there), default=0)
                through = max(through, last)
                commits = above(commits, through)  # the others have written it out
                foreign = [revision for revision in foreign if revision > last]
                left = tuple(
                    commit for commit in commits if commit.revision < min(foreign, default=99)
                )
                if foreign and left:
                    text = f"{name} begins to write out {_revisions(left)}, leaves the rest"
                    yield text, self._writing(state, number, worker, left, held)
            if not foreign or self._may("foreign"):
                text = f"{name} begins to write out {_revisions(commits)}"
                yield text, self._writing(state, number, worker, commits, held, through)
        if self._may("takeover") and state.head.tail:
            text = f"{name} takes the tail over: {_revisions(state.head.tail)}"
            fresh = Held(state.head.tail, state.head.verdicts, _UNREAD, (), False)
            yield text, self._writing(state, number, worker, fresh.commits, fresh)

    def _writing(
        self,
        state: State,
        number: int,
        worker: Worker,
        commits: tuple[Commit, ...],
        held: Held,
        through: int = 0,
    ) -> State:
        """A write-out of these commits; everything up to ``through`` is written out already."""
        reached = (
            commits[-1].revision if commits else through,
            held.verdicts[-1].number if held.verdicts else 0,
        )
        writing = Writing(
            "read", commits, held.verdicts, held.documents, _UNREAD, reached, (), held.late
        )
        others = any(each.writing for each in state.workers)
        if commits and self._may("parts") and not (others and self._may("one-in-parts")):
            return _with(state, number, worker._replace(writing=writing))
        return self._written(state, number, worker, writing)

    def _written(self, state: State, number: int, worker: Worker, writing: Writing) -> State:
        """The whole of a write-out, without a step of anybody between."""
        through = max(state.head.written, state.head.floor)
        writing = writing._replace(commits=above(writing.commits, through), stored=state.documents)
        for key, document in self._states(writing, _name(number)):
            state = store.write_document(state, key, document, self._has)
        for commit in writing.commits:
            state = store.write_commit(state, commit)
        return self._ended(state, number, worker, writing)

    def _write(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        """One step: a look where it may be late, a read, a document or a commit."""
        writing = worker.writing
        if writing.step == "read":
            yield from self._read(state, number, worker, writing)
        elif writing.step == "documents":
            yield from self._write_documents(state, number, worker, writing)
        else:
            yield from self._write_commits(state, number, worker, writing)

    def _looked(
        self, state: State, number: int, worker: Worker, writing: Writing, *, read: bool
    ) -> Iterator[Step]:
        """What others have written out meanwhile is left out."""
        through = max(state.head.written, state.head.floor)
        commits = above(writing.commits, through)
        after = writing._replace(commits=commits, late=False)
        if after == writing:
            return
        text = f"{_name(number)} looks again: {through} is written out"
        if commits != writing.commits and read and self._has("look-again"):
            after = after._replace(step="read", stored=_UNREAD)
        yield text, self._going_on(state, number, worker, after)

    def _going_on(self, state: State, number: int, worker: Worker, writing: Writing) -> State:
        if not writing.commits:
            return self._ended(state, number, worker, writing)
        return _with(state, number, worker._replace(writing=writing))

    def _unknown(self, writing: Writing) -> list[int]:
        """The keys whose documents must be made by replay."""
        last = {c.key: commit.revision for commit in writing.commits for c in commit.changes}
        return [
            key
            for key, revision in sorted(last.items())
            if writing.documents[key] == UNREAD or writing.documents[key].revision < revision
        ]

    def _read(self, state: State, number: int, worker: Worker, writing: Writing) -> Iterator[Step]:
        unread = [key for key in self._unknown(writing) if writing.stored[key] == UNREAD]
        if writing.stored == _UNREAD:
            yield from self._looked(state, number, worker, writing, read=False)
        if not unread:
            ready = worker._replace(writing=writing._replace(step="documents"))
            yield from self._write_documents(state, number, ready, ready.writing)
            return
        if writing.late and self._has("late-guard") and writing.stored == _UNREAD:
            return
        key = unread[0]
        stored = put_in(writing.stored, key, state.documents[key])
        step = "read" if unread[1:] else "documents"
        after = worker._replace(writing=writing._replace(step=step, stored=stored))
        text = f"{_name(number)} reads {KEYS[key]}, {_told(state.documents[key])}"
        yield text, _with(state, number, after)

    def _write_documents(
        self, state: State, number: int, worker: Worker, writing: Writing
    ) -> Iterator[Step]:
        name = _name(number)
        if not writing.left:
            yield from self._looked(state, number, worker, writing, read=True)
            if writing.late and self._has("late-guard"):
                return
            if not self._has("documents-first"):
                yield from self._insert(state, number, worker, writing)
                return
            writing = writing._replace(left=self._states(writing, name))
        elif self._may("parts"):
            yield f"{name}'s write-out is broken off", self._broken_off(state, number, worker)
        if not writing.left:  # all that there is to write is there
            after = writing._replace(step="commits", stored=_UNREAD, documents=_UNREAD)
            yield from self._write_commits(state, number, worker, after)
            return
        for index, (key, document) in enumerate(writing.left):
            left = writing.left[:index] + writing.left[index + 1 :]
            after = writing._replace(left=left)
            if not left:
                after = after._replace(step="commits", stored=_UNREAD, documents=_UNREAD)
            written = store.write_document(state, key, document, self._has)
            text = f"{name} writes {KEYS[key]}, {_told(document)}"
            yield text, _with(written, number, worker._replace(writing=after))

    def _states(self, writing: Writing, name: str) -> tuple[tuple[int, Any], ...]:
        """The documents that the tail leaves, at hand or by replay."""
        unknown = self._unknown(writing)
        found = []
        for key in sorted({c.key for commit in writing.commits for c in commit.changes}):
            document = writing.documents[key]
            if key in unknown:
                before = writing.stored[key]
                try:
                    document = replayed_all(before, key, writing.commits, self._has)
                except Refused as error:
                    raise Wrong(f"a write-out is refused, {name}'s: {error}") from None
                if document == before:
                    continue
            found.append((key, document))
        return tuple(found)

    def _write_commits(
        self, state: State, number: int, worker: Worker, writing: Writing
    ) -> Iterator[Step]:
        yield from self._looked(state, number, worker, writing, read=False)
        if self._may("parts"):
            yield (
                f"{_name(number)}'s write-out is broken off",
                self._broken_off(state, number, worker),
            )
        if writing.late and self._has("late-guard"):
            return
        yield from self._insert(state, number, worker, writing)

    def _insert(
        self, state: State, number: int, worker: Worker, writing: Writing
    ) -> Iterator[Step]:
        chosen = writing.commits[:1] if self._has("commits-in-order") else writing.commits
        for commit in chosen:
            rest = tuple(each for each in writing.commits if each != commit)
            text = f"{_name(number)} writes commit {commit.revision}"
            after = writing._replace(commits=rest, step="commits")
            yield text, self._going_on(store.write_commit(state, commit), number, worker, after)

    @staticmethod
    def _broken_off(state: State, number: int, worker: Worker) -> State:
        return _with(state, number, worker._replace(writing=NOTHING))

    @staticmethod
    def _ended(state: State, number: int, worker: Worker, writing: Writing) -> State:
        """All is written out up to where it began to."""
        for verdict in writing.verdicts:
            state = store.write_verdict(state, verdict)
        revision, judged = writing.through
        cache, held = worker.cache, worker.held
        if cache:
            head = cache.head
            written = min(max(head.written, revision), head.revision)
            judged_written = min(max(head.judged_written, judged), head.judged)
            cache = cache._replace(
                head=head._replace(
                    written=written,
                    tail=above(head.tail, written),
                    judged_written=judged_written,
                    verdicts=above(head.verdicts, judged_written),
                )
            )
        if held:
            commits, verdicts = above(held.commits, revision), above(held.verdicts, judged)
            own = tuple(each for each in held.own if each > revision)
            held = held._replace(commits=commits, verdicts=verdicts, own=own)
            if not commits and not verdicts:
                held = NOTHING
        return _with(state, number, worker._replace(cache=cache, held=held, writing=NOTHING))

    # Everybody else.

    def _die(self, state: State, number: int, worker: Worker) -> State:
        if worker.round:
            if not any(
                other.round and other.round.request == worker.round.request
                for index, other in enumerate(state.workers)
                if index != number
            ):
                state = state._replace(asked=put_in(state.asked, worker.round.request, 2))
        return _with(state, number, Worker())

    @staticmethod
    def _all_written(state: State) -> bool:
        head = state.head
        kept = {each.id for each in state.kept}
        return store.written_through(state) >= head.revision and all(
            each.id in kept for each in head.verdicts
        )

    def _compact(self, state: State) -> Iterator[Step]:
        through = store.written_through(state)
        if not self._has("floor-written"):
            through = state.head.revision
        for floor in range(state.head.floor + 1, through + 1):
            yield f"the floor rises to {floor}", store.raise_floor(state, floor)
        left = store.sweepable(state)
        for revision, rest in left[:1] if self._has("oldest-first") else left:
            text = f"commit {revision} is swept"
            yield text, state._replace(log=put_in(state.log, revision, rest))
        if not left:
            for key, document in enumerate(state.documents):
                if document and not document.made and document.revision <= state.ripe:
                    yield (
                        f"the tombstone of {KEYS[key]} is purged",
                        state._replace(
                            documents=put_in(state.documents, key, NOTHING),
                            gone=put_in(state.gone, key, document.revision),
                        ),
                    )
        if state.ripe < state.head.floor:
            yield from self._time_passes(state)

    def _time_passes(self, state: State) -> Iterator[Step]:
        """So much that history may be swept; no call of a write-out takes that long."""
        if not self._has("sweep-grace"):
            yield "nobody waits", state._replace(ripe=state.head.floor)
            return
        if any(worker.writing and worker.writing.left for worker in state.workers):
            return
        workers = tuple(
            worker._replace(
                round=worker.round and worker.round._replace(late=True),
                held=worker.held and worker.held._replace(late=True),
                writing=worker.writing and worker.writing._replace(late=True),
            )
            for worker in state.workers
        )
        yield "minutes pass", state._replace(ripe=state.head.floor, workers=workers)

    def _put_back(self, state: State) -> Iterator[Step]:
        """Nobody writes just then: what is under way then can't be told from what is new."""
        if not state.backup:
            kept = (state.head, state.documents, state.log, state.kept, len(state.made))
            if self._all_written(state):  # or what is known to be written out isn't, afterwards
                yield "a backup is made", state._replace(backup=kept)
        elif not state.restored and state.backup[0] != state.head:
            if any(worker[1:] != Worker()[1:] for worker in state.workers):
                return
            head, documents, log, kept, made = state.backup
            yield (
                f"the database is put back to {head.revision}",
                state._replace(
                    head=head,
                    documents=documents,
                    log=log,
                    kept=kept,
                    made=state.made[:made],
                    restored=True,
                ),
            )


def _with(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=put_in(state.workers, number, worker))


def _is_refused(act: str, document: Any) -> bool:
    exists = bool(document and document.made)
    return exists if act == "create" else not exists if act in ("patch", "delete") else False


def _name(number: int) -> str:
    return chr(ord("A") + number)


def _told(document: Any) -> str:
    if not document:
        return "which isn't there"
    return f"{document.revision} made by {list(document.made) or 'a deletion'}"


def _moving(move: Move) -> str:
    if move.verdicts:
        return f"at {move.base} by verdict {move.judged + 1}"
    return f"{move.base} -> {move.commits[-1].revision}"


def _revisions(commits: tuple[Commit, ...]) -> str:
    return ", ".join(str(commit.revision) for commit in commits) or "its verdicts"

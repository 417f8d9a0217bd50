"""Writing out, step by step: looks, reads, documents, commits; it may be broken off between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import store
from .parts import UNREAD_ALL, Parts, Step, as_text, name_of_worker, revisions_text, with_worker
from .values import (
    KEYS,
    NOTHING,
    UNREAD,
    Commit,
    Held,
    Refused,
    State,
    Worker,
    Writing,
    Wrong,
    above,
    put_in,
    replayed_all,
)


class WriteOuts(Parts):
    """Of what a worker holds, and of a head's tail that it takes over."""

    def _begin_writing(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        name, held = name_of_worker(number), worker.held
        if held:
            commits, through = held.commits, 0
            foreign = [c.revision for c in commits if c.revision not in held.own]
            if foreign:
                there = store.written_through(state)
                last = max((revision for revision in foreign if revision <= there), default=0)
                through = max(through, last)
                commits = above(commits, through)  # the others have written it out
                foreign = [revision for revision in foreign if revision > last]
                before = min(foreign, default=0)
                left = tuple(commit for commit in commits if commit.revision < before)
                if foreign and left:
                    text = f"{name} begins to write out {revisions_text(left)}, leaves the rest"
                    yield text, self._writing(state, number, worker, left, held)
            if not foreign or self._may("foreign"):
                text = f"{name} begins to write out {revisions_text(commits)}"
                yield text, self._writing(state, number, worker, commits, held, through)
        if self._may("takeover") and state.head.tail:
            text = f"{name} takes the tail over: {revisions_text(state.head.tail)}"
            fresh = Held(state.head.tail, state.head.verdicts, UNREAD_ALL, (), False)
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
            "read", commits, held.verdicts, held.documents, UNREAD_ALL, reached, (), held.late
        )
        others = any(each.writing for each in state.workers)
        if commits and self._may("parts") and not (others and self._may("one-in-parts")):
            return with_worker(state, number, worker._replace(writing=writing))
        return self._written(state, number, worker, writing)

    def _written(self, state: State, number: int, worker: Worker, writing: Writing) -> State:
        """The whole of a write-out, without a step of anybody between."""
        through = max(state.head.written, state.head.floor)
        writing = writing._replace(commits=above(writing.commits, through), stored=state.documents)
        if writing.late and self._is_lost(state, writing):
            return self._given_up(state, number, worker)
        for key, document in self._states(writing, name_of_worker(number)):
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
        if self._is_lost(state, after):
            text = f"{name_of_worker(number)} looks again: the head went back"
            yield text, self._given_up(state, number, worker)
            return
        text = f"{name_of_worker(number)} looks again: {through} is written out"
        if commits != writing.commits and read and self._has("look-again"):
            after = after._replace(step="read", stored=UNREAD_ALL)
        yield text, self._going_on(state, number, worker, after)

    def _is_lost(self, state: State, writing: Writing) -> bool:
        """Whether the head doesn't know of what it must have."""
        lost = any(commit not in state.head.tail for commit in writing.commits)
        return lost and self._has("gives-up")

    @staticmethod
    def _given_up(state: State, number: int, worker: Worker) -> State:
        """A round that is under way has looked at the head since, or its move will be lost."""
        cache = worker.cache if worker.round else NOTHING
        return with_worker(state, number, Worker(cache, worker.round))

    def _going_on(self, state: State, number: int, worker: Worker, writing: Writing) -> State:
        if not writing.commits:
            return self._ended(state, number, worker, writing)
        return with_worker(state, number, worker._replace(writing=writing))

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
        if writing.stored == UNREAD_ALL:
            yield from self._looked(state, number, worker, writing, read=False)
        if not unread:
            ready = worker._replace(writing=writing._replace(step="documents"))
            yield from self._write_documents(state, number, ready, ready.writing)
            return
        if writing.late and self._has("late-guard") and writing.stored == UNREAD_ALL:
            return
        key = unread[0]
        stored = put_in(writing.stored, key, state.documents[key])
        step = "read" if unread[1:] else "documents"
        after = worker._replace(writing=writing._replace(step=step, stored=stored))
        text = f"{name_of_worker(number)} reads {KEYS[key]}, {as_text(state.documents[key])}"
        yield text, with_worker(state, number, after)

    def _write_documents(
        self, state: State, number: int, worker: Worker, writing: Writing
    ) -> Iterator[Step]:
        name = name_of_worker(number)
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
            after = writing._replace(step="commits", stored=UNREAD_ALL, documents=UNREAD_ALL)
            yield from self._write_commits(state, number, worker, after)
            return
        for index, (key, document) in enumerate(writing.left):
            left = writing.left[:index] + writing.left[index + 1 :]
            after = writing._replace(left=left)
            if not left:
                after = after._replace(step="commits", stored=UNREAD_ALL, documents=UNREAD_ALL)
            written = store.write_document(state, key, document, self._has)
            text = f"{name} writes {KEYS[key]}, {as_text(document)}"
            yield text, with_worker(written, number, worker._replace(writing=after))

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
                f"{name_of_worker(number)}'s write-out is broken off",
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
            text = f"{name_of_worker(number)} writes commit {commit.revision}"
            after = writing._replace(commits=rest, step="commits")
            yield text, self._going_on(store.write_commit(state, commit), number, worker, after)

    @staticmethod
    def _broken_off(state: State, number: int, worker: Worker) -> State:
        return with_worker(state, number, worker._replace(writing=NOTHING))

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
        return with_worker(state, number, worker._replace(cache=cache, held=held, writing=NOTHING))

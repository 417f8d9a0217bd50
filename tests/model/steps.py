"""What may happen next: the steps of workers, of compaction and of those who run the database.

Each step is at most one call of the store, with what its worker makes of the answer. Between two
steps anything else may happen, for any time: that is all that "late", "slow" or "asleep" mean here.
Time is in it at one place alone. History is swept a while after the floor was raised; by then each
write-out is *late*, and no call of one is under way (``time_passes``).
"""

from __future__ import annotations

from collections.abc import Iterator

from . import store
from .parts import Step, name_of_worker, with_worker
from .rounds import Rounds
from .values import KEYS, NOTHING, State, Worker, put_in
from .writing import WriteOuts


class Steps(Rounds, WriteOuts):
    """The steps of one world, where the protocol ``has`` some rules and not others."""

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
                yield f"{name_of_worker(number)} dies", self._die(state, number, worker)
        for index, move in enumerate(state.strays):
            yield from self._arrive(state, index, move)
        if self._may("ends") and state.head.tail and self._all_written(state):
            yield "the janitor ends the tail", store.end_tail(state)
        if self._may("compact"):
            yield from self._compact(state)
        if self._may("restore"):
            yield from self._put_back(state)

    def _die(self, state: State, number: int, worker: Worker) -> State:
        if worker.round and not any(
            other.round and other.round.request == worker.round.request
            for index, other in enumerate(state.workers)
            if index != number
        ):
            state = state._replace(asked=put_in(state.asked, worker.round.request, 2))
        return with_worker(state, number, Worker())

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
        """The database was out of reach before. So write-outs have failed, and read the head before
        they go on."""
        if not state.backup:
            kept = (state.head, state.documents, state.log, state.kept, len(state.made))
            if self._all_written(state):  # or what is known to be written out isn't, afterwards
                yield "a backup is made", state._replace(backup=kept)
        elif not state.restored and state.backup[0] != state.head:
            if any(worker.round for worker in state.workers):
                return
            workers = tuple(
                worker._replace(
                    held=worker.held and worker.held._replace(late=True), writing=NOTHING
                )
                for worker in state.workers
            )
            head, documents, log, kept, made = state.backup
            yield (
                f"the database is put back to {head.revision}",
                state._replace(
                    head=head,
                    documents=documents,
                    log=log,
                    kept=kept,
                    workers=workers,
                    made=state.made[:made],
                    restored=True,
                ),
            )

"""Parts of the commit loop and the store, each with a mistake in it; ``mutations`` tells which."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.commit import inputs, loop, queue
from gateway.decide import decide
from gateway.decide.request import Outcome, Request, Unknown
from gateway.model import CommitRecord, DocumentRecord, Head, HeadMove, Reply, Verdict
from gateway.state import replay as advance
from gateway.state import sharing as shared_reads
from gateway.state import write_out
from gateway.state.cache import Cache, Carried
from gateway.store.contract import Moved, MoveResult, Store
from tests.memory_store import MemoryStore

_move_head = MemoryStore.move_head


def move_anyway(self: MemoryStore, move: HeadMove) -> MoveResult:
    """The head is put where the move wants it, and back where it is turned down all the same."""
    before = dict(self._heads)
    wanted = {field: getattr(move.position, field) for field in move.position._fields}
    self._heads[move.catalog] = replace(before.get(move.catalog) or Head(move.catalog), **wanted)
    result = _move_head(self, move)
    if result is not Moved.WON:
        self._heads = before
    return result


_unwritten = Cache.unwritten


def nothing_carried(self: Cache, catalog: str, tail: Any, verdicts: Any) -> Carried:
    return [], _unwritten(self, catalog, tail, verdicts)[1]


def no_verdicts_carried(self: Cache, catalog: str, tail: Any, verdicts: Any) -> Carried:
    return _unwritten(self, catalog, tail, verdicts)[0], []


def move_unless_committed(self: MemoryStore, move: HeadMove) -> MoveResult:
    """A move that takes no notice of one that carried verdicts alone."""
    current = self._heads.get(move.catalog) or Head(move.catalog)
    if current.revision == move.base and current.judged > move.judged:
        verdicts = [
            replace(each, number=current.judged + place)
            for place, each in enumerate(move.verdicts, 1)
        ]
        known = {"judged": current.judged, "last_verdict": current.last_verdict}
        move = replace(move, **known, verdicts=verdicts)
    return _move_head(self, move)


def nothing_remembered(request: Request, outcome: Outcome) -> bool:  # noqa: ARG001
    return False


def commits_alone(tail: Sequence[Reply]) -> dict[Any, Any]:
    return _replies_in([each for each in tail if isinstance(each, CommitRecord)])


_replies_in = inputs.replies_in


def no_replies_in(tail: object) -> dict[Any, Any]:  # noqa: ARG001
    return {}


_add = write_out.WriteOut.add


def own_commits_alone(
    self: write_out.WriteOut,
    since: Any,
    move: HeadMove,
    carried: Sequence[CommitRecord] = (),  # noqa: ARG001
    judged: Sequence[Verdict] = (),
    documents: Mapping[str, DocumentRecord] = write_out.NOTHING,
) -> None:
    if move.commits:
        _add(self, since, replace(move, written=move.base), (), judged, documents)


def stored_only(*given: Any) -> dict[str, DocumentRecord | None]:
    _store, _meters, _catalog, stored, _tail = given
    return dict(stored)


_decide = loop.Round.decisions


def decide_and_answer(
    self: loop.Round, fresh: Collection[str], guessed: Collection[str]
) -> dict[str, Any]:
    decisions = _decide(self, {c for c in fresh if c in self._batches}, guessed)
    for catalog in guessed:
        if catalog in decisions and not loop._needs_move(decisions[catalog]):
            self._answer(catalog, decisions.pop(catalog))
    return decisions


def never_ours(store: Store, move: HeadMove) -> Moved:  # noqa: ARG001
    return Moved.LOST


def lost_if_unknown(self: loop.Round, catalog: str) -> None:
    self._lost(catalog)


def write_over(self: MemoryStore, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
    for catalog, changed in documents.items():
        for document in changed:
            self._documents[catalog, document.key] = document


def no_replies(store: Store, batches: object) -> dict[str, Any]:  # noqa: ARG001
    return {}


_pure_decide = decide.decide


def decide_by_the_wall_clock(view: Any, *args: Any, **terms: Any) -> Any:
    return _pure_decide(replace(view, time_us=0), *args, **terms)


class _Turned:
    """A store whose two writes of a write-out are given to ``turn``."""

    def __init__(
        self, store: Store, turn: Callable[[Store, Any, list[CommitRecord]], None]
    ) -> None:
        self._store = store
        self._turn = turn
        self._documents: Any = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write_documents(self, documents: Any) -> None:
        self._documents = documents

    def write_commits(self, commits: list[CommitRecord]) -> None:
        self._turn(self._store, self._documents, commits)


_write_out = write_out.write_out


def commits_first(store: Any, *given: Any) -> None:
    def turn(store: Store, documents: Any, commits: list[CommitRecord]) -> None:
        store.write_commits(commits)
        store.write_documents(documents)

    _write_out(_Turned(store, turn), *given)  # type: ignore[arg-type]


def last_commit_first(store: Any, *given: Any) -> None:
    def turn(store: Store, documents: Any, commits: list[CommitRecord]) -> None:
        store.write_documents(documents)
        store.write_commits(commits[::-1])

    _write_out(_Turned(store, turn), *given)  # type: ignore[arg-type]


def read_once(store: Any, runtime: Any, tails: Any, late_s: float) -> Any:
    """The second of two looks leaves out what the documents were read without."""
    unknown = {
        catalog: keys for catalog, of in tails.items() if (keys := write_out.unknown_keys(of))
    }
    stored = store.documents(unknown) if unknown else {}
    write_out.refresh(store, runtime, tails, late_s)
    return stored


_advance = advance.advance


def advance_again(
    document: DocumentRecord | None, commit: CommitRecord, change: Any
) -> DocumentRecord:
    older = document and replace(document, revision=min(document.revision, commit.revision - 1))
    return _advance(older, commit, change)


_still_in_time = queue.still_in_time


def never_late(left: Sequence[queue.Pending], now: float) -> list[queue.Pending]:  # noqa: ARG001
    return _still_in_time(left, float("-inf"))


def enter_anything(self: queue.Pending, stage: queue.Stage) -> None:
    self.stage = stage


def leave_without_leaving(self: queue.Queue, pending: queue.Pending) -> bool:  # noqa: ARG001
    return True


def take(self: queue.Queue) -> dict[str, list[queue.Pending]]:
    mine = self._runtime.event()
    while True:
        with self._lock:
            batches, wait_s = self._collect()
            if batches:
                return batches
            mine.clear()
            self._schedule.idle.append(mine)
        mine.wait(wait_s)
        with self._lock:
            if mine in self._schedule.idle:
                self._schedule.idle.remove(mine)


def all_unknown(batch: Sequence[queue.Pending], decision: Any) -> list[queue.Pending]:  # noqa: ARG001
    for pending in batch:
        pending.answer(Unknown(pending.request.commit_id))
    return []


def join_a_read_under_way(self: Any, names: Collection[str]) -> Any:
    under_way = self.__dict__.setdefault("under_way", {})
    asked = frozenset(names)
    group = under_way.get(asked)
    if group is None:
        group = under_way[asked] = shared_reads._Joinable(asked, self._runtime)
        self._together._free -= 1
        self._together._start(group)
        self._together._read_group(group)
        group.done.set()
        del under_way[asked]
    else:
        group.done.wait()
    if group.error is not None:
        raise group.error
    return group.found


def learn_at_any_revision(
    self: Cache, catalog: str, _: int, documents: Mapping[str, DocumentRecord | None]
) -> None:
    entry = self._entries.get(catalog)
    if entry is not None:
        _learn(self, catalog, entry.revision, documents)


_learn = Cache.learn

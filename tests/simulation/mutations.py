"""Rules of the protocol, each broken on purpose, and the violation that has to show it.

``with broken("head-condition"):`` runs the gateway without that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gateway.commits import (
    advance,
    decide,
    queue,
    resolve,
    round,
    service,
    shared_reads,
    views,
    write_out,
)
from gateway.commits.cache import Cache
from gateway.model import Commit, Document, Head
from gateway.store.contract import Move, Moved, Store
from gateway.store.memory import MemoryStore

Patch = tuple[object, str, Any]


@dataclass(frozen=True)
class Mutation:
    """``kinds``: what the checker must call it, one of them at least (see ``checker``)."""

    rule: str
    kinds: frozenset[str]
    patches: tuple[Patch, ...]


@contextmanager
def broken(name: str) -> Iterator[Mutation]:
    mutation = MUTATIONS[name]
    before = [
        (owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in mutation.patches
    ]
    try:
        for owner, attribute, value in mutation.patches:
            setattr(owner, attribute, value)
        yield mutation
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


def _move_anyway(self: MemoryStore, to: Head) -> Moved:
    self._heads[to.catalog] = to
    return Moved.WON


def _settled_or_not(self: round.Round, catalogs: Collection[str]) -> list[str]:
    standings = self._parts.observer.observe(catalogs, batches=False) if catalogs else {}
    for catalog, standing in standings.items():
        self._parts.cache.begin(catalog, standing.revision, standing.time_us)
    return list(standings)


def _stored_only(document: Document | None, key: str, commits: object) -> Document | None:  # noqa: ARG001
    return document


_decide = round.Round._decide


def _decide_and_answer(
    self: round.Round, fresh: Collection[str], guessed: Collection[str]
) -> dict[str, Any]:
    decisions = _decide(self, [c for c in fresh if c in self._batches], guessed)
    for catalog in guessed:
        if catalog in decisions and not decisions[catalog].commits:
            self._answer(catalog, decisions.pop(catalog))
    return decisions


def _never_ours(store: Store, move: Move) -> Moved:  # noqa: ARG001
    return Moved.LOST


_move_until_known = resolve.move_until_known


def _lost_if_unknown(
    store: Store, runtime: Any, moves: Sequence[Move], deadline: Callable[[str], float]
) -> Mapping[str, Moved]:
    known = _move_until_known(store, runtime, moves, deadline)
    return {move.to.catalog: known.get(move.to.catalog, Moved.LOST) for move in moves}


def _write_over(self: MemoryStore, documents: Mapping[str, Sequence[Document]]) -> None:
    for catalog, changed in documents.items():
        for document in changed:
            self._documents[catalog, document.key] = document


def _no_replies(store: Store, batches: object) -> dict[str, Any]:  # noqa: ARG001
    return {}


_pure_decide = decide.decide


def _decide_by_the_wall_clock(view: Any, *args: Any, now_us: int, bounds: Any) -> Any:
    return _pure_decide(replace(view, time_us=0), *args, now_us=now_us, bounds=bounds)


def _commits_first(
    store: Store,
    batches: Mapping[str, Sequence[Commit]],
    documents: Mapping[str, Sequence[Document]],
) -> None:
    store.write_commits([commit for batch in batches.values() for commit in batch])
    store.write_documents(documents)


def _last_commit_first(
    store: Store,
    batches: Mapping[str, Sequence[Commit]],
    documents: Mapping[str, Sequence[Document]],
) -> None:
    store.write_documents(documents)
    store.write_commits([commit for batch in batches.values() for commit in reversed(batch)])


_advance = advance.advance


def _advance_again(document: Document | None, commit: Commit, change: Any) -> Document:
    older = document and replace(document, revision=min(document.revision, commit.revision - 1))
    return _advance(older, commit, change)


def _leave_without_leaving(self: queue.Queue, pending: queue.Pending) -> bool:  # noqa: ARG001
    return True


def _join_a_look_under_way(self: Any, catalog: str) -> Any:
    under_way = self.__dict__.setdefault("under_way", {})
    group = under_way.get(catalog)
    if group is None:
        group = under_way[catalog] = shared_reads._Group(self._runtime)
        group.catalogs.add(catalog)
        group.turn.set()
        self._lead(group)
        del under_way[catalog]
    else:
        group.done.wait()
    if group.error is not None:
        raise group.error
    return group.standings[catalog]


def _learn_at_any_revision(
    self: Cache, catalog: str, _: int, documents: Mapping[str, Document | None]
) -> None:
    entry = self._entries.get(catalog)
    if entry is not None:
        _learn(self, catalog, entry.revision, documents)


_learn = Cache.learn


def _write_out(run: object) -> tuple[Patch, ...]:
    return ((write_out, "write_out", run), (round, "write_out", run))


def _mutation(rule: str, kinds: str, *patches: Patch) -> Mutation:
    return Mutation(rule, frozenset(kinds.split()), patches)


MUTATIONS: Mapping[str, Mutation] = {
    "head-condition": _mutation(
        "a head moves only from the revision that was decided on",
        "log",
        (MemoryStore, "_move", _move_anyway),
    ),
    "writers-write-out": _mutation(
        "nobody writes on top of a batch that isn't written out",
        "history untrue-commit",
        (round.Round, "_settled", _settled_or_not),
    ),
    "readers-write-out": _mutation(
        "a reader lays the unfinished batch over what is stored",
        "read",
        (service, "advance_all", _stored_only),
    ),
    "fresh-head": _mutation(
        "refusals and no-ops are decided on a head read after the call",
        "untrue-refusal untrue-no-op",
        (round.Round, "_decide", _decide_and_answer),
    ),
    "commit-id-lookup": _mutation(
        "a move that broke off and was then lost is looked up by its commit id",
        "twice applied-anyway",
        (resolve, "_whose", _never_ours),
    ),
    "unknown-is-not-lost": _mutation(
        "a move whose end isn't known is not made again for another head",
        "twice applied-anyway",
        (round, "move_until_known", _lost_if_unknown),
    ),
    "documents-guard": _mutation(
        "a document is written over older ones only",
        "documents read untrue-commit",
        (MemoryStore, "write_documents", _write_over),
    ),
    "idempotency-lookup": _mutation(
        "a used idempotency key is looked up before anything is decided",
        "twice",
        (views, "_replies", _no_replies),
    ),
    "increasing-times": _mutation(
        "a commit is later than the one before it, whatever the clock says",
        "time",
        (round, "decide", _decide_by_the_wall_clock),
    ),
    "documents-before-commits": _mutation(
        "the commits are written out after the documents",
        "documents read untrue-commit",
        *_write_out(_commits_first),
    ),
    "commits-in-order": _mutation(
        "the commits are written out in order, so that the last one proves the others",
        "history read untrue-commit untrue-refusal defect",
        *_write_out(_last_commit_first),
    ),
    "replay-is-idempotent": _mutation(
        "a change is not applied to a document that has it already",
        "documents read untrue-commit defect",
        (advance, "advance", _advance_again),
    ),
    "leave-the-queue": _mutation(
        "a request is told that its time is over only when nobody can take it up any more",
        "applied-anyway",
        (queue.Queue, "leave", _leave_without_leaving),
    ),
    "readers-look-afterwards": _mutation(
        "a reader shares a look at the head only if it began after the reader came",
        "read",
        (shared_reads.SharedReads, "standing", _join_a_look_under_way),
    ),
    "cached-at-a-revision": _mutation(
        "what was read from the store is cached only where the catalog still is at that revision",
        "read untrue-commit untrue-refusal untrue-no-op defect",
        (Cache, "learn", _learn_at_any_revision),
    ),
}

"""Rules of the protocol, each broken on purpose, and the violation that has to show it.

``with broken("head-condition"):`` runs the gateway without that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.commits import advance, queue, resolve, round, service, shared_reads, views, write_out
from gateway.commits.cache import Cache
from gateway.store.memory import MemoryStore

from . import breakages
from .plan import Plan, crowded, doubtful, forgetful, quiet, watchful

Patch = tuple[object, str, Any]


def _as_chosen(chosen: Plan) -> Plan:
    return chosen


@dataclass(frozen=True)
class Mutation:
    """``kinds``: what the checker must call it, one of them at least (see ``checker``).

    ``adjust`` makes histories of a kind that shows it sooner.
    """

    rule: str
    kinds: frozenset[str]
    patches: tuple[Patch, ...]
    adjust: Callable[[Plan], Plan] = _as_chosen


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


def _write_out(run: object) -> tuple[Patch, ...]:
    return ((write_out, "write_out", run), (round, "write_out", run))


def _mutation(
    rule: str, kinds: str, *patches: Patch, adjust: Callable[[Plan], Plan] = _as_chosen
) -> Mutation:
    return Mutation(rule, frozenset(kinds.split()), patches, adjust)


MUTATIONS: Mapping[str, Mutation] = {
    "head-condition": _mutation(
        "a head moves only from the revision that was decided on",
        "log",
        (MemoryStore, "_move", breakages.move_anyway),
    ),
    "writers-write-out": _mutation(
        "nobody writes on top of a batch that isn't written out",
        "history untrue-commit",
        (round.Round, "_settled", breakages.settled_or_not),
    ),
    "readers-write-out": _mutation(
        "a reader lays the unfinished batch over what is stored",
        "read",
        (service, "advance_all", breakages.stored_only),
    ),
    "fresh-head": _mutation(
        "refusals and no-ops are decided on a head read after the call",
        "untrue-refusal untrue-no-op",
        (round.Round, "_decide", breakages.decide_and_answer),
    ),
    "commit-id-lookup": _mutation(
        "a move that broke off and was then lost is looked up by its commit id",
        "twice applied-anyway",
        (resolve, "_whose", breakages.never_ours),
    ),
    "unknown-is-not-lost": _mutation(
        "a move whose end isn't known is not made again for another head",
        "twice applied-anyway",
        (round, "move_until_known", breakages.lost_if_unknown),
    ),
    "documents-guard": _mutation(
        "a document is written over older ones only",
        "documents read untrue-commit",
        (MemoryStore, "write_documents", breakages.write_over),
    ),
    "idempotency-lookup": _mutation(
        "a used idempotency key is looked up before anything is decided",
        "twice",
        (views, "_replies", breakages.no_replies),
    ),
    "increasing-times": _mutation(
        "a commit is later than the one before it, whatever the clock says",
        "time",
        (round, "decide", breakages.decide_by_the_wall_clock),
    ),
    "documents-before-commits": _mutation(
        "the commits are written out after the documents",
        "documents read untrue-commit",
        *_write_out(breakages.commits_first),
    ),
    "commits-in-order": _mutation(
        "the commits are written out in order, so that the last one proves the others",
        "history read untrue-commit untrue-refusal defect",
        *_write_out(breakages.last_commit_first),
        adjust=crowded,
    ),
    "replay-is-idempotent": _mutation(
        "a change is not applied to a document that has it already",
        "documents read untrue-commit defect",
        (advance, "advance", breakages.advance_again),
    ),
    "leave-the-queue": _mutation(
        "a request is told that its time is over only when nobody can take it up any more",
        "applied-anyway",
        (queue.Queue, "leave", breakages.leave_without_leaving),
    ),
    "guess-once": _mutation(
        "a guess that can't be decided is decided on the head",
        "defect late",
        (round.Round, "_decide", breakages.decide_or_go_back),
    ),
    "back-in-time": _mutation(
        "what goes back after its deadline is told so at once",
        "late",
        (queue, "_in_time", lambda left, now: list(left)),  # noqa: ARG005
    ),
    "pausing-lanes": _mutation(
        "somebody looks after the lanes that pause while a leader is busy",
        "neglected",
        (queue.Queue, "take", breakages.take),
        adjust=quiet,
    ),
    "only-doubts-are-unknown": _mutation(
        "only what may have been committed is unknown",
        "late",
        (round, "_in_doubt", breakages.all_in_doubt),
        adjust=doubtful,
    ),
    "readers-look-afterwards": _mutation(
        "a reader shares a look at the head only if it began after the reader came",
        "read",
        (shared_reads.SharedReads, "standing", breakages.join_a_look_under_way),
        adjust=watchful,
    ),
    "cached-at-a-revision": _mutation(
        "what was read from the store is cached only where the catalog still is at that revision",
        "read untrue-commit untrue-refusal untrue-no-op defect",
        (Cache, "learn", breakages.learn_at_any_revision),
        adjust=forgetful,
    ),
}

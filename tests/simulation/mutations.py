"""Rules of the protocol, each broken on purpose, and the violation that has to show it.

``with broken("head-condition"):`` runs the gateway without that rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway import catalogs
from gateway.commit import inputs, loop, queue, series
from gateway.decide import compares, decide, performing, rebase
from gateway.decide.ranges import RangeState
from gateway.feed import channel as watch_channel
from gateway.feed import channel as watch_log
from gateway.feed import from_state as feed_from_state
from gateway.feed import hub as watch_hub
from gateway.read import current, listing
from gateway.read import history as gateway_history
from gateway.retention import compaction
from gateway.state import heads, write_out
from gateway.state import history_sweep as sweeper
from gateway.state import replay as advance
from gateway.state import sharing as shared_reads
from gateway.state.cache import Cache
from tests.memory_store import MemoryStore

from . import breakages
from . import breakages_of_history as history
from .mutation import Mutation, Patch, mutation
from .mutations_of_lists import LISTS
from .mutations_of_owners import OWNING
from .mutations_of_repeatables import REPEATING
from .plan import ranging
from .plans import (
    belated,
    breaking_off,
    crowded,
    deafened,
    deleting,
    doubtful,
    followed,
    forgetful,
    from_state,
    hurried,
    keeping,
    kept_and_followed,
    kept_ranges,
    quiet,
    sleeping,
    standing,
    tardy,
    timed,
    watchful,
)


@contextmanager
def broken(name: str) -> Iterator[Mutation]:
    chosen = MUTATIONS[name]
    before = [
        (owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in chosen.patches
    ]
    try:
        for owner, attribute, value in chosen.patches:
            setattr(owner, attribute, value)
        yield chosen
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


def _write_out(run: object) -> tuple[Patch, ...]:
    return ((write_out, "write_out", run), (heads, "write_out", run))


MUTATIONS: Mapping[str, Mutation] = {
    "head-condition": mutation(
        "a head moves only from the revision that was decided on",
        "log",
        (MemoryStore, "move_head", breakages.move_anyway),
    ),
    "drops-only-written": mutation(
        "a move drops from the tail only what is written out",
        "history documents read untrue-commit untrue-refusal snapshot defect twice",
        (Cache, "unwritten", breakages.nothing_carried),
    ),
    "whole-tail-in-order": mutation(
        "who writes a commit out has written out all below it",
        "history documents read untrue-commit snapshot defect twice",
        (write_out.WriteOut, "add", breakages.own_commits_alone),
    ),
    "tail-overlay": mutation(
        "a reader lays the tail over what is stored",
        "read",
        (current, "laid_over", breakages.stored_only),
    ),
    "writers-overlay": mutation(
        "a decision lays the tail over what is stored",
        "untrue-commit untrue-refusal untrue-no-op",
        (inputs, "laid_over", breakages.stored_only),
        adjust=forgetful,
    ),
    "replies-in-tail": mutation(
        "a used idempotency key is looked for in the tail",
        "twice",
        (inputs, "replies_in", breakages.no_replies_in),
    ),
    "verdicts-move": mutation(
        "a move also asks that no verdict was given meanwhile",
        "twice forgotten",
        (MemoryStore, "move_head", breakages.move_unless_committed),
    ),
    "verdicts-stay": mutation(
        "a move drops only verdicts that are written out",
        "twice forgotten",
        (Cache, "unwritten", breakages.no_verdicts_carried),
    ),
    "verdicts-in-tail": mutation(
        "a used idempotency key is looked for among the head's verdicts",
        "twice forgotten",
        (inputs, "replies_in", breakages.commits_alone),
    ),
    "decides-once": mutation(
        "an idempotency key stands for an outcome without a commit, too",
        "forgotten",
        (decide, "is_remembered", breakages.nothing_remembered),
    ),
    "floor-below-written": mutation(
        "the floor rises only to what is written out",
        "history documents snapshot read defect",
        (compaction.CatalogCompaction, "compact", history.compact_unsettled),
        adjust=keeping,
    ),
    "settle-by-written": mutation(
        "who needs the log waits until it is written out",
        "history read snapshot untrue-refusal",
        (heads.Settler, "settle", history.settled_at_once),
    ),
    "tail-ends-written": mutation(
        "the janitor ends only tails that are written out",
        "history documents read untrue-commit snapshot defect",
        (heads.Settler, "finish", history.finished_at_once),
    ),
    "fresh-head": mutation(
        "refusals and no-ops are decided on a head read after the call",
        "untrue-refusal untrue-no-op",
        (loop.Round, "decisions", breakages.decide_and_answer),
        adjust=hurried,
    ),
    "commit-id-lookup": mutation(
        "a move that broke off and was then lost is looked up by its commit id",
        "twice applied-anyway",
        (loop, "_was_made", breakages.never_ours),
    ),
    "unknown-is-not-lost": mutation(
        "a move whose end isn't known is not made again for another head",
        "twice applied-anyway",
        (loop.Round, "_doubt", breakages.lost_if_unknown),
    ),
    "documents-guard": mutation(
        "a document is written over older ones only",
        "documents read untrue-commit",
        (MemoryStore, "write_documents", breakages.write_over),
    ),
    "idempotency-lookup": mutation(
        "a used idempotency key is looked up before anything is decided",
        "twice",
        (inputs, "earlier_replies", breakages.no_replies),
    ),
    "increasing-times": mutation(
        "a commit is later than the one before it, whatever the clock says",
        "time",
        (loop, "decide", breakages.decide_by_the_wall_clock),
    ),
    "documents-before-commits": mutation(
        "the commits are written out after the documents",
        "documents read untrue-commit",
        *_write_out(breakages.commits_first),
    ),
    "look-again": mutation(
        "what a late look leaves out is read anew",
        "defect",
        (write_out, "read_stored", breakages.read_once),
        adjust=tardy,
    ),
    "commits-in-order": mutation(
        "the commits are written out in order, so that the last one proves the others",
        "history read untrue-commit untrue-refusal defect",
        *_write_out(breakages.last_commit_first),
        adjust=crowded,
    ),
    "replay-is-idempotent": mutation(
        "a change is not applied to a document that has it already",
        "documents read untrue-commit defect",
        (advance, "advance", breakages.advance_again),
    ),
    "leave-the-queue": mutation(
        "a request is told that its time is over only when nobody can take it up any more",
        "applied-anyway",
        (queue.Queue, "leave", breakages.leave_without_leaving),
        (queue.Pending, "enter", breakages.enter_anything),
    ),
    "back-in-time": mutation(
        "what goes back after its deadline is told so at once",
        "late",
        (queue, "still_in_time", breakages.never_late),
        adjust=belated,
    ),
    "pausing-lanes": mutation(
        "somebody looks after the lanes that pause while a leader is busy",
        "neglected",
        (queue.Queue, "take", breakages.take),
        adjust=quiet,
    ),
    "only-doubts-are-unknown": mutation(
        "only what may have been committed is unknown",
        "late",
        (loop, "answered_unknown", breakages.all_unknown),
        adjust=doubtful,
    ),
    "readers-look-afterwards": mutation(
        "a reader shares a look at the head only if it began after the reader came",
        "read",
        (shared_reads.SharedReads, "read", breakages.join_a_read_under_way),
        adjust=watchful,
    ),
    "cached-at-a-revision": mutation(
        "what was read from the store is cached only where the catalog still is at that revision",
        "read untrue-commit untrue-refusal untrue-no-op defect",
        (Cache, "learn", breakages.learn_at_any_revision),
        adjust=forgetful,
    ),
    "compares-in-order": mutation(
        "a compare sees what the requests before it in the batch have left",
        "untrue-commit untrue-refusal",
        (compares.CompareChecker, "failures", history.compare_before_the_batch),
    ),
    "ranges-in-order": mutation(
        "a range has changed by what the requests before it in the batch did",
        "untrue-commit untrue-refusal untrue-no-op",
        (RangeState, "__init__", history.nothing_of_the_batch),
        adjust=ranging,
    ),
    "ranges-overlay": mutation(
        "a range is read with the tail laid over what is stored",
        "untrue-commit untrue-refusal untrue-no-op",
        (inputs, "overlaid", history.ranges_as_stored),
        adjust=ranging,
    ),
    "ranges-floor": mutation(
        "what was unchanged is told down to the floor, and no further",
        "untrue-commit untrue-refusal untrue-no-op",
        (inputs, "changed_since", history.changed_though_compacted),
        adjust=kept_ranges,
    ),
    "done-before": mutation(
        "a transaction that was done before holds, though its compares don't any more",
        "untrue-refusal untrue-commit",
        (decide.RequestDecision, "holds_already", history.never_done),
    ),
    "touch": mutation(
        "a touch makes a commit that changes nothing",
        "untrue-no-op",
        (performing.RequestDrafts, "perform", history.touch_nothing),
    ),
    "rebase": mutation(
        "a patch is rebased only over changes that don't concern it",
        "untrue-commit",
        (rebase, "overlapping", history.nothing_overlaps),
    ),
    "whole-batches": mutation(
        "who writes a tail out writes all of its documents",
        "documents read untrue-commit snapshot",
        (write_out, "states", history.first_state_alone),
    ),
    "bulk-order": mutation(
        "writes that come together are done in the order given, catalog by catalog",
        "bulk",
        (series.Series, "put", history.put_backwards),
        (series.Series, "take", history.take_backwards),
    ),
    "held-back": mutation(
        "behind a write that may come again, none is done on its document of what came with it",
        "bulk",
        (queue.Pending, "is_held_back", lambda self: False),  # noqa: ARG005
    ),
    "hold-what-is-answered": mutation(
        "a batch that a request has left is decided anew, whether it moves the head or not",
        "bulk applied-anyway",
        (queue.Queue, "hold", lambda self, batches: set(batches)),  # noqa: ARG005
    ),
    "doubt-goes-on": mutation(
        "behind a write in doubt, what came with it is in doubt on its document",
        "bulk",
        (series.Series, "is_in_doubt", lambda self, document: False),  # noqa: ARG005
        adjust=standing,
    ),
    "deletion-of-all": mutation(
        "what is there to be deleted with a catalog is found when that is decided",
        "untrue-commit",
        (catalogs.CatalogWide, "deletion_of", history.delete_what_was_listed),
        adjust=deleting,
    ),
    "looks-are-decided": mutation(
        "a key stands also for there being no catalog to delete",
        "forgotten",
        (catalogs, "_deletion_of_none", history.tell_at_once),
        adjust=deleting,
    ),
    "one-revision": mutation(
        "documents that are told together are rebuilt as of one revision",
        "snapshot",
        (listing.Listing, "as_of", history.as_it_is_now),
    ),
    "floor-last": mutation(
        "who lists looks at the floor last",
        "snapshot history",
        (listing.Listing, "require_above_floor", history.whatever_the_floor),
        adjust=keeping,
    ),
    "present-stays": mutation(
        "the present is looked at again where compaction overtakes it",
        "history",
        (listing, "not_overtaken", history.read_once),
        adjust=keeping,
    ),
    "provisional-times": mutation(
        "a time above that of the newest commit is provisional",
        "history",
        (gateway_history, "final_at", history.always_final),
        adjust=timed,
    ),
    "pins-hold": mutation(
        "no floor is raised above a pin",
        "pin",
        (compaction, "lowest_pin", history.nothing_pinned),
        (compaction, "lowest_pin", history.nothing_pinned),
        (MemoryStore, "raise_floor", history.raise_floor_anyway),
        adjust=keeping,
    ),
    "oldest-first": mutation(
        "a sweep drops what is older first",
        "documents history snapshot",
        (sweeper.Sweeper, "apply", history.newest_first),
        adjust=breaking_off,
    ),
    "late-guard": mutation(
        "who writes out late looks whether history was compacted meanwhile",
        "documents history snapshot read",
        (write_out, "refresh", history.never_late),
        adjust=sleeping,
    ),
    "signals-are-hints": mutation(
        "the heads are looked at, whatever the signals tell",
        "feed",
        (watch_hub.Hub, "read_heads", history.give_up_alone),
        adjust=deafened,
    ),
    "rings-end": mutation(
        "what a ring has dropped is read from the log",
        "feed defect",
        (watch_channel.Channel, "covers", history.covers_all),
        adjust=followed,
    ),
    "nobody-is-passed-over": mutation(
        "a watcher that waits is moved on only past what it doesn't want",
        "feed",
        (watch_channel.Channel, "release", history.move_all_on),
        adjust=followed,
    ),
    "whole-commits": mutation(
        "nothing is told of what a sweep may have cut down",
        "feed",
        (watch_log.WatchLog, "page", history.page_of_what_is_left),
        adjust=kept_and_followed,
    ),
    "state-goes-on": mutation(
        "a list of documents that was cut off goes on at the revision that it began at",
        "feed",
        (feed_from_state.FeedsFromState, "begin", history.begin_at_the_present),
        adjust=from_state,
    ),
    "state-of-the-watcher": mutation(
        "the documents that a feed begins with are of the revision that its watcher joined at",
        "feed",
        (feed_from_state.FeedsFromState, "_export", history.list_the_present),
        adjust=from_state,
    ),
    **OWNING,
    **LISTS,
    **REPEATING,
}

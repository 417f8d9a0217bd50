"""A move in doubt: applied, refused or unknown, never a guess.

Where the connection breaks around a move, the move may have happened, or may still happen later
on the server. The same move is sent again, with the same commit ids, until the answer is
definite: it asks for the same head as before, so it can win once at the most. If the head turns
out to be elsewhere, the commit at the first revision of the batch says whose it is, or its first
verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from msgspec.structs import replace

from gateway.commit.queue import Pending
from gateway.decide.request import Applied, Decision, Unknown
from gateway.model import HeadMove
from gateway.store.contract import Moved, Store

FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


def longer(pause_s: float) -> float:
    """The pause before the next try, after one of ``pause_s``."""
    return min(2 * pause_s, _LONGEST_PAUSE_S)


def moved_once_more(store: Store, move: HeadMove) -> Moved | None:
    """What became of a move in doubt, which is sent again; None where it still isn't known.

    A refusal says nothing of the copy that was sent before. Raises StoreUnreachable.
    """
    # What was sent may yet win when another worker leaves the line: a move that is sent again
    # passes all claims, so that it is lost only where the head is elsewhere.
    result = store.move_heads([replace(move, passes_all=True)]).get(move.catalog)
    if result is Moved.LOST:
        return whose(store, move)
    return result if result is Moved.WON else None


def whose(store: Store, move: HeadMove) -> Moved | None:
    """Whether the move was made: its first commit, or verdict, is looked up by its id.

    None where that can't be told any more: history was compacted beyond it meanwhile.
    """
    if not move.commits:
        return _whose_verdict(store, move)
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


def _whose_verdict(store: Store, move: HeadMove) -> Moved | None:
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

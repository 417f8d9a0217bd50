"""Moving heads until it is known who won: applied, refused or unknown, never a guess.

Where the connection breaks around a move, the move may have happened, or may still happen later
on the server. The same move is sent again, with the same commit ids, until the answer is
definite: it asks for the same head as before, so it can win once at the most. If the head turns
out to be elsewhere, the commit at the first revision of the batch says whose it is, or its first
verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from gateway.model import Move
from gateway.runtime import Runtime
from gateway.store.contract import Moved, Store, Unreachable, Unsent

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


def move_until_known(
    store: Store,
    runtime: Runtime,
    moves: Sequence[Move],
    deadline: Callable[[str], float],
) -> Mapping[str, Moved]:
    """By catalog what became of its move; a catalog is missing where that can't be known.

    ``deadline(catalog)`` is the monotonic time until which the catalog's requests can wait. Raises
    Unsent where no move was made, and none will be.
    """
    known: dict[str, Moved] = {}
    left = {move.catalog: move for move in moves}
    broken = False
    pause_s = _FIRST_PAUSE_S
    while left:
        try:
            moved = store.move_heads(list(left.values()))
            for catalog, result in moved.items():
                doubtful = result is Moved.LOST and broken
                truth = whose(store, left[catalog]) if doubtful else result
                if truth is not None:
                    known[catalog] = truth
                del left[catalog]
        except Unreachable as error:
            if isinstance(error, Unsent) and not broken:
                raise
            broken = True
            # What was sent may yet win when another worker leaves the line: a move that is sent
            # again passes all claims, so that it is lost only where the head is elsewhere.
            left = {catalog: replace(move, passes_all=True) for catalog, move in left.items()}
            runtime.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            now = runtime.monotonic()
            left = {catalog: move for catalog, move in left.items() if deadline(catalog) > now}
    return known


def whose(store: Store, move: Move) -> Moved | None:
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


def _whose_verdict(store: Store, move: Move) -> Moved | None:
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

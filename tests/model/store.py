"""The store as the protocol sees it: each function is one atomic step of the database.

``tests.model.conformance`` holds what the gateway's own code does in a simulation to these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .values import KEYS, NOTHING, Change, Commit, Doc, Head, Move, State, Verdict, above, put_in

Has = Callable[[str], bool]


def takes(head: Head, move: Move, has: Has) -> bool:
    """Whether the head is still what the move was decided on."""
    revision = not has("head-condition") or head.revision == move.base
    commit = not (has("head-condition") and has("last-commit")) or head.last == move.last
    verdict = (head.judged, head.ruling) == (move.judged, move.ruling)
    return revision and commit and (verdict or not has("verdict-with-move"))


def moved(head: Head, move: Move) -> Head:
    """The head that a won move leaves."""
    written = max(head.written, move.written)
    judged_written = max(head.judged_written, move.judged_written)
    verdicts = tuple(
        each._replace(number=head.judged + place) for place, each in enumerate(move.verdicts, 1)
    )
    head = head._replace(
        written=written,
        tail=(*above(head.tail, written), *move.commits),
        judged=head.judged + len(verdicts),
        judged_written=judged_written,
        verdicts=(*above(head.verdicts, judged_written), *verdicts),
    )
    if move.commits:
        head = head._replace(revision=move.commits[-1].revision, last=move.commits[-1].id)
    if verdicts:
        head = head._replace(ruling=verdicts[-1].id)
    return head


def win(state: State, move: Move) -> State:
    head = moved(state.head, move)
    return state._replace(
        head=head,
        made=(*state.made, *move.commits),
        ruled=(*state.ruled, *head.verdicts[len(head.verdicts) - len(move.verdicts) :]),
    )


def write_document(state: State, key: int, document: Doc, has: Has) -> State:
    """Over an older one alone."""
    stored = state.documents[key]
    if has("documents-guard") and stored and stored.revision >= document.revision:
        return state
    return state._replace(documents=put_in(state.documents, key, document))


def write_commit(state: State, commit: Commit) -> State:
    """One that is there already stays as it is. In the place of one that isn't: ()."""
    missing = commit.revision + 1 - len(state.log)
    log = (*state.log, *(NOTHING,) * missing)
    if log[commit.revision]:
        return state
    return state._replace(log=put_in(log, commit.revision, commit))


def write_verdict(state: State, verdict: Verdict) -> State:
    there = any(each.key == verdict.key for each in state.kept)
    return state if there else state._replace(kept=tuple(sorted((*state.kept, verdict))))


def end_tail(state: State) -> State:
    """Everything is written out."""
    head = state.head
    return state._replace(
        head=head._replace(written=head.revision, tail=(), judged_written=head.judged, verdicts=())
    )


def raise_floor(state: State, floor: int) -> State:
    written = max(state.head.written, floor)
    head = state.head._replace(floor=floor, written=written, tail=above(state.head.tail, written))
    return state._replace(head=head)


def written_through(state: State) -> int:
    """Up to where commits are there without a gap, above what compaction may have taken."""
    through = state.head.floor
    while through + 1 < len(state.log) and state.log[through + 1]:
        through += 1
    return through


def between(state: State, low: int, high: int) -> tuple[Commit, ...]:
    """The commits above ``low`` up to ``high``, as far as they are there without a gap."""
    found = []
    for commit in state.log[low + 1 : high + 1]:
        if not commit:
            break
        found.append(commit)
    return tuple(found)


def needed(state: State, floor: int) -> set[tuple[int, int]]:
    """By key and revision, the changes at or below the floor that its state is rebuilt from."""
    found = set()
    for key in range(len(KEYS)):
        for commit in reversed(state.log[: floor + 1]):
            change = next((c for c in (commit[2] if commit else ()) if c.key == key), None)
            if change is None or change.act == "reduced":
                continue
            if change.act != "delete":
                found.add((key, commit.revision))
            if change.is_whole:
                break
    return found


def sweepable(state: State) -> list[tuple[int, Any]]:
    """What a sweep up to ``ripe`` has still to do, ascending: revisions, and what is left there."""
    keep = needed(state, state.ripe)
    found = []
    for commit in state.log[: state.ripe + 1]:
        if not commit:
            continue
        changes = tuple(
            change
            if (change.key, commit.revision) in keep or change.act == "delete"
            else Change(change.key, "reduced")
            for change in commit.changes
        )
        is_needed = any((change.key, commit.revision) in keep for change in commit.changes)
        is_kept = is_needed or commit.key or commit.revision == state.ripe
        left = commit._replace(changes=changes) if is_kept else NOTHING
        if left != commit:
            found.append((commit.revision, left))
    return found

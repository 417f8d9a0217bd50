"""Writing out behind the answers: what heads have in their tails is copied to where it is read.

Worked example. The catalog is at 7, all written out. This worker moves the head to 8 and answers;
while it writes 8 out it moves the head to 9 and to 10, and answers. Of 9 and 10 it writes out each
document once, as 10 left it, then both commits. Another worker that moved the head to 9 meanwhile
would have carried 8 along in its tail. It leaves 8 to its maker for a while, and writes it out
before its own 9 if it still isn't there.

A write-out waits a moment for more moves, unless somebody waits for it. So moves share one also
where a single client waits for each of its answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import Commit, Document, Move, Verdict
from gateway.runtime import Event, Runtime
from gateway.state.cache import Cache
from gateway.state.tail import (
    LONG_AGO,
    Moment,
    Tail,
    WentBack,
    copied,
    leave_out_foreign,
    moment,
    write_out,
)
from gateway.store.contract import Store, Unreachable

_log = logging.getLogger(__name__)

NOTHING: Final[Mapping[str, Document]] = {}

# Doubled with each failure in a row.
_PAUSE_S = 0.05
_PAUSE_MAX_S = 5.0
_WRITERS = 2
# So long, and for no more than so many.
_LINGER_S = 0.01
_LINGER_MOVES = 4
# What other workers made is left to them for a while, and looked for this often.
_LOOK_AGAIN_S = 0.003
# What a worker may take for each commit of its tail, on a busy machine.
_GRACE_PER_COMMIT_S = 0.002
# Sightings are only hints of how long a tail has been unfinished; forgetting them costs a wait.
_SIGHTINGS_MAX = 10_000


class Patience:
    """For how long tails have been left to the workers that made them. Not thread-safe."""

    def __init__(self, runtime: Runtime, limits: ServiceLimits) -> None:
        self._runtime = runtime
        self._grace_s = limits.write_out_grace_ms / 1000
        self._seen: dict[str, tuple[int, float]] = {}

    def is_over(self, catalog: str, revision: int, commits: int) -> bool:
        """Whether its makers had time for what they made up to ``revision``: so many commits."""
        grace_s = self._grace_s
        if grace_s:
            grace_s += _GRACE_PER_COMMIT_S * commits
        now = self._runtime.monotonic()
        seen, since = self._seen.get(catalog, (revision, now))
        if seen < revision:  # who asks for less shares the time of who asked for more
            seen, since = revision, now
        if now - since >= grace_s:
            self._seen.pop(catalog, None)
            return True
        if len(self._seen) > _SIGHTINGS_MAX:
            self._seen.clear()
        self._seen[catalog] = (seen, since)
        return False


@dataclass(slots=True)
class _Outstanding:
    """A catalog's tail, as far as this process has it to write out, in moves."""

    tail: Tail
    # To which revision and verdict, and when.
    moved: list[tuple[tuple[int, int], float]] = field(default_factory=list)
    size_bytes: int = 0
    busy: bool = False
    lost: bool = False  # what is being written out was never made
    failures: int = 0  # in a row
    not_before: float = 0.0
    awaited: bool = False  # somebody waits for it to be written out


class WriteOut:
    """Writes out in the background what this process has moved heads by.

    One write-out of a catalog is under way at a time, many catalogs share one. Thread-safe.
    """

    def __init__(
        self,
        store: Store,
        cache: Cache,
        runtime: Runtime,
        limits: ServiceLimits,
        written: Callable[[str], None],
        meters: Meters = NO_METERS,
    ) -> None:
        """``written`` is called with each catalog of which something was written out."""
        self._store = store
        self._cache = cache
        self._runtime = runtime
        self._late_s = limits.retention.late_s
        self._kept_s = limits.retention.idempotency_s
        # A tail that is half full is in the way of the next moves.
        self._full_commits = limits.tail_commits_max // 2
        self._full_bytes = limits.tail_bytes_max // 2
        self._written = written
        self._meters = meters
        self._lock = runtime.lock()
        self._outstanding: dict[str, _Outstanding] = {}
        self._patience = Patience(runtime, limits)
        self._idle: list[Event] = []

    def start(self) -> None:
        for number in range(_WRITERS):
            self._runtime.spawn(self._run, f"writer-{number}")

    def moves(self, catalog: str) -> int:
        """How many moves of the catalog are still to be written out."""
        outstanding = self._outstanding.get(catalog)
        return 0 if outstanding is None else len(outstanding.moved)

    def has_room(self, catalog: str, commits_max: int, bytes_max: int) -> bool:
        """Whether what is to be written out of the catalog is below these bounds."""
        held = self._outstanding.get(catalog)
        return held is None or (
            len(held.tail.commits) + len(held.tail.verdicts) < commits_max
            and held.size_bytes < bytes_max
        )

    def add(
        self,
        since: Moment,
        move: Move,
        carried: Sequence[Commit] = (),
        judged: Sequence[Verdict] = (),
        documents: Mapping[str, Document] = NOTHING,
    ) -> None:
        """A head was moved, over a tail that was ``carried`` along, and verdicts, ``judged``.

        They were in it after ``since``. The move may have nothing of its own.
        """
        with self._lock:
            held = self._outstanding.get(move.catalog)
            if held is None:
                held = self._outstanding[move.catalog] = _Outstanding(Tail(since, move.written))
            tail = held.tail
            tail.drop(move.written)
            tail.drop_verdicts(move.judged_written)
            known, known_verdict = tail.reached
            foreign = [commit for commit in carried if commit.revision > known]
            if foreign:
                tail.foreign.append((foreign[0].revision, foreign[-1].revision))
            tail.join(since, (*foreign, *move.commits))
            tail.verdicts += [each for each in judged if each.number > known_verdict]
            tail.verdicts += move.verdicts
            tail.documents.update(documents)
            held.moved.append((move.reached, self._runtime.monotonic()))
            held.size_bytes = tail.size_bytes
            self._wake_one()

    def forget(self, catalog: str) -> None:
        """The catalog went back: what is to be written out of it was never made."""
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is None:
                return
            held.tail, held.moved, held.size_bytes = Tail(moment(self._runtime)), [], 0
            if held.busy:
                held.lost = True
            else:
                del self._outstanding[catalog]

    def hurry(self, catalog: str) -> None:
        """Somebody waits for what this process has to write out of the catalog."""
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is not None and not held.awaited:
                held.awaited = True
                self._wake_one()

    def _due_at(self, held: _Outstanding) -> float:
        """When to write it out."""
        is_full = (
            len(held.moved) >= _LINGER_MOVES
            or len(held.tail.commits) + len(held.tail.verdicts) >= self._full_commits
            or held.size_bytes >= self._full_bytes
        )
        if held.awaited or is_full or not held.moved:
            return held.not_before
        return max(held.not_before, held.moved[0][1] + _LINGER_S)

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().set()

    def _run(self) -> None:
        while True:
            self._write(self._take())

    def _take(self) -> dict[str, Tail]:
        """What is due, by catalog; waits for it."""
        mine = self._runtime.event()
        while True:
            with self._lock:
                now = self._runtime.monotonic()
                idle = {c: held for c, held in self._outstanding.items() if not held.busy}
                due = {c: held for c, held in idle.items() if self._due_at(held) <= now}
                for held in due.values():
                    held.busy, held.awaited = True, False
                if due:
                    return {c: copied(held.tail) for c, held in due.items()}
                wait_s = min((self._due_at(held) - now for held in idle.values()), default=None)
                mine.clear()
                self._idle.append(mine)
            mine.wait(wait_s)
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)

    def _write(self, tails: Mapping[str, Tail]) -> None:
        ours = {catalog: copied(tail) for catalog, tail in tails.items()}
        through = {catalog: tail.reached for catalog, tail in tails.items()}
        try:
            leave_out_foreign(self._store, ours)
            left = self._leave_to_others(ours)
            write_out(self._store, self._runtime, ours, self._late_s, self._kept_s, self._meters)
        except Unreachable as error:
            _log.warning("writing out was broken off: %s", error)
            self._put_off(tails)
        except Exception as error:  # noqa: BLE001
            # One catalog's trouble is no other's: somebody edited its documents by hand, say.
            if len(tails) > 1:
                for catalog, tail in tails.items():
                    self._write({catalog: tail})
                return
            (catalog,) = tails
            if isinstance(error, WentBack):
                self._cache.lost(catalog, str(error))
                self._put_off(tails)
                return
            about = {"catalog": catalog}
            _log.exception("the tail of %r can't be written out", catalog, extra=about)
            self._put_off(tails)
        else:
            self._end({**through, **{c: (left[c], through[c][1]) for c in left}}, left)

    def _leave_to_others(self, tails: Mapping[str, Tail]) -> dict[str, int]:
        """Leave what others made, and what comes after it, unless they had their time for it, or
        moves of this worker wait behind one another: two workers would wait for each other.

        Returns up to where that is written out then which was not left to them.
        """
        left = {}
        with self._lock:
            for catalog, tail in tails.items():
                if len(self._outstanding[catalog].moved) > 1:
                    continue
                for first, last in tail.foreign[:1]:
                    if not self._patience.is_over(catalog, last, last - first + 1):
                        tail.leave(first)
                        left[catalog] = first - 1
        return left

    def _put_off(self, catalogs: Iterable[str]) -> None:
        with self._lock:
            for catalog in catalogs:
                held = self._outstanding[catalog]
                # Whatever the database was away for: it may have been put back.
                held.tail.since, held.lost = LONG_AGO, False
                pause_s = min(_PAUSE_S * 2**held.failures, _PAUSE_MAX_S)
                held.busy, held.failures = False, min(held.failures + 1, 10)
                held.not_before = self._runtime.monotonic() + pause_s
            self._wake_one()

    def _end(self, through: Mapping[str, tuple[int, int]], left: Collection[str]) -> None:
        """All is written out up to there; of the catalogs ``left``, look at the rest soon."""
        lost = {catalog for catalog in through if self._outstanding[catalog].lost}
        self._put_off(lost)
        through = {catalog: reached for catalog, reached in through.items() if catalog not in lost}
        for catalog, (revision, judged) in through.items():
            self._cache.wrote(catalog, revision)
            self._cache.wrote_verdicts(catalog, judged)
        with self._lock:
            now = self._runtime.monotonic()
            for catalog, (revision, judged) in through.items():
                held = self._outstanding[catalog]
                held.tail.drop(revision)
                held.tail.drop_verdicts(judged)
                held.busy, held.failures = False, 0
                held.not_before = now + _LOOK_AGAIN_S if catalog in left else 0.0
                waiting = []
                for reached, moved in held.moved:
                    if held.tail.has_of(reached):
                        waiting.append((reached, moved))
                    else:
                        self._meters.written_out(now - moved)
                held.moved = waiting
                held.size_bytes = held.tail.size_bytes
                if not held.tail.commits and not held.tail.verdicts:
                    del self._outstanding[catalog]
            if self._outstanding:
                self._wake_one()
        for catalog in through:
            self._written(catalog)

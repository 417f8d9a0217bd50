"""Writing out behind the answers: what heads have in their tails is copied to where it is read.

Worked example. The catalog is at 7, all written out. This worker moves the head to 8 and answers;
while it writes 8 out it moves the head to 9 and to 10, and answers. Of 9 and 10 it writes out each
document once, as 10 left it, then both commits. Another worker that moved the head to 9 meanwhile
would have carried 8 along in its tail. It leaves 8 to its maker for a while, and writes it out
before its own 9 if it still isn't there.

A write-out waits a moment for more moves, unless somebody waits for it. So moves share one also
where a single client waits for each of its answers.

Many catalogs share one write-out, as many as a call of the store can well be for. One that fails is
tried again catalog by catalog (``gateway.state.suspects``), by writers of their own; and one that
fails for a catalog alone, with half of its commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import CommitRecord, DocumentRecord, HeadMove, Verdict
from gateway.runtime import Event, Moment, Runtime, moment
from gateway.state.cache import Cache
from gateway.state.suspects import Suspects
from gateway.state.write_out import (
    LONG_AGO,
    Patience,
    Tail,
    WentBack,
    leave_out_foreign,
    write_out,
)
from gateway.store.contract import Store, StoreUnreachable, Unsent

_log = logging.getLogger(__name__)

NOTHING: Final[Mapping[str, DocumentRecord]] = {}

# Doubled with each failure in a row.
_PAUSE_S = 0.05
_PAUSE_MAX_S = 5.0
_WRITERS = 2
_WRITERS_APART = 2
# A write-out is for so many catalogs, and bytes of commits and documents, unless it is for one.
_CATALOGS_MAX = 256
_BYTES_MAX = 4 * 1024 * 1024
# So long, and for no more than so many.
_LINGER_S = 0.01
_LINGER_MOVES = 4
# The next move waits for so many to be written out; for fewer, where it is a large batch's.
_MOVES_MAX = 8
_LARGE_MOVES_MAX = 4
# What other workers made is left to them for a while, and looked for this often.
_LOOK_AGAIN_S = 0.003


@dataclass(slots=True)
class _Outstanding:
    """A catalog's tail, as far as this process has it to write out, in moves."""

    tail: Tail
    # To which revision and verdict, and when.
    moved: list[tuple[tuple[int, int], float]] = field(default_factory=list)
    size_bytes: int = 0
    writer: object = None  # the write-out that is under way
    lost: bool = False  # what is being written out was never made
    failures: int = 0  # in a row
    not_before: float = 0.0
    look_at: float | None = None  # when it is looked at next
    awaited: bool = False  # somebody waits for it to be written out


class _Line:
    """The catalogs that one kind of writers looks at, by time."""

    def __init__(self) -> None:
        self.later: list[tuple[float, str]] = []  # a heap
        self.idle: list[Event] = []

    def add(self, at: float, catalog: str) -> None:
        heappush(self.later, (at, catalog))
        if self.later[0] == (at, catalog):
            self.wake()

    def wake(self) -> None:
        if self.idle:
            self.idle.pop().set()


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
        meters: Meters = NO_METERS,
    ) -> None:
        self._store = store
        self._cache = cache
        self._runtime = runtime
        self._limits = limits
        self._late_s = limits.retention.late_s
        self._kept_s = limits.retention.idempotency_s
        # A tail that is half full is in the way of the next moves.
        self._full_commits = limits.tail_commits_max // 2
        self._full_bytes = limits.tail_bytes_max // 2
        self._written: Callable[[str], None] = lambda _: None
        self._meters = meters
        self._lock = runtime.lock()
        self._outstanding: dict[str, _Outstanding] = {}
        self._patience = Patience(runtime, limits)
        self._suspects = Suspects(runtime, "writing out")
        self._line, self._apart = _Line(), _Line()
        self._has_apart = False
        cache.when_back(self.forget)

    def when_written(self, written: Callable[[str], None]) -> None:
        """``written`` is called with each catalog of which something was written out."""
        self._written = written

    def start(self) -> None:
        for number in range(_WRITERS):
            self._runtime.spawn(lambda: self._run(self._line), f"writer-{number}")

    def _start_apart(self) -> None:
        if not self._has_apart:
            self._has_apart = True
            for number in range(_WRITERS_APART):
                self._runtime.spawn(lambda: self._run(self._apart), f"writer-apart-{number}")

    def moves(self, catalog: str) -> int:
        """How many moves of the catalog are still to be written out."""
        outstanding = self._outstanding.get(catalog)
        return 0 if outstanding is None else len(outstanding.moved)

    def may_move(self, catalog: str, next_is_large: bool) -> bool:
        """Whether the catalog's head may move on, though not all is written out.

        A batch that waits grows; one that is large already needn't.
        """
        held, limits = self._outstanding.get(catalog), self._limits
        if held is None:
            return True
        moves, replies = len(held.moved), len(held.tail.commits) + len(held.tail.verdicts)
        if next_is_large:
            return (
                moves < _LARGE_MOVES_MAX
                and replies < _LARGE_MOVES_MAX * limits.batch_requests_max
                and held.size_bytes < limits.batch_bytes_max // 2
            )
        return (
            moves < _MOVES_MAX
            and replies < limits.tail_commits_max
            and held.size_bytes < limits.tail_bytes_max
        )

    def add(
        self,
        since: Moment,
        move: HeadMove,
        carried: Sequence[CommitRecord] = (),
        judged: Sequence[Verdict] = (),
        documents: Mapping[str, DocumentRecord] = NOTHING,
    ) -> None:
        """A head was moved, over a tail that was ``carried`` along, and verdicts, ``judged``.

        They were in it after ``since``. The move may have nothing of its own.
        """
        with self._lock:
            held = self._outstanding.get(move.catalog)
            if held is None:
                held = self._outstanding[move.catalog] = _Outstanding(Tail(since, move.written))
            held.tail.follow(since, move, carried, judged, documents)
            held.size_bytes = held.tail.size_bytes
            held.moved.append((move.reached, self._runtime.monotonic()))
            self._look_at(move.catalog, held)

    def forget(self, catalog: str) -> None:
        """The catalog went back: what is to be written out of it was never made."""
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is None:
                return
            held.tail, held.moved, held.size_bytes = Tail(moment(self._runtime)), [], 0
            if held.writer is not None:
                held.lost = True
            else:
                del self._outstanding[catalog]

    def hurry(self, catalog: str) -> None:
        """Somebody waits for what this process has to write out of the catalog."""
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is not None and not held.awaited:
                held.awaited = True
                self._look_at(catalog, held)

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

    def _look_at(self, catalog: str, held: _Outstanding) -> None:
        """Have a writer look at it when it is due."""
        due_at = self._due_at(held)
        if held.writer is None and (held.look_at is None or due_at < held.look_at):
            held.look_at = due_at
            is_apart = catalog in self._suspects
            if is_apart:
                self._start_apart()
            (self._apart if is_apart else self._line).add(due_at, catalog)

    def _run(self, line: _Line) -> None:
        mine = self._runtime.event()
        while True:
            tails, writer = self._take(line, mine)
            try:
                self._write(tails)
            except Exception:  # noqa: BLE001 - a writer must outlive any defect
                _log.exception("a write-out failed")
                self._put_off(tails)
            self._let_go(tails, writer)

    def _take(self, line: _Line, mine: Event) -> tuple[dict[str, Tail], object]:
        """What is due, by catalog, and what names this write-out; waits for it, and for ``mine``,
        which is set when something is due before that."""
        while True:
            with self._lock:
                now = self._runtime.monotonic()
                tails = self._due(line, now)
                wait_s = line.later[0][0] - now if line.later else None
                if tails:
                    if wait_s is not None:
                        line.wake()
                    writer = object()
                    for catalog in tails:
                        self._outstanding[catalog].writer = writer
                    return tails, writer
                mine.clear()
                line.idle.append(mine)
            mine.wait(wait_s)
            with self._lock:
                if mine in line.idle:
                    line.idle.remove(mine)

    def _due(self, line: _Line, now: float) -> dict[str, Tail]:
        tails: dict[str, Tail] = {}
        size_bytes = 0
        while line.later and line.later[0][0] <= now:
            if len(tails) >= _CATALOGS_MAX or size_bytes >= _BYTES_MAX:
                break
            when, catalog = heappop(line.later)
            held = self._outstanding.get(catalog)
            if held is None or held.look_at != when:
                continue
            held.look_at = None
            is_apart = catalog in self._suspects
            if is_apart is not (line is self._apart) or self._due_at(held) > now:
                self._look_at(catalog, held)
                continue
            held.awaited = False
            tails[catalog] = tail = held.tail.share(held.failures)
            size_bytes += tail.size_bytes + tail.documents_bytes
            if is_apart:
                break
        return tails

    def _write(self, tails: Mapping[str, Tail]) -> None:
        began = self._runtime.monotonic()
        try:
            left = self._leave_to_others(tails)
            through = {catalog: tail.reached for catalog, tail in tails.items()}
            write_out(self._store, self._runtime, tails, self._late_s, self._kept_s, self._meters)
        except Unsent as error:  # that is everybody's trouble
            _log.warning("writing out was broken off: %s", error)
            self._put_off(tails)
        except Exception as error:  # noqa: BLE001 - a defect, or what somebody edited by hand
            self._failed(tails, error)
        else:
            self._suspects.worked(tails, began)
            self._end(through, left)

    def _failed(self, tails: Mapping[str, Tail], error: Exception) -> None:
        """Several are tried again one by one, at once: it may be the trouble of one of them."""
        self._suspects.failed(tails)
        if len(tails) > 1:
            _log.warning("a write-out was broken off: %s", error)
            self._put_off(tails, pauses=False)
            return
        (catalog,) = tails
        about = {"catalog": catalog}
        if isinstance(error, WentBack):
            self._cache.lost(catalog, str(error))
        elif isinstance(error, StoreUnreachable):
            _log.warning("the tail of %r can't be written out: %s", catalog, error, extra=about)
        else:
            text = "the tail of %r can't be written out"
            _log.error(text, catalog, exc_info=error, extra=about)
        self._put_off(tails)

    def _leave_to_others(self, tails: Mapping[str, Tail]) -> set[str]:
        """Leave what others made, and what comes after it, unless they had their time for it, or
        moves of this worker wait behind one another: two workers would wait for each other.

        Returns the catalogs of which some was left to them.
        """
        left = set()
        foreign = {catalog: tail for catalog, tail in tails.items() if tail.foreign}
        if foreign:
            leave_out_foreign(self._store, foreign)
        with self._lock:
            for catalog, tail in foreign.items():
                if len(self._outstanding[catalog].moved) > 1:
                    continue
                for first, last in tail.foreign[:1]:
                    if not self._patience.is_over(catalog, last, last - first + 1):
                        tail.leave(first)
                        left.add(catalog)
        return left

    def _put_off(self, catalogs: Iterable[str], *, pauses: bool = True) -> None:
        with self._lock:
            now = self._runtime.monotonic()
            for catalog in catalogs:
                held = self._outstanding.get(catalog)
                if held is not None:
                    # Whatever the database was away for: it may have been put back.
                    held.tail.since, held.lost = LONG_AGO, False
                    if pauses:
                        held.not_before = now + min(_PAUSE_S * 2**held.failures, _PAUSE_MAX_S)
                        held.failures = min(held.failures + 1, 10)

    def _let_go(self, catalogs: Iterable[str], writer: object) -> None:
        """The write-out has ended, in whatever way."""
        with self._lock:
            for catalog in catalogs:
                held = self._outstanding.get(catalog)
                if held is not None and held.writer is writer:
                    held.writer = None
                    self._look_at(catalog, held)

    def _end(self, through: Mapping[str, tuple[int, int]], left: Collection[str]) -> None:
        """All is written out up to there; of the catalogs ``left``, look at the rest soon."""
        lost = {catalog for catalog in through if self._outstanding[catalog].lost}
        self._put_off(lost)
        through = {catalog: reached for catalog, reached in through.items() if catalog not in lost}
        for catalog, (revision, judged) in through.items():
            self._cache.wrote(catalog, revision, judged)
        took: list[float] = []
        with self._lock:
            now = self._runtime.monotonic()
            for catalog, (revision, judged) in through.items():
                held = self._outstanding[catalog]
                if held.tail.reached == (revision, judged):  # as a rule: nothing has come meanwhile
                    took += [now - moved for _, moved in held.moved]
                    del self._outstanding[catalog]
                    continue
                held.tail.drop(revision)
                held.tail.drop_verdicts(judged)
                held.failures = 0
                held.not_before = now + _LOOK_AGAIN_S if catalog in left else 0.0
                took += [now - moved for at, moved in held.moved if not held.tail.has_of(at)]
                held.moved = [each for each in held.moved if held.tail.has_of(each[0])]
                held.size_bytes = held.tail.size_bytes
                if not held.tail.commits and not held.tail.verdicts:
                    del self._outstanding[catalog]
        for catalog in through:
            try:
                self._written(catalog)
            except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
                _log.exception("what waits for the tail of %r isn't told", catalog)
        for seconds in took:
            self._meters.written_out(seconds)

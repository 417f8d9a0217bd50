"""Writing out behind the answers: the tails of heads are copied to ``documents`` and ``commits``.

Worked example. The catalog is at 7, all written out. This worker moves the head to 8 and answers;
while it writes 8 out, it moves the head to 9 and to 10, and answers. Then it writes each document
that 9 and 10 changed once, as 10 left it, and both commits. If another worker had moved the head to
9 meanwhile, it would have carried 8 along in its tail. It leaves writing 8 out to the worker that
committed it, for a while. If 8 still isn't written out then, it writes 8 out before its own 9.

*A tail* is written out documents first, then commits in their order. So the presence of a commit
proves that everything up to it is written out. A tail may be written out twice, or by several
workers at once: each document is written only over an older one, and each commit is inserted once.

*The schedule.* A write-out waits a moment for more moves, unless somebody waits for it. So moves
share a write-out even if a single client waits for each of its answers. Many catalogs share one
write-out, as many as one call of the store can handle. If it fails, it is tried again catalog by
catalog, by separate writers (``gateway.state.sharing``); if it fails for a single catalog, with
half of the commits.

*A write-out that slept* must not bring back what compaction removed. History is removed only
``RetentionLimits.sweep_grace_s`` after the floor has passed it, and the floor passes only what is
written out. So whatever was in a tail at some moment may be written for that long, whatever others
do. A worker that has taken half of that time reads the head again before it sends more, and leaves
out what is written out by then. Both clocks are used: the monotonic one may stand still while a
machine sleeps, and the wall clock may be set back.

The documents that were read before the head may lack the commits that are left out, so they are
read again.

*A database that was put back* to an earlier state knows nothing of the tail. It was away before
that. So after a failed write-out, the worker reads the head before it goes on, and gives up what
isn't in the head's tail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import Final

from gateway.errors import Contradiction
from gateway.limits import MIB, ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import CommitRecord, DocumentRecord, Head, HeadMove, Reply, Verdict
from gateway.runtime import Event, Moment, Runtime, elapsed_s, moment
from gateway.state.cache import Cache
from gateway.state.replay import laid_over, stored_documents
from gateway.state.sharing import Suspects
from gateway.store.contract import Store, StoreUnreachable, Unsent

_log = logging.getLogger(__name__)

NOTHING: Final[Mapping[str, DocumentRecord]] = {}

# The pause after a failed write-out; doubled with each failure in a row.
_PAUSE_S = 0.05
_PAUSE_MAX_S = 5.0
_WRITERS = 2
_WRITERS_APART = 2
# The most catalogs, and bytes of commits and documents, of one write-out. The last catalog of a
# write-out may exceed the bytes.
_CATALOGS_MAX = 256
_BYTES_MAX = 4 * MIB
# How long a write-out waits for another move, and for how long in all, unless the tail is half full
# before.
_LINGER_S = 0.02
_LINGER_MAX_S = 0.05
# With this many moves of a catalog to write out, its next move waits if its batch is large.
_LARGE_MOVES_MAX = 4
# How often a worker checks whether others have written their own commits out.
_CHECK_AGAIN_S = 0.003
# How long a worker may need for each commit of its tail, on a busy machine.
_GRACE_PER_COMMIT_S = 0.002
# The most catalogs in ``Patience``. If it forgets when it first saw their tails, they wait longer.
_SIGHTINGS_MAX = 10_000
# The ``since`` of a tail that may no longer be in the head: the head is read before it is written.
_LONG_AGO = Moment(float("-inf"), -(2**62))


class WentBack(Exception):
    """The head lacks commits or verdicts that were in it: the database was put back."""

    def __init__(self, catalog: str, reply_id: str, head: Head) -> None:
        super().__init__(f"{reply_id}, to be written out, isn't in the head at {head.position}")
        self.catalog = catalog


@dataclass(slots=True)
class Tail:
    """The commits and verdicts of one catalog that are to be written out; each ascending without a
    gap. They were still in the catalog's head at some moment after ``since``.

    Everything up to ``written`` is written out; the commits follow. ``documents`` are states that
    these commits left, as far as this worker has them. ``foreign`` contains the stretches, (first
    revision, last revision), that other workers committed and write out themselves, unless they
    died. ``later`` contains pairs of a revision and a moment, ascending: the commits above that
    revision were in the head after that moment.
    """

    since: Moment
    written: int = 0
    commits: list[CommitRecord] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    documents: dict[str, DocumentRecord] = field(default_factory=dict)
    foreign: list[tuple[int, int]] = field(default_factory=list)
    later: list[tuple[int, Moment]] = field(default_factory=list)

    def follow(
        self,
        since: Moment,
        move: HeadMove,
        carried: Sequence[CommitRecord],
        judged: Sequence[Verdict],
        documents: Mapping[str, DocumentRecord],
    ) -> None:
        """Add a won move, with the commits ``carried`` along and the verdicts ``judged``. All of
        these were in the head after ``since``. Carried commits that this tail lacks were made by
        others."""
        self.drop(move.written)
        self.drop_verdicts(move.judged_written)
        known, known_verdict = self.reached
        foreign = [commit for commit in carried if commit.revision > known]
        if foreign:
            self.foreign.append((foreign[0].revision, foreign[-1].revision))
        self.join(since, (*foreign, *move.commits))
        self.verdicts += [each for each in judged if each.number > known_verdict]
        self.verdicts += move.verdicts
        self.documents.update(documents)

    def join(self, since: Moment, commits: Iterable[CommitRecord]) -> None:
        """Add the next commits, which were in the head after ``since``."""
        self.later.append((self.reached[0], since))
        self.commits += commits
        self._find_since()

    def note_in_head(self, at: Moment) -> None:
        """Note that all commits and verdicts were in the head after ``at``."""
        self.since = at
        self.later.clear()

    def drop(self, revision: int) -> None:
        """Leave out the commits up to ``revision``, which are written out."""
        if revision <= self.written:
            return
        self.written = revision
        self.commits = [commit for commit in self.commits if commit.revision > revision]
        self.documents = {k: d for k, d in self.documents.items() if d.revision > revision}
        self.foreign = [stretch for stretch in self.foreign if stretch[1] > revision]
        self._find_since()

    def _find_since(self) -> None:
        while self.later and self.later[0][0] <= self.written:
            _, self.since = self.later.pop(0)

    def drop_verdicts(self, number: int) -> None:
        """Leave out the verdicts up to ``number``, which are written out."""
        self.verdicts = [verdict for verdict in self.verdicts if verdict.number > number]

    @property
    def reached(self) -> tuple[int, int]:
        """The last revision, and the number of the last verdict; 0 without one."""
        revision = self.commits[-1].revision if self.commits else self.written
        return revision, self.verdicts[-1].number if self.verdicts else 0

    def has_of(self, reached: tuple[int, int]) -> bool:
        """Whether it has a commit or a verdict up to ``reached``."""
        revision, judged = reached
        return any(each.revision <= revision for each in self.commits[:1]) or any(
            each.number <= judged for each in self.verdicts[:1]
        )

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in chain[Reply](self.commits, self.verdicts))

    @property
    def documents_bytes(self) -> int:
        return sum(each.size_bytes for each in self.documents.values())

    def share(self, failures: int) -> Tail:
        """The part to write out at once: half as many commits after each failure in a row."""
        tail = Tail(
            self.since,
            self.written,
            list(self.commits),
            list(self.verdicts),
            dict(self.documents),
            list(self.foreign),
            list(self.later),
        )
        if failures and len(self.commits) > 1:
            count = len(self.commits) >> failures
            tail.leave(self.commits[max(count, 1)].revision)
        return tail

    def leave(self, first: int) -> None:
        """Leave out the commits from ``first`` on."""
        self.commits = [commit for commit in self.commits if commit.revision < first]


def write_out(
    store: Store,
    runtime: Runtime,
    tails: Mapping[str, Tail],
    late_s: float,
    kept_s: int,
    meters: Meters = NO_METERS,
) -> None:
    """Write these tails out, leaving out of them what others have written out.

    Raises StoreUnreachable, WentBack, and what ``laid_over`` raises for a tail that doesn't fit.
    """
    has_commits = any(tail.commits for tail in tails.values())
    refresh(store, runtime, tails, late_s)
    verdicts = [each for tail in tails.values() for each in tail.verdicts]
    if verdicts:
        # The key of an expired verdict may have decided something else since.
        kept_since_us = runtime.now_us() - kept_s * 1_000_000
        verdicts = [each for each in verdicts if each.time_us > kept_since_us]
    if verdicts:
        store.write_verdicts(verdicts, kept_s)
        refresh(store, runtime, tails, late_s)  # that may have taken long
    if not has_commits:
        return
    stored = read_stored(store, runtime, tails, late_s)
    store.write_documents(
        {catalog: states(store, meters, catalog, tail, stored) for catalog, tail in tails.items()}
    )
    refresh(store, runtime, tails, late_s)
    store.write_commits([commit for tail in tails.values() for commit in tail.commits])


def read_stored(
    store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float
) -> Mapping[tuple[str, str], DocumentRecord]:
    """The stored documents that replay starts from. They contain at least all commits below their
    tails."""
    while True:
        unknown = {catalog: keys for catalog, tail in tails.items() if (keys := unknown_keys(tail))}
        if not unknown:
            return {}
        stored = stored_documents(store, unknown)
        if not refresh(store, runtime, tails, late_s):
            return stored


def refresh(store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float) -> bool:
    """Read the heads of tails that are late, and leave out what others have written out; return
    whether commits were left out.

    If reading took so long that tails are late again, it is repeated. Raises WentBack and
    StoreUnreachable.
    """
    dropped = False
    while True:
        now = moment(runtime)
        late: dict[str, Tail] = {}
        for catalog, tail in tails.items():
            if elapsed_s(tail.since, now) > late_s:
                late[catalog] = tail
        if late:
            heads = store.tails(late)
            for catalog, tail in late.items():
                dropped |= _leave_out_written(catalog, tail, heads.get(catalog) or Head(catalog))
                tail.note_in_head(now)
        if not late or not late_s or elapsed_s(now, moment(runtime)) <= late_s:
            return dropped


def _leave_out_written(catalog: str, tail: Tail, head: Head) -> bool:
    """Leave out what is written out according to ``head``, which must have the rest; return whether
    commits were left out. Raises WentBack."""
    had = len(tail.commits)
    tail.drop(max(head.written, head.floor))
    tail.drop_verdicts(head.judged_written)
    carried = {each.id for each in chain[Reply](head.tail or (), head.verdicts or ())}
    for each in chain[Reply](tail.commits, tail.verdicts):
        if each.id not in carried:
            raise WentBack(catalog, each.id, head)
    return len(tail.commits) < had


def _leave_out_foreign(store: Store, tails: Mapping[str, Tail]) -> None:
    """Leave out the foreign commits that their makers have written out themselves."""
    foreign = {c: [last for _, last in tail.foreign] for c, tail in tails.items() if tail.foreign}
    if foreign:
        for catalog, revision in store.last_written(foreign).items():
            tails[catalog].drop(revision)


def _last_changes(tail: Tail) -> dict[str, int]:
    """By key, the revision of its last change."""
    return {change.key: commit.revision for commit in tail.commits for change in commit.changes}


def unknown_keys(tail: Tail) -> list[str]:
    """The keys whose states must be made by replay, because another worker changed them."""
    return [
        key
        for key, revision in _last_changes(tail).items()
        if key not in tail.documents or tail.documents[key].revision < revision
    ]


def states(
    store: Store,
    meters: Meters,
    catalog: str,
    tail: Tail,
    stored: Mapping[tuple[str, str], DocumentRecord],
) -> list[DocumentRecord]:
    """The states that the tail leaves: those that the tail has, and the others by replay.

    A stored document may already have some of the commits, or all. Raises as ``laid_over``.
    """
    left: dict[str, DocumentRecord] = {}
    before: dict[str, DocumentRecord | None] = {}
    for key, revision in _last_changes(tail).items():
        document = tail.documents.get(key)
        if document is None or document.revision < revision:
            before[key] = stored.get((catalog, key))
        else:
            left[key] = document
    if before:
        for key, document in laid_over(store, meters, catalog, before, tail.commits).items():
            if document is not None and document is not before[key]:
                left[key] = document
    return list(left.values())


class Patience:
    """How long tails have been left to the workers that made them. Not thread-safe."""

    def __init__(self, runtime: Runtime, limits: ServiceLimits) -> None:
        self._runtime = runtime
        self._grace_s = limits.write_out_grace_ms / 1000
        self._reached: dict[str, tuple[int, float]] = {}

    def is_over(self, catalog: str, revision: int, commits: int) -> bool:
        """Whether the makers of a tail of ``commits`` commits, up to ``revision``, have had their
        time to write it out."""
        grace_s = self._grace_s
        if grace_s:
            grace_s += _GRACE_PER_COMMIT_S * commits
        now = self._runtime.monotonic()
        reached, since = self._reached.get(catalog, (revision, now))
        if reached < revision:  # for a lower revision, the time of the higher one counts
            reached, since = revision, now
        if now - since >= grace_s:
            self._reached.pop(catalog, None)
            return True
        if len(self._reached) > _SIGHTINGS_MAX:
            self._reached.clear()
        self._reached[catalog] = (reached, since)
        return False


@dataclass(slots=True)
class _Outstanding:
    """What this process still has to write out of a catalog."""

    tail: Tail
    # For each move, the revision and verdict that it reached, and its time in monotonic seconds.
    moved: list[tuple[tuple[int, int], float]] = field(default_factory=list)
    size_bytes: int = 0
    writer: object = None  # the write-out that is under way
    lost: bool = False  # the catalog went back during the write-out
    failures: int = 0  # in a row
    not_before: float = 0.0
    check_at: float | None = None  # when a writer checks it next
    awaited: bool = False  # somebody waits for it to be written out


class _Line:
    """The catalogs that one kind of writers has to check, by time."""

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
    """Writes out in the background the tails of the heads that this process has moved.

    A catalog has at most one write-out under way; many catalogs share one. Thread-safe.
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
        self._kept_s = limits.replies_kept_s
        # A tail that is half full is written out at once: it would soon delay the next moves.
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
        """Have ``written`` called with each catalog of which something was written out."""
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
        """Whether the catalog's head may move on, although not everything is written out.

        While the move waits, the next batch grows. A batch that is large already needn't grow, so
        it waits for fewer moves, but not for a few commits.
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
        return replies < limits.tail_commits_max and held.size_bytes < limits.tail_bytes_max

    def add(
        self,
        since: Moment,
        move: HeadMove,
        carried: Sequence[CommitRecord] = (),
        judged: Sequence[Verdict] = (),
        documents: Mapping[str, DocumentRecord] = NOTHING,
    ) -> None:
        """Write out a won move, with the commits ``carried`` along and the verdicts ``judged``.

        All of these were in the head after ``since``. The move may have no commits of its own.
        ``documents`` are the states that its commits left.
        """
        with self._lock:
            held = self._outstanding.get(move.catalog)
            if held is None:
                held = self._outstanding[move.catalog] = _Outstanding(Tail(since, move.written))
            held.tail.follow(since, move, carried, judged, documents)
            held.size_bytes = held.tail.size_bytes
            held.moved.append((move.reached, self._runtime.monotonic()))
            self._schedule(move.catalog, held)

    def forget(self, catalog: str) -> None:
        """Drop what is to be written out of the catalog, because it went back."""
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
        """Write the catalog out without lingering, because somebody waits for it."""
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is not None and not held.awaited:
                held.awaited = True
                self._schedule(catalog, held)

    def _due_at(self, held: _Outstanding) -> float:
        """When to write it out."""
        is_full = (
            len(held.tail.commits) + len(held.tail.verdicts) >= self._full_commits
            or held.size_bytes >= self._full_bytes
        )
        if held.awaited or is_full or not held.moved:
            return held.not_before
        linger_until = min(held.moved[-1][1] + _LINGER_S, held.moved[0][1] + _LINGER_MAX_S)
        return max(held.not_before, linger_until)

    def _schedule(self, catalog: str, held: _Outstanding) -> None:
        """Have a writer check the catalog when it is due."""
        due_at = self._due_at(held)
        if held.writer is None and (held.check_at is None or due_at < held.check_at):
            held.check_at = due_at
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
        """Wait until tails are due; return them by catalog, and an object that identifies this
        write-out. ``mine`` is set if something becomes due earlier."""
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
            if held is None or held.check_at != when:
                continue
            held.check_at = None
            is_apart = catalog in self._suspects
            if is_apart is not (line is self._apart) or self._due_at(held) > now:
                self._schedule(catalog, held)
                continue
            held.awaited = False
            tails[catalog] = tail = held.tail.share(held.failures)
            size_bytes += held.size_bytes + tail.documents_bytes
            if is_apart:
                break
        return tails

    def _write(self, tails: Mapping[str, Tail]) -> None:
        began = self._runtime.monotonic()
        try:
            left = self._leave_to_others(tails)
            through = {catalog: tail.reached for catalog, tail in tails.items()}
            write_out(self._store, self._runtime, tails, self._late_s, self._kept_s, self._meters)
        except Unsent as error:  # no catalog is at fault
            _log.warning("writing out was broken off: %s", error)
            self._put_off(tails)
        except Exception as error:  # noqa: BLE001 - a defect, or a record edited by hand
            self._failed(tails, error)
        else:
            self._suspects.note_success(tails, began)
            self._end(through, left)

    def _failed(self, tails: Mapping[str, Tail], error: Exception) -> None:
        """Handle a failed write-out. Several catalogs are tried again at once, one by one, because
        only one of them may be at fault."""
        self._suspects.note_failure(tails)
        if len(tails) > 1:
            _log.warning("a write-out was broken off: %s", error)
            self._put_off(tails, pauses=False)
            return
        (catalog,) = tails
        about = {"catalog": catalog}
        if isinstance(error, WentBack):
            self._cache.drop_lost(catalog, str(error))
        elif isinstance(error, StoreUnreachable):
            _log.warning("the tail of %r can't be written out: %s", catalog, error, extra=about)
        elif isinstance(error, Contradiction):
            text = "the tail of %r can't be written out: %s; see `gateway verify`"
            _log.error(text, catalog, str(error) or "some of its changes are gone", extra=about)
        else:
            text = "the tail of %r can't be written out"
            _log.error(text, catalog, exc_info=error, extra=about)
        self._put_off(tails)

    def _leave_to_others(self, tails: Mapping[str, Tail]) -> set[str]:
        """Leave out the commits that others made, and all after them, while their makers still have
        time to write them out. But not if several moves of this worker are outstanding: otherwise,
        two workers would wait for each other.

        Returns the catalogs of which something was left out.
        """
        left = set()
        foreign = {catalog: tail for catalog, tail in tails.items() if tail.foreign}
        if foreign:
            _leave_out_foreign(self._store, foreign)
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
                    # The database may have been away, and put back meanwhile.
                    held.tail.since, held.lost = _LONG_AGO, False
                    if pauses:
                        held.not_before = now + min(_PAUSE_S * 2**held.failures, _PAUSE_MAX_S)
                        held.failures = min(held.failures + 1, 10)

    def _let_go(self, catalogs: Iterable[str], writer: object) -> None:
        """Let the next write-out of these catalogs begin: ``writer`` has ended, in whatever way."""
        with self._lock:
            for catalog in catalogs:
                held = self._outstanding.get(catalog)
                if held is not None and held.writer is writer:
                    held.writer = None
                    self._schedule(catalog, held)

    def _end(self, through: Mapping[str, tuple[int, int]], left: Collection[str]) -> None:
        """Note that the catalogs are written out up to ``through``, by catalog a revision and a
        verdict. The rest of the catalogs in ``left`` is checked again soon."""
        lost = {catalog for catalog in through if self._outstanding[catalog].lost}
        self._put_off(lost)
        through = {catalog: reached for catalog, reached in through.items() if catalog not in lost}
        for catalog, (revision, judged) in through.items():
            self._cache.mark_written(catalog, revision, judged)
        took: list[float] = []
        with self._lock:
            now = self._runtime.monotonic()
            for catalog, (revision, judged) in through.items():
                held = self._outstanding[catalog]
                if held.tail.reached == (revision, judged):  # the usual case: no move meanwhile
                    took += [now - moved for _, moved in held.moved]
                    del self._outstanding[catalog]
                    continue
                if held.tail.has_of((revision, judged)):  # else all was left to others for now
                    held.failures = 0
                held.tail.drop(revision)
                held.tail.drop_verdicts(judged)
                held.not_before = now + _CHECK_AGAIN_S if catalog in left else 0.0
                took += [now - moved for at, moved in held.moved if not held.tail.has_of(at)]
                held.moved = [each for each in held.moved if held.tail.has_of(each[0])]
                held.size_bytes = held.tail.size_bytes
                if not held.tail.commits and not held.tail.verdicts:
                    del self._outstanding[catalog]
        for catalog in through:
            try:
                self._written(catalog)
            except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
                _log.exception("what waits for the tail of %r can't be notified", catalog)
        self._meters.written_out(took)

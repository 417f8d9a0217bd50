"""Writing out: what heads have in their tails is copied to where it is read and kept.

Documents first, commits in order after them. So a commit's presence proves that everything up to it
is written out. It may be done twice, or by several workers at once: each document is written only
over an older one, each commit is inserted once.

Worked example. The catalog is at 7, all written out. This worker moves the head to 8 and answers;
while it writes 8 out it moves the head to 9 and to 10, and answers. Of 9 and 10 it writes out each
document once, as 10 left it, then both commits. Another worker that moved the head to 9 meanwhile
would have carried 8 along in its tail, and would write it out before its own 9 if it isn't there.

*A write-out that slept* must bring nothing back that compaction took away. History is taken away
only ``RetentionLimits.sweep_grace_s`` after the floor has passed it, and the floor passes only what
is written out. So what was in a tail at some moment is harmless to write for that long, whatever
others do; a worker that has taken half of the time looks at the head again before it sends more,
and leaves out what is written out by then. Both clocks are asked: the monotonic one may stand still
while a machine sleeps, the wall clock may be set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import Commit, Document
from gateway.runtime import Event, Runtime
from gateway.state.cache import Cache
from gateway.state.replay import advance_all
from gateway.store.contract import Store, Unreachable

_log = logging.getLogger(__name__)

# Doubled with each failure in a row.
_PAUSE_S = 0.05
_PAUSE_MAX_S = 5.0
_WRITERS = 2
# What other workers made is left to them for a while, and looked for this often.
_LOOK_AGAIN_S = 0.003
# What a worker may take for each commit of its tail, on a busy machine.
_GRACE_PER_COMMIT_S = 0.002
# Sightings are only hints of how long a tail has been unfinished; forgetting them costs a wait.
_SIGHTINGS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks."""

    monotonic: float
    wall_us: int


def moment(runtime: Runtime) -> Moment:
    return Moment(runtime.monotonic(), runtime.now_us())


def elapsed_s(runtime: Runtime, since: Moment) -> float:
    """The longer of the times that the two clocks show."""
    now = moment(runtime)
    return max(now.monotonic - since.monotonic, (now.wall_us - since.wall_us) / 1_000_000)


@dataclass(slots=True)
class Tail:
    """Commits of one catalog, ascending without a gap, that were in its head after ``since``.

    Everything below them is written out. ``documents`` are states that these commits left, where
    this worker has them; ``foreign`` are the stretches, (first revision, last revision), that other
    workers made and write out themselves, unless they died.
    """

    since: Moment
    commits: list[Commit] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)
    foreign: list[tuple[int, int]] = field(default_factory=list)

    def drop(self, revision: int) -> None:
        """Leave out what is written out, up to ``revision``."""
        self.commits = [commit for commit in self.commits if commit.revision > revision]
        self.documents = {k: d for k, d in self.documents.items() if d.revision > revision}
        self.foreign = [stretch for stretch in self.foreign if stretch[1] > revision]

    def leave(self, first: int) -> None:
        """Leave out the commits from ``first`` on."""
        self.commits = [commit for commit in self.commits if commit.revision < first]


def write_out(store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float) -> None:
    """Write these tails out. Raises Unreachable, and PatchError where one doesn't fit."""
    refresh(store, runtime, tails, late_s)
    unknown = {catalog: keys for catalog, tail in tails.items() if (keys := unknown_keys(tail))}
    stored = store.documents(unknown) if unknown else {}
    refresh(store, runtime, tails, late_s)
    store.write_documents(
        {catalog: states(catalog, tail, stored) for catalog, tail in tails.items()}
    )
    refresh(store, runtime, tails, late_s)
    store.write_commits([commit for tail in tails.values() for commit in tail.commits])


def refresh(store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float) -> None:
    """Leave out what others have written out, where it is late for some of the tails."""
    late = {c: tail for c, tail in tails.items() if elapsed_s(runtime, tail.since) > late_s}
    if late:
        now = moment(runtime)
        heads = store.heads(late)
        for catalog, tail in late.items():
            if catalog in heads:
                tail.drop(max(heads[catalog].written, heads[catalog].floor))
            tail.since = now


def leave_out_foreign(store: Store, tails: Mapping[str, Tail]) -> None:
    """Leave out what the workers that made it have written out themselves."""
    foreign = {c: [last for _, last in tail.foreign] for c, tail in tails.items() if tail.foreign}
    if foreign:
        for catalog, revision in store.last_written(foreign).items():
            tails[catalog].drop(revision)


def last_changes(tail: Tail) -> dict[str, int]:
    """By key, the revision of its last change."""
    return {change.key: commit.revision for commit in tail.commits for change in commit.changes}


def unknown_keys(tail: Tail) -> list[str]:
    """The keys whose states must be made by replay: another worker changed them."""
    return [
        key
        for key, revision in last_changes(tail).items()
        if key not in tail.documents or tail.documents[key].revision < revision
    ]


def states(catalog: str, tail: Tail, stored: Mapping[tuple[str, str], Document]) -> list[Document]:
    """The states that the tail leaves: the ones at hand, and the others by replay.

    A stored document is as it was before some of the commits, or later.
    """
    found = []
    for key, revision in last_changes(tail).items():
        document = tail.documents.get(key)
        if document is None or document.revision < revision:
            before = stored.get((catalog, key))
            document = advance_all(before, key, tail.commits)
            if document is before:
                continue
        if document is not None:
            found.append(document)
    return found


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
        if seen != revision:
            since = now
        if now - since >= grace_s:
            self._seen.pop(catalog, None)
            return True
        if len(self._seen) > _SIGHTINGS_MAX:
            self._seen.clear()
        self._seen[catalog] = (revision, since)
        return False


@dataclass(slots=True)
class _Outstanding:
    """A catalog's tail, as far as this process has it to write out, in moves."""

    tail: Tail
    moved: list[tuple[int, float]] = field(default_factory=list)  # to which revision, and when
    size_bytes: int = 0
    busy: bool = False
    failures: int = 0  # in a row
    not_before: float = 0.0


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
            len(held.tail.commits) < commits_max and held.size_bytes < bytes_max
        )

    def add(
        self,
        since: Moment,
        carried: Sequence[Commit],
        commits: Sequence[Commit],
        documents: Mapping[str, Document],
    ) -> None:
        """A head was moved by ``commits``, over a tail that was ``carried`` along.

        Both were in it after ``since``; everything below them is written out. Without ``commits``,
        only the tail is to be written out.
        """
        first, last = (*carried, *commits)[0].revision, (*carried, *commits)[-1].revision
        catalog = (carried or commits)[0].catalog
        with self._lock:
            held = self._outstanding.get(catalog)
            if held is None:
                held = self._outstanding[catalog] = _Outstanding(Tail(since))
            tail = held.tail
            tail.drop(first - 1)
            known = tail.commits[-1].revision if tail.commits else first - 1
            foreign = [commit for commit in carried if commit.revision > known]
            if foreign:
                tail.foreign.append((foreign[0].revision, foreign[-1].revision))
            tail.commits += [*foreign, *commits]
            tail.documents.update(documents)
            held.moved.append((last, self._runtime.monotonic()))
            held.size_bytes = sum(commit.size_bytes for commit in tail.commits)
            self._wake_one()

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
                due = {c: held for c, held in idle.items() if held.not_before <= now}
                for held in due.values():
                    held.busy = True
                if due:
                    return {c: _copied(held.tail) for c, held in due.items()}
                wait_s = min((held.not_before - now for held in idle.values()), default=None)
                mine.clear()
                self._idle.append(mine)
            mine.wait(wait_s)
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)

    def _write(self, tails: Mapping[str, Tail]) -> None:
        ours = {catalog: _copied(tail) for catalog, tail in tails.items()}
        through = {catalog: tail.commits[-1].revision for catalog, tail in tails.items()}
        try:
            leave_out_foreign(self._store, ours)
            left = self._leave_to_others(ours)
            write_out(self._store, self._runtime, ours, self._late_s)
        except Unreachable as error:
            _log.warning("writing out was broken off: %s", error)
            self._put_off(tails)
        except Exception:  # noqa: BLE001
            # One catalog's trouble is no other's: somebody edited its documents by hand, say.
            if len(tails) > 1:
                for catalog, tail in tails.items():
                    self._write({catalog: tail})
                return
            (catalog,) = tails
            about = {"catalog": catalog}
            _log.exception("the tail of %r can't be written out", catalog, extra=about)
            self._put_off(tails)
        else:
            self._end({**through, **left}, left)

    def _leave_to_others(self, tails: Mapping[str, Tail]) -> dict[str, int]:
        """Leave what others made, and what comes after it, unless they had their time for it.

        Returns up to where that is written out then which was not left to them.
        """
        left = {}
        with self._lock:
            for catalog, tail in tails.items():
                for first, last in tail.foreign[:1]:
                    if not self._patience.is_over(catalog, last, last - first + 1):
                        tail.leave(first)
                        left[catalog] = first - 1
        return left

    def _put_off(self, catalogs: Iterable[str]) -> None:
        with self._lock:
            for catalog in catalogs:
                held = self._outstanding[catalog]
                pause_s = min(_PAUSE_S * 2**held.failures, _PAUSE_MAX_S)
                held.busy, held.failures = False, min(held.failures + 1, 10)
                held.not_before = self._runtime.monotonic() + pause_s
            self._wake_one()

    def _end(self, through: Mapping[str, int], left: Collection[str]) -> None:
        """All is written out up to there; of the catalogs ``left``, look at the rest soon."""
        for catalog, revision in through.items():
            self._cache.wrote(catalog, revision)
        with self._lock:
            now = self._runtime.monotonic()
            for catalog, revision in through.items():
                held = self._outstanding[catalog]
                held.busy, held.failures = False, 0
                held.not_before = now + _LOOK_AGAIN_S if catalog in left else 0.0
                for reached, moved in held.moved:
                    if reached <= revision:
                        self._meters.written_out(now - moved)
                held.moved = [each for each in held.moved if each[0] > revision]
                held.tail.drop(revision)
                held.size_bytes = sum(commit.size_bytes for commit in held.tail.commits)
                if not held.tail.commits:
                    del self._outstanding[catalog]
            if self._outstanding:
                self._wake_one()
        for catalog in through:
            self._written(catalog)


def _copied(tail: Tail) -> Tail:
    return Tail(tail.since, list(tail.commits), dict(tail.documents), list(tail.foreign))

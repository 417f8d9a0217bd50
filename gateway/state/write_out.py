"""Writing a tail out: documents first, then commits in their order.

So a commit's presence proves that everything up to it is written out. It may be done twice, or by
several workers at once: each document is written only over an older one, each commit is inserted
once.

*A write-out that slept* must bring nothing back that compaction took away. History is taken away
only ``RetentionLimits.sweep_grace_s`` after the floor has passed it, and the floor passes only what
is written out. So what was in a tail at some moment is harmless to write for that long, whatever
others do; a worker that has taken half of the time looks at the head again before it sends more,
and leaves out what is written out by then. Both clocks are asked: the monotonic one may stand still
while a machine sleeps, the wall clock may be set back.

What a look leaves out, the documents that were read before it may lack: so they are read anew.

*A database that was put back* to an earlier state knows nothing of the tail. Before that, it was
away; so a write-out that failed looks at the head before it goes on, and what isn't in the head's
tail is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import CommitRecord, DocumentRecord, Head, HeadMove, Reply, Verdict
from gateway.runtime import Moment, Runtime, elapsed_s, moment
from gateway.state.replay import laid_over
from gateway.store.contract import Store

# Of what may not be in the head any more, for all that is known.
LONG_AGO = Moment(float("-inf"), -(2**62))


class WentBack(Exception):
    """The head hasn't got the commits that were in it: the database was put back."""

    def __init__(self, catalog: str, reply_id: str, head: Head) -> None:
        super().__init__(f"{reply_id}, to be written out, isn't in the head at {head.place}")
        self.catalog = catalog


@dataclass(slots=True)
class Tail:
    """Commits and verdicts of one catalog that were in its head after ``since``; each ascending
    without a gap.

    Everything up to ``written`` is written out, the commits follow. ``documents`` are states that
    these commits left, where this worker has them; ``foreign`` are the stretches, (first revision,
    last revision), that other workers made and write out themselves, unless they died. ``later``
    says of the commits above a revision after what moment they were in the head, ascending.
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
        """The head has moved on, over a tail that it ``carried`` along, and verdicts, ``judged``:
        they were in it after ``since``. What isn't known of it was made by others."""
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
        self.drop(self.written)

    def looked(self, at: Moment) -> None:
        """All that is left was in the head after ``at``."""
        self.since = at
        self.later.clear()

    def drop(self, revision: int) -> None:
        """Leave out what is written out, up to ``revision``."""
        self.written = max(self.written, revision)
        self.commits = [commit for commit in self.commits if commit.revision > revision]
        self.documents = {k: d for k, d in self.documents.items() if d.revision > revision}
        self.foreign = [stretch for stretch in self.foreign if stretch[1] > revision]
        while self.later and self.later[0][0] <= self.written:
            _, self.since = self.later.pop(0)

    def drop_verdicts(self, number: int) -> None:
        """Leave out the verdicts that are written out, up to ``number``."""
        self.verdicts = [verdict for verdict in self.verdicts if verdict.number > number]

    @property
    def reached(self) -> tuple[int, int]:
        """The last revision, and the last verdict, 0 without one."""
        revision = self.commits[-1].revision if self.commits else self.written
        return revision, self.verdicts[-1].number if self.verdicts else 0

    def has_of(self, reached: tuple[int, int]) -> bool:
        """Whether it has a commit or a verdict that a head at ``reached`` has."""
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
        """What is written out of it in one go: after each failure in a row half as many commits."""
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
    """Write these tails out.

    Raises StoreUnreachable, WentBack, and what ``laid_over`` raises where one doesn't fit.
    """
    has_commits = any(tail.commits for tail in tails.values())
    refresh(store, runtime, tails, late_s)
    verdicts = [each for tail in tails.values() for each in tail.verdicts]
    if verdicts:
        # One that is over would be told beside what its key has decided since.
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
    """The stored documents that replay begins with. Each has at least what isn't in its tail."""
    while True:
        unknown = {catalog: keys for catalog, tail in tails.items() if (keys := unknown_keys(tail))}
        if not unknown:
            return {}
        stored = store.documents(unknown)
        if not refresh(store, runtime, tails, late_s):
            return stored


def refresh(store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float) -> bool:
    """Leave out what others have written out, where it is late for some of the tails; whether there
    was any.

    Looks again after a look that took so long itself. Raises WentBack.
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
                dropped |= _look(catalog, tail, heads.get(catalog) or Head(catalog))
                tail.looked(now)
        if not late or not late_s or elapsed_s(now, moment(runtime)) <= late_s:
            return dropped


def _look(catalog: str, tail: Tail, head: Head) -> bool:
    """Leave out what ``head`` says is written out; it must have the rest. Whether there was any."""
    had = len(tail.commits)
    tail.drop(max(head.written, head.floor))
    tail.drop_verdicts(head.judged_written)
    carried = {each.id for each in chain[Reply](head.tail or (), head.verdicts or ())}
    for each in chain[Reply](tail.commits, tail.verdicts):
        if each.id not in carried:
            raise WentBack(catalog, each.id, head)
    return len(tail.commits) < had


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


def states(
    store: Store,
    meters: Meters,
    catalog: str,
    tail: Tail,
    stored: Mapping[tuple[str, str], DocumentRecord],
) -> list[DocumentRecord]:
    """The states that the tail leaves: the ones at hand, and the others by replay.

    A stored document is as it was before some of the commits, or later. Raises as ``laid_over``.
    """
    left: dict[str, DocumentRecord] = {}
    before: dict[str, DocumentRecord | None] = {}
    for key, revision in last_changes(tail).items():
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

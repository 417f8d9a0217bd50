"""A tail in the hands of who writes it out: documents first, commits in order after them.

So a commit's presence proves that everything up to it is written out. It may be done twice, or by
several workers at once: each document is written only over an older one, each commit is inserted
once.

*A write-out that slept* must bring nothing back that compaction took away. History is taken away
only ``RetentionLimits.sweep_grace_s`` after the floor has passed it, and the floor passes only what
is written out. So what was in a tail at some moment is harmless to write for that long, whatever
others do; a worker that has taken half of the time looks at the head again before it sends more,
and leaves out what is written out by then. Both clocks are asked: the monotonic one may stand still
while a machine sleeps, the wall clock may be set back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from gateway.model import Commit, Document, Reply, Verdict
from gateway.runtime import Runtime
from gateway.state.replay import advance_all
from gateway.store.contract import Store


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks."""

    monotonic: float
    wall_us: int


def moment(runtime: Runtime) -> Moment:
    return Moment(runtime.monotonic(), runtime.now_us())


def elapsed_s(since: Moment, now: Moment) -> float:
    """The longer of the times that the two clocks show."""
    return max(now.monotonic - since.monotonic, (now.wall_us - since.wall_us) / 1_000_000)


@dataclass(slots=True)
class Tail:
    """Commits and verdicts of one catalog that were in its head after ``since``; each ascending
    without a gap.

    Everything up to ``written`` is written out, the commits follow. ``documents`` are states that
    these commits left, where this worker has them; ``foreign`` are the stretches, (first revision,
    last revision), that other workers made and write out themselves, unless they died.
    """

    since: Moment
    written: int = 0
    commits: list[Commit] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    documents: dict[str, Document] = field(default_factory=dict)
    foreign: list[tuple[int, int]] = field(default_factory=list)

    def drop(self, revision: int) -> None:
        """Leave out what is written out, up to ``revision``."""
        self.written = max(self.written, revision)
        self.commits = [commit for commit in self.commits if commit.revision > revision]
        self.documents = {k: d for k, d in self.documents.items() if d.revision > revision}
        self.foreign = [stretch for stretch in self.foreign if stretch[1] > revision]

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

    def leave(self, first: int) -> None:
        """Leave out the commits from ``first`` on."""
        self.commits = [commit for commit in self.commits if commit.revision < first]


def write_out(
    store: Store, runtime: Runtime, tails: Mapping[str, Tail], late_s: float, kept_s: int
) -> None:
    """Write these tails out. Raises Unreachable, and PatchError where one doesn't fit."""
    verdicts = [verdict for tail in tails.values() for verdict in tail.verdicts]
    if verdicts:
        store.write_verdicts(verdicts, kept_s)
    if not any(tail.commits for tail in tails.values()):
        return
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
    """Leave out what others have written out, where it is late for some of the tails.

    Looks again after a look that took so long itself.
    """
    while True:
        now = moment(runtime)
        late = {c: tail for c, tail in tails.items() if elapsed_s(tail.since, now) > late_s}
        if late:
            heads = store.heads(late)
            for catalog, tail in late.items():
                if catalog in heads:
                    tail.drop(max(heads[catalog].written, heads[catalog].floor))
                tail.since = now
        if not late or not late_s or elapsed_s(now, moment(runtime)) <= late_s:
            return


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


def copied(tail: Tail) -> Tail:
    return Tail(
        tail.since,
        tail.written,
        list(tail.commits),
        list(tail.verdicts),
        dict(tail.documents),
        list(tail.foreign),
    )

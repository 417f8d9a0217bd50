"""The channel of a watched catalog: its recent commits, encoded once for all watchers, and its
waiting watchers (``Channel``); and the log as watchers read it (``WatchLog``).

New commits are read once for all watchers; for a watcher that lags, older ones are read again.
Watchers get only commits above the floor, which is read after them: compaction raises the floor
before it reduces commits.

A commit names the one before it. If that isn't the last one that watchers got, or if the head went
back, the database was put back to an earlier state. Then what watchers got since isn't in the
catalog's history; those watchers get an error, and nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway import memory
from gateway.cpu import yield_if_over
from gateway.errors import RevisionCompacted, RevisionNotFound
from gateway.limits import MIB, WatchLimits
from gateway.model import SETTINGS_KEY, CommitRecord, Head, Keys, follows
from gateway.read.history import COUNTED_MAX, map_records, require_all, require_count
from gateway.read.visibility import Life, lives_of
from gateway.store.contract import Store


class Waiting(Protocol):
    """A waiting watcher, as its channel knows it. ``position`` is the revision that it has reached,
    ``last`` the id of the commit there."""

    position: int
    last: str
    bookmarked: int
    selection: Selection

    def wake(self) -> None: ...


class Watching(Protocol):
    """Any watcher, waiting or not. ``lag``: how many commits it is behind."""

    @property
    def lag(self) -> int: ...


@dataclass(eq=False, slots=True)
class Channel:
    """What all watchers of one catalog share. Its ring holds the last commits up to ``position``,
    without a gap.

    The ring only saves reads: commits that it has dropped are read from the log. Nothing in here
    waits or locks; the hub does that.

    ``known_head`` is the newest revision heard of. ``due``: when the log may be read again.
    ``left_at``: when the last watcher left; None while there are any. ``last``: the id of the
    commit at ``position``, "" if it isn't known. ``lost``: the head's revision when the channel's
    history turned out not to be the catalog's; None: it is. ``finished``: how many times everything
    above ``finished_at`` was written out, and still no commit was found there. ``fault``: which
    commit after ``position`` is missing or can't be read, so that the channel has ended; "": none.
    """

    catalog: str
    position: int
    known_head: int
    last: str = ""
    lost: int | None = None
    due: float = 0.0
    left_at: float | None = None
    finished_at: int | None = None
    finished: int = 0
    fault: str = ""
    watchers: int = 0
    waiting: dict[Waiting, None] = field(default_factory=dict)  # as they came
    bytes: int = 0
    ring: deque[EncodedCommit] = field(default_factory=deque)

    def covers(self, position: int) -> bool:
        """Whether the ring has every commit above ``position`` up to its own."""
        return position >= self.position - len(self.ring)

    def above(self, position: int, limit: int, bytes_max: int) -> list[EncodedCommit]:
        """The commits above ``position``, which the ring covers; at most ``limit``, and none after
        the one that fills ``bytes_max``."""
        taken: list[EncodedCommit] = []
        first = len(self.ring) - (self.position - position)
        for index in range(first, min(first + limit, len(self.ring))):
            taken.append(self.ring[index])
            bytes_max -= len(taken[-1].encoded)
            if bytes_max <= 0:
                break
        return taken

    def append(self, commits: Sequence[EncodedCommit], limits: WatchLimits) -> None:
        """Add ``commits``, which begins directly after ``position``. Drops the oldest commits
        beyond the limits, but never the last one."""
        for each in commits:
            self.ring.append(each)
            self.bytes += len(each.encoded)
        self.position, self.last = commits[-1].revision, commits[-1].commit_id
        self.known_head = max(self.known_head, self.position)
        while len(self.ring) > 1 and (
            len(self.ring) > limits.ring_commits_max or self.bytes > limits.ring_bytes_max
        ):
            self.bytes -= len(self.ring.popleft().encoded)

    def clear(self) -> None:
        self.ring.clear()
        self.bytes = 0

    def skip_to(self, floor: int) -> None:
        """Go on from the floor, because compaction has passed ``position``."""
        self.clear()
        self.position, self.last = floor, ""
        self.known_head = max(self.known_head, floor)

    def release(self, burst: Burst, bookmark_commits: int) -> list[Waiting]:
        """Take out and return the waiting watchers that want some of the commits, or are due a
        bookmark.

        The positions of the others move on while they wait, which costs nothing.
        """
        released = []
        for watcher in tuple(self.waiting):
            behind = self.position - watcher.bookmarked >= bookmark_commits
            if behind or watcher.selection.wants_some(burst):
                del self.waiting[watcher]
                released.append(watcher)
            else:
                watcher.position, watcher.last = self.position, self.last
        return released

    def release_all(self) -> list[Waiting]:
        released = list(self.waiting)
        self.waiting.clear()
        return released


# Encodes a commit once for all watchers, to bytes that only the layer above can read.
Encode = Callable[[CommitRecord], bytes]


@dataclass(frozen=True, slots=True)
class EncodedCommit:
    """A commit as watchers get it, with its time and the keys that it touched.

    ``lives`` are the lives of the documents under those keys, by which their acls are looked up.
    ``made_by``: by manager, the keys of the changes that it made. ``parent`` is the id of the
    commit before it, "" if it names none.
    """

    revision: int
    keys: Keys
    encoded: bytes
    time_us: int = 0
    lives: frozenset[Life] = frozenset()
    author: str = ""
    made_by: Mapping[str, Keys] = field(default_factory=dict)
    commit_id: str = ""
    parent: str = ""

    def without(self, gone: Collection[str]) -> EncodedCommit:
        """The commit as if it hadn't touched the keys ``gone``; ``encoded`` stays."""
        made_by = {name: Keys.of(keys.each.difference(gone)) for name, keys in self.made_by.items()}
        return replace(self, keys=Keys.of(self.keys.each.difference(gone)), made_by=made_by)


class Burst:
    """Several commits, one or more, for many selections: merged once, in all and by author, so that
    no selection goes through the commits."""

    def __init__(self, commits: Collection[EncodedCommit]) -> None:
        by_author: dict[str, list[EncodedCommit]] = {}
        for each in commits:
            by_author.setdefault(each.author, []).append(each)
        self.by_author = {author: _merged(its) for author, its in by_author.items()}
        self.whole = _merged(self.by_author.values())


def _merged(commits: Collection[EncodedCommit]) -> EncodedCommit:
    """The commits as one, as far as selections look at them; its author is that of the first."""
    yield_if_over()
    first = next(iter(commits))
    if len(commits) == 1:
        return first
    made_by: dict[str, list[Keys]] = {}
    for each in commits:
        for manager, keys in each.made_by.items():
            made_by.setdefault(manager, []).append(keys)
    merged = {manager: Keys.union(of_it) for manager, of_it in made_by.items()}
    return replace(first, keys=Keys.union([each.keys for each in commits]), made_by=merged)


def not_in_history(revision: int, head_revision: int) -> RevisionNotFound:
    return RevisionNotFound(
        f"revision {revision} is no longer in the catalog's history; the head is {head_revision}."
        " Was the database restored?",
        head_revision,
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which commits a watcher wants: those that touch one of ``keys``, or a key with ``prefix``.

    If neither is given: all, including touches. Of these, only those by one of ``authors``, and
    those in which one of ``managers`` made such a change, each if given. ``settings``: also all
    that change the settings. A watcher gets a commit whole or not at all.
    """

    keys: frozenset[str] = frozenset()
    prefix: str = ""
    authors: frozenset[str] = frozenset()
    managers: frozenset[str] = frozenset()
    settings: bool = False

    @property
    def is_everything(self) -> bool:
        return not (self.keys or self.prefix or self.authors or self.managers)

    @property
    def single_key(self) -> str | None:
        """The only key that is wanted; None if that isn't all."""
        is_one = len(self.keys) == 1 and not self.prefix and not self.settings
        return next(iter(self.keys)) if is_one else None

    def wants(self, commit: EncodedCommit) -> bool:
        if self.is_everything or (self.settings and SETTINGS_KEY in commit.keys.each):
            return True
        if self.authors and commit.author not in self.authors:
            return False
        if not self.managers:
            return self._is_among(commit.keys)
        made_by = (commit.made_by[name] for name in commit.made_by.keys() & self.managers)
        return any(keys.each and self._is_among(keys) for keys in made_by)

    def wants_some(self, burst: Burst) -> bool:
        """Whether it wants one of the commits."""
        if not self.authors or (self.settings and SETTINGS_KEY in burst.whole.keys.each):
            return self.wants(burst.whole)
        return any(self.wants(burst.by_author[a]) for a in burst.by_author.keys() & self.authors)

    def _is_among(self, keys: Keys) -> bool:
        if not self.keys and not self.prefix:
            return True
        if not self.keys.isdisjoint(keys.each):
            return True
        return bool(self.prefix) and keys.has_under(self.prefix)


@dataclass(frozen=True, slots=True)
class Taken:
    """The commits that a watcher took, ascending, and the ``revision`` that it has reached.

    It has had every wanted commit up to ``revision``; resuming from there misses nothing. ``last``
    is the id of the commit there, "" if it isn't known.
    """

    commits: Sequence[EncodedCommit]
    revision: int
    last: str


class WatchEnded(Exception):
    """The gateway, not the watcher, ends this watch; ``code`` says why.

    ``watcher_too_slow``: it fell further behind than is allowed. ``shutting_down``: the process
    stops. It is always right to go on from the last revision that the watcher got.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def encode_commit(commit: CommitRecord, encode: Encode) -> EncodedCommit:
    keys = Keys.of(change.key for change in commit.changes)
    managed: dict[str, list[str]] = {}
    for each in commit.changes:
        for manager in each.managers:
            managed.setdefault(manager, []).append(each.key)
    lives = lives_of((commit,))
    return EncodedCommit(
        commit.revision,
        keys,
        encode(commit),
        commit.time_us,
        lives,
        commit.author,
        {manager: Keys.of(of_it) for manager, of_it in managed.items()},
        commit.id,
        commit.parent,
    )


# How many new commits of one catalog are read at a time.
_ONWARD_COMMITS_MAX = 500
_PAGE_BYTES_MAX = MIB


@dataclass(frozen=True, slots=True)
class NewCommits:
    """The commits after a position, without a gap, and the head as read after them."""

    commits: Sequence[EncodedCommit]
    head: Head


class WatchLog:
    """The logs of watched catalogs. Every method raises StoreUnreachable."""

    def __init__(self, store: Store, encode: Encode) -> None:
        self._store = store
        self._encode = encode

    def new_commits(self, positions: Mapping[str, int]) -> dict[str, NewCommits]:
        """By catalog, the written-out commits above its position, with two reads for all catalogs.

        There are no commits for a position that is below the floor.
        """
        spans = {c: (after, after + _ONWARD_COMMITS_MAX) for c, after in positions.items()}
        commits = self._store.commits(spans)
        heads = self._store.heads(positions)
        found: dict[str, NewCommits] = {}
        for catalog, after in positions.items():
            head = heads.get(catalog) or Head(catalog)
            retained = commits.get(catalog, ()) if after >= head.floor else ()
            encoded = [encode_commit(each, self._encode) for each in retained]
            found[catalog] = NewCommits(encoded, head)
        return found

    def page(
        self, catalog: str, after: int, last: str, through: int, limit: int, selection: Selection
    ) -> tuple[list[EncodedCommit], int, str]:
        """The wanted commits above ``after``, the revision that was reached, and the id of the
        commit there. ``last`` is the id of the commit at ``after``. Ids are "" if unknown.

        ``through`` is written out. Reads at most ``limit`` commits, and at most a page of bytes;
        of a single key, also at most those of COUNTED_MAX revisions.
        Raises RevisionCompacted if ``after`` is below the floor, RevisionNotFound if the commits
        don't follow ``last`` (then the commit at ``after`` is another one), ForeignRecord if
        commits are missing from the log, and MemoryFull.

        Unlike those of the ring, these commits are in memory for this watcher alone, so its
        request's account keeps them.
        """
        key = selection.single_key
        if key is not None:
            through = min(through, after + COUNTED_MAX)
        account = memory.account()
        with account.holding(2 * memory.REPLY_BYTES):
            listed = self._store.list_commits(catalog, after, through, limit, key, _PAGE_BYTES_MAX)
            commits = list(map_records(listed, lambda commit: encode_commit(commit, self._encode)))
        reached = commits[-1].revision if commits else through
        count = 0 if key is None else self._store.count_commits(catalog, after, reached)
        head = self._store.heads([catalog]).get(catalog)  # last, as the floor only rises
        if head is not None and after < head.floor:
            raise RevisionCompacted(after, head.floor)
        if key is None:
            require_all(catalog, [each.revision for each in commits], after, reached)
        else:
            require_count(catalog, count, after, reached)
        made = commits[-1].commit_id if commits else self._store.commit_id(catalog, reached)
        before = commits[0].parent if commits and commits[0].revision == after + 1 else ""
        # The next listed commit may not be the next one, or an older release made it.
        if last and not before:
            before = self._store.commit_id(catalog, after) or ""
        if not follows(last, before):
            raise not_in_history(after, 0 if head is None else head.revision)
        wanted = [each for each in commits if selection.wants(each)]
        account.keep(sum(len(each.encoded) for each in wanted))
        return wanted, reached, made or ""

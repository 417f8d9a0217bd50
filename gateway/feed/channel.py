"""The channel of a watched catalog: its recent commits, encoded once for all, and its waiting
watchers (``Channel``); and its log as watchers read it (``WatchLog``).

The log is read onward for all watchers at once, or back for one that lags. Watchers get only the
commits above the floor, which is read after them: compaction raises it before it reduces commits.

A commit names the one before it. Where that isn't the one that was told last, or the head went
back, the database was put back to an earlier state: what was told since then isn't in the catalog's
history, and whoever was told of it learns that, and is told nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway import memory
from gateway.errors import RevisionCompacted, RevisionNotFound
from gateway.limits import MIB, WatchLimits
from gateway.model import SETTINGS_KEY, CommitRecord, Head, follows
from gateway.read.history import map_records, require_all
from gateway.read.visibility import Life, lives_of
from gateway.store.contract import Store


class Waiting(Protocol):
    """A waiting watcher, as its channel knows it; ``position`` is the revision it has come to,
    ``last`` the id of the commit there."""

    position: int
    last: str
    bookmarked: int
    selection: Selection

    def wake(self) -> None: ...


class Watching(Protocol):
    """Any watcher, waiting or not: ``lag`` is the number of commits by which it is behind."""

    @property
    def lag(self) -> int: ...


@dataclass(eq=False, slots=True)
class Channel:
    """The ring holds the commits from somewhere up to ``position``, without a gap.

    A ring is a shortcut: what it has dropped is read from the log. Nothing in here waits or locks;
    the hub does that. ``known_head`` is the newest revision heard of; ``due`` is when it may be
    read again; ``left_at`` is when the last watcher left, None while there are any. ``last`` is the
    id of the commit at ``position``, "" if it isn't known. ``lost``: at which revision the head was
    found where the channel's history isn't the catalog's; None: it is.
    Beyond ``finished_at`` all was found to be written out ``finished`` times, and nothing is there.
    ``fault`` says what is missing or can't be read behind ``position``, where that is the channel's
    end; "": it has none.
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
    ring: deque[Told] = field(default_factory=deque)

    def covers(self, position: int) -> bool:
        """Whether the ring has every commit above ``position`` up to its own."""
        return position >= self.position - len(self.ring)

    def above(self, position: int, limit: int, bytes_max: int) -> list[Told]:
        """From a ring that covers ``position``; one at least if there is any."""
        taken: list[Told] = []
        first = len(self.ring) - (self.position - position)
        for index in range(first, min(first + limit, len(self.ring))):
            taken.append(self.ring[index])
            bytes_max -= len(taken[-1].encoded)
            if bytes_max <= 0:
                break
        return taken

    def append(self, told: Sequence[Told], limits: WatchLimits) -> None:
        """``told`` begins right behind ``position``. The last commit is kept, whatever its size."""
        for each in told:
            self.ring.append(each)
            self.bytes += len(each.encoded)
        self.position, self.last = told[-1].revision, told[-1].commit_id
        self.known_head = max(self.known_head, self.position)
        while len(self.ring) > 1 and (
            len(self.ring) > limits.ring_commits_max or self.bytes > limits.ring_bytes_max
        ):
            self.bytes -= len(self.ring.popleft().encoded)

    def clear(self) -> None:
        self.ring.clear()
        self.bytes = 0

    def skip_to(self, floor: int) -> None:
        """History was compacted beyond ``position``: go on from the floor."""
        self.clear()
        self.position, self.last = floor, ""
        self.known_head = max(self.known_head, floor)

    def release(self, told: Collection[Told], bookmark_commits: int) -> list[Waiting]:
        """The waiting watchers that want some of ``told``, or a bookmark; they wait no longer.

        The positions of the others move on while they wait: it costs them nothing.
        """
        released = []
        for watcher in tuple(self.waiting):
            behind = self.position - watcher.bookmarked >= bookmark_commits
            if behind or any(map(watcher.selection.wants, told)):
                del self.waiting[watcher]
                released.append(watcher)
            else:
                watcher.position, watcher.last = self.position, self.last
        return released

    def release_all(self) -> list[Waiting]:
        released = list(self.waiting)
        self.waiting.clear()
        return released


# How a commit is told, made once for all watchers: bytes that only the layer above can read.
Encode = Callable[[CommitRecord], bytes]


@dataclass(frozen=True, slots=True)
class Told:
    """A commit as watchers are told it, when it was made, and the keys that it touched.

    ``lives`` are the documents behind those keys, as their acls are looked up by. ``made_by`` are
    (key, manager) of the changes that managers made. ``parent`` is the id of the commit before it,
    "" where it names none.
    """

    revision: int
    keys: frozenset[str]
    encoded: bytes
    time_us: int = 0
    lives: frozenset[Life] = frozenset()
    author: str = ""
    made_by: frozenset[tuple[str, str]] = frozenset()
    commit_id: str = ""
    parent: str = ""


def not_in_history(revision: int, head_revision: int) -> RevisionNotFound:
    return RevisionNotFound(
        f"what was revision {revision} isn't in the catalog's history: was the database restored?"
        f" The head is {head_revision}",
        head_revision,
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which commits a watcher wants: those that touch one of ``keys``, or a key with ``prefix``.

    Neither given: all, those among them that touch nothing. Of these, the ones by one of
    ``authors``, and those in which one of ``managers`` made such a change, each if given.
    ``settings``: besides, those that change the settings. A commit is told whole or not at all.
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
        """The only key that is wanted, where there is just one."""
        is_one = len(self.keys) == 1 and not self.prefix and not self.settings
        return next(iter(self.keys)) if is_one else None

    def wants(self, told: Told) -> bool:
        if self.is_everything or (self.settings and SETTINGS_KEY in told.keys):
            return True
        if self.authors and told.author not in self.authors:
            return False
        keys: Collection[str] = told.keys
        if self.managers:
            keys = {key for key, by in told.made_by if by in self.managers and key in told.keys}
            if not keys:
                return False
        if not self.keys and not self.prefix:
            return True
        if not self.keys.isdisjoint(keys):
            return True
        return bool(self.prefix) and any(key.startswith(self.prefix) for key in keys)


@dataclass(frozen=True, slots=True)
class Taken:
    """The commits that a watcher took, ascending, and the ``revision`` that it has come to.

    It has had every wanted commit up to ``revision``; resuming from there misses nothing. ``last``
    is the id of the commit there, "" where it isn't known.
    """

    told: Sequence[Told]
    revision: int
    last: str


class WatchEnded(Exception):
    """The gateway ends this watch, not the watcher; ``code`` says why.

    ``watcher_too_slow``: it fell further behind than is allowed. ``shutting_down``: the process
    stops. Going on from the last revision that was told is always right.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def encoded_commit(commit: CommitRecord, encode: Encode) -> Told:
    keys = frozenset(change.key for change in commit.changes)
    made_by = frozenset((each.key, by) for each in commit.changes for by in each.managers)
    lives = lives_of((commit,))
    return Told(
        commit.revision,
        keys,
        encode(commit),
        commit.time_us,
        lives,
        commit.author,
        made_by,
        commit.id,
        commit.parent,
    )


# How many commits of one catalog are read onward at a time.
_ONWARD_COMMITS_MAX = 500
_PAGE_BYTES_MAX = MIB


@dataclass(frozen=True, slots=True)
class Onward:
    """The commits after a position, without a gap, and the head as read after them."""

    told: Sequence[Told]
    head: Head


class WatchLog:
    """Every method raises StoreUnreachable."""

    def __init__(self, store: Store, encode: Encode) -> None:
        self._store = store
        self._encode = encode

    def onward(self, positions: Mapping[str, int]) -> dict[str, Onward]:
        """By catalog, the commits written out above its position: two reads for all of them.

        Nothing is told above a position that is below the floor.
        """
        spans = {c: (after, after + _ONWARD_COMMITS_MAX) for c, after in positions.items()}
        commits = self._store.commits(spans)
        heads = self._store.heads(positions)
        found: dict[str, Onward] = {}
        for catalog, after in positions.items():
            head = heads.get(catalog) or Head(catalog)
            retained = commits.get(catalog, ()) if after >= head.floor else ()
            found[catalog] = Onward([encoded_commit(each, self._encode) for each in retained], head)
        return found

    def page(
        self, catalog: str, after: int, last: str, through: int, limit: int, selection: Selection
    ) -> tuple[list[Told], int, str]:
        """Wanted commits above ``after``, the revision up to which those are all, and the id of the
        commit there, as ``last`` is that of the one at ``after``: "" where it isn't known.

        ``through`` is written out. At most ``limit`` commits are looked at, or as many bytes as
        make a page. Raises RevisionCompacted where ``after`` is below the floor, RevisionNotFound
        where the commits don't follow ``last``, or another one is at ``after``, ForeignRecord where
        some are missing from the log, and MemoryFull.

        Unlike those of the ring, they are in memory for this watcher alone: its request's account
        keeps them.
        """
        key = selection.single_key
        account = memory.account()
        with account.holding(2 * memory.REPLY_BYTES):
            listed = self._store.list_commits(catalog, after, through, limit, key, _PAGE_BYTES_MAX)
            head = self._store.heads([catalog]).get(catalog)
            if head is not None and after < head.floor:
                raise RevisionCompacted(after, head.floor)
            told = list(map_records(listed, lambda commit: encoded_commit(commit, self._encode)))
        reached = told[-1].revision if told else through
        if key is None:
            require_all(catalog, [each.revision for each in told], after, reached)
        made = told[-1].commit_id if told else self._store.commit_id(catalog, reached)
        before = told[0].parent if told and told[0].revision == after + 1 else ""
        if last and not before:  # one of another key may be between, or an older release made it
            before = self._store.commit_id(catalog, after) or ""
        if not follows(last, before):
            raise not_in_history(after, 0 if head is None else head.revision)
        wanted = [each for each in told if selection.wants(each)]
        account.keep(sum(len(each.encoded) for each in wanted))
        return wanted, reached, made or ""

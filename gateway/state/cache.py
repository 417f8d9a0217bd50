"""What this process remembers: for each catalog, the state at one revision of its head.

The cache is never a source of truth. An entry says "at revision h, these were the documents; all
commits up to w are written out, and these are the others", and the same for verdicts. Its user
compares h with a head that was read after the request came, or lets a won move prove that h was the
head; ``Guesses`` are the catalogs for which that is likely.

An entry only moves forward, by commits that each name the one before. A head that can't follow it
shows that the database was put back to an earlier state (``went_back``): whatever is remembered of
the catalog then belongs to a lost history.

The cache is bounded by bytes: the memory that parsed documents take, and estimates for tails. The
least recently used document, or whole entry with its tail, is dropped first. Entries aren't dropped
while the cache takes no more than ``_ENTRIES_BYTES``: a batch over many catalogs needs all of its
entries together.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from gateway import cpu
from gateway.limits import MIB, ServiceLimits
from gateway.memory import PARSED, parsed_bytes
from gateway.meters import NO_METERS, CacheReadings, Meters
from gateway.model import (
    OWN_KEYS,
    ChangeRecord,
    CommitRecord,
    DocumentRecord,
    Head,
    HeadMove,
    HeadPosition,
    Reply,
    Verdict,
    follows,
)
from gateway.runtime import Event, Runtime
from gateway.state.replay import HistoryIncomplete, WrongBase, advance, report_wrong_base

_log = logging.getLogger(__name__)

_SHRINK_BYTES = MIB
_ENTRIES_BYTES = 4 * MIB
# The estimated memory of a reply, in bytes: for each byte of its JSON (its values belong to
# documents, too), and a fixed part.
_MEMORY_PER_JSON_BYTE = 6
_MEMORY_PER_ENTRY = 1_000
# Smaller documents are always weighed: that costs less than to find out whether they need it.
_WEIGHED_BYTES = 1024
_RECENT_COMMITS_MAX = 1_000
_RECENT_KEYS_MAX = 4_000
# The memory of a commit, and of a key, without their texts.
_COMMIT_BYTES = 200
_KEY_BYTES = 60
# How long a guess holds: long enough for the next batch of a busy catalog, short enough to be
# probably right.
_GUESSED_S = 0.1
_GUESSED_MAX = 100_000

# The tail that a move carries along.
Carried: TypeAlias = tuple[list[CommitRecord], list[Verdict]]


class RecentChanges:
    """The keys that a catalog's last commits changed: of all commits above ``since``, without a
    gap. So changes of the last moments can be found without the log. Not thread-safe.

    ``memory_bytes`` is an estimate of the memory it takes.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self.memory_bytes = 0
        self._keys = 0
        self._commits: deque[tuple[int, tuple[str, ...]]] = deque()

    def add(self, commits: Iterable[CommitRecord]) -> None:
        """Add the next commits."""
        for commit in commits:
            keys = tuple(change.key for change in commit.changes)
            self._keys += len(keys)
            self.memory_bytes += _memory_of_keys(keys)
            self._commits.append((commit.revision, keys))
        while len(self._commits) > _RECENT_COMMITS_MAX or self._keys > _RECENT_KEYS_MAX:
            self.since, dropped = self._commits.popleft()
            self._keys -= len(dropped)
            self.memory_bytes -= _memory_of_keys(dropped)

    def newest_under(self, prefix: str, since: int, through: int) -> int | None:
        """The newest revision above ``since``, up to ``through``, that changed a document whose key
        begins with ``prefix``; None without one."""
        for revision, keys in reversed(self._commits):
            if revision <= since:
                break
            if revision <= through and any(
                key.startswith(prefix) and key not in OWN_KEYS for key in keys
            ):
                return revision
        return None


def _memory_of_keys(keys: tuple[str, ...]) -> int:
    return _COMMIT_BYTES + sum(_KEY_BYTES + len(key) for key in keys)


class Weight(msgspec.Struct, frozen=True):
    """The memory of a document: at most ``memory_bytes`` now, and ``weighed_bytes`` when it was
    last weighed. ``size_bytes`` is the size of its JSON, with its owners."""

    memory_bytes: int
    weighed_bytes: int
    size_bytes: int


NO_WEIGHT = Weight(0, 0, 0)


def weight_of(
    document: DocumentRecord | None, before: Weight = NO_WEIGHT, by: Sequence[ChangeRecord] = ()
) -> Weight:
    """The weight of a document that the changes ``by`` have made from one with the weight
    ``before``, if these are known. A small document is always weighed, a larger one only if it may
    have become much heavier."""
    if document is None:
        return Weight(_MEMORY_PER_ENTRY, 0, 0)
    owners_bytes = 0 if document.owners is None else document.owners.size_bytes()
    size_bytes = document.size_bytes + owners_bytes
    is_replaced = not by or any(each.action in ("put", "delete") for each in by)
    if size_bytes > _WEIGHED_BYTES and before.weighed_bytes and not is_replaced:
        brought = [each for change in by for each in (change.patch, change.attributes) if each]
        grown_bytes = max(0, size_bytes - before.size_bytes)  # for example by copies
        memory_bytes = before.memory_bytes + parsed_bytes(*brought) + PARSED * grown_bytes
        if memory_bytes <= before.weighed_bytes * 5 // 4:
            return Weight(memory_bytes, before.weighed_bytes, size_bytes)
    memory_bytes = _MEMORY_PER_ENTRY + parsed_bytes(*document.parts)
    memory_bytes += _MEMORY_PER_JSON_BYTE * owners_bytes
    return Weight(memory_bytes, memory_bytes, size_bytes)


def _memory_of_replies(tail: Iterable[Reply]) -> int:
    return sum(_MEMORY_PER_ENTRY + _MEMORY_PER_JSON_BYTE * each.size_bytes for each in tail)


@dataclass(slots=True)
class _Entry:
    revision: int
    time_us: int
    written: int
    tail: tuple[CommitRecord, ...]
    judged: int
    judged_written: int
    verdicts: tuple[Verdict, ...]
    documents: dict[str, DocumentRecord | None]
    last: str
    last_verdict: str
    deleted: bool = False
    used: int = 0  # by the clock of uses
    weights: dict[str, Weight] = field(default_factory=dict)  # of the documents
    changed: RecentChanges | None = None  # once somebody has asked for it
    advancing: Event | None = None  # set once the next commit's documents are made

    @property
    def position(self) -> HeadPosition:
        return HeadPosition(self.revision, self.last, self.judged, self.last_verdict)


class CachedState(NamedTuple):
    """An entry at one moment, with those of the requested documents that it has.

    ``tail`` contains the commits above ``written`` up to ``revision``; ``verdicts`` those up to
    number ``judged`` that may not be written out yet. ``deleted``: the commit at ``revision``
    deleted the catalog.
    """

    revision: int
    time_us: int
    written: int
    tail: tuple[CommitRecord, ...]
    judged: int
    verdicts: tuple[Verdict, ...]
    documents: dict[str, DocumentRecord | None]
    last: str
    last_verdict: str
    deleted: bool


class Cache:
    """The entries of catalogs. Thread-safe, without I/O. Only ``advance`` may take long."""

    def __init__(self, runtime: Runtime, limits: ServiceLimits, meters: Meters = NO_METERS) -> None:
        """``meters`` count contradictions, and heads that went back."""
        self.meters = meters
        self._runtime = runtime
        self._lock = runtime.lock()
        self._limits = limits
        self._forgetting: list[Callable[[str], None]] = []
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        # When each document was last used, by the clock of uses. Least recently used first, as
        # are the entries.
        self._by_use: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._uses = 0

    def revision(self, catalog: str) -> int | None:
        """The revision of the catalog's entry, None without an entry."""
        entry = self._entries.get(catalog)
        return None if entry is None else entry.revision

    def positions(self, catalogs: Iterable[str]) -> dict[str, HeadPosition]:
        """The positions of these catalogs' entries; catalogs without an entry are left out."""
        with self._lock:
            found = ((each, self._entries.get(each)) for each in catalogs)
            return {catalog: entry.position for catalog, entry in found if entry is not None}

    def written(self, catalog: str) -> int:
        """The revision up to which this process knows the catalog to be written out; 0 without an
        entry."""
        entry = self._entries.get(catalog)
        return 0 if entry is None else entry.written

    def judged_written(self, catalog: str) -> int:
        """The number of the verdict up to which this process knows them to be written out; 0
        without an entry."""
        entry = self._entries.get(catalog)
        return 0 if entry is None else entry.judged_written

    def unwritten(
        self, catalog: str, tail: Sequence[CommitRecord], verdicts: Sequence[Verdict]
    ) -> Carried:
        """The part of ``tail`` and ``verdicts`` that may not be written out, as far as this process
        knows. The catalog's next move carries it along."""
        entry = self._entries.get(catalog)
        if entry is None:
            return [*tail], [*verdicts]
        return (
            [commit for commit in tail if commit.revision > entry.written],
            [verdict for verdict in verdicts if verdict.number > entry.judged_written],
        )

    def begin(self, head: Head) -> None:
        """Start an entry at a head with its tail, unless there is one as new or newer."""
        with self._lock:
            entry = self._entries.get(head.catalog)
            if entry is None or entry.revision < head.revision:
                self._drop(head.catalog)
                tail, verdicts = head.tail or (), head.verdicts or ()
                self._entries[head.catalog] = _Entry(
                    head.revision,
                    head.time_us,
                    head.written,
                    tail,
                    head.judged,
                    head.judged_written,
                    verdicts,
                    {},
                    head.last,
                    head.last_verdict,
                    head.deleted,
                )
                self._bytes += _MEMORY_PER_ENTRY + _memory_of_replies((*tail, *verdicts))
                self._use(head.catalog)
                if len(self._entries) > self._limits.cached_catalogs_max:
                    self._drop(next(iter(self._entries)))
                self._evict()
            elif entry.judged < head.judged:
                entry.last_verdict = head.last_verdict
                self._judge(entry, head.judged, head.judged_written, head.verdicts or ())
                self._evict()

    def view(self, catalog: str, keys: Collection[str] = ()) -> CachedState | None:
        """The entry, with those of ``keys`` that are known, all at one moment."""
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None:
                self._misses += len(keys)
                return None
            documents = entry.documents
            found = {key: documents[key] for key in keys if key in documents}
            self._hits += len(found)
            self._misses += len(keys) - len(found)
            for key in found:
                self._use_document(catalog, key)
            self._use(catalog)
            return CachedState(
                entry.revision,
                entry.time_us,
                entry.written,
                entry.tail,
                entry.judged,
                entry.verdicts,
                found,
                entry.last,
                entry.last_verdict,
                entry.deleted,
            )

    def tails_at(self, head: Head) -> tuple[tuple[CommitRecord, ...], tuple[Verdict, ...]] | None:
        """The commits up to ``head``, and the verdicts, that may not be written out; None if the
        entry is behind ``head``, which was read without its tail. The entry learns from ``head``
        what is written out."""
        with self._lock:
            entry = self._entries.get(head.catalog)
            if entry is None:
                return None
            self._mark_written(entry, max(head.written, head.floor))
            self._mark_verdicts(entry, head.judged_written)
            if entry.revision < head.revision or entry.judged < head.judged:
                return None
            self._use(head.catalog)
            tail = entry.tail
            if tail and tail[-1].revision > head.revision:
                tail = tuple(each for each in tail if each.revision <= head.revision)
            return tail, entry.verdicts

    def document(
        self, catalog: str, key: str, revision: int
    ) -> tuple[DocumentRecord | None, int] | None:
        """A document, and the revision at which it is known: ``revision`` or a later one. None if
        it isn't known. The entry can be older than ``revision`` if it was dropped and begun again.
        """
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None or entry.revision < revision or key not in entry.documents:
                self._misses += 1
                return None
            self._hits += 1
            self._use_document(catalog, key)
            self._use(catalog)
            return entry.documents[key], entry.revision

    def changed_under(
        self, catalog: str, prefix: str, since: int, through: int
    ) -> tuple[bool, int | None]:
        """Whether this process knows all commits above ``since`` up to ``through``, and the newest
        of them that changed a document whose key begins with ``prefix``."""
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None or entry.revision < through:
                return False, None
            if entry.changed is None:
                entry.changed = RecentChanges(entry.revision)
            if since < entry.changed.since:
                return False, None
            return True, entry.changed.newest_under(prefix, since, through)

    def readings(self) -> CacheReadings:
        return CacheReadings(self._bytes, self._hits, self._misses)

    def advance(self, catalog: str, commits: Sequence[CommitRecord]) -> None:
        """Move the entry on by ``commits``, except those that it already has.

        They are ascending without a gap. If they begin above the entry's next revision, nothing
        changes. If they belong to another history, the catalog went back.
        """
        own = cpu.work_for(None)  # it is for all later requests, too
        try:
            for commit in commits:
                while not self._advanced(catalog, commit):
                    pass  # others have changed the entry meanwhile
        finally:
            cpu.work_for(own)

    def _advanced(self, catalog: str, commit: CommitRecord) -> bool:
        """Move the entry on by ``commit`` if that is its next one; False: try again."""
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None:
                return True
            before, is_stranger = entry.position, _is_stranger(entry, commit)
            if not is_stranger and commit.revision != entry.revision + 1:
                return True
            others = None if is_stranger else entry.advancing
            if not is_stranger and others is None:
                entry.advancing = mine = self._runtime.event()
        if is_stranger:
            self.went_back(catalog, before, f"commit {commit.id} at revision {commit.revision}")
            return True
        if others is not None:  # it is made only once
            others.wait()
            return False
        try:
            return self._advance_by(catalog, entry, commit)
        finally:
            with self._lock:
                entry.advancing = None
            mine.set()

    def _advance_by(self, catalog: str, entry: _Entry, commit: CommitRecord) -> bool:
        """Move the entry on by its next commit; False: it changed meanwhile. The documents are made
        without the lock, because that may take long."""
        with self._lock:
            known = _changed_documents(entry, commit)
        after = wrong = None
        try:
            after = _after(known, entry.weights, commit)
        except HistoryIncomplete:
            pass  # it lacks something that was compacted
        except WrongBase as error:
            wrong = error
        with self._lock:
            now = _changed_documents(entry, commit)
            is_same = now.keys() <= known.keys() and all(now[key] is known[key] for key in now)
            is_next = commit.revision == entry.revision + 1
            if self._entries.get(catalog) is not entry or not is_next or not is_same:
                return False
            if after is None:
                self._drop(catalog)
            else:
                for key in now:
                    self._put(catalog, entry, key, *after[key])
                entry.revision, entry.last = commit.revision, commit.id
                entry.time_us, entry.deleted = commit.time_us, commit.deletes_catalog
                self._lengthen(entry, [commit])
                self._use(catalog)
            self._evict()
        if wrong is not None:
            report_wrong_base(self.meters, catalog, wrong)
        return True

    def mark_written(self, catalog: str, revision: int, judged: int = 0) -> None:
        """Note that all commits up to ``revision``, and all verdicts up to number ``judged``, are
        written out."""
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is not None:
                self._mark_written(entry, revision)
                self._mark_verdicts(entry, judged)

    def _mark_written(self, entry: _Entry, revision: int) -> None:
        if revision > entry.written:
            entry.written = min(revision, entry.revision)
            left = tuple(commit for commit in entry.tail if commit.revision > revision)
            self._bytes += _memory_of_replies(left) - _memory_of_replies(entry.tail)
            entry.tail = left

    def _mark_verdicts(self, entry: _Entry, number: int) -> None:
        if number > entry.judged_written:
            self._judge(entry, entry.judged, min(number, entry.judged), entry.verdicts)

    def _judge(self, entry: _Entry, judged: int, written: int, verdicts: Iterable[Verdict]) -> None:
        left = tuple(verdict for verdict in verdicts if verdict.number > written)
        self._bytes += _memory_of_replies(left) - _memory_of_replies(entry.verdicts)
        entry.judged, entry.verdicts = judged, left
        entry.judged_written = max(entry.judged_written, written)

    def replace(self, move: HeadMove, documents: Mapping[str, DocumentRecord]) -> None:
        """Move a catalog's entry on by a won move. ``documents`` are the states that its commits
        left."""
        weights = self._weighed(move.catalog, move.base, documents, move.commits)
        with self._lock:
            entry = self._entries.get(move.catalog)
            if entry is None or entry.position != move.position or len(weights) < len(documents):
                return
            for key, document in documents.items():
                self._put(move.catalog, entry, key, document, weights[key])
            if move.commits:
                last = move.commits[-1]
                entry.revision, entry.time_us, entry.last = last.revision, last.time_us, last.id
                entry.deleted = last.deletes_catalog
                self._lengthen(entry, move.commits)
            if move.verdicts:
                _, judged = move.reached
                entry.last_verdict = move.verdicts[-1].id
                verdicts = (*entry.verdicts, *move.verdicts)
                self._judge(entry, judged, entry.judged_written, verdicts)
            self._use(move.catalog)
            self._evict()

    def learn(
        self, catalog: str, revision: int, documents: Mapping[str, DocumentRecord | None]
    ) -> None:
        """Add documents that were read from the store, current at ``revision``, unless the entry is
        no longer there."""
        weights = self._weighed(catalog, revision, documents)
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None or entry.revision != revision or len(weights) < len(documents):
                return
            for key, document in documents.items():
                self._put(catalog, entry, key, document, weights[key])
            self._use(catalog)
            self._evict()

    def forget(self, catalog: str) -> None:
        with self._lock:
            self._drop(catalog)

    def when_back(self, forget: Callable[[str], None]) -> None:
        """Have ``forget`` called with each catalog that goes back, to drop what the caller
        remembers of it."""
        self._forgetting.append(forget)

    def went_back(self, catalog: str, before: HeadPosition, found: str) -> None:
        """Forget the catalog: ``found``, read now, can't follow the head ``before`` that this
        process knew.

        Forgetting is harmless even if an old read arrived late. A head without a commit isn't
        reported, because it ends with its verdicts (``Janitor``).
        """
        with self._lock:
            entry = self._entries.get(catalog)
            if entry is None or not before.is_of(entry.position):
                return  # another thread has noticed
            self._drop(catalog)
        if before.revision:
            self.drop_lost(catalog, f"from {before} to {found}")

    def drop_lost(self, catalog: str, how: str) -> None:
        """The catalog went back: count and log that, and drop all that this process has of it,
        because it isn't in the database's history."""
        self.forget(catalog)
        self.meters.head_went_back()
        _log.error(
            "catalog %r went back (%s): was the database restored? This worker drops what it"
            " remembers of it and hasn't written out",
            catalog,
            how,
            extra={"catalog": catalog},
        )
        for forget in self._forgetting:
            forget(catalog)

    def _lengthen(self, entry: _Entry, commits: Sequence[CommitRecord]) -> None:
        if entry.changed is not None:
            self._bytes -= entry.changed.memory_bytes
            entry.changed.add(commits)
            self._bytes += entry.changed.memory_bytes
        unwritten = [commit for commit in commits if commit.revision > entry.written]
        entry.tail += tuple(unwritten)
        self._bytes += _memory_of_replies(unwritten)

    def _weighed(
        self,
        catalog: str,
        revision: int,
        documents: Mapping[str, DocumentRecord | None],
        by: Sequence[CommitRecord] = (),
    ) -> dict[str, Weight]:
        """The weights of ``documents``; none if the entry isn't at ``revision``. ``by``: the
        commits that made them from the cached ones, if known. Called without the lock, because it
        may take long."""
        entry = self._entries.get(catalog)
        if entry is None or entry.revision != revision:
            return {}
        changes: dict[str, list[ChangeRecord]] = {}
        for commit in by:
            for change in commit.changes:
                changes.setdefault(change.key, []).append(change)
        return {
            key: weight_of(document, entry.weights.get(key, NO_WEIGHT), changes.get(key, ()))
            for key, document in documents.items()
        }

    def _put(
        self,
        catalog: str,
        entry: _Entry,
        key: str,
        document: DocumentRecord | None,
        weight: Weight,
    ) -> None:
        before = entry.weights.get(key, NO_WEIGHT)
        entry.documents[key] = document
        entry.weights[key] = weight
        self._bytes += weight.memory_bytes - before.memory_bytes
        self._use_document(catalog, key)

    def _use(self, catalog: str) -> None:
        """Mark the entry as used now, later than those of its documents that were just used."""
        self._uses += 1
        self._entries[catalog].used = self._uses
        self._entries.move_to_end(catalog)

    def _use_document(self, catalog: str, key: str) -> None:
        self._by_use[catalog, key] = self._uses
        self._by_use.move_to_end((catalog, key))

    def shrink(self, bytes_max: int) -> bool:
        """Drop a megabyte of the least recently used, or less, down to ``bytes_max``. Return
        whether that is reached, or nothing more can be dropped."""
        with self._lock:
            before = self._bytes
            self._evict(max(bytes_max, before - _SHRINK_BYTES))
            return self._bytes <= bytes_max or self._bytes == before

    def _evict(self, bytes_max: int | None = None) -> None:
        """Evict down to ``bytes_max``. The last used entry stays, because its user is about to read
        it."""
        bytes_max = self._limits.cache_bytes_max if bytes_max is None else bytes_max
        while self._bytes > bytes_max:
            document = next(iter(self._by_use), None)
            catalog, entry = next(iter(self._entries.items()))
            may_drop = self._bytes > max(bytes_max, _ENTRIES_BYTES) and len(self._entries) > 1
            if may_drop and (document is None or entry.used <= self._by_use[document]):
                self._drop(catalog)
            elif document is not None:
                del self._by_use[document]
                of, key = document
                self._entries[of].documents.pop(key)
                self._bytes -= self._entries[of].weights.pop(key).memory_bytes
            else:
                return

    def _drop(self, catalog: str) -> None:
        entry = self._entries.pop(catalog, None)
        if entry is None:
            return
        self._bytes -= entry.changed.memory_bytes if entry.changed is not None else 0
        self._bytes -= _MEMORY_PER_ENTRY + _memory_of_replies((*entry.tail, *entry.verdicts))
        for key, weight in entry.weights.items():
            self._bytes -= weight.memory_bytes
            del self._by_use[catalog, key]


def _changed_documents(entry: _Entry, commit: CommitRecord) -> dict[str, DocumentRecord | None]:
    """The entry's documents that ``commit`` changes."""
    held = entry.documents
    return {change.key: held[change.key] for change in commit.changes if change.key in held}


@cpu.interruptible
def _after(
    known: Mapping[str, DocumentRecord | None], weights: Mapping[str, Weight], commit: CommitRecord
) -> dict[str, tuple[DocumentRecord | None, Weight]]:
    """By key, the documents that ``commit`` makes of the ``known`` ones, and their weights. Raises
    as ``advance``."""
    after: dict[str, tuple[DocumentRecord | None, Weight]] = {}
    for change in commit.changes:
        if change.key in known:
            document = advance(known[change.key], commit, change)
            weight = weight_of(document, weights.get(change.key, NO_WEIGHT), (change,))
            after[change.key] = document, weight
    return after


def _is_stranger(entry: _Entry, commit: CommitRecord) -> bool:
    """Whether the commit shows that the entry belongs to another history."""
    if not entry.last:
        return False
    if commit.revision == entry.revision:
        return commit.id != entry.last
    return commit.revision == entry.revision + 1 and not follows(entry.last, commit.parent)


class Guesses:
    """The catalogs whose cached states are probably at the head. Only a won move proves that."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._until: dict[str, float] = {}

    def has(self, catalog: str) -> bool:
        until = self._until.get(catalog)
        return until is not None and self._runtime.monotonic() < until

    def add(self, catalog: str) -> None:
        """Note that this worker has just moved the head, and nobody else seems to write the
        catalog."""
        if len(self._until) >= _GUESSED_MAX:
            self._until.clear()
        self._until[catalog] = self._runtime.monotonic() + _GUESSED_S

    def remove(self, catalog: str) -> None:
        self._until.pop(catalog, None)

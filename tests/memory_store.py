"""The in-memory twin: the same contract in one process, for simulation and fast unit tests.

Nothing survives the process; it is never a default of the service.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from time import monotonic as _monotonic
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gateway.model import (
    APPLICATIONS_KEY,
    OWN_KEYS,
    WITHHELD,
    BareDocument,
    Claim,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
    HeadMove,
    HeadPosition,
    PinRecord,
    Reply,
    Retention,
    StoredToken,
    Verdict,
    bare,
)
from gateway.store.contract import (
    CLAIMS_MAX,
    NEVER_US,
    PROGRESS,
    RANGE_BYTES_MAX,
    SCANNED_BYTES_MAX,
    CommitSignals,
    Moved,
    MoveResult,
    Rejected,
    Scanned,
    SubscriptionRecord,
    Swept,
    UploadPart,
    UploadRecord,
    UploadsHeld,
)
from patching import ABSENT, Json, digest
from patching.part_digests import owned_digests


class MemoryRecords:
    """The records that all parts share. ``monotonic`` (seconds) measures leases."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._documents: dict[tuple[str, str], DocumentRecord] = {}
        self._commits: dict[str, dict[int, CommitRecord]] = {}
        # Swept commits: by (catalog, revision), the keys that still find it.
        self._kept_keys: dict[tuple[str, int], frozenset[str]] = {}
        self._swept: dict[str, int] = {}
        self._raises: dict[str, list[tuple[int, float]]] = {}
        self._pins: dict[str, dict[str, PinRecord]] = {}

    def _ascending(self, catalog: str) -> list[CommitRecord]:
        with self._lock:
            return [commit for _, commit in sorted(self._commits.get(catalog, {}).items())]

    def _keys_of(self, commit: CommitRecord) -> frozenset[str]:
        """The keys that find a stored commit."""
        kept = self._kept_keys.get((commit.catalog, commit.revision))
        return frozenset(change.key for change in commit.changes) if kept is None else kept


class MemoryLeases(MemoryRecords):
    """See ``gateway.store.contract.Store``."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        super().__init__(monotonic)
        self._leases: dict[str, tuple[str, float]] = {}

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        with self._lock:
            now = self._monotonic()
            held_by, until = self._leases.get(name, (holder, now))
            if held_by != holder and until > now:
                return False
            self._leases[name] = (holder, now + duration_s)
            return True


class MemoryRetention(MemoryRecords):
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def retention(self, catalog: str) -> Retention | None:
        with self._lock:
            return self._retention(catalog)

    def _retention(self, catalog: str) -> Retention | None:
        head = self._heads.get(catalog)
        if head is None or not head.revision:
            return None
        pins = tuple(self._pins.get(catalog, {}).values())
        now = self._monotonic()
        raises = tuple((floor, now - at) for floor, at in self._raises.get(catalog, ()))
        return Retention(head.revision, head.floor, self._swept.get(catalog, 0), pins, raises)

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        with self._lock:
            bounds = self._retention(catalog)
            if bounds is None or not bounds.floor <= pin.revision <= bounds.revision:
                return False
            if held is not None and held not in bounds.pins:
                return False
            pins = self._pins.setdefault(catalog, {})
            pins.pop(pin.id, None)
            pins[pin.id] = pin
            return True

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        with self._lock:
            return self._pins.get(catalog, {}).pop(pin_id, None) is not None

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        with self._lock:
            bounds = self._retention(catalog)
            if bounds is None or not bounds.floor < floor <= bounds.revision:
                return False
            if at is not None and bounds.revision != at:
                return False
            live = {pin.id: pin for pin in bounds.pins if pin.expires_us > now_us}
            if any(pin.revision < floor for pin in live.values()):
                return False
            head = self._heads[catalog]
            written = max(head.written, floor)
            tail = tuple(commit for commit in head.tail or () if commit.revision > written)
            self._heads[catalog] = replace(head, floor=floor, written=written, tail=tail)
            self._raises.setdefault(catalog, []).append((floor, self._monotonic()))
            self._pins[catalog] = live
            return True

    def advance_head(self, position: HeadPosition, commit: CommitRecord) -> bool:
        with self._lock:
            head = self._heads.get(commit.catalog)
            if head is None or head.position != position:
                return False
            self._heads[commit.catalog] = replace(
                head,
                revision=commit.revision,
                time_us=commit.time_us,
                written=commit.revision,
                floor=commit.revision,
                deleted=commit.deletes_catalog,
                tail=(),
                last=commit.id,
            )
            self._commits.setdefault(commit.catalog, {})[commit.revision] = commit
            raises = self._raises.setdefault(commit.catalog, [])
            raises.append((commit.revision, self._monotonic()))
            self._pins[commit.catalog] = {}
            return True

    def end_sweep(self, catalog: str, floor: int) -> None:
        with self._lock:
            if catalog in self._heads:
                self._swept[catalog] = max(floor, self._swept.get(catalog, 0))
                later = [each for each in self._raises.get(catalog, ()) if each[0] > floor]
                self._raises[catalog] = later

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[CommitRecord]:
        wanted = set(keys)
        return [
            commit
            for commit in self._ascending(catalog)
            if commit.revision <= through and not wanted.isdisjoint(self._keys_of(commit))
        ]

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        for each in swept:
            with self._lock:
                self._sweep(catalog, each)

    def _sweep(self, catalog: str, swept: Swept) -> None:
        stored = self._commits.get(catalog, {}).get(swept.revision)
        if stored is None:
            return
        if swept.commit is None:
            del self._commits[catalog][swept.revision]
            self._kept_keys.pop((catalog, swept.revision), None)
        elif swept.keys <= self._keys_of(stored):
            self._commits[catalog][swept.revision] = swept.commit
            self._kept_keys[catalog, swept.revision] = swept.keys

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        with self._lock:
            commits = self._commits.get(catalog, {})
            dropped = [
                commit.revision
                for commit in commits.values()
                if commit.revision < through
                and commit.time_us < before_us
                and commit.idempotency is not None
                and not self._keys_of(commit)
            ]
            for revision in dropped:
                del commits[revision]
                self._kept_keys.pop((catalog, revision), None)
        return len(dropped)

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        with self._lock:
            purged = [
                name
                for name, document in self._documents.items()
                if name[0] == catalog
                and not document.exists
                and document.revision <= through
                and document.time_us < before_us
            ][:limit]
            for name in purged:
                del self._documents[name]
        return len(purged)


class MemorySignals:
    """See ``gateway.store.contract.CommitSignals``. ``next(0)`` never waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._told: dict[str, int] = {}
        self.closed = False

    def tell(self, catalog: str, revision: int) -> None:
        with self._changed:
            self._told[catalog] = max(revision, self._told.get(catalog, 0))
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Mapping[str, int]:
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._told or self.closed, timeout_s)
            told, self._told = self._told, {}
        return told

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()


_HEAD_BYTES_MAX = 16 * 1024 * 1024
_Bare = TypeVar("_Bare", bound=BareDocument)


class MemoryVerdicts(MemoryRecords):
    """See ``gateway.store.contract.Store``. Every call is atomic."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        super().__init__(monotonic)
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}
        self._expires: dict[tuple[str, str, str], int] = {}
        # By catalog without a commit, the time of its last verdict.
        self._uncommitted: dict[str, int] = {}

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        with self._lock:
            for each in verdicts:
                name = each.catalog, each.idempotency.principal, each.idempotency.key
                there = self._verdicts.get(name)
                if there is None or there.number < each.number:
                    self._verdicts[name] = each
                    self._expires[name] = each.time_us + kept_s * 1_000_000

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        with self._lock:
            found = sorted(
                (at_us, name) for name, at_us in self._uncommitted.items() if at_us < before_us
            )
            heads = [self._heads[name] for _, name in found[:limit]]
        return [replace(head, tail=None, verdicts=None) for head in heads]

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        with self._lock:
            kept = {catalog for catalog, _, _ in self._verdicts}
            for head in heads:
                there = self._heads.get(head.catalog)
                if head.revision or there is None or there.position != head.position:
                    continue
                if not there.verdicts and head.catalog not in kept:
                    del self._heads[head.catalog], self._uncommitted[head.catalog]

    def expire_verdicts(self, now_us: int) -> None:
        """Forget the verdicts that needn't be kept any more, as MongoDB does now and then."""
        with self._lock:
            for name in [name for name, at_us in self._expires.items() if at_us <= now_us]:
                del self._verdicts[name], self._expires[name]


class MemoryStore(MemoryRetention, MemoryLeases, MemoryVerdicts):
    """See ``gateway.store.contract.Store``. Every call is atomic.

    ``monotonic`` (seconds) is the clock that leases are measured by. ``head_bytes_max`` bounds what
    a head may hold, as records are bounded by a database.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = _monotonic,
        head_bytes_max: int = _HEAD_BYTES_MAX,
    ) -> None:
        super().__init__(monotonic)
        self._head_bytes_max = head_bytes_max
        self._signals: list[MemorySignals] = []
        self._uploads = MemoryUploads()
        self._subscriptions = MemorySubscriptions(lambda: self._monotonic())

    def subscriptions(self) -> MemorySubscriptions:
        return self._subscriptions

    def uploads(self) -> MemoryUploads:
        return self._uploads

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        with self._lock:
            found = {c: self._heads[c] for c in catalogs if c in self._heads}
        return {c: replace(head, tail=None, verdicts=None) for c, head in found.items()}

    def tails(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        with self._lock:
            return {c: self._heads[c] for c in catalogs if c in self._heads}

    def last_written(self, revisions: Mapping[str, Collection[int]]) -> Mapping[str, int]:
        with self._lock:
            there = {c: self._commits.get(c, {}).keys() & rs for c, rs in revisions.items()}
        return {catalog: max(found) for catalog, found in there.items() if found}

    def end_tails(self, reached: Mapping[str, tuple[int, int]]) -> None:
        with self._lock:
            for catalog, (revision, judged) in reached.items():
                head = self._heads.get(catalog)
                if head is not None and (head.revision, head.judged) == (revision, judged):
                    self._heads[catalog] = replace(
                        head, written=revision, tail=(), judged_written=judged, verdicts=()
                    )

    def open_tails(
        self, before_us: int, limit: int, skip: int = 0, *, after_us: int = NEVER_US
    ) -> Sequence[Head]:
        with self._lock:
            found = [
                head
                for head in self._heads.values()
                if (head.tail or head.verdicts) and not before_us <= head.time_us <= after_us
            ]
        return [replace(head, tail=None, verdicts=None) for head in found[skip : skip + limit]]

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        with self._lock:
            return {
                catalog: self._prefix(catalog, after, through)
                for catalog, (after, through) in spans.items()
            }

    def commit_id(self, catalog: str, revision: int) -> str | None:
        with self._lock:
            commit = self._commits.get(catalog, {}).get(revision)
        return None if commit is None else commit.id

    def _prefix(self, catalog: str, after: int, through: int) -> list[CommitRecord]:
        written = self._commits.get(catalog, {})
        prefix = []
        for revision in range(after + 1, through + 1):
            if revision not in written:
                break
            prefix.append(written[revision])
        return prefix

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        names = [(catalog, key) for catalog, wanted in keys.items() for key in wanted]
        with self._lock:
            found = {name: self._documents[name] for name in names if name in self._documents}
        if content_bytes_max is None:
            return found
        return {
            name: replace(document, content=WITHHELD)
            if document.exists and document.size_bytes > content_bytes_max
            else document
            for name, document in found.items()
        }

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
        with self._lock:
            found = {name: self._documents[name] for name in keys if name in self._documents}
        ordered = sorted(found)
        some = _within_bytes([bare(found[name]) for name in ordered], ordered)
        left = [] if some.is_whole else [name for name in keys if name > ordered[len(some) - 1]]
        return dict(zip(ordered, some, strict=False)), left

    def list_range(
        self, catalog: str, prefix: str, newer_than: int, limit: int
    ) -> Scanned[BareDocument]:
        with self._lock:
            found = {
                key: each
                for (of, key), each in self._documents.items()
                if of == catalog and key not in OWN_KEYS
                if each.exists or each.revision > newer_than
            }
        names = _names_after(found, "", prefix)
        listed = [bare(found[key]) for key in names[:limit]]
        return _within_bytes(listed, names, RANGE_BYTES_MAX)

    def range_changed(
        self,
        catalog: str,
        prefix: str,
        after: int,
        through: int,
        within_s: float | None = None,  # noqa: ARG002 - it takes no time
    ) -> int | None:
        found = (each for each in self._ascending(catalog) if after < each.revision <= through)
        changed = (
            each for each in found if _names_after(self._keys_of(each) - OWN_KEYS, "", prefix)
        )
        return next((each.revision for each in changed), None)

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Reply]:
        found: dict[tuple[str, str, str], Reply] = {}
        with self._lock:
            for catalog, wanted in keys.items():
                for name in wanted:
                    if (catalog, *name) in self._verdicts:
                        found[catalog, *name] = self._verdicts[catalog, *name]
                for commit in self._commits.get(catalog, {}).values():
                    asked = commit.idempotency
                    if asked is not None and (asked.principal, asked.key) in wanted:
                        found[catalog, asked.principal, asked.key] = commit
        return found

    def claim(self, catalogs: Collection[str], claim: Claim) -> None:
        with self._lock:
            for head in [self._heads[each] for each in catalogs if each in self._heads]:
                is_in_line = any(each.by == claim.by for each in head.claims)
                if not is_in_line and len(head.claims) < CLAIMS_MAX:
                    self._heads[head.catalog] = replace(head, claims=(*head.claims, claim))

    def drop_claims(self, catalogs: Collection[str], by: str) -> None:
        with self._lock:
            for head in [self._heads[each] for each in catalogs if each in self._heads]:
                claims = tuple(each for each in head.claims if each.by != by)
                self._heads[head.catalog] = replace(head, claims=claims)

    def move_heads(self, moves: Sequence[HeadMove]) -> Mapping[str, MoveResult]:
        with self._lock:
            return {move.catalog: self.move_head(move) for move in moves}

    def move_head(self, move: HeadMove) -> MoveResult:
        current = self._heads.get(move.catalog) or Head(move.catalog)
        if current.position != move.position and not self._is_ended(move):
            return Moved.LOST
        if not move.passes_all and any(c.by not in move.passed for c in current.claims[:1]):
            return Moved.LOST
        written = max(current.written, move.written)
        judged_written = max(current.judged_written, move.judged_written)
        end = move.end
        verdicts = [each for each in current.verdicts or () if each.number > judged_written]
        tail = [commit for commit in current.tail or () if commit.revision > written]
        tail += move.commits
        verdicts += move.verdicts
        size_bytes = sum(each.size_bytes for each in chain[Reply](tail, verdicts))
        if size_bytes > self._head_bytes_max:
            return Rejected("it is larger than a head may be", too_large=True)
        head = self._heads[move.catalog] = replace(
            current,
            revision=end.revision,
            last=end.last,
            last_verdict=end.last_verdict,
            written=written,
            tail=tuple(tail),
            judged=end.judged,
            judged_written=judged_written,
            verdicts=tuple(verdicts),
            claims=tuple(each for each in current.claims if each.by not in move.passed),
        )
        if not move.base and not move.commits and move.verdicts:
            self._uncommitted[move.catalog] = move.verdicts[-1].time_us
        if move.commits:
            self._uncommitted.pop(move.catalog, None)
            last = move.commits[-1]
            self._heads[move.catalog] = replace(
                head, time_us=last.time_us, deleted=last.deletes_catalog
            )
        return Moved.WON

    def _is_ended(self, move: HeadMove) -> bool:
        """Whether the head had no commit and is gone: it can be moved on from where it was."""
        return move.base == 0 and move.catalog not in self._heads

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        with self._lock:
            for catalog, changed in documents.items():
                for document in changed:
                    stored = self._documents.get((catalog, document.key))
                    if stored is None or _order(stored) < _order(document):
                        self._documents[catalog, document.key] = document

    def write_commits(self, commits: Sequence[CommitRecord]) -> None:
        with self._lock:
            for commit in commits:
                written = self._commits.setdefault(commit.catalog, {})
                if commit.revision not in written:
                    written[commit.revision] = commit
                    for signals in self._signals:
                        signals.tell(commit.catalog, commit.revision)

    def commit_signals(self) -> CommitSignals:
        opened = MemorySignals()
        with self._lock:
            self._signals = [signals for signals in self._signals if not signals.closed]
            self._signals.append(opened)
        return opened

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
        found = []
        for commit in reversed(self._ascending(catalog)):
            if commit.revision <= through and key in self._keys_of(commit):
                change = commit.change_of(key)
                found.append(replace(commit, changes=(change,)))
                if change.begins_at(commit.revision):
                    break
        return found

    def commit_at(self, catalog: str, time_us: int) -> CommitRecord | None:
        commits = self._ascending(catalog)
        index = bisect_right([commit.time_us for commit in commits], time_us)
        return commits[index - 1] if index else None

    def list_commits(
        self,
        catalog: str,
        after: int,
        through: int,
        limit: int,
        keys: str | Collection[str] | None,
        bytes_max: int,
        *,
        author: str | None = None,
        newest_first: bool = False,
    ) -> Sequence[CommitRecord]:
        listed: list[CommitRecord] = []
        ascending = self._ascending(catalog)
        wanted = {keys} if isinstance(keys, str) else keys
        for commit in reversed(ascending) if newest_first else ascending:
            by_them = author in (None, commit.author)
            of_keys = wanted is None or not self._keys_of(commit).isdisjoint(wanted)
            if after < commit.revision <= through and by_them and of_keys:
                listed.append(commit)
                bytes_max -= sum(len(repr((c.patch, c.value))) for c in commit.changes)
                if len(listed) == limit or bytes_max <= 0:
                    break
        return listed

    def count_commits(self, catalog: str, after: int, through: int) -> int:
        return sum(after < each.revision <= through for each in self._ascending(catalog))

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        with self._lock:
            heads = {name: head for name, head in self._heads.items() if head.revision}
        names = _names_after(heads, after, prefix)[:limit]
        return [replace(heads[name], tail=None, verdicts=None) for name in names]

    def catalog_names(self, after: str, limit: int) -> Sequence[str]:
        with self._lock:
            heads = {name for name, head in self._heads.items() if head.revision}
            others = {name for name, commits in self._commits.items() if commits}
            others |= {name for name, _ in self._documents}
        return _names_after(heads | (others - self._heads.keys()), after, "")[:limit]

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[DocumentRecord]:
        scanned: list[DocumentRecord] = []
        with self._lock:
            keys = [key for of, key in self._documents if of == catalog and key != APPLICATIONS_KEY]
            for key in _names_after(keys, after, prefix)[:limit]:
                document = self._documents[catalog, key]
                scanned.append(document)
                bytes_max -= document_bytes(document)
                if bytes_max <= 0:
                    break
        return scanned

    def scan_digests(
        self,
        catalog: str,
        after: str,
        prefix: str,
        limit: int,
        *,
        above: int = 0,
        parts: bool = False,
    ) -> Scanned[Digested]:
        with self._lock:
            newer = {
                key: document
                for (of, key), document in self._documents.items()
                if of == catalog and key != APPLICATIONS_KEY and document.revision > above
            }
        names = _names_after(newer, after, prefix)
        return _within_bytes([digested(newer[key], parts=parts) for key in names[:limit]], names)

    def digests_of(
        self, catalog: str, keys: Collection[str], *, parts: bool = False
    ) -> Scanned[Digested]:
        found = self.documents({catalog: keys})
        names = sorted(found)
        return _within_bytes([digested(found[name], parts=parts) for name in names], names)

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        with self._lock:
            keys = [key for of, key in self._documents if of == catalog and key != APPLICATIONS_KEY]
        return _names_after(keys, after, prefix)[:limit]

    def stored_bytes(self, content: Json) -> int:
        return len(msgspec.json.encode(content))

    def await_reachable(self, patience_s: float) -> None:
        pass

    def ping(self) -> None:
        return


def digested(document: DocumentRecord, *, parts: bool = False) -> Digested:
    plain = bare(document)
    return Digested(
        plain.key,
        plain.revision,
        plain.create_revision,
        plain.exists,
        plain.attributes,
        document.commit_id,
        document.size_bytes,
        None if document.content is ABSENT else digest(document.content),
        _parts(document) if parts else None,
    )


def _within_bytes(
    records: Sequence[_Bare], names: Sequence[object], bytes_max: int = SCANNED_BYTES_MAX
) -> Scanned[_Bare]:
    """The first of ``records``, those of the first of ``names``."""
    size_bytes = 0
    for number, each in enumerate(records, 1):
        size_bytes += len(repr((each.key, each.attributes, getattr(each, "parts", None))))
        if size_bytes >= bytes_max:
            return Scanned(records[:number], is_whole=number == len(names))
    return Scanned(records, is_whole=len(records) == len(names))


def _parts(document: DocumentRecord) -> Mapping[str, str] | None:
    if document.owners is None or document.content is ABSENT:
        return {}
    return owned_digests(document.content, document.owners)


def _order(document: DocumentRecord) -> tuple[object, ...]:
    """Of two states the later one wins, and at one revision one of the two, whoever writes last: by
    the members in the order in which MongoDB compares them, as far as those tell."""
    return (
        document.revision,
        document.create_revision,
        document.commit_id,
        document.time_us,
        document.patches,
        document.size_bytes,
        not document.exists,
    )


def document_bytes(document: DocumentRecord) -> int:
    """The bytes of a scan that a document fills."""
    return len(repr((document.key, document.content, document.attributes)))


def _names_after(names: Collection[str], after: str, prefix: str) -> list[str]:
    found = (name for name in names if name.startswith(prefix) and name > after)
    return sorted(found, key=str.encode)


class MemoryUploads:
    """See ``gateway.store.contract.UploadStore``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[tuple[str, str], UploadRecord] = {}
        self._parts: dict[tuple[str, str], dict[int, tuple[UploadPart, bytes]]] = {}
        self._rooms: dict[tuple[str, str], dict[int, int]] = {}

    def create_upload(self, upload: UploadRecord) -> None:
        with self._lock:
            self._uploads[_name(upload)] = upload
            self._rooms[_name(upload)] = {}

    def end_upload(self, upload: UploadRecord) -> None:
        with self._lock:
            if _name(upload) in self._uploads:
                self._uploads[_name(upload)] = dataclasses.replace(upload, is_open=False)
                self._rooms[_name(upload)] = {}

    def upload(self, catalog: str, upload_id: str) -> UploadRecord | None:
        with self._lock:
            return self._uploads.get((catalog, upload_id))

    def held(self, principal: str, now_us: int) -> tuple[UploadsHeld, UploadsHeld]:
        with self._lock:
            found = [
                (upload.principal, sum(self._rooms[name].values()))
                for name, upload in self._uploads.items()
                if upload.is_open and upload.expires_us > now_us
            ]
        own = [size for whose, size in found if whose == principal]
        return UploadsHeld(len(found), sum(size for _, size in found)), UploadsHeld(
            len(own), sum(own)
        )

    def make_room(self, upload: UploadRecord, number: int, size_bytes: int, bytes_max: int) -> bool:
        with self._lock:
            known = self._uploads.get(_name(upload))
            if known is None or not known.is_open:
                return False
            rooms = self._rooms[_name(upload)]
            room = max(size_bytes, rooms.get(number, 0))
            if sum(rooms.values()) - rooms.get(number, 0) + room > bytes_max:
                return False
            rooms[number] = room
            return True

    def put_part(self, upload: UploadRecord, number: int, content: bytes) -> UploadPart:
        part = UploadPart(number, len(content), hashlib.sha256(content).hexdigest())
        with self._lock:
            self._parts.setdefault(_name(upload), {})[number] = (part, content)
        return part

    def parts(self, upload: UploadRecord) -> Sequence[UploadPart]:
        with self._lock:
            return [part for _, (part, _) in sorted(self._parts.get(_name(upload), {}).items())]

    def part_content(self, upload: UploadRecord, number: int) -> bytes | None:
        with self._lock:
            staged = self._parts.get(_name(upload), {}).get(number)
        return None if staged is None else staged[1]

    def count_uploads(self, now_us: int) -> int:
        with self._lock:
            return sum(upload.expires_us > now_us for upload in self._uploads.values())

    def drop_parts(self, upload: UploadRecord) -> None:
        with self._lock:
            self._parts.pop(_name(upload), None)

    def drop_upload(self, upload: UploadRecord) -> None:
        with self._lock:
            self._uploads.pop(_name(upload), None)
            self._rooms.pop(_name(upload), None)
            self._parts.pop(_name(upload), None)


def _name(upload: UploadRecord) -> tuple[str, str]:
    return upload.catalog, upload.id


class MemoryTokens:
    """See ``gateway.store.contract.TokenStore``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, StoredToken] = {}

    def create_token(self, token: StoredToken) -> None:
        with self._lock:
            if self._tokens.setdefault(token.id, token) is not token:
                raise ValueError("there is a token with this id")

    def token(self, token_id: str) -> StoredToken | None:
        with self._lock:
            return self._tokens.get(token_id)

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        with self._lock:
            return {each: self._tokens[each] for each in ids if each in self._tokens}

    def tokens(self) -> Sequence[StoredToken]:
        with self._lock:
            return sorted(self._tokens.values(), key=lambda each: (each.created_us, each.id))

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        with self._lock:
            token = self._tokens.get(token_id)
            if token is not None and token.revoked_us is None:
                token = self._tokens[token_id] = dataclasses.replace(token, revoked_us=revoked_us)
            return token


class MemorySubscriptions:
    """See ``gateway.store.contract.SubscriptionStore``. Every call is atomic."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], SubscriptionRecord] = {}
        self._claims: dict[tuple[str, str], tuple[str, float]] = {}

    def subscription(self, catalog: str, name: str) -> SubscriptionRecord | None:
        with self._lock:
            return self._records.get((catalog, name))

    def subscriptions_of(self, catalog: str) -> Sequence[SubscriptionRecord]:
        with self._lock:
            named = sorted(self._records.items(), key=lambda item: item[0][1].encode())
            return [record for (of, _), record in named if of == catalog]

    def create_subscription(self, record: SubscriptionRecord) -> bool:
        with self._lock:
            name = record.catalog, record.name
            return self._records.setdefault(name, record) is record

    def change_subscription(
        self,
        record: SubscriptionRecord,
        number: int,
        progress: Collection[str],
        *,
        at_revision: bool = False,
    ) -> bool:
        with self._lock:
            before = self._records.get((record.catalog, record.name))
            if before is None or before.number != number:
                return False
            if at_revision and not before.position.isdigit():
                return False
            kept = {name: getattr(before, name) for name in PROGRESS if name not in progress}
            self._records[record.catalog, record.name] = dataclasses.replace(record, **kept)
            return True

    def has_unreadable_subscription(self, catalog: str, name: str) -> bool:  # noqa: ARG002
        return False

    def drop_subscription(self, catalog: str, name: str, number: int | None) -> bool:
        with self._lock:
            found = self._records.get((catalog, name))
            if found is None or found.number != number:
                return False
            self._claims.pop((catalog, name), None)
            return self._records.pop((catalog, name), None) is not None

    def claimable(
        self, holder: str, limit: int
    ) -> tuple[Sequence[SubscriptionRecord], Sequence[tuple[str, str]]]:
        with self._lock:
            held = [record for name, record in self._records.items() if self._holds(name, holder)]
            free = [name for name in self._records if self._is_free(name)]
            return held, free[:limit]

    def claim_subscription(
        self, catalog: str, name: str, holder: str, duration_s: float
    ) -> SubscriptionRecord | None:
        with self._lock:
            if (catalog, name) not in self._records or not self._is_free((catalog, name)):
                return None
            self._claims[catalog, name] = holder, self._monotonic() + duration_s
            return self._records[catalog, name]

    def renew_claims(self, holder: str, duration_s: float) -> None:
        with self._lock:
            for name in self._claims:
                if self._holds(name, holder):
                    self._claims[name] = holder, self._monotonic() + duration_s

    def end_claim(self, catalog: str, name: str, holder: str) -> None:
        with self._lock:
            if self._claims.get((catalog, name), ("", 0))[0] == holder:
                del self._claims[catalog, name]

    def save_progress(self, record: SubscriptionRecord, holder: str) -> bool:
        with self._lock:
            name = record.catalog, record.name
            before = self._records.get(name)
            if before is None or before.number != record.number or not self._holds(name, holder):
                return False
            progress = {each: getattr(record, each) for each in PROGRESS}
            self._records[name] = dataclasses.replace(before, **progress)
            return True

    def _is_free(self, name: tuple[str, str]) -> bool:
        return self._claims.get(name, ("", 0.0))[1] <= self._monotonic()

    def _holds(self, name: tuple[str, str], holder: str) -> bool:
        by, until = self._claims.get(name, ("", 0.0))
        return by == holder and until > self._monotonic()


def backup(store: MemoryStore) -> Callable[[], None]:
    """What is to be called to put the store back to what it is now."""
    names = ("_heads", "_documents", "_commits", "_verdicts")
    kept = {name: copy.deepcopy(getattr(store, name)) for name in names}

    def put_back() -> None:
        with store._lock:
            for name in names:
                setattr(store, name, copy.deepcopy(kept[name]))

    return put_back

"""Verification: are a catalog's documents what its log says? It only reads, in bounded memory.

The log is followed from the oldest retained state to the head as it was when the verification
began; later commits are ignored. These are the findings, none of which may ever occur:

* commits or documents of a catalog that has no head; a record that isn't as gateways write it;
* missing revisions from the floor up to the head, times that don't increase, a commit that doesn't
  name the one before it as its parent, a commit above the head;
* a change in the log whose document is missing or at an older revision; a document that is newer
  than the head;
* a document that the log doesn't lead to: after replaying each change from the state at the floor,
  something differs (content, attributes, owners, revision, create_revision, commit_id, time); or a
  value that a change records isn't the result of its patch;
* a wrong digest of a content, or of what a manager owns of it;
* with a second implementation of JSON Patch: a patch for which it gives another result.

Several documents are replayed together, because two reads for each would take most of the time. If
there is any finding about them, they are verified again one by one.

A pin keeps compaction away meanwhile. But a compaction may already be under way, and nothing waits
for it; it may show as changes whose documents were deleted. Then verify the catalog again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

import patching
from gateway.errors import CatalogNotFound
from gateway.limits import MIB
from gateway.model import (
    APPLICATIONS_KEY,
    SETTINGS_KEY,
    ChangeRecord,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
    PinRecord,
    follows,
)
from gateway.retention.retrying import RetryingCalls
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.replay import HistoryIncomplete, WrongBase, advance
from gateway.store.contract import KEYS_MERGED_MAX, ForeignRecord, LoggedCommit, Store
from gateway.store.unreachable import as_unavailable
from patching import ABSENT, Json, digest
from patching.part_digests import owned_digests
from patching.values import Absent

_COMMITS_AT_ONCE = 1_000
_DOCUMENTS_AT_ONCE = 500
_PAGE_BYTES_MAX = 8 * MIB
_HELD_BYTES_MAX = 32 * MIB  # the most bytes of documents that are replayed together
_PIN_S = 600
_PIN_RENEW_S = 60


_LAST = 2**63 - 1
_FROM_ONE_MOMENT = "repair it, or restore the three collections from the same moment"

Progress = Callable[[int], None]
_Found = Iterator[tuple[str | None, str]]
# A second implementation of RFC 6902: from a state and a patch to the next state, or ValueError.
Second: TypeAlias = "Callable[[Json | Absent, Json], Json | Absent]"


def _nobody(count: int) -> None:
    del count


@dataclass(slots=True)
class Tally:
    """The counts of a verification."""

    catalogs: int = 0
    commits: int = 0
    documents: int = 0
    patches: int = 0  # also applied by the second implementation
    findings: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. ``key`` None: it is about the head, or the log as a whole."""

    catalog: str
    key: str | None
    detail: str


class Verification:
    """Verifies catalogs. Every method raises StoreUnavailable. ``tally`` counts over all calls."""

    def __init__(
        self, store: Store, settler: Settler, runtime: Runtime, second: Second | None = None
    ) -> None:
        retrying = RetryingCalls(runtime)
        self._store = retrying.wrap(store)
        self._settler = retrying.wrap(settler)
        self._runtime = runtime
        self.second = second
        self.tally = Tally()

    def catalogs(self, after: str = "") -> Iterator[str]:
        """The names of all catalogs above ``after``, in order, including deleted ones."""
        while True:
            with as_unavailable():
                names = self._store.catalog_names(after, _DOCUMENTS_AT_ONCE)
            if not names:
                return
            yield from names
            after = names[-1]

    def verify(self, catalog: str, progress: Progress = _nobody) -> Iterator[Finding]:
        """The findings about the catalog, one by one. Raises CatalogNotFound.

        ``progress`` is called with the number of further verified commits and documents."""
        with as_unavailable():
            for key, detail in self._found(catalog, progress):
                self.tally.findings += 1
                yield Finding(catalog, key, detail)

    def _found(self, catalog: str, progress: Progress) -> _Found:
        try:
            hold = HeldHead(self._store, self._runtime, catalog)
        except CatalogNotFound:
            if not self._has_records(catalog):
                raise
            yield None, f"it has commits or documents, but no head; {_FROM_ONE_MOMENT}"
            return
        except ForeignRecord as error:
            yield None, f"{error.detail}; {_FROM_ONE_MOMENT}"
            return
        finally:
            self.tally.catalogs += 1
        try:
            if unreadable := self._unreadable_retention(catalog):
                yield None, f"{unreadable}; {_FROM_ONE_MOMENT}"
            # Settled after the head was read, so everything up to it is written out.
            self._settler.settle(catalog)
            yield from _Verifying(self._store, hold, self.tally, progress, self.second).findings()
        except ForeignRecord as error:
            yield error.key, f"{error.detail}; what follows wasn't checked"
        except (HistoryIncomplete, WrongBase) as error:
            why = str(error) or "a part of it is gone"
            yield None, f"the log doesn't lead to what the head has: {why}; {_FROM_ONE_MOMENT}"
        finally:
            hold.end()

    def _unreadable_retention(self, catalog: str) -> str | None:
        """Why the part of the head that compaction reads can't be read; None if it can."""
        try:
            self._store.retention(catalog)
        except ForeignRecord as error:
            return error.detail
        return None

    def _has_records(self, catalog: str) -> bool:
        try:
            commits = self._store.list_commits(catalog, 0, _LAST, 1, None, 1)
            return bool(commits or self._store.scan_documents(catalog, "", "", 1, 1))
        except ForeignRecord:
            return True


class HeldHead:
    """The head as it was, and a pin on its floor. Raises CatalogNotFound and ForeignRecord."""

    def __init__(self, store: Store, runtime: Runtime, catalog: str) -> None:
        self._store = store
        self._runtime = runtime
        self._pin_id = runtime.new_id()
        before: Head | None = None
        while True:
            head = store.heads([catalog]).get(catalog)
            if head is None or not head.revision:
                raise CatalogNotFound(catalog, 0)
            _require_head(head)
            self.head = head
            if self._pin():
                break
            if head == before:
                raise ForeignRecord(catalog, None, f"the head can't be pinned at {head.floor}")
            before = head

    def renew(self) -> None:
        """Renew the pin if it is old enough; call this now and then."""
        if self._runtime.monotonic() - self._pinned_at > _PIN_RENEW_S:
            self._pin()

    def has_held(self) -> bool:
        """Whether history from the floor on was kept. It may not have been if this process stood
        still for longer than a pin lasts, or somebody has dropped the pin."""
        bounds = self._store.retention(self.head.catalog)
        return bounds is not None and bounds.floor <= self.head.floor

    def end(self) -> None:
        self._store.drop_pin(self.head.catalog, self._pin_id)

    def _pin(self) -> bool:
        self._pinned_at = self._runtime.monotonic()
        expires_us = self._runtime.now_us() + _PIN_S * 1_000_000
        pin = PinRecord(self._pin_id, self.head.floor, expires_us, "", "verify")
        return self._store.set_pin(self.head.catalog, pin)


class LogChain:
    """Checks that a log has all commits from the floor to the head, each naming the one before it.
    It has to be given all commits, oldest first, including those below the floor."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._next = max(head.floor, 1)
        self._last = ""

    def fault_before(self, commit: CommitRecord | LoggedCommit) -> str | None:
        """What is wrong between this commit and the last one; None: nothing."""
        expected, last = self._next, self._last
        if commit.revision < max(self._head.floor, 1):
            return None  # compaction has left only some of these
        self._next, self._last = commit.revision + 1, commit.id
        if commit.revision != expected:
            return f"the log has no commit {_span(expected, commit.revision - 1)}"
        if not follows(last, commit.parent):
            return f"commit {commit.revision} doesn't follow the one before it"
        return None

    def fault_at_end(self) -> str | None:
        """What is wrong between the last commit and the head; None: nothing."""
        head = self._head
        if self._next <= head.revision:
            return f"the log has no commit {_span(self._next, head.revision)}"
        if not follows(self._last, head.last):
            return f"the head's last commit isn't commit {head.revision} of the log"
        return None


def _require_head(head: Head) -> None:
    if head.floor > head.revision:
        detail = f"the head is at {head.revision}, below its floor {head.floor}"
        raise ForeignRecord(head.catalog, None, detail)


def digest_fault(store: Store, catalog: str, document: DocumentRecord) -> str | None:
    """What is wrong with the digests that are stored with a document. None: nothing, or it was
    written again meanwhile. `sync` skips documents by these digests. Raises StoreUnreachable."""
    try:
        found = store.digests_of(catalog, [document.key], parts=True)
    except ForeignRecord as error:
        return f"its digests can't be read: {error.detail}"
    return _digest_fault(document, found[0] if found else None)


def _digest_fault(document: DocumentRecord, stored: Digested | None) -> str | None:
    content, owners = document.content, document.owners
    if content is ABSENT or stored is None or stored.commit_id != document.commit_id:
        return None
    if stored.digest is not None and stored.digest != digest(content):
        return "its digest isn't that of its content"
    parts = {} if owners is None else owned_digests(content, owners)
    if stored.parts is not None and stored.parts != parts:
        return "the digests of what managers own aren't those of its content"
    return None


_Digests = Mapping[str, Digested]


class _TooLarge(Exception):
    """Documents that are replayed together take more than _HELD_BYTES_MAX."""


@dataclass(slots=True)
class _Replay:
    """A document, and its state by the log so far.

    ``is_lost``: the log doesn't give its state. ``is_reported``: that was already reported as a
    finding, and the document isn't followed any further.
    """

    document: DocumentRecord
    through: int
    state: DocumentRecord | None = None
    is_lost: bool = False
    is_reported: bool = False

    def begin(self, commit: CommitRecord, change: ChangeRecord) -> None:
        """Follow a change at or below the floor. Compaction keeps only the ones that lead to the
        state at the floor, so the base of a change may be missing."""
        before = None if self.is_lost else self.state
        try:
            self.state, self.is_lost = advance(before, commit, change), False
        except (HistoryIncomplete, WrongBase):
            self.is_lost = True


def _held(replay: _Replay) -> int:
    return 0 if replay.state is None else replay.state.size_bytes


class _Verifying:
    """Verifies one catalog up to the revision of the head that is held."""

    def __init__(
        self, store: Store, hold: HeldHead, tally: Tally, progress: Progress, second: Second | None
    ) -> None:
        self._store = store
        self._second = second
        self._hold = hold
        self._tally = tally
        self._progress = progress
        self._head: Head = hold.head
        self._catalog = hold.head.catalog

    def findings(self) -> _Found:
        try:
            yield from self._log()
            yield from self._above()
        except ForeignRecord as error:
            yield error.key, error.detail
        yield from self._documents()

    def _log(self) -> _Found:
        chain, time_us = LogChain(self._head), 0
        commits: Sequence[CommitRecord] = ()
        for commits in self._pages(0, self._head.revision, None):
            for commit in commits:
                self._tally.commits += 1
                self._progress(1)
                if (fault := chain.fault_before(commit)) is not None:
                    yield None, fault
                if commit.time_us <= time_us:
                    yield None, f"commit {commit.revision} isn't later than the one before it"
                time_us = commit.time_us
            yield from self._changed(commits)
        if (fault := chain.fault_at_end()) is not None:
            yield None, fault
        elif time_us != self._head.time_us:
            yield None, f"the head's time isn't that of commit {self._head.revision}"

    def _above(self) -> _Found:
        """Finds a commit above the head. The next commit would not be written out, since another
        one seems to be there already."""
        head = self._head.revision
        for commit in self._store.list_commits(self._catalog, head, _LAST, 1, None, 1):
            now = self._store.heads([self._catalog])[self._catalog]
            if commit.revision > now.revision:
                detail = f"the log has commit {commit.revision}, but the head is at {now.revision}"
                yield None, f"{detail}; {_FROM_ONE_MOMENT}"

    def _changed(self, commits: Sequence[CommitRecord]) -> _Found:
        """Finds changes in the log that are missing from the documents."""
        last: dict[str, int] = {}
        for commit in commits:
            for change in commit.changes:
                swept = commit.revision <= self._head.floor and change.action == "delete"
                if not swept and not change.is_reduced:
                    last[change.key] = commit.revision
        if not last:
            return
        documents = self._store.documents({self._catalog: list(last)})
        for key, revision in last.items():
            document = documents.get((self._catalog, key))
            if document is None:
                yield key, f"changed at {revision}, but there is no document"
                continue
            if document.revision < revision:
                yield key, f"changed at {revision}, but the document is at {document.revision}"

    def _documents(self) -> _Found:
        own = self._store.documents({self._catalog: [SETTINGS_KEY, APPLICATIONS_KEY]})
        yield from self._each(list(own.values()))
        after = ""
        while documents := self._store.scan_documents(
            self._catalog, after, "", _DOCUMENTS_AT_ONCE, _PAGE_BYTES_MAX
        ):
            together: list[DocumentRecord] = []
            for at in range(len(documents)):
                try:
                    together.append(documents[at])
                    after = documents[at].key
                except ForeignRecord as error:
                    after = error.key or after
                    yield after, error.detail
                if len(together) == KEYS_MERGED_MAX:
                    yield from self._some(together)
                    together = []
            yield from self._some(together)

    def _some(self, documents: Sequence[DocumentRecord]) -> _Found:
        tally = Tally()
        if self._is_clean(documents, tally):
            self._count(len(documents), tally)
        else:
            yield from self._each(documents)

    def _is_clean(self, documents: Sequence[DocumentRecord], tally: Tally) -> bool:
        keys = [document.key for document in documents]
        try:
            stored = self._store.digests_of(self._catalog, keys, parts=True)
            replayed = self._replayed(documents, tally, {each.key: each for each in stored})
            return stored.is_whole and next(replayed, None) is None
        except (ForeignRecord, _TooLarge):
            return False

    def _each(self, documents: Sequence[DocumentRecord]) -> _Found:
        for document in documents:
            tally = Tally()
            try:
                yield from self._replayed([document], tally, None)
            except ForeignRecord as error:
                yield error.key, error.detail
            self._count(1, tally)

    def _count(self, documents: int, tally: Tally) -> None:
        self._tally.documents += documents
        self._tally.patches += tally.patches
        self._progress(documents)

    def _replayed(
        self, documents: Sequence[DocumentRecord], tally: Tally, digests: _Digests | None
    ) -> _Found:
        """The findings about documents that are replayed together. ``digests`` are the stored ones;
        None: they are read for each document. Raises ForeignRecord; and _TooLarge, if there are
        several."""
        replays: dict[str, _Replay] = {}
        for document in documents:
            key, through = document.key, min(document.revision, self._head.revision)
            replays[key] = _Replay(document, through)
            if document.revision > self._head.revision:
                now = self._store.heads([self._catalog])[self._catalog]
                if document.revision > now.revision:
                    newer = (
                        f"the document is at {document.revision}, but the head at {now.revision}"
                    )
                    yield key, newer
        last = max((each.through for each in replays.values()), default=0)
        for commits in self._pages(0, last, list(replays)):
            for commit in commits:
                yield from self._follow(replays, commit, tally)
            if len(replays) > 1 and sum(map(_held, replays.values())) > _HELD_BYTES_MAX:
                raise _TooLarge
        for key, replay in replays.items():
            if replay.is_lost:
                if not replay.is_reported:
                    yield key, f"the log doesn't give the state at {self._head.floor}"
            elif replay.document.revision <= self._head.revision:
                yield from self._compare(replay.document, replay.state, digests)

    def _follow(self, replays: Mapping[str, _Replay], commit: CommitRecord, tally: Tally) -> _Found:
        changes = [change for change in commit.changes if change.key in replays]
        if not changes:
            detail = f"commit {commit.revision} lists the document's key, but has no change of it"
            raise ForeignRecord(self._catalog, next(iter(replays)), detail)
        for change in changes:
            replay = replays[change.key]
            if commit.revision <= min(replay.through, self._head.floor):
                replay.begin(commit, change)
            elif commit.revision <= replay.through and not replay.is_reported:
                yield from self._step(replay, commit, change, tally)

    def _step(
        self, replay: _Replay, commit: CommitRecord, change: ChangeRecord, tally: Tally
    ) -> _Found:
        key, before = change.key, replay.state
        if replay.is_lost:
            replay.is_reported = True
            yield key, f"the log doesn't give the state at {self._head.floor}"
            return
        if differing := _recorded_wrongly(before, commit, change):
            yield key, f"at {commit.revision}: {differing}"
        try:
            replay.state = advance(before, commit, change)
        except (HistoryIncomplete, WrongBase) as error:
            replay.is_lost = replay.is_reported = True
            yield key, f"the patch of {commit.revision} doesn't fit: {error}"
            return
        if self._second is not None and change.patch is not None:
            tally.patches += 1
            content = ABSENT if before is None else before.content
            differing = _otherwise(self._second, content, change.patch, replay.state.content)
            if differing:
                yield key, f"at {commit.revision}: {differing}"

    def _compare(
        self, document: DocumentRecord, state: DocumentRecord | None, digests: _Digests | None
    ) -> _Found:
        key = document.key
        if state is None or not state.exists:
            # Compaction drops deletions at or below the floor from the history.
            if document.exists:
                yield key, f"the document is at {document.revision}, but the log has none"
            elif document.revision > self._head.floor and state is None:
                yield key, f"the log has no deletion at {document.revision}"
        if state is None:
            return
        for member in ("revision", "create_revision", "commit_id", "time_us"):
            stored, replayed = getattr(document, member), getattr(state, member)
            if stored != replayed:
                yield key, f"{member} is {stored!r}, but {replayed!r} in the log"
        if not _same(document.content, state.content):
            yield key, f"the content at {document.revision} isn't what the log gives"
        elif (fault := self._digest_fault(document, digests)) is not None:
            yield key, fault
        if not _same(document.attributes or {}, state.attributes or {}):
            yield key, f"the attributes at {document.revision} aren't what the log gives"
        if document.owners != state.owners:
            yield key, f"the owners at {document.revision} aren't what the log gives"

    def _digest_fault(self, document: DocumentRecord, digests: _Digests | None) -> str | None:
        if digests is None:
            return digest_fault(self._store, self._catalog, document)
        return _digest_fault(document, digests.get(document.key))

    def _pages(
        self, after: int, through: int, keys: Collection[str] | None
    ) -> Iterator[Sequence[CommitRecord]]:
        while after < through:
            self._hold.renew()
            commits = self._store.list_commits(
                self._catalog, after, through, _COMMITS_AT_ONCE, keys, _PAGE_BYTES_MAX
            )
            if not commits:
                return
            yield commits
            after = commits[-1].revision


def _recorded_wrongly(
    before: DocumentRecord | None, commit: CommitRecord, change: ChangeRecord
) -> str | None:
    """Why the full value that a change records next to its patch isn't the result of the patch;
    None if it is."""
    if change.patch is None or change.value is ABSENT:
        return None
    try:
        after = advance(before, commit, replace(change, value=ABSENT))
    except HistoryIncomplete:
        return "the state that the patch applies to isn't in the log"
    except WrongBase as error:
        return f"the patch doesn't fit: {error}"
    return None if _same(after.content, change.value) else "the value isn't what the patch gives"


def _otherwise(
    second: Second, before: Json | Absent, patch: Json, after: Json | Absent
) -> str | None:
    """How the result of ``second`` for a patch differs from the replayed state; None: it
    doesn't."""
    try:
        other = second(before, patch)
    except ValueError as error:
        return f"the second implementation refuses the patch: {error}"
    return None if _same(other, after) else "the second implementation gets another result"


def _same(one: Json | Absent, other: Json | Absent) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return patching.equal(one, other)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"

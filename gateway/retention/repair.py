"""Repair: writes documents that differ from their log anew, next to live writers.

The log is what was acknowledged; documents are derived from it, and so are the full values that are
recorded next to some patches. Clients may have read a wrong document, and written on it, so it
can't be exchanged silently: workers would go on with the copy that they remember, and version
tokens would stand for two contents. So the right state is *committed*, as a whole value or a
deletion, by a move that requires the very head at which the two were compared. Workers learn of it
like of any commit, clients get a new token, and followers get the commit. If the race is lost, it
is tried again on the new state, with a claim.

A record that can't be read, or is newer than the head, can't be written over. So the move and the
new record are written in one transaction: the record is never missing, and later commits are
written out over it.

A head that can't be read, is gone or isn't where its log ends is rebuilt first (``head_repair``).

A log that isn't whole, or doesn't lead to a state, can't be repaired; that is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from msgspec import structs

import patching
from gateway.limits import MIB
from gateway.model import ChangeRecord, Claim, CommitRecord, DocumentRecord, Head, HeadMove
from gateway.retention.head_repair import HeadRepair
from gateway.retention.verification import Finding, Verification, digest_fault
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.state.replay import HistoryIncomplete, WrongBase, advance, rebuild
from gateway.store.contract import ForeignRecord, FoundDocument, Mending, Moved, Store
from gateway.store.unreachable import as_unavailable
from patching import ABSENT, Json
from patching.values import Absent

_AUTHOR = "gateway repair"
_MESSAGE = "rewritten from the log, because it differed"
_WOULD_BE = "would be rebuilt from the log, in place of the record that is there"
_TRIES = 100
# How long other writers wait for a claim.
_HOLD_MS = 1_000
_COMMITS_AT_ONCE = 1_000
_PAGE_BYTES_MAX = 8 * MIB


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done, or would be done, about a document or (``key`` None) the head. ``mended``: it
    is right now."""

    catalog: str
    key: str | None
    detail: str
    mended: bool = False


@dataclass(slots=True)
class _Followed:
    """A document's state by its log, at a revision. Each try goes on from where the last one ended:
    to read a long log from the beginning takes longer than others wait for a claim."""

    revision: int = 0
    state: DocumentRecord | None = None


class _ReadState(NamedTuple):
    """A stored document. ``fault``: why its record can't be written over. ``found``: that record,
    if it can be replaced by another one."""

    document: DocumentRecord | None
    found: FoundDocument | None
    fault: str | None


class Repair:
    """Repairs catalogs. Every method raises StoreUnavailable, and may be repeated."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        verification: Verification,
        mending: Mending | None = None,
    ) -> None:
        """Without ``mending``, heads aren't repaired, nor records that can't be written over."""
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._verification = verification
        self._mending = mending

    def repair(self, catalog: str, *, apply: bool) -> Iterator[Finding | Repaired]:
        """What is done about the head, without which nothing can be verified; then the findings of
        a verification; then what is done about each document among them. Without ``apply``, what
        would be done. Raises CatalogNotFound."""
        if self._mending is not None:
            heads = HeadRepair(self._store, self._mending, self._runtime)
            with as_unavailable():
                done = self._mend_head(heads, catalog, apply=apply)
            if done is not None:
                yield done
                if not done.mended:
                    return
        keys: dict[str, None] = {}
        for finding in self._verification.verify(catalog):
            yield finding
            if finding.key is not None:
                keys[finding.key] = None
        for key in keys:
            with as_unavailable():
                try:
                    yield self._mend(catalog, key, apply=apply)
                except ForeignRecord as error:
                    yield Repaired(catalog, key, f"can't be repaired: {error.detail}")
                except (HistoryIncomplete, WrongBase) as error:
                    why = str(error) or "a part of it is gone"
                    detail = f"can't be repaired: the log doesn't lead to what the head has: {why}"
                    yield Repaired(catalog, key, detail)

    def _mend_head(self, heads: HeadRepair, catalog: str, *, apply: bool) -> Repaired | None:
        fault = heads.fault(catalog)
        if fault is None:
            return None
        try:
            mended = heads.mended(catalog)
        except ForeignRecord as error:
            return Repaired(catalog, None, f"{fault}; it can't be rebuilt: {error.detail}")
        at = f"at revision {mended.head.revision}"
        if mended.advance is not None:
            at += ", as commits that only the head had may be lost"
        if mended.dropped:
            named = ", ".join(f"{each.revision} ({each.id})" for each in mended.dropped)
            at += f", without these commits of its tail, which don't fit the log: {named}"
        if not apply:
            return Repaired(catalog, None, f"{fault}; it would be rebuilt from the log, {at}")
        if not heads.put(mended):
            return Repaired(catalog, None, f"{fault}; not repaired: it has changed meanwhile")
        detail = f"{fault}; it was rebuilt from the log, {at}"
        return Repaired(catalog, None, detail, mended=True)

    def _mend(self, catalog: str, key: str, *, apply: bool) -> Repaired:
        by = self._runtime.new_id()
        followed = _Followed()
        try:
            for tried in range(_TRIES):
                written = self._settler.settle(catalog).revision
                # After a lost race, a claim makes the others wait.
                if tried:
                    self._store.claim([catalog], Claim(by, _HOLD_MS))
                head = self._store.tails([catalog])[catalog]
                done = self._mend_at(head, written, key, followed, apply=apply)
                if done is not None:
                    return done
                self._store.drop_claims([catalog], by)
        finally:
            self._store.drop_claims([catalog], by)
        return Repaired(catalog, key, "not repaired: others keep writing to the catalog")

    def _mend_at(
        self, head: Head, written: int, key: str, followed: _Followed, *, apply: bool
    ) -> Repaired | None:
        """None if the head was moved meanwhile. Everything up to ``written`` is written out."""
        catalog = head.catalog
        written = max(written, head.written)
        read = self._read(head, written, key)
        if read is None:
            return None
        stored, found, fault = read
        # The head is read again after the record, which may be newer only because the head moved.
        if fault is not None and self._has_moved(head):
            return None
        if fault is not None and found is None:
            return Repaired(catalog, key, f"can't be repaired: {fault}")
        through = written if found or stored is None else max(written, stored.revision)
        try:
            if followed.revision < head.floor:
                state = rebuild(self._store, catalog, key, head.floor)
                followed.revision, followed.state = head.floor, state
            expected = self._follow(followed, head, written, key, through)
            if followed.revision < through:
                followed.revision, followed.state = through, expected
            right = self._follow(followed, head, written, key, head.revision)
        except (HistoryIncomplete, WrongBase, ForeignRecord) as error:
            if self._has_moved(head):
                return None
            why = str(error) or "a part of it is gone"
            return Repaired(catalog, key, f"can't be repaired: the log gives no state: {why}")
        if found is None and self._is_right(catalog, stored, expected):
            return Repaired(catalog, key, "is now as in the log", mended=True)
        if not apply:
            would = f"would be {_to(right)}" if found is None else f"{_WOULD_BE}: {fault}"
            return Repaired(catalog, key, would)
        commit = self._commit(head, key, stored, right)
        if not self._has_won(_move(head, written, commit), found, right):
            return None
        self._settler.settle(catalog)
        detail = f"was {_to(right)}, by commit {commit.revision}"
        return Repaired(catalog, key, detail, mended=True)

    def _read(self, head: Head, written: int, key: str) -> _ReadState | None:
        """The stored document; None if it has changed meanwhile."""
        if written > head.revision:
            detail = f"the head is at {head.revision}, but written out to {written}"
            return _ReadState(None, None, detail)
        try:
            stored = self._store.documents({head.catalog: [key]}).get((head.catalog, key))
        except ForeignRecord as error:
            stored, fault = None, error.detail
        else:
            if stored is None or stored.revision <= head.revision:
                return _ReadState(stored, None, None)
            fault = f"it is stored as of {stored.revision}, the head is at {head.revision}"
        if self._mending is None:
            return _ReadState(stored, None, fault)
        found = self._mending.found_document(head.catalog, key)
        if found is None or (found.document and found.document.revision <= head.revision):
            return None
        return _ReadState(found.document, found, fault)

    def _is_right(
        self, catalog: str, stored: DocumentRecord | None, expected: DocumentRecord | None
    ) -> bool:
        if not _is_same(stored, expected):
            return False
        return stored is None or digest_fault(self._store, catalog, stored) is None

    def _has_won(
        self, move: HeadMove, found: FoundDocument | None, right: DocumentRecord | None
    ) -> bool:
        if found is None or self._mending is None:
            return self._store.move_heads([move]).get(move.catalog) is Moved.WON
        for commit in move.commits:
            for change in commit.changes:
                right = advance(right, commit, change)
        return self._mending.put_document(found, move, right)

    def _follow(
        self, followed: _Followed, head: Head, written: int, key: str, through: int
    ) -> DocumentRecord | None:
        """The document at ``through`` by its log. Patches are applied, even if the full value is
        recorded next to them: a worker made that from the document that it had then."""
        state, after = followed.state, followed.revision
        tail = (commit for commit in head.tail or () if commit.revision > max(written, after))
        for commit in chain(self._log(head.catalog, key, after, written), tail):
            for change in commit.changes if commit.revision <= through else ():
                if change.key == key:
                    state = advance(state, commit, _without_copy(change, commit))
        return state

    def _log(self, catalog: str, key: str, after: int, through: int) -> Iterator[CommitRecord]:
        while after < through:
            commits = self._store.list_commits(
                catalog, after, through, _COMMITS_AT_ONCE, key, _PAGE_BYTES_MAX
            )
            if not commits:
                return
            yield from commits
            after = commits[-1].revision

    def _has_moved(self, head: Head) -> bool:
        return self._store.heads([head.catalog])[head.catalog].position != head.position

    def _commit(
        self, head: Head, key: str, stored: DocumentRecord | None, right: DocumentRecord | None
    ) -> CommitRecord:
        changes: tuple[ChangeRecord, ...] = ()
        if right is None or not right.exists:
            # Without both, no commit made the record, and nobody could read it: an empty commit.
            if begun := right or stored:
                changes = (ChangeRecord(key, "delete", begun.create_revision),)
        else:
            change = ChangeRecord(
                key,
                "put",
                right.create_revision,
                None,
                right.content,
                right.size_bytes,
                right.attributes,
                right.owners,
            )
            changes = (change,)
        return CommitRecord(
            catalog=head.catalog,
            revision=head.revision + 1,
            time_us=max(self._runtime.now_us(), head.time_us + 1),
            id=self._runtime.new_id(),
            author=_AUTHOR,
            message=_MESSAGE,
            idempotency=None,
            attempts=1,
            changes=changes,
            parent=head.last,
        )


def _without_copy(change: ChangeRecord, commit: CommitRecord) -> ChangeRecord:
    if change.patch is None or change.create_revision == commit.revision:
        return change
    return structs.replace(change, value=ABSENT)


def _move(head: Head, written: int, commit: CommitRecord) -> HeadMove:
    """The move of this very head by ``commit``, which overtakes all claims.

    It drops what is written out, up to ``written``, from the tail: replayed, those commits might
    not fit the document that is being mended.
    """
    return HeadMove(
        head.catalog,
        head.revision,
        (commit,),
        written,
        head.judged,
        (),
        head.judged_written,
        last=head.last,
        last_verdict=head.last_verdict,
        passes_all=True,
    )


def _to(right: DocumentRecord | None) -> str:
    if right is None or not right.exists:
        return "deleted, as in the log"
    return f"rewritten, as in the log since revision {right.revision}"


def _is_same(stored: DocumentRecord | None, right: DocumentRecord | None) -> bool:
    """Whether two states are the same. A missing document counts as a deleted one, since compaction
    may have removed the deletion from the log."""
    if stored is None or not stored.exists or right is None or not right.exists:
        return not (stored and stored.exists) and not (right and right.exists)
    fields = ("revision", "create_revision", "commit_id", "time_us", "owners")
    return (
        all(getattr(stored, name) == getattr(right, name) for name in fields)
        and _equal(stored.content, right.content)
        and patching.equal(stored.attributes or {}, right.attributes or {})
    )


def _equal(one: Json | Absent, other: Json | Absent) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return patching.equal(one, other)

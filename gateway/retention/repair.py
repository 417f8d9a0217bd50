"""Documents that differ from their log, written anew from it, beside live writers.

The log is what was acknowledged; a document is derived from it, and so is the full value that is
recorded beside some patches. One that says something else was
read, and perhaps written on, by whoever asked: it can't be exchanged behind their backs. Workers
would go on with the copy that they remember, and version tokens would stand for two contents. So
the right state is *committed*, as a whole value or a deletion, by a move that asks for the very
head at which the two were compared. Workers learn of it as of any commit, clients get a new token,
and followers hear of it. A race that is lost is tried again on what is there then, with a claim.

A record that can't be read, or is newer than the head, would stand in the way of what is committed,
so another one is put there with the move, in one transaction: at no moment is there none, and what
others commit later is written over it.

A head that can't be read, is gone or isn't where its log ends is rebuilt first
(``head_repair``).

What it can't mend is told: a log that isn't whole, or doesn't lead to a state.
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
_MESSAGE = "written anew from the log, from which it differed"
_WOULD_BE = "would be rebuilt from the log, in place of the record that is there"
_TRIES = 100
_HOLD_MS = 1_000
_COMMITS_AT_ONCE = 1_000
_PAGE_BYTES_MAX = 8 * MIB


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of a document, or (``key`` None) of the head, or is to become of it. ``mended``:
    nothing is left to be done."""

    catalog: str
    key: str | None
    detail: str
    mended: bool = False


@dataclass(slots=True)
class _Followed:
    """A document as its log has it at a revision. Each try goes on from where the last one was:
    the whole of a long log takes longer than others wait for a claim."""

    revision: int = 0
    state: DocumentRecord | None = None


class _Seen(NamedTuple):
    """A stored document. ``fault``: why nothing can be written over its record, ``found``, which is
    known where another one can be put there."""

    document: DocumentRecord | None
    found: FoundDocument | None
    fault: str | None


class Repair:
    """Every method raises StoreUnavailable, and may be repeated."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        runtime: Runtime,
        verification: Verification,
        mending: Mending | None = None,
    ) -> None:
        """Without ``mending``, heads, and records that nothing can be written over, are left."""
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._verification = verification
        self._mending = mending

    def repair(self, catalog: str, *, apply: bool) -> Iterator[Finding | Repaired]:
        """The findings of a verification, then for each document among them what is done about it;
        without ``apply`` what would be; before these, what is done about the head, without which
        nothing can be verified. Raises CatalogNotFound."""
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
                # Who has lost a race has the others wait.
                if tried:
                    self._store.claim([catalog], Claim(by, _HOLD_MS))
                head = self._store.tails([catalog])[catalog]
                done = self._mend_at(head, written, key, followed, apply=apply)
                if done is not None:
                    return done
                self._store.drop_claims([catalog], by)
        finally:
            self._store.drop_claims([catalog], by)
        return Repaired(catalog, key, "not repaired: others write the catalog all the time")

    def _mend_at(
        self, head: Head, written: int, key: str, followed: _Followed, *, apply: bool
    ) -> Repaired | None:
        """None where the head was moved meanwhile. Everything up to ``written`` is written out."""
        catalog = head.catalog
        written = max(written, head.written)
        seen = self._seen(head, written, key)
        if seen is None:
            return None
        stored, found, fault = seen
        # Looked at once the record is read: that isn't newer only than this head.
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
            return Repaired(catalog, key, "is as the log has it now", mended=True)
        if not apply:
            would = f"would be {_to(right)}" if found is None else f"{_WOULD_BE}: {fault}"
            return Repaired(catalog, key, would)
        commit = self._commit(head, key, stored, right)
        if not self._has_won(_move(head, written, commit), found, right):
            return None
        self._settler.settle(catalog)
        detail = f"was {_to(right)}, by commit {commit.revision}"
        return Repaired(catalog, key, detail, mended=True)

    def _seen(self, head: Head, written: int, key: str) -> _Seen | None:
        """None where it has changed meanwhile."""
        if written > head.revision:
            detail = f"the head is at {head.revision}, but written out to {written}"
            return _Seen(None, None, detail)
        try:
            stored = self._store.documents({head.catalog: [key]}).get((head.catalog, key))
        except ForeignRecord as error:
            stored, fault = None, error.detail
        else:
            if stored is None or stored.revision <= head.revision:
                return _Seen(stored, None, None)
            fault = f"it is stored as of {stored.revision}, the head is at {head.revision}"
        if self._mending is None:
            return _Seen(stored, None, fault)
        found = self._mending.found_document(head.catalog, key)
        if found is None or (found.document and found.document.revision <= head.revision):
            return None
        return _Seen(found.document, found, fault)

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
        """The document at ``through`` as the log has it. A value that is recorded beside a patch is
        what a worker made of the document as it was then, so that the patch itself is followed."""
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
        return self._store.heads([head.catalog])[head.catalog].place != head.place

    def _commit(
        self, head: Head, key: str, seen: DocumentRecord | None, right: DocumentRecord | None
    ) -> CommitRecord:
        changes: tuple[ChangeRecord, ...] = ()
        if right is None or not right.exists:
            # Of a record that can't be read, and that no commit has made, nobody has seen anything.
            if begun := right or seen:
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
    """The move of this very head by ``commit``, past everybody in line.

    It leaves what is written out, up to ``written``, out of the tail: replayed, it might not fit
    the document that is to be mended.
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
        return "deleted, as the log has it"
    return f"written anew, as the log has it since {right.revision}"


def _is_same(seen: DocumentRecord | None, right: DocumentRecord | None) -> bool:
    """Whether two states say the same. A deletion may have been compacted away from the log."""
    if seen is None or not seen.exists or right is None or not right.exists:
        return not (seen and seen.exists) and not (right and right.exists)
    fields = ("revision", "create_revision", "commit_id", "time_us", "owners")
    return (
        all(getattr(seen, name) == getattr(right, name) for name in fields)
        and _equal(seen.content, right.content)
        and patching.equal(seen.attributes or {}, right.attributes or {})
    )


def _equal(one: Json | Absent, other: Json | Absent) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return patching.equal(one, other)

"""Visibility: which documents and changes, present and past, an acl lets a principal see.

**A document's present acl decides**, also about its older states and the changes that led to them.
A principal that is removed from the acl can't read the document in history any more, and one that
is added can read all of its history. A deleted document keeps its last acl.

A key can have several documents, one after the other. Each is a *life*, named by the key and the
revision that created it, and has an acl of its own: a new document under the key of a deleted one
doesn't open the old one's history.

Worked example. Revision 3 creates key k with an acl, 7 deletes it, 9 creates it again without one.
A principal asks for k at revision 5, which belongs to the life (k, 3). The present document began
at 9, so k is read as of 8: a tombstone that 7 left, of the life that began at 3. The last state of
that life is the one at 6, and its acl decides. The acl of an ended life can't change any more, so
it is remembered, until the database is put back.

A life whose end was compacted away is visible only to admins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from gateway import memory
from gateway.access import Principal, Role
from gateway.access.acl import ACL, may_read
from gateway.cpu import interruptible
from gateway.errors import DocumentForbidden
from gateway.meters import NO_METERS, Meters
from gateway.model import (
    APPLICATIONS_KEY,
    SETTINGS_KEY,
    Attributes,
    BareDocument,
    CommitRecord,
    DocumentRecord,
    bare,
)
from gateway.runtime import Runtime
from gateway.state.heads import HeadReader, ObservedHead, Settler
from gateway.state.replay import HistoryIncomplete, bare_laid_over, rebuild, stored_bare_documents
from gateway.state.sharing import SharedReads
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable

Record = DocumentRecord | BareDocument

# The most keys whose acls are read by one call.
_READ_KEYS_MAX = 1_000
# The most memory that an acl takes, as it is read and as objects, and the most acls that are held.
_READ_BYTES = 128 * 1024
_READ_HELD_MAX = 64
# In the place of a document that wasn't read.
_UNSEEN: Final = object()
# The most remembered states of ended lives, which are without content.
_PAST_MAX = 1_000
# How many states are read back to find a life. A life behind more is visible only to admins.
_LIVES_MAX = 200
# An acl that only an admin passes.
_CLOSED: Attributes = {ACL: {"read": []}}


class Life(NamedTuple):
    """A document from its creation to its end."""

    key: str
    create_revision: int


def life_of(document: Record) -> Life:
    return Life(document.key, document.create_revision)


def lives_of(commits: Iterable[CommitRecord]) -> frozenset[Life]:
    """The lives that ``commits`` have changed, except the gateway's own documents."""
    return frozenset(
        Life(change.key, change.create_revision)
        for commit in commits
        for change in commit.changes
        if change.key not in (SETTINGS_KEY, APPLICATIONS_KEY)
    )


_may_read: Final = interruptible(may_read)


class AclLookup:
    """Looks up acls, for one process. Thread-safe. Every method raises StoreUnavailable."""

    def __init__(
        self,
        store: Store,
        head_reader: HeadReader,
        settler: Settler,
        runtime: Runtime,
        meters: Meters = NO_METERS,
    ) -> None:
        self._store = store
        self._meters = meters
        self._head_reader = head_reader
        self._settler = settler
        self._reads = SharedReads(self._read_present, runtime, catalog_of=lambda name: name[0])
        self._lock = runtime.lock()
        self._past: OrderedDict[tuple[str, str, int], BareDocument | None] = OrderedDict()

    def viewer(self, principal: Principal, catalog: str) -> Viewer | None:
        """What a principal that may read the catalog sees of it; None: everything."""
        return None if principal.may(Role.ADMIN, catalog) else Viewer(self, principal, catalog)

    def present(
        self, catalog: str, keys: Collection[str]
    ) -> Iterator[tuple[str, BareDocument | None]]:
        """Each of ``keys`` with its document or tombstone at a moment within this call; None: there
        is neither.

        Every commit that was acknowledged, or read by anyone, before the call is included. Acls
        may be large, so a document isn't kept after it was yielded: only some megabytes are held at
        a time.
        """
        left = list(dict.fromkeys(keys))
        account = memory.account()
        while left:
            page, left = left[:_READ_KEYS_MAX], left[_READ_KEYS_MAX:]
            with as_unavailable(), account.holding(min(len(page), _READ_HELD_MAX) * _READ_BYTES):
                found = self._reads.read([(catalog, key) for key in page])
                for key in page:
                    document = found.pop((catalog, key), _UNSEEN)
                    if document is _UNSEEN:
                        left.append(key)  # the call had no room for it
                    else:
                        yield key, cast(BareDocument | None, document)

    def _read_present(
        self, names: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], BareDocument | None]:
        catalogs = {catalog for catalog, _ in names}
        try:
            return self._present(names, self._head_reader.observe(catalogs))
        except HistoryIncomplete:
            # A tail was written out and compacted meanwhile: read without it.
            return self._present(names, {each: self._settler.settle(each) for each in catalogs})

    def _present(
        self, names: Collection[tuple[str, str]], heads: Mapping[str, ObservedHead]
    ) -> dict[tuple[str, str], BareDocument | None]:
        """The documents and tombstones of some of ``names``, at least one; None: there is none."""
        stored, left = stored_bare_documents(self._store, names)
        by_catalog: dict[str, dict[str, BareDocument | None]] = {}
        for catalog, key in set(names).difference(left):
            by_catalog.setdefault(catalog, {})[key] = stored.get((catalog, key))
        return {
            (catalog, key): document
            for catalog, its in by_catalog.items()
            for key, document in bare_laid_over(
                self._store, self._meters, catalog, its, heads[catalog].tail
            ).items()
        }

    def forget(self, catalog: str) -> None:
        """Forget ended lives, because the catalog went back: they may have ended differently."""
        with self._lock:
            for name in [each for each in self._past if each[0] == catalog]:
                del self._past[name]

    def deciding_attributes(
        self, catalog: str, life: Life, now: Record | None
    ) -> Attributes | None:
        """The attributes whose acl decides about ``life``; ``now`` is the key's present record."""
        if now is None:
            return _CLOSED
        if now.exists and now.create_revision == life.create_revision:
            return now.attributes
        with as_unavailable():
            return self._last(catalog, life, now)

    def _last(self, catalog: str, life: Life, state: Record | None) -> Attributes | None:
        """The last attributes of ``life``, searched backwards from ``state``, a later record."""
        for _ in range(_LIVES_MAX):
            if state is None or state.create_revision < life.create_revision:
                break
            its_own = state.create_revision == life.create_revision
            if its_own and state.exists:
                return state.attributes
            before = state.revision if its_own else state.create_revision
            state = self._as_of(catalog, life.key, before - 1)
        return _CLOSED

    def _as_of(self, catalog: str, key: str, revision: int) -> BareDocument | None:
        """The key's record at a revision that the head has reached; None: there was none, or
        history doesn't have it any more.

        Everything up to that revision is written out first.
        """
        name = (catalog, key, revision)
        with self._lock:
            if name in self._past:
                self._past.move_to_end(name)
                return self._past[name]
        self._settler.settle_to(catalog, revision)
        try:
            document = rebuild(self._store, catalog, key, revision)
        except HistoryIncomplete:
            document = None
        found = None if document is None else bare(document)
        with self._lock:
            self._past[name] = found
            while len(self._past) > _PAST_MAX:
                self._past.popitem(last=False)
        return found


class Viewer:
    """What the acls of a catalog let a principal without the role admin see."""

    def __init__(self, acls: AclLookup, principal: Principal, catalog: str) -> None:
        self._acls = acls
        self._catalog = catalog
        self.principal = principal

    def sees(self, document: DocumentRecord) -> bool:
        """Whether the document, in its present state, is visible."""
        return _may_read(self.principal, self._catalog, document.attributes)

    def sees_past(self, document: Record, now: Record | None) -> bool:
        """Whether the document, in a past state, is visible; ``now``: the key's present record."""
        return self._sees_life(life_of(document), now)

    def require(self, document: DocumentRecord) -> None:
        """Raise DocumentForbidden unless the document, in its present state, is visible."""
        if not self.sees(document):
            self.refuse(document.key)

    def require_past(self, document: DocumentRecord) -> None:
        """Raise DocumentForbidden unless the document, in a past state, is visible."""
        for key, now in self._acls.present(self._catalog, [document.key]):
            if not self.sees_past(document, now):
                self.refuse(key)

    def require_named(self, keys: Collection[str]) -> None:
        """Raise DocumentForbidden if the present or last document of a key isn't visible."""
        for key, document in self._acls.present(self._catalog, keys):
            if document is not None:
                life = Life(key, document.create_revision)
                if not self._sees_life(life, document):
                    self.refuse(key)

    def visible(self, keys: Collection[str]) -> list[str]:
        """Those of ``keys`` under which there is now a visible document."""
        seen = {
            key
            for key, found in self._acls.present(self._catalog, keys)
            if found is not None
            and found.exists
            and _may_read(self.principal, self._catalog, found.attributes)
        }
        return [key for key in keys if key in seen]

    def hidden_keys(self, keys: Collection[str]) -> frozenset[str]:
        """Those of ``keys`` under which there is now a document that isn't visible."""
        return frozenset(
            key
            for key, found in self._acls.present(self._catalog, keys)
            if found is not None
            and found.exists
            and not may_read(self.principal, self._catalog, found.attributes)
        )

    def refuse(self, key: str) -> None:
        raise DocumentForbidden(self.principal.name, "read", key)

    def hidden(self, lives: Collection[Life]) -> frozenset[Life]:
        """The ``lives`` that aren't visible."""
        if not lives:
            return frozenset()
        by_key: dict[str, list[Life]] = {}
        for life in lives:
            by_key.setdefault(life.key, []).append(life)
        return frozenset(
            life
            for key, now in self._acls.present(self._catalog, by_key)
            for life in by_key[key]
            if not self._sees_life(life, now)
        )

    def filter(self, commits: Sequence[CommitRecord]) -> Sequence[CommitRecord]:
        """The same commits without the changes that aren't visible.

        A commit that loses a change also loses its message and idempotency key, which may reveal
        that change; its own author keeps them.
        """
        hidden = self.hidden(lives_of(commits))
        return [self._without(hidden, commit) for commit in commits] if hidden else commits

    def _without(self, hidden: frozenset[Life], commit: CommitRecord) -> CommitRecord:
        changes = tuple(
            change
            for change in commit.changes
            if Life(change.key, change.create_revision) not in hidden
        )
        if len(changes) == len(commit.changes):
            return commit
        if commit.author == self.principal.name:
            return replace(commit, changes=changes)
        return replace(commit, changes=changes, message=None, idempotency=None)

    def _sees_life(self, life: Life, now: Record | None) -> bool:
        attributes = self._acls.deciding_attributes(self._catalog, life, now)
        return _may_read(self.principal, self._catalog, attributes)

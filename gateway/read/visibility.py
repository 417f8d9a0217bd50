"""By which acl it is decided who may read what was, and what a principal may see by that.

**The acl as it is now decides**, also about older states and about the changes that led to them. So
somebody who is taken off a document's acl doesn't go on reading it in the history, and somebody who
is put on it can follow what became of it. Of a document that is gone, the acl it had last decides.

A key can have several documents, one after the other: each is a *life*, named by its key and the
revision that created it. Whoever deletes a document and makes another one under its key doesn't by
that decide who may read the one before: its own last acl does.

Worked example. Key k is created by 3 with an acl, deleted by 7, and created again by 9 without one.
Revision 5 of k is asked for: the life is (k, 3), but the document that is there now began at 9.
What k was before that is read: at 8 it was a tombstone, left by 7, of the life that began at 3.
So its last state is that of 6, and the acl of that is asked. Once that is written out, what it
says can't change any more, and is remembered.

Where a life's end can't be told any more, because it was compacted away, only an admin sees it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from gateway.access import Principal, Role
from gateway.access.acl import ACL, may_read
from gateway.errors import DocumentForbidden
from gateway.model import SETTINGS_KEY, Attributes, BareDocument, Commit, Document, bare
from gateway.runtime import Runtime
from gateway.state.heads import Settler, as_unavailable
from gateway.state.replay import HistoryIncomplete, rebuild
from gateway.state.sharing import SharedLooks
from gateway.store.contract import Store

Record = Document | BareDocument

_LOOK_KEYS_MAX = 1_000
# What is remembered of lives that have ended: that can't change, and has no content.
_PAST_MAX = 1_000
# A key with more lives than these behind the one that is asked for is an admin's alone.
_LIVES_MAX = 200
# An acl that nobody but an admin passes.
_CLOSED: Attributes = {ACL: {"read": []}}


class Life(NamedTuple):
    """A document from its creation to its end."""

    key: str
    create_revision: int


def life_of(document: Document) -> Life:
    return Life(document.key, document.create_revision)


def lives_of(commits: Iterable[Commit]) -> frozenset[Life]:
    """Those that ``commits`` have changed; a catalog's settings aren't among them."""
    return frozenset(
        Life(change.key, change.create_revision)
        for commit in commits
        for change in commit.changes
        if change.key != SETTINGS_KEY
    )


class Acls:
    """The acls of one process's catalogs. Thread-safe. Every method raises StoreUnavailable."""

    def __init__(self, store: Store, settler: Settler, runtime: Runtime) -> None:
        self._store = store
        self._settler = settler
        self._looks = SharedLooks(store.bare_documents, runtime)
        self._lock = runtime.lock()
        self._past: OrderedDict[tuple[str, str, int], BareDocument | None] = OrderedDict()

    def sight(self, principal: Principal, catalog: str) -> Sight | None:
        """What ``principal`` sees of a catalog that it may read; None: everything."""
        return None if principal.may(Role.ADMIN, catalog) else Sight(self, principal, catalog)

    def now(self, catalog: str, keys: Collection[str]) -> dict[str, BareDocument]:
        """By key, what is there at a moment within this call, tombstones included.

        Changes that were acknowledged before are in it, and so is any commit that was read.
        """
        names = iter({(catalog, key) for key in keys})
        found: dict[str, BareDocument] = {}
        with as_unavailable():
            while page := list(islice(names, _LOOK_KEYS_MAX)):
                found |= {key: document for (_, key), document in self._looks.look(page).items()}
        return found

    def deciding(self, catalog: str, life: Life, now: Record | None) -> Attributes | None:
        """The attributes whose acl decides about ``life``; ``now`` is what its key has now."""
        if now is None:
            return _CLOSED
        if now.exists and now.create_revision == life.create_revision:
            return now.attributes
        with as_unavailable():
            return self._last(catalog, life, now)

    def _last(self, catalog: str, life: Life, state: Record | None) -> Attributes | None:
        """Those that ``life`` had last, looked for back from ``state``, a later one."""
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
        """What the key had at a revision that some head has reached; None where that can't be told.

        It is written out before it is read: a document can be told of whose commits aren't yet.
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


class Sight:
    """What a principal without role admin sees of a catalog, as acls have it."""

    def __init__(self, acls: Acls, principal: Principal, catalog: str) -> None:
        self._acls = acls
        self._catalog = catalog
        self.principal = principal

    def sees(self, document: Document) -> bool:
        """Of a document as it is now."""
        return may_read(self.principal, self._catalog, document.attributes)

    def sees_then(self, document: Document, now: Record | None) -> bool:
        """Of a document as it was; ``now`` is what its key has now."""
        return self._sees_life(life_of(document), now)

    def require(self, document: Document) -> None:
        """Raise DocumentForbidden where the document, as it is now, can't be seen."""
        if not self.sees(document):
            self.refuse(document.key)

    def require_then(self, document: Document) -> None:
        """As ``require``, of a document as it was."""
        now = self._acls.now(self._catalog, [document.key])
        if not self.sees_then(document, now.get(document.key)):
            self.refuse(document.key)

    def require_named(self, keys: Collection[str]) -> None:
        """Raise DocumentForbidden where one of the keys has, or had last, a document that can't be
        seen."""
        now = self._acls.now(self._catalog, keys)
        for key in keys:
            document = now.get(key)
            if document is not None:
                life = Life(key, document.create_revision)
                if not self._sees_life(life, document):
                    self.refuse(key)

    def refuse(self, key: str) -> None:
        raise DocumentForbidden(self.principal.name, "read", key)

    def hidden(self, lives: Collection[Life]) -> frozenset[Life]:
        """Those among ``lives`` that can't be seen."""
        if not lives:
            return frozenset()
        now = self._acls.now(self._catalog, {life.key for life in lives})
        return frozenset(life for life in lives if not self._sees_life(life, now.get(life.key)))

    def commits(self, commits: Sequence[Commit]) -> Sequence[Commit]:
        """The same commits without the changes that can't be seen.

        One of which something is left out is told without its message and its idempotency key, for
        they may speak of that; to its own author they are told.
        """
        hidden = self.hidden(lives_of(commits))
        return [self._without(hidden, commit) for commit in commits] if hidden else commits

    def _without(self, hidden: frozenset[Life], commit: Commit) -> Commit:
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
        attributes = self._acls.deciding(self._catalog, life, now)
        return may_read(self.principal, self._catalog, attributes)

"""Reads what a revert undoes from history: per document, the states before and after its changes.

History doesn't change, so this is read once, before the decision. The decision then applies it to
the documents as they are at that moment (``decide.reverting``).

Worked example. 12 changed a and b, 13 changed a, 14 both, 15 a again. To revert 12, 13 and 15, a
has two undos, newest first: from 15 back to 14, and from 13 back to 11, because 13 directly follows
12 among the changes of a. b has one undo, from 12 back to 11, although 14 has changed it since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway import memory
from gateway.decide.edits import KeyEdit
from gateway.decide.request import DOCUMENTS_BYTES_MAX
from gateway.decide.reverting import Forced, Revert, Undo
from gateway.errors import AboveLimit, RevertForbidden
from gateway.model import OWN_KEYS, SETTINGS_KEY, CommitRecord, DocumentRecord, living
from gateway.read.differences import DifferenceReads, Span, same_state
from gateway.read.history import HistoryReads
from gateway.read.visibility import Viewer, life_of
from gateway.state.replay import scanned_digests, stored_digests
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable
from patching.owners import OwnerTree
from patching.ownership import OnConflict

_PAGE = 500


@dataclass(frozen=True, slots=True)
class RevertTerms:
    """The terms of a revert. It covers the documents under ``prefix``, or only the one under
    ``key``, if given; at most ``documents_max``, all of which have to be visible to ``viewer``.
    ``forced`` is by key."""

    catalog: str
    prefix: str
    conflict: OnConflict
    documents_max: int
    viewer: Viewer | None
    key: str | None = None
    forced: Mapping[str, Forced] = field(default_factory=dict)


class RevertReads:
    """Reads the edits of a revert. Every method raises StoreUnavailable, RevisionNotFound,
    RevisionCompacted, AboveLimit if there is too much to undo, and RevertForbidden if the principal
    may not read some of it."""

    def __init__(self, store: Store, history: HistoryReads, differences: DifferenceReads) -> None:
        self._store = store
        self._history = history
        self._differences = differences

    def of_revisions(self, revisions: Collection[int], terms: RevertTerms) -> list[KeyEdit]:
        """The edits that undo the commits that made ``revisions``. With an empty prefix, these
        include the catalog's settings, which come first: documents may come back under them."""
        made: dict[str, list[int]] = {}
        with as_unavailable():
            for revision in sorted(set(revisions), reverse=True):
                for key in self._history.encoded_commit(terms.catalog, revision, _keys):
                    if _is_meant(key, terms):
                        made.setdefault(key, []).append(revision)
                _require_few(len(made), terms)
            undos = _Undos(terms)
            memory.account().take(memory.REPLY_BYTES)
            for key, newest_first in sorted(made.items()):
                undos.add(key, self._runs(terms.catalog, key, newest_first))
            memory.account().give_back(memory.REPLY_BYTES)
            oldest = min(revisions)
            self._differences.require_retained(Span(terms.catalog, oldest - 1, oldest))
        return undos.edits()

    def to_revision(self, to: int, since: int | None, terms: RevertTerms) -> list[KeyEdit]:
        """The edits that undo all changes above ``to`` up to ``since`` (None: the head). Also
        raises CatalogNotFound. The settings stay as they are."""
        # ``span`` reads the head after ``to`` was checked, so the head isn't below ``to``.
        span = self._differences.span(terms.catalog, to, since, terms.prefix)
        with as_unavailable():
            keys: list[str] = []
            after = ""
            if terms.key is not None:
                found = stored_digests(self._store, terms.catalog, [terms.key])
                keys = [record.key for record in found if record.revision > span.low]
            while terms.key is None:
                page = scanned_digests(
                    self._store, terms.catalog, after, terms.prefix, _PAGE, above=span.low
                )
                keys += [record.key for record in page]
                _require_few(len(keys), terms)
                if page.is_whole:
                    break
                after = page[-1].key
            undos = _Undos(terms)
            account = memory.account()
            account.take(memory.REPLY_BYTES)
            for start in range(0, len(keys), _PAGE):
                page_keys = keys[start : start + _PAGE]
                before = account.held
                current = self._differences.current(span, page_keys)
                current_bytes = account.held - before
                for key in page_keys:
                    undos.add(key, self._between(span, key, current))
                del current
                account.give_back(current_bytes)
            account.give_back(memory.REPLY_BYTES)
            self._differences.require_retained(span)
        return undos.edits()

    def _between(
        self, span: Span, key: str, current: Mapping[str, DocumentRecord]
    ) -> Iterator[Undo]:
        target, base = self._differences.states(span, key, current)
        target, base = living(target), living(base)
        if not (same_state(base, target) and _owners_of(base) == _owners_of(target)):
            yield Undo(base, target)

    def _runs(self, catalog: str, key: str, newest_first: Sequence[int]) -> Iterator[Undo]:
        """The undos of a key's changes, each yielded when its states are rebuilt. Changes that
        directly follow each other become one undo."""
        base: DocumentRecord | None = None
        before: DocumentRecord | None = None
        for number, revision in enumerate(newest_first):
            follows = before is not None and before.revision == revision
            if number and not follows:
                yield Undo(base, living(before))
            before, after = self._differences.records(catalog, key, revision - 1, revision)
            base = base if follows else living(after)
            del after
        yield Undo(base, living(before))


class _Undos:
    """The undos of one revert; refuses those that are too large or aren't visible."""

    def __init__(self, terms: RevertTerms) -> None:
        self._terms = terms
        self._edits: list[KeyEdit] = []
        self._bytes = 0

    def add(self, key: str, undos: Iterable[Undo]) -> None:
        """Add a key's undos; each is weighed before the next one is made."""
        taken: list[Undo] = []
        account = memory.account()
        held = account.held
        for undo in undos:
            self._weigh(undo, held)
            taken.append(undo)
            held = account.held
        if taken:
            forced = self._terms.forced.get(key, Forced())
            self._edits.append(KeyEdit(key, Revert(tuple(taken), self._terms.conflict, forced)))

    def _weigh(self, undo: Undo, held: int) -> None:
        """Have the account hold the memory of the undo's states. ``held`` is what it held before
        they were made. Raises AboveLimit and MemoryFull."""
        states = [each for each in (undo.base, undo.target) if each is not None]
        self._bytes += sum(each.size_bytes for each in states)
        if self._bytes > DOCUMENTS_BYTES_MAX:
            raise AboveLimit(
                f"the documents before and after the undone commits take {self._bytes} bytes or"
                f" more; the limit is {DOCUMENTS_BYTES_MAX}: revert less at a time, with a prefix",
                limit="documents_bytes_max",
                maximum=DOCUMENTS_BYTES_MAX,
                actual=self._bytes,
            )
        memory.account().settle(held, *(part for each in states for part in each.parts))

    def edits(self) -> list[KeyEdit]:
        self._require_visible()
        return self._edits

    def _require_visible(self) -> None:
        viewer = self._terms.viewer
        if viewer is None:
            return
        lives = {
            life_of(each)
            for edit in self._edits
            if edit.key != SETTINGS_KEY and isinstance(edit.edit, Revert)
            for undo in edit.edit.undos
            for each in (undo.base, undo.target)
            if each is not None
        }
        if viewer.hidden(lives):
            raise RevertForbidden(
                f"it would undo changes of documents that {viewer.principal.name!r} may not read"
            )


def _owners_of(document: DocumentRecord | None) -> OwnerTree | None:
    return None if document is None else document.owners


def _keys(commits: Sequence[CommitRecord]) -> list[list[str]]:
    return [[change.key for change in commit.changes] for commit in commits]


def _is_meant(key: str, terms: RevertTerms) -> bool:
    if key in OWN_KEYS:
        return key == SETTINGS_KEY and not terms.prefix and terms.key is None
    return key.startswith(terms.prefix) if terms.key is None else key == terms.key


def _require_few(documents: int, terms: RevertTerms) -> None:
    maximum = terms.documents_max
    if documents > maximum:
        raise AboveLimit(
            f"it is about {documents} documents or more; the limit of one commit is {maximum}:"
            " revert one prefix after the other",
            limit="transaction_actions_max",
            maximum=maximum,
            actual=documents,
        )

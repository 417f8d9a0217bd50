"""Replay: how a recorded change alters a document. There is no other definition of it.

Writing out, catching up, reads of the past and verification all use this module, so that what was
decided and what is rebuilt later can't differ.

**A change is only ever applied to the state that it was made from.** It names that state, by
revision and commit, unless it contains the whole new state itself; ``advance`` refuses any other
state. So a worker that read too early, remembered a state for too long, or found one that somebody
put back, notices it, and rebuilds the state from the log (``laid_over``), which has what was
acknowledged.

An earlier state of a document is rebuilt from the nearest change before it that contains the whole
state, and the changes since. Large contents that a first read left out are read here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import patching
import patching.owners
import patching.values
from gateway import memory
from gateway.cpu import interruptible
from gateway.errors import Contradiction
from gateway.limits import MIB
from gateway.meters import Meters
from gateway.model import (
    WITHHELD,
    Attributes,
    BareDocument,
    ChangeRecord,
    CommitRecord,
    Digested,
    DocumentRecord,
    bare,
)
from gateway.store.contract import ForeignRecord, Scanned, Store, Undecoded
from patching.owners import OwnerTree

_log = logging.getLogger(__name__)

_LAST = 2**63 - 1
_Name = TypeVar("_Name")
# How many documents are read at once in a range with a document that can't be read.
_KEYS_AT_ONCE = 1_000
# How much is read at once of large documents.
_PIECE_BYTES = 4 * MIB
# Changes were within the limits when they were decided; the limits may have been lowered since.
_UNLIMITED = patching.Limits(
    operations_max=2**62,
    copy_growth_bytes_max=2**62,
    depth_max=200,  # more than the database can hold
    result_bytes_max=2**62,
)


class HistoryIncomplete(Contradiction):
    """Some of the changes that made the state are missing, because they were compacted."""


class WrongBase(Contradiction):
    """The state isn't the one that the change was made from."""

    def __init__(self, key: str, commit: CommitRecord, found: str) -> None:
        super().__init__(f"the change of {key!r} at {commit.revision} wasn't made from {found}")
        self.revision = commit.revision


def advance(
    document: DocumentRecord | None, commit: CommitRecord, change: ChangeRecord
) -> DocumentRecord:
    """The state that ``change`` of ``commit`` makes of ``document``, the state right before it.

    A document at the commit's revision or later is returned as it is: replay is idempotent. Raises
    WrongBase if ``document`` isn't the state right before, and HistoryIncomplete if it is None but
    needed, or a sweep has reduced the change.
    """
    if document is not None and document.revision >= commit.revision:
        if document.revision == commit.revision and document.commit_id != commit.id:
            raise WrongBase(change.key, commit, f"what commit {document.commit_id} left there")
        return document
    if change.is_reduced:
        raise HistoryIncomplete
    if not change.begins_at(commit.revision):
        if document is None:
            raise HistoryIncomplete
        _require_base(document, commit, change)
    try:
        content = _content_after(document, change)
    except patching.PatchError as error:
        raise WrongBase(change.key, commit, f"what is there: {error}") from error
    return DocumentRecord(
        key=change.key,
        content=content,
        revision=commit.revision,
        create_revision=change.create_revision,
        commit_id=commit.id,
        time_us=commit.time_us,
        patches=_patches_after(document, commit, change),
        size_bytes=change.size_bytes,
        attributes=_attributes_after(document, commit, change),
        owners=_owners_after(document, commit, change),
    )


def _require_base(document: DocumentRecord, commit: CommitRecord, change: ChangeRecord) -> None:
    """Raise WrongBase unless ``change`` was made from ``document``.

    Changes recorded before bases were named are checked only by the document's create revision.
    """
    if change.base_revision:
        named = (change.base_revision, change.base_id)
        is_base = (document.revision, document.commit_id) == named
    else:
        is_base = document.create_revision == change.create_revision
    if not (is_base and document.exists):
        kind = "document" if document.exists else "tombstone"
        found = f"the {kind} at revision {document.revision} (commit {document.commit_id})"
        raise WrongBase(change.key, commit, found)


def stored_documents(
    store: Store, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
) -> Mapping[tuple[str, str], DocumentRecord]:
    """``Store.documents``; documents that can't be read are rebuilt from the log, and reported.

    So a record that somebody edited by hand doesn't affect others. Raises StoreUnreachable, and
    ForeignRecord if the log is inconsistent, too.
    """
    try:
        return store.documents(keys, content_bytes_max)
    except ForeignRecord as error:
        names = [(catalog, key) for catalog, wanted in keys.items() for key in wanted]
        if len(names) == 1:
            document = _by_log(store, *names[0], error)
            return {} if document is None else {names[0]: document}
        found: dict[tuple[str, str], DocumentRecord] = {}
        for half in _halves(names):
            wanted: dict[str, list[str]] = {}
            for catalog, key in half:
                wanted.setdefault(catalog, []).append(key)
            found |= stored_documents(store, wanted, content_bytes_max)
        return found


def stored_bare_documents(
    store: Store, names: Collection[tuple[str, str]]
) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
    """``Store.bare_documents``; documents that can't be read are rebuilt as in
    ``stored_documents``."""
    try:
        return store.bare_documents(names)
    except ForeignRecord as error:
        if len(names) == 1:
            (name,) = names
            document = _by_log(store, *name, error)
            return {} if document is None else {name: bare(document)}, ()
        first, second = _halves([*names])
        found, left = stored_bare_documents(store, first)
        if left:
            return found, [*left, *second]
        more, left = stored_bare_documents(store, second)
        return {**found, **more}, left


def stored_digests(
    store: Store, catalog: str, keys: Collection[str], *, parts: bool = False
) -> Scanned[Digested]:
    """``Store.digests_of``; documents that can't be read are rebuilt as in ``stored_documents``,
    and have no digest."""
    try:
        return store.digests_of(catalog, keys, parts=parts)
    except ForeignRecord as error:
        if len(keys) == 1:
            return Scanned([_undigested(instead_of(store, error))])
        first, second = _halves(sorted(keys))
        found = stored_digests(store, catalog, first, parts=parts)
        if found.is_whole:
            more = stored_digests(store, catalog, second, parts=parts)
            found = Scanned([*found, *more], is_whole=more.is_whole)
        return found


def scanned_digests(
    store: Store,
    catalog: str,
    after: str,
    prefix: str,
    limit: int,
    *,
    above: int = 0,
    parts: bool = False,
) -> Scanned[Digested]:
    """``Store.scan_digests``; documents that can't be read are rebuilt as in ``stored_documents``.
    Then there may be fewer than ``limit``, but at least one if any is left."""
    try:
        return store.scan_digests(catalog, after, prefix, limit, above=above, parts=parts)
    except ForeignRecord:
        for page in _pages_by_key(store, catalog, after, prefix, limit, parts):
            found = [each for each in page if each.revision > above]
            if found or page.is_whole:
                return Scanned(found, is_whole=page.is_whole)
        return Scanned()


def listed_range(
    store: Store, catalog: str, prefix: str, newer_than: int, limit: int
) -> Scanned[BareDocument]:
    """``Store.list_range``; documents that can't be read are rebuilt as in ``stored_documents``."""
    try:
        return store.list_range(catalog, prefix, newer_than, limit)
    except ForeignRecord:
        found: list[BareDocument] = []
        for page in _pages_by_key(store, catalog, "", prefix, min(limit, _KEYS_AT_ONCE), False):
            found += [each for each in page if each.exists or each.revision > newer_than]
            if len(found) >= limit:
                return Scanned(found[:limit], is_whole=False)
        return Scanned(found)


def _pages_by_key(
    store: Store, catalog: str, after: str, prefix: str, limit: int, parts: bool
) -> Iterator[Scanned[Digested]]:
    """Page by page, the documents under the stored keys; the last page is whole."""
    while True:
        keys = store.scan_keys(catalog, after, prefix, limit)
        page = stored_digests(store, catalog, keys, parts=parts)
        is_last = page.is_whole and len(keys) < limit
        after = page[-1].key if page else after
        page.is_whole = is_last
        yield page
        if is_last:
            return


def instead_of(store: Store, why: ForeignRecord) -> DocumentRecord:
    """The document that can't be read, rebuilt from the log, and reported; a tombstone if the log
    has none. Raises ``why`` if the log is inconsistent, and StoreUnreachable."""
    if why.key is None:
        raise why
    document = _by_log(store, why.catalog, why.key, why)
    return document or DocumentRecord(why.key, patching.ABSENT, 0, 0, "", 0)


def _by_log(store: Store, catalog: str, key: str, why: ForeignRecord) -> DocumentRecord | None:
    about = {"catalog": catalog}
    _log.error("%s; the log is followed instead: see `gateway verify`", why, extra=about)
    try:
        return rebuild(store, catalog, key, _LAST)
    except (HistoryIncomplete, WrongBase):
        raise why from None


def _undigested(document: DocumentRecord) -> Digested:
    named = bare(document)
    return Digested(
        named.key,
        named.revision,
        named.create_revision,
        named.exists,
        named.attributes,
        document.commit_id,
        document.size_bytes,
    )


def _halves(names: Sequence[_Name]) -> tuple[Sequence[_Name], Sequence[_Name]]:
    half = len(names) // 2
    return names[:half], names[half:]


def laid_over(
    store: Store,
    meters: Meters,
    catalog: str,
    stored: Mapping[str, DocumentRecord | None],
    tail: Sequence[CommitRecord],
) -> dict[str, DocumentRecord | None]:
    """By key, the states that ``tail`` makes of the ``stored`` documents, which may already have
    some of it, or later changes.

    If a stored document is missing, or isn't the one that ``tail`` was made from, it is rebuilt
    from the log, and reported. Everything below ``tail`` is written out. Raises HistoryIncomplete,
    WrongBase if the log contradicts itself, and StoreUnreachable.
    """
    states = dict(stored)
    for key, error in _advance_each(states, tail).items():
        states[key] = rebuild(store, catalog, key, tail[-1].revision, tail)
        report_wrong_base(meters, catalog, error)
    return states


@interruptible
def _advance_each(
    states: dict[str, DocumentRecord | None], commits: Iterable[CommitRecord]
) -> dict[str, WrongBase]:
    """Apply ``commits`` to all ``states``, in place, in one pass; return by key why that failed."""
    wrong: dict[str, WrongBase] = {}
    for commit in commits:
        for change in commit.changes:
            key = change.key
            if key in states and key not in wrong:
                try:
                    states[key] = advance(states[key], commit, change)
                except WrongBase as error:
                    wrong[key] = error
                except HistoryIncomplete:
                    wrong[key] = WrongBase(key, commit, "an absent document")
    return wrong


def report_wrong_base(meters: Meters, catalog: str, error: WrongBase) -> None:
    """Count and log a contradiction, which must never happen."""
    meters.base_refused()
    about = {"catalog": catalog}
    _log.error("catalog %r: %s; the log is followed instead", catalog, error, extra=about)


@interruptible
def advance_all(
    document: DocumentRecord | None, key: str, commits: Iterable[CommitRecord]
) -> DocumentRecord | None:
    """The state of ``key`` after ``commits``: ascending, and all that change it.

    Raises as ``advance`` does.
    """
    for commit in commits:
        for change in commit.changes:
            if change.key == key:
                document = advance(document, commit, change)
    return document


@interruptible
def _advance_past(
    key: str, commits: Iterable[CommitRecord], low: int
) -> tuple[DocumentRecord | None, DocumentRecord | None]:
    """The states of ``key`` after the commits up to ``low``, and after all of them."""
    before = after = None
    for commit in commits:
        after = advance_all(after, key, (commit,))
        if commit.revision <= low:
            before = after
    return before, after


def _patches_after(
    document: DocumentRecord | None, commit: CommitRecord, change: ChangeRecord
) -> int:
    if document is None or change.begins_at(commit.revision):
        return 0
    return document.patches + 1


def _attributes_after(
    document: DocumentRecord | None, commit: CommitRecord, change: ChangeRecord
) -> Attributes | None:
    if change.attributes is None and not change.begins_at(commit.revision):
        return None if document is None else document.attributes
    return change.attributes or None


def _owners_after(
    document: DocumentRecord | None, commit: CommitRecord, change: ChangeRecord
) -> OwnerTree | None:
    if document is None or change.begins_at(commit.revision):
        return change.owners
    if change.owners_change is None:
        return document.owners
    return patching.owners.changed_owners(document.owners, change.owners_change, commit.revision)


def _content_after(
    document: DocumentRecord | None, change: ChangeRecord
) -> patching.Json | patching.values.Absent:
    if change.action == "delete":
        return patching.ABSENT
    if change.value is not patching.ABSENT:
        return change.value
    base = patching.ABSENT if document is None else document.content
    if change.action == "attributes" or base is WITHHELD:
        return base
    patch = patching.parse(change.patch, limits=_UNLIMITED)
    content, _ = patching.apply_within(base, patch, limits=_UNLIMITED, document_bytes=0)
    return content


# The changes of one key, ascending, each with its commit.
Changes = Sequence[tuple[CommitRecord, ChangeRecord]]


@interruptible
def changes_by_key(
    commits: Iterable[CommitRecord], keys: Collection[str] | None = None
) -> Mapping[str, Changes]:
    """By key, the changes of ``commits``, ascending; only those of ``keys``, if given. Thousands of
    keys are looked up in as many changes, so that must not be done one key after the other."""
    found: dict[str, list[tuple[CommitRecord, ChangeRecord]]] = {}
    for commit in commits:
        for change in commit.changes:
            if keys is None or change.key in keys:
                found.setdefault(change.key, []).append((commit, change))
    return found


def bare_after(document: BareDocument | None, changes: Changes) -> BareDocument | None:
    """``advance_all`` of a document without its content, by all its changes. Of the base, only the
    revision is checked.

    Raises HistoryIncomplete and WrongBase as ``advance`` does.
    """
    for commit, change in changes:
        if document is None or document.revision < commit.revision:
            attributes = change.attributes
            if change.is_reduced:
                raise HistoryIncomplete
            if attributes is None and not change.begins_at(commit.revision):
                if document is None:
                    raise HistoryIncomplete
                if change.base_revision not in (0, document.revision):
                    found = f"the document at revision {document.revision}"
                    raise WrongBase(change.key, commit, found)
                attributes = document.attributes
            acl = (attributes or {}).get("acl")
            document = BareDocument(
                change.key,
                commit.revision,
                change.create_revision,
                change.action != "delete",
                None if acl is None else {"acl": acl},
            )
    return document


def bare_laid_over(
    store: Store,
    meters: Meters,
    catalog: str,
    stored: Mapping[str, BareDocument | None],
    tail: Sequence[CommitRecord],
) -> dict[str, BareDocument | None]:
    """``laid_over`` of documents without their content."""
    changes = changes_by_key(tail, stored.keys())
    after = dict(stored)
    for key, its in changes.items():
        try:
            after[key] = bare_after(stored[key], its)
        except WrongBase as error:
            after[key] = bare_rebuilt(store, meters, catalog, key, tail, error)
    return after


def bare_rebuilt(
    store: Store,
    meters: Meters,
    catalog: str,
    key: str,
    tail: Sequence[CommitRecord],
    why: WrongBase,
) -> BareDocument | None:
    """The document rebuilt from the log, because ``tail`` wasn't made from the stored one; ``why``
    is reported."""
    report_wrong_base(meters, catalog, why)
    document = rebuild(store, catalog, key, tail[-1].revision, tail)
    return None if document is None else bare(document)


def rebuild(
    store: Store, catalog: str, key: str, revision: int, tail: Sequence[CommitRecord] = ()
) -> DocumentRecord | None:
    """The state of ``key`` at ``revision``, tombstones included; None if it never existed.

    Costs at most K changes, however old the state is. The caller makes sure that everything up to
    ``revision`` is written out or in ``tail``, and afterwards that it wasn't compacted meanwhile.
    Raises HistoryIncomplete, StoreUnreachable, and WrongBase if the log is inconsistent.
    """
    if tail and tail[0].revision <= revision:
        state = rebuild(store, catalog, key, tail[0].revision - 1)
        return advance_all(state, key, (each for each in tail if each.revision <= revision))
    held = memory.account().held
    newest_first = _chain(store, catalog, key, revision)
    document = advance_all(None, key, reversed(newest_first))
    del newest_first
    _settle(held, document)
    return document


def rebuild_both(
    store: Store, catalog: str, key: str, low: int, high: int
) -> tuple[DocumentRecord | None, DocumentRecord | None]:
    """``rebuild`` at two revisions, the lower one first; both are written out."""
    held = memory.account().held
    ascending = reversed(_chain(store, catalog, key, high))
    oldest = next(ascending, None)
    if oldest is None or oldest.revision > low:
        after = advance_all(None, key, [] if oldest is None else chain([oldest], ascending))
        del ascending, oldest
        _settle(held, after)
        return rebuild(store, catalog, key, low), after
    before, after = _advance_past(key, chain([oldest], ascending), low)
    del ascending, oldest
    _settle(held, before, after)
    return before, after


def _chain(store: Store, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
    """The changes that the state is rebuilt from, newest first, decoded one by one. The request's
    account is charged for them, and for the state that they make."""
    newest_first = store.changes_of(catalog, key, through)
    if isinstance(newest_first, Undecoded):
        memory.account().take_chain(newest_first.texts())
    return newest_first


def _settle(held: int, *states: DocumentRecord | None) -> None:
    """Replace the charges of the request's account since ``held`` by the charge for ``states``."""
    account = memory.account()
    if account.held != held:
        parts = (each.parts for each in states if each is not None)
        account.settle(held, *chain.from_iterable(parts))


def read_large(
    store: Store, withheld: Sequence[tuple[str, DocumentRecord]]
) -> dict[tuple[str, str], DocumentRecord]:
    """The ``withheld`` documents, each given with its catalog, read again with their contents.

    Some megabytes at a time, because decoding them delays all other requests of the process.
    """
    found: dict[tuple[str, str], DocumentRecord] = {}
    piece: dict[str, list[str]] = {}
    piece_bytes = 0
    for catalog, document in withheld:
        if piece and piece_bytes + document.size_bytes > _PIECE_BYTES:
            found |= stored_documents(store, piece)
            piece, piece_bytes = {}, 0
        piece.setdefault(catalog, []).append(document.key)
        piece_bytes += document.size_bytes
    if piece:
        found |= stored_documents(store, piece)
    return found

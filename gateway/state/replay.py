"""How a recorded change moves a document: the one definition that all replaying shares.

Writing out a batch, catching up a cache, time travel and verification all come through here, so
that what was decided once and what is rebuilt later can't drift apart.

A document as it was: back to the nearest change that says everything, and forward from there. And
as it is, where its content was left out at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import patching
from gateway.cpu import interruptible
from gateway.model import WITHHELD, Attributes, BareDocument, Change, Commit, Document
from gateway.store.contract import Store
from patching import Owners

# What is read at once of documents that are large.
_PIECE_BYTES = 4 * 1024 * 1024
# Replayed changes were within the limits when they were decided; settings may have shrunk since.
_UNLIMITED = patching.Limits(
    operations_max=2**62,
    copy_growth_bytes_max=2**62,
    depth_max=200,  # more than the database can hold
    result_bytes_max=2**62,
)


class HistoryIncomplete(Exception):
    """The changes that the state was made by aren't all there: it was compacted away."""


def advance(document: Document | None, commit: Commit, change: Change) -> Document:
    """The state that ``change`` of ``commit`` leaves, given the state right before it.

    A document that is at the commit's revision or later is returned as it is: replaying is
    idempotent. Raises patching.PatchError where ``document`` isn't the state right before.
    """
    if document is not None and document.revision >= commit.revision:
        return document
    if document is None and not change.begins_at(commit.revision):
        raise patching.PatchConflict("the state before it isn't there: it was compacted away")
    return Document(
        key=change.key,
        content=_content_after(document, change),
        revision=commit.revision,
        create_revision=change.create_revision,
        commit_id=commit.id,
        time_us=commit.time_us,
        patches=_patches_after(document, commit, change),
        size_bytes=change.size_bytes,
        attributes=_attributes_after(document, commit, change),
        owners=_owners_after(document, commit, change),
    )


@interruptible
def advance_all(document: Document | None, key: str, commits: Iterable[Commit]) -> Document | None:
    """The state of ``key`` after ``commits`` (ascending, with none left out that touches it)."""
    for commit in commits:
        for change in commit.changes:
            if change.key == key:
                document = advance(document, commit, change)
    return document


def _patches_after(document: Document | None, commit: Commit, change: Change) -> int:
    if document is None or change.begins_at(commit.revision):
        return 0
    return document.patches + 1


def _attributes_after(
    document: Document | None, commit: Commit, change: Change
) -> Attributes | None:
    if change.attributes is None and not change.begins_at(commit.revision):
        return None if document is None else document.attributes
    return change.attributes or None


def _owners_after(document: Document | None, commit: Commit, change: Change) -> Owners | None:
    if document is None or change.begins_at(commit.revision):
        return change.owners
    if change.owners_change is None:
        return document.owners
    return patching.changed_owners(document.owners, change.owners_change, commit.revision)


def _content_after(document: Document | None, change: Change) -> patching.Json | patching.Absent:
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


def bare_after(
    document: BareDocument | None, key: str, commits: Iterable[Commit]
) -> BareDocument | None:
    """``advance_all`` of a document without its content.

    Raises HistoryIncomplete where the state that the first change goes on from isn't there.
    """
    for commit in commits:
        for change in commit.changes:
            if change.key == key and (document is None or document.revision < commit.revision):
                attributes = change.attributes
                if attributes is None and not change.begins_at(commit.revision):
                    if document is None:
                        raise HistoryIncomplete
                    attributes = document.attributes
                acl = (attributes or {}).get("acl")
                document = BareDocument(
                    key,
                    commit.revision,
                    change.create_revision,
                    change.action != "delete",
                    None if acl is None else {"acl": acl},
                )
    return document


def rebuild(
    store: Store, catalog: str, key: str, revision: int, tail: Sequence[Commit] = ()
) -> Document | None:
    """The state of ``key`` at ``revision``, tombstones included; None where it never existed.

    Costs at most K changes, however old it is. The caller sees to it that ``revision`` is written
    out but for ``tail``, and afterwards that it wasn't compacted meanwhile. Raises
    HistoryIncomplete, Unreachable.
    """
    if tail and tail[0].revision <= revision:
        state = rebuild(store, catalog, key, tail[0].revision - 1)
        try:
            return advance_all(state, key, (each for each in tail if each.revision <= revision))
        except patching.PatchConflict:
            if state is None:
                raise HistoryIncomplete from None
            raise
    newest_first = store.changes_of(catalog, key, revision)
    if newest_first:
        oldest = newest_first[-1]
        if not oldest.change_of(key).begins_at(oldest.revision):
            raise HistoryIncomplete
    return advance_all(None, key, reversed(newest_first))


def rebuild_both(
    store: Store, catalog: str, key: str, low: int, high: int
) -> tuple[Document | None, Document | None]:
    """``rebuild`` at two revisions, the lower one first; they are written out."""
    newest_first = store.changes_of(catalog, key, high)
    ascending = list(reversed(newest_first))
    if ascending and not ascending[0].change_of(key).begins_at(ascending[0].revision):
        raise HistoryIncomplete
    if not ascending or ascending[0].revision > low:
        return rebuild(store, catalog, key, low), advance_all(None, key, ascending)
    before = advance_all(None, key, (each for each in ascending if each.revision <= low))
    return before, advance_all(before, key, ascending)


def read_large(
    store: Store, withheld: Sequence[tuple[str, Document]]
) -> dict[tuple[str, str], Document]:
    """The documents whose contents were left out, each with its catalog, now read whole.

    Some megabytes at a time: decoding them holds up all other requests of the process.
    """
    found: dict[tuple[str, str], Document] = {}
    piece: dict[str, list[str]] = {}
    piece_bytes = 0
    for catalog, document in withheld:
        if piece and piece_bytes + document.size_bytes > _PIECE_BYTES:
            found |= store.documents(piece)
            piece, piece_bytes = {}, 0
        piece.setdefault(catalog, []).append(document.key)
        piece_bytes += document.size_bytes
    if piece:
        found |= store.documents(piece)
    return found

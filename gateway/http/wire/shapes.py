"""Commits, documents and owners as JSON, and as events of a feed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from gateway.cpu import interruptible
from gateway.feed.channel import EncodedCommit, Selection
from gateway.feed.from_state import MadeBy
from gateway.http.wire.headers import percent_decoded
from gateway.http.wire.query import whole_number
from gateway.http.wire.responses import encode
from gateway.model import (
    APPLICATIONS_KEY,
    SETTINGS_KEY,
    ChangeRecord,
    CommitRecord,
    DocumentRecord,
    Skipped,
)
from gateway.read.losses import Loss
from gateway.read.visibility import Life, Viewer, life_of
from patching import ABSENT, join_pointer
from patching.owners import OwnersChange, Ownership, OwnerTree
from patching.values import rfc3339


def owner_shapes(owners: Iterable[Ownership]) -> list[dict[str, Any]]:
    return [{"manager": each.manager, "since": each.since, "plain": each.plain} for each in owners]


@interruptible
def owners_shape(owners: OwnerTree | None) -> list[dict[str, Any]]:
    """The leaves that have owners, ordered by pointer, with their owners."""
    leaves = owners.leaves() if owners else ()
    shown = [{"pointer": join_pointer(tokens), "owners": owner_shapes(by)} for tokens, by in leaves]
    return sorted(shown, key=lambda each: str(each["pointer"]))


@interruptible
def loss_shape(loss: Loss) -> dict[str, Any]:
    """A loss: the commit, and the fields that it took over with their owners now."""
    return {
        "key": loss.key,
        "revision": loss.revision,
        "time": rfc3339(loss.time_us),
        "author": loss.author,
        "message": loss.message,
        "fields": [
            {"pointer": join_pointer(each.tokens), "owners": owner_shapes(each.owners)}
            for each in loss.fields
        ],
    }


def owners_change_shape(change: OwnersChange) -> list[dict[str, Any]]:
    """The pointers that each manager gained and lost."""
    return [
        {"manager": manager, "plain": plain, "gained": gained, "lost": lost}
        for manager, plain, gained, lost in change.pointers()
    ]


@interruptible
def skipped_shape(skipped: Sequence[Skipped]) -> list[dict[str, Any]]:
    return [{"pointer": each.pointer, "owners": owner_shapes(each.owners)} for each in skipped]


@interruptible
def commit_shape(commit: CommitRecord) -> dict[str, Any]:
    """A commit, with the effective patch of each document, whatever kind of write it was.

    The catalog's settings have the key null and the action ``settings``. A step of an application
    is shown as a commit that changes nothing.
    """
    return {
        "revision": commit.revision,
        "time": rfc3339(commit.time_us),
        "commit_id": commit.id,
        "parent": commit.parent or None,
        "author": commit.author,
        "message": commit.message,
        "idempotency_key": None if commit.idempotency is None else commit.idempotency.key,
        "attempts": commit.attempts,
        "succeeded": commit.succeeded,
        "rebased_from": commit.rebased_from,
        "deletes_catalog": commit.deletes_catalog,
        "changes": [change_shape(change, commit.revision) for change in _shown(commit)],
    }


def commit_summary(commit: CommitRecord, key: str | None) -> dict[str, Any]:
    """A commit without values: its action on ``key`` or, if None, on each of its keys."""
    if key is None:
        done: dict[str, Any] = {
            "changes": [
                {"key": each.key or None, "action": _action(each)} for each in _shown(commit)
            ]
        }
    else:
        actions = [change.action for change in commit.changes if change.key == key]
        done = {"action": actions[0] if actions else None}
    return {
        "revision": commit.revision,
        "time": rfc3339(commit.time_us),
        "commit_id": commit.id,
        "author": commit.author,
        "message": commit.message,
        **done,
    }


@interruptible
def change_shape(change: ChangeRecord, revision: int) -> dict[str, Any]:
    """The change of one document by the commit at ``revision``.

    ``patch`` is null if compaction kept only the action. ``attributes`` are those afterwards, null
    if they are unchanged or the document is gone. ``owners`` says how the owners of leaves changed,
    if any did. ``managers`` are those that applied or let go, if any. ``base_revision`` says which
    state of the document a patch applies to.
    """
    patch: list[dict[str, Any]] | None = change.patch
    if change.action == "delete":
        patch = [{"op": "remove", "path": ""}]
    elif change.action == "attributes":
        patch = []
    elif patch is None and change.value is not ABSENT:
        patch = [{"op": "add", "path": "", "value": change.value}]
    attributes = change.attributes
    if attributes is None and patch is not None and change.action != "delete":
        attributes = {} if change.begins_at(revision) else None
    shape: dict[str, Any] = {
        "key": change.key or None,
        "action": _action(change),
        "create_revision": change.create_revision,
        "patch": patch,
        "attributes": attributes,
    }
    if change.base_revision:
        shape["base_revision"] = change.base_revision
    if change.owners_change is not None:
        shape["owners"] = owners_change_shape(change.owners_change)
    if change.managers:
        shape["managers"] = change.managers
    return shape


def _shown(commit: CommitRecord) -> Iterable[ChangeRecord]:
    return (change for change in commit.changes if change.key != APPLICATIONS_KEY)


def _action(change: ChangeRecord) -> str:
    return "settings" if change.key == SETTINGS_KEY else change.action


class _Life(msgspec.Struct):
    """The life that a change in an answer belongs to."""

    key: str | None
    create_revision: int

    @property
    def named(self) -> Life:
        return Life(self.key, self.create_revision)  # type: ignore[arg-type] # names are for clients


# Values are passed on undecoded, because some numbers take long to decode.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_life = msgspec.json.Decoder(_Life).decode
_text = msgspec.json.Decoder(str).decode


def commit_event(commit: CommitRecord) -> bytes:
    return _event("commit", commit_shape(commit), commit.revision)


def bookmark_event(revision: int) -> bytes:
    """The event that says that all wanted commits up to ``revision`` have been sent."""
    return _event("bookmark", {"revision": revision}, revision)


def end_event(code: str, detail: str, position: FeedPosition) -> bytes:
    where: dict[str, Any] = {"revision": position.revision}
    if position.key is not None:
        where = {"position": str(position)}
    return _event("end", {"code": code, "detail": detail, **where}, None)


class FeedPosition(NamedTuple):
    """How far a client has come: after the commit at ``revision``. With a ``key``: in the list of
    the documents of that revision, after that document, or after the settings if it is ""."""

    revision: int
    key: str | None = None

    def __str__(self) -> str:
        return str(self.revision) if self.key is None else f"{self.revision}/{quote(self.key)}"


def feed_position(text: str) -> FeedPosition:
    """The position written as ``text``. Raises ValueError if it isn't one."""
    number, slash, key = text.partition("/")
    return FeedPosition(whole_number(number), percent_decoded(key) if slash else None)


class DocumentEvent(NamedTuple):
    key: str
    event: bytes


@interruptible
def document_event(document: DocumentRecord, revision: int) -> DocumentEvent:
    """The event of one document of the state at ``revision``. The settings have the key null."""
    position = FeedPosition(revision, document.key)
    return DocumentEvent(document.key, _event("document", document_shape(document), position))


def synced_event(revision: int, made: MadeBy | None) -> bytes:
    """The event after the last document of the state at ``revision``. ``made`` is the commit that
    made the revision, None if history no longer has it."""
    return _event("synced", synced_shape(revision, made), FeedPosition(revision))


def synced_shape(revision: int, made: MadeBy | None) -> dict[str, Any]:
    return {
        "revision": revision,
        "time": None if made is None else rfc3339(made.time_us),
        "commit_id": None if made is None else made.commit_id,
    }


def document_shape(document: DocumentRecord) -> dict[str, Any]:
    shape = {
        "key": document.key or None,
        "etag": document.token,
        "revision": document.revision,
        "create_revision": document.create_revision,
        "value": document.content,
    }
    if document.attributes:
        shape["attributes"] = document.attributes
    return shape


def _event(name: str, data: dict[str, Any], position: int | FeedPosition | None) -> bytes:
    """An event of a stream. ``data`` is one line, because encoded JSON holds no line end."""
    id_line = b"" if position is None else f"id: {position}\n".encode()
    return b"%bevent: %b\ndata: %b\n\n" % (id_line, name.encode(), encode(data))


def event_data(event: bytes) -> bytes:
    return event[event.index(b"\ndata: ") + len(b"\ndata: ") : -2]


@dataclass(frozen=True, slots=True)
class WatcherView:
    """One watcher's view of the commits that all watchers share.

    Changes hidden from ``viewer`` are left out, as in ``Viewer.filter`` (None: none is). If
    nothing is left that ``selection`` wants, a watcher of everything gets the commit without
    changes, so that it sees every revision; a watcher of some documents doesn't get it.
    """

    viewer: Viewer | None
    selection: Selection

    def visible(self, commits: Sequence[EncodedCommit]) -> Sequence[EncodedCommit]:
        """The commits of ``commits`` as the watcher may see them. Raises StoreUnavailable."""
        if self.viewer is None or not commits:
            return commits
        hidden = self.viewer.hidden(frozenset().union(*(each.lives for each in commits)))
        if not hidden:
            return commits
        visible = []
        for each in commits:
            if hidden.isdisjoint(each.lives):
                visible.append(each)
                continue
            gone = {life.key for life in each.lives & hidden}
            left = each.without(gone)
            if self.selection.wants(left):
                encoded = _without(each, hidden, self.viewer.principal.name)
                visible.append(replace(left, encoded=encoded))
        return visible

    def may_see(self, document: DocumentRecord) -> bool:
        """Whether ``document``, as a past state, is visible. Raises StoreUnavailable."""
        return self.viewer is None or not self.viewer.hidden((life_of(document),))


def _without(commit: EncodedCommit, hidden: frozenset[Life], name: str) -> bytes:
    """The event for principal ``name`` without the changes of ``hidden``; without message and
    idempotency key too, unless ``name`` is the author."""
    shape: dict[str, Any] = _members(event_data(commit.encoded))
    shape["changes"] = [
        change for change in _list(shape["changes"]) if _life(change).named not in hidden
    ]
    if _text(shape["author"]) != name:
        shape |= {"message": None, "idempotency_key": None}
    return _event("commit", shape, commit.revision)


# Only this many changes of a commit come with whole documents.
_IMAGES_MAX: Final = 500
Image = Callable[[str, int], DocumentRecord | None]


def event_with_images(
    commit: EncodedCommit, wanted: Collection[str], image: Image, view: WatcherView, bytes_max: int
) -> bytes:
    """The event whose changes have whole documents: ``value`` as the commit left it, and
    ``before``; a member is absent if there is no document.

    ``image`` gives the live document under a key at a revision. Documents beyond ``bytes_max`` in
    all, or of changes beyond the first ``_IMAGES_MAX``, are left out; ``withheld`` names them.
    """
    shape: dict[str, Any] = _members(event_data(commit.encoded))
    changes: list[dict[str, Any]] = []
    left_bytes = bytes_max
    for raw in _list(shape["changes"]):
        change: dict[str, Any] = _members(raw)
        life = _life(raw)
        withheld = []
        for name, revision in (("before", commit.revision - 1), ("value", commit.revision)):
            if name not in wanted:
                continue
            if left_bytes <= 0 or len(changes) >= _IMAGES_MAX:
                withheld.append(name)
                continue
            encoded = _image(image(life.key or SETTINGS_KEY, revision), life, view)
            if encoded is not None and len(encoded) > left_bytes:
                withheld.append(name)
            elif encoded is not None:
                left_bytes -= len(encoded)
                change[name] = msgspec.Raw(encoded)
        if withheld:
            change["withheld"] = withheld
        changes.append(change)
    shape["changes"] = changes
    return _event("commit", shape, commit.revision)


@interruptible
def _image(document: DocumentRecord | None, life: _Life, view: WatcherView) -> bytes | None:
    if document is None:
        return None
    # The document before may be of an earlier life, with an acl of its own.
    if document.create_revision != life.create_revision and not view.may_see(document):
        return None
    return encode(document.content)

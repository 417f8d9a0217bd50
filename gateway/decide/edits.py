"""Edits: what a request does to a document, or to a range of them. Immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gateway.decide.compares import Compare
from gateway.decide.owning import ApplyWanted, GiveBack, LetGo
from gateway.decide.ranges import RangeDeletion, RangeEdit, RangeReplacement
from gateway.decide.reverting import Revert
from gateway.model import Attributes
from patching import ExtendedPatch, Json, Patch


class Put(msgspec.Struct, frozen=True):
    """Create or replace the whole document; its attributes are kept, or become ``attributes``.

    ``attributes`` {} clears them; None keeps them.
    """

    value: Json
    size_bytes: int
    attributes: Attributes | None = None


class ApplyPatch(msgspec.Struct, frozen=True):
    """Apply an RFC 6902 patch, or an extended one."""

    patch: Patch | ExtendedPatch


class Merge(msgspec.Struct, frozen=True):
    """Apply an RFC 7396 merge patch."""

    value: Json
    size_bytes: int


class Delete(msgspec.Struct, frozen=True):
    """Delete the document, leaving a tombstone. Nothing to do if it is absent."""


ContentEdit = Put | ApplyPatch | Merge | ApplyWanted | LetGo | GiveBack | Delete


class EditAttributes(msgspec.Struct, frozen=True):
    """Edit the attributes of a document that exists as if they were its content."""

    edit: ContentEdit


class MoveKey(msgspec.Struct, frozen=True):
    """Give the document, with its attributes, the key ``to``, which must be absent."""

    to: str


class Get(msgspec.Struct, frozen=True):
    """Change nothing; answer the document as the whole request leaves it.

    ``to_write``: don't show it, but require the right to write it.
    """

    to_write: bool = False


class Touch(msgspec.Struct, frozen=True):
    """Make a commit even if nothing changes. The key is ignored."""


Edit = ContentEdit | EditAttributes | MoveKey | Revert | Get | Touch | RangeEdit


class KeyEdit(msgspec.Struct, frozen=True):
    """An edit of the document ``key``. Edits of ranges, and touches, have the settings' key.

    It is done only if ``when`` is true of what the edits before it have left.
    """

    key: str
    edit: Edit
    when: tuple[Compare, ...] = ()


class EditKind(NamedTuple):
    """The properties of a kind of edit. ``performing`` has a row for how it is performed, and
    ``gateway.http.write.ask`` one for how a client sends it.

    ``writes``: it may change its document. ``sees``: it needs the document's content, not only its
    token. ``reads``: its effect depends on the content, so it needs the right to read it, too.
    ``is_guarded``: it needs no precondition, even if the catalog requires one. ``is_rebased``: it
    can be rebased over changes elsewhere. ``is_weighed``: its work grows with the content.
    ``is_of_one``: it is about the document of its key alone.
    """

    writes: bool = True
    sees: bool = True
    reads: bool = True
    is_guarded: bool = False
    is_rebased: bool = False
    is_weighed: bool = False
    is_of_one: bool = True


EDIT_KINDS: Final[Mapping[type, EditKind]] = {
    Put: EditKind(reads=False),
    ApplyPatch: EditKind(is_rebased=True, is_weighed=True),
    Merge: EditKind(is_rebased=True, is_weighed=True),
    ApplyWanted: EditKind(is_rebased=True, is_weighed=True),
    LetGo: EditKind(is_weighed=True),
    GiveBack: EditKind(is_weighed=True),
    Delete: EditKind(reads=False, sees=False),
    EditAttributes: EditKind(),  # see ``inner`` for what depends on its edit
    MoveKey: EditKind(is_of_one=False),
    Revert: EditKind(is_guarded=True, is_weighed=True),
    Get: EditKind(writes=False, is_guarded=True),
    Touch: EditKind(writes=False, sees=False, is_guarded=True),
    RangeDeletion: EditKind(is_of_one=False),  # done document by document
    RangeReplacement: EditKind(is_of_one=False),
}


def kind_of(edit: Edit) -> EditKind:
    return EDIT_KINDS[type(edit)]


def inner(edit: Edit) -> Edit:
    """The edit of the content or of the attributes itself."""
    return edit.edit if isinstance(edit, EditAttributes) else edit


def operations_in(edit: Edit) -> int:
    """How many operations an edit counts as: those of a patch, one more than the documents of a
    replacement of a range, one for any other edit."""
    if isinstance(edit, RangeReplacement):
        return 1 + len(edit.documents)
    done = inner(edit)
    return max(1, len(done.patch)) if isinstance(done, ApplyPatch) else 1

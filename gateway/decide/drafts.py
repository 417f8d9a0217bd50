"""Drafts: the documents of a request, on which its edits are done in order before any commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import patching
from gateway.access import Principal
from gateway.decide.acl import require_editable, require_readable
from gateway.decide.compares import ITEM_BYTES
from gateway.decide.edits import Draft, EditLimits, Subject, draft_of, edited
from gateway.decide.request import (
    ApplyPatch,
    Edit,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    Move,
    Put,
    Touch,
)
from gateway.errors import DocumentNotFound, OverLimit, TargetExists
from gateway.model import Attributes, Document
from patching import ABSENT, Absent, Json, Patch

# Bytes of documents that one request's patches may work through; each patch counts its document.
_PATCHED_BYTES_MAX = 128 * 1024 * 1024
# An RFC 6902 patch copies only the containers on its paths; a merge visits all, several times.
_PATH_SHARE = 8
_MERGE_TIMES = 4
# Inserting or removing an array item shifts the items behind it.
_SHIFT_SHARE = 80
_UNCOUNTED_BYTES_MAX = 64 * 1024
_IN_PLACE = ("replace", "test")


def named_keys(edits: Sequence[KeyEdit]) -> list[str]:
    """The keys that ``edits`` name, targets of moves included, each once."""
    if len(edits) == 1 and not isinstance(edits[0].edit, Move):
        return [edits[0].key]
    keys = dict.fromkeys(each.key for each in edits)
    keys |= dict.fromkeys(each.edit.to for each in edits if isinstance(each.edit, Move))
    return list(keys)


class Drafts:
    """One request's drafts. ``document_of`` returns a document as the request finds it."""

    def __init__(
        self,
        catalog: str,
        by: Principal,
        document_of: Callable[[str], Document | None],
        limits: EditLimits,
    ) -> None:
        self._catalog = catalog
        self._by = by
        self._document_of = document_of
        self._work = _Work()
        self._limits = replace(limits, spend=self._work.examined)
        self._drafts: dict[str, Draft] = {}
        self._deleted: set[str] = set()
        self._changed: dict[str, Draft] | None = None
        self.forced = False

    @property
    def work_bytes(self) -> int:
        """The work done so far, in bytes of documents."""
        return self._work.total_bytes

    def perform(self, each: KeyEdit) -> None:
        """Do the next edit. Raises DocumentNotFound, TargetExists and the errors of ``edited``.

        Raises OverLimit also where the request's patches together are too much work, and
        DocumentForbidden by the acl as the earlier edits left it.
        """
        edit = each.edit
        if isinstance(edit, Get):
            if edit.to_write:
                self._require_editable(each.key, edit)
            return
        if isinstance(edit, Touch):
            self.forced = True
        elif isinstance(edit, Move):
            self._move(each.key, edit.to)
        else:
            before = self._draft(each.key)
            if before.attributes is not None:
                self._require_editable(each.key, edit)
            if isinstance(edit, ApplyPatch | Merge):
                self._count_patch(edit, before.size_bytes)
            elif isinstance(edit, EditAttributes):
                self._require_room()
            subject = Subject(self._catalog, each.key, self._document_of(each.key))
            self._set(each.key, edited(before, edit, subject, self._limits))

    def require_gettable(self, each: KeyEdit) -> None:
        """Raise DocumentForbidden if ``each`` is a get and all edits leave its document unreadable
        for the principal."""
        if isinstance(each.edit, Get) and not each.edit.to_write:
            require_readable(self._by, self._catalog, each.key, self._attributes(each.key))

    def changed(self) -> dict[str, Draft]:
        """By key, the drafts that differ from the document as found."""
        if self._changed is None:
            self._changed = {
                key: draft for key, draft in self._drafts.items() if self._differs(key, draft)
            }
        return self._changed

    def found(self, key: str) -> Document | None:
        """The live document that the draft changes or deletes; None if the draft is a new one."""
        document = self._document_of(key)
        if document is None or not document.exists:
            return None
        anew = key in self._deleted and self._draft(key).content is not ABSENT
        return None if anew else document

    def _move(self, key: str, to: str) -> None:
        self._require_editable(key, Move(to))
        self._require_editable(to, Put(None, 0))
        draft = self._draft(key)
        if draft.content is ABSENT:
            raise DocumentNotFound(self._catalog, key)
        if self._draft(to).content is not ABSENT:
            raise TargetExists(to)
        self._set(key, Draft(ABSENT, None, 0, "delete"))
        self._set(to, Draft(draft.content, draft.attributes, draft.size_bytes, "put"))

    def _require_editable(self, key: str, edit: Edit) -> None:
        require_editable(self._by, self._catalog, key, self._attributes(key), edit)

    def _attributes(self, key: str) -> Attributes | None:
        draft = self._drafts.get(key)
        if draft is not None:
            return draft.attributes
        document = self._document_of(key)
        return None if document is None else document.attributes

    def _count_patch(self, edit: ApplyPatch | Merge, size_bytes: int) -> None:
        if isinstance(edit, Merge):
            size_bytes *= _MERGE_TIMES
        elif isinstance(edit.patch, Patch):
            shifts = _shifts(edit.patch, size_bytes)
            self._work.total_bytes += shifts
            size_bytes = size_bytes // _PATH_SHARE + shifts
        alone = not self._work.patched_bytes
        self._work.patched_bytes += size_bytes
        if not alone:  # the first patch has limits of its own
            self._require_room()

    def _require_room(self) -> None:
        actual = self._work.patched_bytes
        if actual > _PATCHED_BYTES_MAX:
            raise OverLimit(
                f"the patches would work through {actual} bytes of documents, more"
                f" than the {_PATCHED_BYTES_MAX} that one transaction may",
                limit="patched_bytes_max",
                maximum=_PATCHED_BYTES_MAX,
                actual=actual,
            )

    def _draft(self, key: str) -> Draft:
        draft = self._drafts.get(key)
        if draft is None:
            draft = draft_of(self._document_of(key))
            self._work.total_bytes += draft.size_bytes
        return draft

    def _set(self, key: str, draft: Draft) -> None:
        if draft.content is ABSENT:
            self._deleted.add(key)
        self._drafts[key] = draft
        self._changed = None

    def _differs(self, key: str, draft: Draft) -> bool:
        if draft.action is None:
            return False
        document = self._document_of(key)
        before = ABSENT if document is None else document.content
        if not _equal(before, draft.content):
            return True
        return document is not None and not same_attributes(document, draft)


class _Work:
    """The work of patches, in bytes: bounded for the request's patches, and in all for a batch."""

    __slots__ = ("patched_bytes", "total_bytes")

    def __init__(self) -> None:
        self.patched_bytes = 0
        self.total_bytes = 0

    def examined(self, items: int) -> None:
        self.patched_bytes += items * ITEM_BYTES
        self.total_bytes += items * ITEM_BYTES


def _shifts(patch: Patch, size_bytes: int) -> int:
    """The bytes of work that operations on items cost if one array has all ``size_bytes``."""
    if size_bytes <= _UNCOUNTED_BYTES_MAX:
        return 0
    operations = patch.to_json()
    places = [str(each["path"]) for each in operations if each["op"] not in _IN_PLACE]
    places += [str(each["from"]) for each in operations if each["op"] == "move"]
    shifting = sum(place.rpartition("/")[2].isdigit() for place in places)
    return size_bytes * shifting // _SHIFT_SHARE


def same_attributes(document: Document, draft: Draft) -> bool:
    before, after = document.attributes, draft.attributes
    return before is after or patching.equal(before or {}, after or {})


def _equal(before: Json | Absent, after: Json | Absent) -> bool:
    if before is ABSENT or after is ABSENT:
        return before is after
    return before is after or patching.equal(before, after)

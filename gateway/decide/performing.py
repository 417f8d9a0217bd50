"""Performing a request's edits, in order, on drafts of its documents, before any commit.

Each edit is done if its own condition is true of what the edits before it have left. A document
that an earlier edit changed has no version token yet, so a compare with one is false. The catalog's
revision is the one that the request found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

import patching
import patching.ownership
from gateway.access import Role
from gateway.access.acl import may_read
from gateway.conflict import Disputed
from gateway.decide.compares import ITEM_BYTES, CompareChecker, State, compared_keys
from gateway.decide.declaring_lists import is_pinned
from gateway.decide.draft import (
    DELETED,
    MERGE_TIMES,
    PATH_SHARE,
    UNCOUNTED_BYTES_MAX,
    Draft,
    DraftChange,
    Items,
    checked_attributes,
    patched,
    require_room,
    same_attributes,
    shifts,
)
from gateway.decide.edits import (
    EDIT_KINDS,
    ApplyPatch,
    Delete,
    Edit,
    EditAttributes,
    Get,
    KeyEdit,
    Merge,
    MoveKey,
    Put,
    Touch,
)
from gateway.decide.guards import require_editable, require_readable
from gateway.decide.owning import (
    ApplyWanted,
    GiveBack,
    LetGo,
    given_back,
    owning,
    with_owners_taken_over,
)
from gateway.decide.ranges import Count, RangeEdit, RangeReplacement, is_under
from gateway.decide.request import Request
from gateway.decide.reverting import Revert, RevertContext, reverted
from gateway.decide.settings import parse_settings
from gateway.errors import (
    ChangedSince,
    CommitError,
    DocumentForbidden,
    DocumentNotFound,
    TargetExists,
    refusal_of,
)
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY, Attributes, DocumentRecord, Skipped, living
from patching import ABSENT, NO_LISTS, Json, Lists, Patch, PatchError
from patching.extended import CommitStamp
from patching.list_declarations import NO_DECLARATIONS, ListDeclarations
from patching.merging import merge_within
from patching.values import Absent

_Result = TypeVar("_Result")

_encode = msgspec.json.Encoder().encode


class RequestDrafts:
    """One request's drafts of documents, which it found in ``state``.

    They are to be committed at the next revision, at ``time_us``. The catalog declares ``lists``,
    those of new settings as soon as these are drafted: documents may be written with them.
    ``otherwise``: the edits are those of the request's ``otherwise``.

    ``work_bytes`` is the work done so far, in bytes of documents, including that of a failed edit.
    ``forced``: make a commit even if nothing changes. ``skipped``: what applies left to others, and
    reverts as it was; ``left_out``: the positions of edits whose condition was false.
    """

    def __init__(
        self,
        request: Request,
        state: State,
        limits: ServiceLimits,
        time_us: int,
        lists: ListDeclarations,
        items: Items,
        *,
        otherwise: bool,
    ) -> None:
        self._request = request
        self._otherwise = otherwise
        self.lists = lists
        self._items = items
        self._catalog = request.catalog
        self._by = request.by
        self._author = request.author
        self._revision = state.revision + 1
        self._time_us = time_us
        self._document_of = state.document
        self._limits = limits
        self._documents: dict[str, DocumentRecord | None] = {}  # of the drafts, as found
        self._drafts: dict[str, Draft] = {}
        self._deleted: set[str] = set()
        # By key, the draft that was compared with the document, and whether it differs.
        self._compared: dict[str, tuple[Draft, bool]] = {}
        self._patched_bytes = 0
        self.work_bytes = 0
        self._disputed: list[Disputed] = []
        self.forced = False
        self.skipped: tuple[Skipped, ...] = ()
        self.left_out: tuple[int, ...] = ()

    def perform(self, each: KeyEdit) -> None:
        """Do the next edit.

        Raises DocumentNotFound, TargetExists, PatchDoesNotFit, AttributesInvalid, SettingsInvalid;
        AboveLimit, also if the request's patches together are too much work; DocumentForbidden, by
        the acl that the earlier edits left.
        """
        key, edit = each.key, each.edit
        edited = EDITED.get(type(edit))
        if edited is not None:
            before = self._draft(key)
            if before.attributes is not None:
                self._require_editable(key, edit)
            if EDIT_KINDS[type(edit)].is_weighed:
                self._count_patch(edit, before.size_bytes)
            self._set(key, edited(self, key, before, edit, self._lists_for(each)))
        elif isinstance(edit, MoveKey):
            self._move(key, edit.to)
        elif isinstance(edit, Touch):
            self.forced = True
        elif isinstance(edit, Get) and edit.to_write:
            self._require_editable(key, edit)

    def require_undisputed(self) -> None:
        """Raise ChangedSince if a revert met places that it may neither skip nor force."""
        if self._disputed:
            raise ChangedSince(self._disputed)

    def left(self, key: str) -> Draft | None:
        """The draft of ``key`` so far, None if its document is as it was found."""
        draft = self._drafts.get(key)
        if draft is None:
            return None
        known, differs = self._compared.get(key, (None, False))
        if known is not draft:
            self.work_bytes += draft.size_bytes
            differs = self._differs(key, self._with_owners(key, draft))
            self._compared[key] = draft, differs
        return draft if differs else None

    def left_under(self, prefix: str) -> dict[str, Draft]:
        """``left``, for all keys that begin with ``prefix``."""
        drafts = {key: self.left(key) for key in self.drafted_under(prefix)}
        return {key: draft for key, draft in drafts.items() if draft is not None}

    def exists(self, key: str) -> bool:
        """Whether the edits so far have left a document."""
        draft = self._drafts.get(key)
        if draft is None:
            return living(self._document_of(key)) is not None
        return draft.content is not ABSENT

    def drafted_under(self, prefix: str) -> list[str]:
        """The keys that begin with ``prefix`` and were edited so far."""
        return [key for key in self._drafts if is_under(key, prefix)]

    def may_be_read(self, key: str) -> bool:
        """Whether the principal may read what the edits so far have left."""
        return may_read(self._by, self._catalog, self._attributes(key))

    def require_readable(self, key: str) -> None:
        """Raise DocumentForbidden unless the principal may read what the edits so far have left."""
        require_readable(self._by, self._catalog, key, self._attributes(key))

    def require_gettable(self, each: KeyEdit) -> None:
        """Raise DocumentForbidden if ``each`` is a get and all edits leave its document unreadable
        for the principal."""
        if isinstance(each.edit, Get) and not each.edit.to_write:
            self.require_readable(each.key)

    def changed(self) -> dict[str, DraftChange]:
        """By key, the drafts that differ from the document as found."""
        changed = {}
        for key, draft in self._drafts.items():
            if draft.owners is not None:
                self._drafts[key] = draft = self._with_owners(key, draft)
            if self._differs(key, draft):
                anew = key in self._deleted and draft.content is not ABSENT
                changed[key] = DraftChange(None if anew else living(self._documents[key]), draft)
        return changed

    def _move(self, key: str, to: str) -> None:
        self._require_editable(key, MoveKey(to))
        self._require_editable(to, Put(None, 0))
        draft = self._draft(key)
        if draft.content is ABSENT:
            raise DocumentNotFound(self._catalog, key)
        if self._draft(to).content is not ABSENT:
            raise TargetExists(to, living(self._documents[to]))
        if draft.owners is not None:
            given = draft.owners, draft.content, self._lists_of(to), self._limits.patch
            self._tried(to, lambda: patching.ownership.require_fit(*given))
        self._set(key, DELETED)
        self._set(to, replace(draft, action="put", patch=()))

    def _require_editable(self, key: str, edit: Edit) -> None:
        require_editable(self._by, self._catalog, key, self._attributes(key), edit)

    def _attributes(self, key: str) -> Attributes | None:
        draft = self._drafts.get(key)
        if draft is not None:
            return draft.attributes
        document = self._document_of(key)
        return None if document is None else document.attributes

    def _draft(self, key: str) -> Draft:
        draft = self._drafts.get(key)
        if draft is None:
            document = self._documents[key] = self._document_of(key)
            if document is None:
                return Draft(ABSENT, None, 0)
            draft = Draft(
                document.content,
                document.attributes,
                document.size_bytes,
                owners=document.owners,
                owned=document.content,
            )
            self.work_bytes += draft.size_bytes
        return draft

    def _set(self, key: str, draft: Draft) -> None:
        if draft.content is ABSENT:
            self._deleted.add(key)
        if key == SETTINGS_KEY and not self._disputed:
            found = draft.content
            self.lists = NO_DECLARATIONS if found is ABSENT else parse_settings(found).lists
        self._drafts[key] = draft

    def _differs(self, key: str, draft: Draft) -> bool:
        if draft.action is None:
            return False
        document = self._documents[key]
        before = ABSENT if document is None else document.content
        if not equal_content(before, draft.content):
            return True
        if document is None or document.owners != draft.owners:
            return document is not None
        return document.attributes is not draft.attributes and not same_attributes(document, draft)

    def _put(self, key: str, draft: Draft, edit: Put, _lists: Lists) -> Draft:
        if edit.attributes is not None:
            draft = replace(draft, attributes=self._checked(key, edit.attributes))
        return replace(
            draft, content=edit.value, size_bytes=edit.size_bytes, action="put", patch=()
        )

    def _with_patch(self, key: str, draft: Draft, edit: ApplyPatch | Merge, lists: Lists) -> Draft:
        content, size_bytes, patch = self._patched(
            key, draft.content, draft.size_bytes, edit, lists
        )
        if draft.action is None and content is not ABSENT:  # the usual case
            kept = tuple(patch)
            return replace(
                draft, content=content, size_bytes=size_bytes, action="patch", patch=kept
            )
        return patched(draft, content, size_bytes, patch)

    def _lists_of(self, key: str) -> Lists:
        return NO_LISTS if self.lists is NO_DECLARATIONS else self.lists.lists_of(key)

    def _lists_for(self, each: KeyEdit) -> Lists:
        """The lists whose items the edit names by key. None of them for an RFC 6902 patch if its
        request names the exact state of the document: then its indexes are right."""
        lists, edit = self._lists_of(each.key), each.edit
        if (
            lists is not NO_LISTS
            and isinstance(edit, ApplyPatch)
            and isinstance(edit.patch, Patch)
            and is_pinned(self._request, each.key, each.when, otherwise=self._otherwise)
        ):
            return NO_LISTS
        return lists

    def _reverted(self, key: str, draft: Draft, edit: Revert, lists: Lists) -> Draft:
        found = self._document_of(key)
        last = 0 if found is None else found.revision
        terms = RevertContext(self._author, self._revision, last, self._limits.patch, lists)
        settled = self._with_owners(key, draft)
        after, disputed, skipped = self._tried(key, lambda: reverted(edit, key, settled, terms))
        if after.attributes is not None:
            self._checked(key, after.attributes)
        self._disputed += disputed
        self.skipped += skipped
        return after

    def _owning(self, key: str, draft: Draft, edit: ApplyWanted | LetGo, lists: Lists) -> Draft:
        draft = self._with_owners(key, draft)
        given = edit, draft, self._revision, self._limits.patch, lists
        after, skipped = self._tried(key, lambda: owning(*given))
        self.skipped += tuple(Skipped(key, each.pointer, each.owners) for each in skipped)
        return after

    def _given_back(self, key: str, draft: Draft, edit: GiveBack, lists: Lists) -> Draft:
        draft = self._with_owners(key, draft)
        author = None if self._by.may(Role.ADMIN, self._catalog) else self._author
        return self._tried(key, lambda: given_back(edit, draft, author, lists))

    def _with_owners(self, key: str, draft: Draft) -> Draft:
        if draft.owners is None or draft.content is draft.owned:
            return draft
        lists = self._lists_of(key)
        given = draft, self._author, self._revision, self._limits.patch, lists
        return self._tried(key, lambda: with_owners_taken_over(*given))

    def _with_attributes(
        self, key: str, draft: Draft, of_attributes: EditAttributes, _lists: Lists
    ) -> Draft:
        """The draft after the edit of its attributes. Raises DocumentNotFound if the document is
        absent, unless the attributes are deleted, which then does nothing."""
        require_room(self._patched_bytes)
        edit = of_attributes.edit
        if draft.content is ABSENT:
            if isinstance(edit, Delete):
                return draft
            raise DocumentNotFound(self._catalog, key)
        before: Json = cast(Json, draft.attributes or {})
        after: Json | Absent
        if isinstance(edit, Put):
            after = edit.value
        elif isinstance(edit, Delete):
            after = {}
        else:
            assert isinstance(edit, ApplyPatch | Merge)
            after, _, _ = self._patched(key, before, len(_encode(before)), edit)
            after = {} if after is ABSENT else after
        attributes = self._checked(key, after)
        return replace(draft, attributes=attributes, action=draft.action or "attributes")

    def _checked(self, key: str, attributes: Json | Absent) -> Attributes | None:
        return checked_attributes(attributes, key, self._limits.attributes_bytes_max) or None

    def _patched(
        self,
        key: str,
        before: Json | Absent,
        size_bytes: int,
        edit: ApplyPatch | Merge,
        lists: Lists = NO_LISTS,
    ) -> tuple[Json | Absent, int, list[dict[str, Json]]]:
        """The content after the edit, a bound on its size, and the effective RFC 6902 patch."""
        limits = self._items.limits
        try:
            if not isinstance(edit, ApplyPatch):
                if before is ABSENT:
                    raise DocumentNotFound(self._catalog, key)
                merged, size_bytes = merge_within(
                    before, edit.value, edit.size_bytes, limits=limits, document_bytes=size_bytes
                )
                return merged, size_bytes, patching.diff(before, merged)
            if isinstance(edit.patch, Patch):
                content, size_bytes = patching.apply_within(
                    before, edit.patch, limits=limits, document_bytes=size_bytes, lists=lists
                )
                return content, size_bytes, edit.patch.without_tests().to_json()
            after = patching.apply_extended(
                before,
                edit.patch,
                limits=limits,
                document_bytes=size_bytes,
                lists=lists,
                commit=CommitStamp(self._time_us, self._revision, self._author),
            )
            self._count_items(after.examined)
            return after.content, after.size_bytes, after.effective
        except PatchError as error:
            raise self._refusal_for(key, error) from error

    def _tried(self, key: str, edit: Callable[[], _Result]) -> _Result:
        try:
            return edit()
        except PatchError as error:
            raise self._refusal_for(key, error) from error

    def _refusal_for(self, key: str, error: PatchError) -> CommitError:
        """The refusal of an edit of ``key`` for ``error``; the items it examined are counted."""
        examined, error = error.examined, self._items.as_of_request(error)
        self._count_items(examined)
        return refusal_of(error, self._catalog, key, self._document_of(key))

    def _count_items(self, examined: int) -> None:
        self._items.count(examined)
        self._patched_bytes += examined * ITEM_BYTES
        self.work_bytes += examined * ITEM_BYTES

    def _count_patch(self, edit: Edit, size_bytes: int) -> None:
        if not isinstance(edit, ApplyPatch):
            own_bytes = edit.size_bytes if isinstance(edit, Revert) else 0
            size_bytes = (size_bytes + own_bytes) * MERGE_TIMES
        elif isinstance(edit.patch, Patch):
            shifted = 0 if size_bytes <= UNCOUNTED_BYTES_MAX else shifts(edit.patch, size_bytes)
            self.work_bytes += shifted
            size_bytes = size_bytes // PATH_SHARE + shifted
        alone = not self._patched_bytes
        self._patched_bytes += size_bytes
        if not alone:  # a single patch has its own limits
            require_room(self._patched_bytes)


# By kind of edit of one document: the function that makes the next draft.
EDITED: Final[Mapping[type, Callable[[RequestDrafts, str, Draft, Any, Lists], Draft]]] = {
    Put: RequestDrafts._put,
    ApplyPatch: RequestDrafts._with_patch,
    Merge: RequestDrafts._with_patch,
    ApplyWanted: RequestDrafts._owning,
    LetGo: RequestDrafts._owning,
    GiveBack: RequestDrafts._given_back,
    Delete: lambda *_: DELETED,
    EditAttributes: RequestDrafts._with_attributes,
    Revert: RequestDrafts._reverted,
}


def equal_content(before: Json | Absent, after: Json | Absent) -> bool:
    if before is ABSENT or after is ABSENT:
        return before is after
    return before is after or patching.equal(before, after)


# The commit id of drafts. No client can send it as part of a token, so a draft has no known token.
_UNCOMMITTED = '"'


def perform_all(
    edits: Sequence[KeyEdit], drafts: RequestDrafts, state: State, comparing: CompareChecker
) -> tuple[int, ...]:
    """Perform ``edits`` on ``drafts``; return the positions of those that were left out.

    Raises what ``RequestDrafts.perform`` and ``CompareChecker.failed`` raise, with the position as
    its ``action``.
    """
    left_out: set[int] = set()
    so_far = _DraftState(state, drafts)
    for index, each in enumerate(edits):
        try:
            if each.when and not _holds(each, drafts, so_far, comparing):
                left_out.add(index)
            elif isinstance(each.edit, RangeEdit):
                _edit_range(each.edit, drafts, state)
            else:
                drafts.perform(each)
        except CommitError as error:
            error.action = index
            raise
    for index, each in enumerate(edits):
        try:
            if index not in left_out:
                drafts.require_gettable(each)
        except CommitError as error:
            error.action = index
            raise
    return tuple(sorted(left_out))


def _holds(each: KeyEdit, drafts: RequestDrafts, so_far: State, comparing: CompareChecker) -> bool:
    for key in compared_keys(each.when):
        drafts.require_readable(key)
    return not comparing.failures(each.when, so_far)


def _edit_range(edit: RangeEdit, drafts: RequestDrafts, state: State) -> None:
    prefix = edit.prefix
    put = edit.documents if isinstance(edit, RangeReplacement) else ()
    kept = {key for key, _, _ in put}
    for key in sorted({*state.keys_for(edit), *drafts.drafted_under(prefix)}):
        if key not in kept and drafts.exists(key):
            try:
                drafts.perform(KeyEdit(key, Delete()))
            except DocumentForbidden as error:
                if not drafts.may_be_read(key):  # then the error doesn't name it
                    raise error.under(prefix) from error
                raise
    for key, value, size_bytes in put:
        drafts.perform(KeyEdit(key, Put(value, size_bytes)))


class _DraftState:
    """``state`` as ``drafts`` change it: see ``compares.State``."""

    def __init__(self, state: State, drafts: RequestDrafts) -> None:
        self._state = state
        self._drafts = drafts

    @property
    def revision(self) -> int:
        return self._state.revision

    def document(self, key: str) -> DocumentRecord | None:
        before = self._state.document(key)
        draft = self._drafts.left(key)
        if draft is None:
            return before
        return DocumentRecord(
            key,
            draft.content,
            self.revision + 1,
            self.revision + 1,
            _UNCOMMITTED,
            0,
            size_bytes=draft.size_bytes,
            attributes=draft.attributes,
        )

    def base(self, key: str, token: str) -> DocumentRecord | None:
        return self._state.base(key, token)

    def changed_under(self, prefix: str, since: int) -> int | None:
        if self._drafts.left_under(prefix):
            return self.revision + 1
        return self._state.changed_under(prefix, since)

    def count_under(self, prefix: str) -> Count:
        least, is_exact = self._state.count_under(prefix)
        for key, draft in self._drafts.left_under(prefix).items():
            was_there = living(self._state.document(key)) is not None
            least += (draft.content is not ABSENT) - was_there
        return Count(least, is_exact)

    def keys_for(self, edit: RangeEdit) -> list[str]:
        return self._state.keys_for(edit)

    def spend(self, work_bytes: int) -> None:
        self._state.spend(work_bytes)

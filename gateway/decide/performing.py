"""Doing a request's edits in order, each where its own condition holds of what those before it have
left.

A document that an earlier edit changed has no version token yet: a compare with one is false. The
catalog's revision is the one that the request found.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.decide.compares import Comparing, State, compared_keys
from gateway.decide.drafts import Drafts
from gateway.decide.edits import Delete, KeyEdit, Put
from gateway.decide.ranges import Count, RangeEdit, RangeReplacement
from gateway.errors import CommitError, DocumentForbidden
from gateway.model import DocumentRecord, living
from patching import ABSENT

# No client can send it as part of a token: what isn't committed yet has none that anybody knows.
_UNCOMMITTED = '"'


def perform_all(
    edits: Sequence[KeyEdit], drafts: Drafts, state: State, comparing: Comparing
) -> tuple[int, ...]:
    """Do ``edits`` on ``drafts``; the positions of those that were left out.

    Raises what ``Drafts.perform`` and ``Comparing.failed`` raise, with the position as its
    ``action``.
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


def _holds(each: KeyEdit, drafts: Drafts, so_far: State, comparing: Comparing) -> bool:
    for key in compared_keys(each.when):
        drafts.require_readable(key)
    return not comparing.failed(each.when, so_far)


def _edit_range(edit: RangeEdit, drafts: Drafts, state: State) -> None:
    prefix = edit.prefix
    put = edit.documents if isinstance(edit, RangeReplacement) else ()
    kept = {key for key, _, _ in put}
    for key in sorted({*state.keys_for(edit), *drafts.drafted_under(prefix)}):
        if key not in kept and drafts.exists(key):
            try:
                drafts.perform(KeyEdit(key, Delete()))
            except DocumentForbidden as error:
                if not drafts.may_be_read(key):  # then it isn't named
                    raise error.under(prefix) from error
                raise
    for key, value, size_bytes in put:
        drafts.perform(KeyEdit(key, Put(value, size_bytes)))


class _DraftState:
    """``state`` with ``drafts`` laid over it: see ``compares.State``."""

    def __init__(self, state: State, drafts: Drafts) -> None:
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

"""Compares: what a transaction requires of the state, and which of it is false.

A compare is about a document, a range of documents, or the catalog as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import patching
from gateway.conflict import FailedCompare
from gateway.decide.draft import Items
from gateway.decide.ranges import (
    Count,
    RangeAbsent,
    RangeCompare,
    RangeCount,
    RangeEdit,
    RangeUnchanged,
    why_count_false,
)
from gateway.errors import AboveLimit
from gateway.limits import MIB
from gateway.model import DocumentRecord, living
from patching import ABSENT, ExtendedPatch, Json, LimitExceeded, PatchError
from patching.list_declarations import NO_DECLARATIONS, ListDeclarations

# The most bytes of documents that the tests of one request read; each counts its whole document.
_TESTED_BYTES_MAX = 128 * MIB
# To examine one array item takes as long as to read this many bytes of a document.
ITEM_BYTES = 20

_NO_DOCUMENT: Final = "there is no such document"


@dataclass(frozen=True, slots=True)
class TokenIs:
    """The document's version token is ``token``."""

    key: str
    token: str


@dataclass(frozen=True, slots=True)
class IsAbsent:
    key: str


@dataclass(frozen=True, slots=True)
class IsUnchanged:
    """The document exists, and wasn't changed above revision ``since``."""

    key: str
    since: int


@dataclass(frozen=True, slots=True)
class Equals:
    """The document's content equals ``value``, as JSON: member order is irrelevant."""

    key: str
    value: Json


@dataclass(frozen=True, slots=True)
class Satisfies:
    """The document passes ``tests``: RFC 6902 tests and predicates, nothing else."""

    key: str
    tests: ExtendedPatch


@dataclass(frozen=True, slots=True)
class RevisionIs:
    """The catalog is at ``revision``."""

    revision: int


KeyCompare = TokenIs | IsAbsent | IsUnchanged | Equals | Satisfies
Compare = KeyCompare | RevisionIs | RangeCompare
_ABOUT_RANGES: Final = (RangeUnchanged, RangeAbsent, RangeCount)


def compared_keys(compares: Iterable[Compare]) -> frozenset[str]:
    return frozenset(
        each.key for each in compares if not isinstance(each, (RevisionIs, *_ABOUT_RANGES))
    )


def compared_ranges(compares: Iterable[Compare]) -> tuple[RangeCompare, ...]:
    return tuple(each for each in compares if isinstance(each, _ABOUT_RANGES))


class State(Protocol):
    """A catalog at ``revision``, as the earlier requests of a batch leave it."""

    @property
    def revision(self) -> int: ...

    def document(self, key: str) -> DocumentRecord | None:
        """The document or tombstone, None if the key never existed."""

    def base(self, key: str, token: str) -> DocumentRecord | None:
        """The live document that had ``token``, None if it isn't known."""

    def changed_under(self, prefix: str, since: int) -> int | None:
        """See ``RangeState.changed``."""

    def count_under(self, prefix: str) -> Count:
        """See ``RangeState.count``."""

    def keys_for(self, edit: RangeEdit) -> list[str]:
        """See ``RangeState.keys``."""

    def spend(self, work_bytes: int) -> None:
        """Count work against the batch, in bytes of documents."""


class CompareChecker:
    """Evaluates the compares of one request, and bounds the work of all their tests together. The
    tests name items of ``lists`` by key."""

    def __init__(
        self,
        items: Items,
        lists: ListDeclarations = NO_DECLARATIONS,
    ) -> None:
        self._items = items
        self._lists = lists
        self._tested_bytes = 0

    def failures(self, compares: Sequence[Compare], state: State) -> list[FailedCompare]:
        """The false ones, in order.

        Raises AboveLimit if the tests are too much work, or a range holds more documents than can
        be counted, and RevisionCompacted if it isn't known what changed.
        """
        failed = (self._failed(*each, state) for each in enumerate(compares))
        return [each for each in failed if each is not None]

    def _failed(self, index: int, compare: Compare, state: State) -> FailedCompare | None:
        if isinstance(compare, RevisionIs):
            if compare.revision == state.revision:
                return None
            reason = f"the catalog is at revision {state.revision}, not {compare.revision}"
            return FailedCompare(index, None, reason)
        if isinstance(compare, _ABOUT_RANGES):
            return _failed_range(index, compare, state)
        live = living(state.document(compare.key))
        if isinstance(compare, IsUnchanged) and compare.since > state.revision:
            reason = _yet_to_reach(compare.since, state.revision)
        elif isinstance(compare, Satisfies):
            reason = self._why_unsatisfied(compare, live, state)
        else:
            reason = _why_false(compare, live)
        return FailedCompare(index, compare.key, reason, live) if reason else None

    def _why_unsatisfied(
        self, compare: Satisfies, live: DocumentRecord | None, state: State
    ) -> str:
        content, size_bytes = (live.content, live.size_bytes) if live else (ABSENT, 0)
        self._require_room(size_bytes)
        try:
            done = patching.apply_extended(
                content,
                compare.tests,
                limits=self._items.limits,
                document_bytes=size_bytes,
                lists=self._lists.lists_of(compare.key),
            )
            self._examined(done.examined, state)
        except LimitExceeded as exceeded:
            error = self._items.as_of_request(exceeded)
            assert isinstance(error, LimitExceeded)
            self._examined(exceeded.examined, state)
            # A test that wasn't completed is neither true nor false.
            raise AboveLimit(
                error.detail, limit=error.limit, maximum=error.maximum, actual=error.actual
            ) from exceeded
        except PatchError as error:
            self._examined(error.examined, state)
            return _NO_DOCUMENT if live is None else str(error)
        return ""

    def _require_room(self, size_bytes: int) -> None:
        self._tested_bytes += size_bytes
        if size_bytes and self._tested_bytes > _TESTED_BYTES_MAX:
            raise AboveLimit(
                f"the tests would search {self._tested_bytes} bytes of documents; the limit for a"
                f" transaction is {_TESTED_BYTES_MAX}",
                limit="tested_bytes_max",
                maximum=_TESTED_BYTES_MAX,
                actual=self._tested_bytes,
            )

    def _examined(self, items: int, state: State) -> None:
        self._items.count(items)
        self._tested_bytes += items * ITEM_BYTES
        state.spend(items * ITEM_BYTES)


def _failed_range(index: int, compare: RangeCompare, state: State) -> FailedCompare | None:
    """The failure of a compare about a range, None if it is true. Raises RevisionCompacted, and
    AboveLimit for a range with more documents than are counted."""
    prefix = compare.prefix
    if isinstance(compare, RangeUnchanged):
        reason, changed_at = why_changed(compare, state)
    else:
        count = state.count_under(prefix)
        why, changed_at = why_count_false(compare, count), None
        if why is None:
            raise AboveLimit(
                f"there are more than {count.least} documents under {prefix!r}, too many to count"
                " together with the rest of the request",
                limit="range_documents_max",
                maximum=count.least,
                actual=count.least + 1,
            )
        reason = why
    if not reason:
        return None
    return FailedCompare(index, None, reason, prefix=prefix, changed_at=changed_at)


def why_changed(compare: RangeUnchanged, state: State) -> tuple[str, int | None]:
    """Why the range isn't unchanged, as text, and a revision that changed it; empty and None if it
    is unchanged. Raises RevisionCompacted."""
    since, revision = compare.since, state.revision
    if since > revision:
        return _yet_to_reach(since, revision), None
    changed_at = state.changed_under(compare.prefix, since)
    if changed_at is None:
        return "", None
    return f"they changed at revision {changed_at}, after {since}", changed_at


def _yet_to_reach(since: int, revision: int) -> str:
    """Why the compare is false for a revision above the catalog's: one of another catalog, or from
    before a backup was restored."""
    return f"the catalog is at revision {revision}, and hasn't reached {since} yet"


def _why_false(
    compare: TokenIs | IsAbsent | IsUnchanged | Equals, live: DocumentRecord | None
) -> str:
    """Why the compare is false, as text; empty if it is true."""
    match compare:
        case IsAbsent():
            return "the document exists" if live else ""
        case _ if live is None:
            return _NO_DOCUMENT
        case IsUnchanged():
            if live.revision <= compare.since:
                return ""
            return f"it changed at revision {live.revision}, after {compare.since}"
        case TokenIs():
            return "" if live.token == compare.token else f"its token is {live.token}"
        case Equals():
            assert live.content is not ABSENT
            return "" if patching.equal(live.content, compare.value) else "it has another value"

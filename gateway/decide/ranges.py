"""Ranges: the documents of a catalog whose keys begin with a prefix, "" for all of them.

The gateway's own documents, like the settings, are in no range. Requests ask about a range in two
ways:

*Its changes*, from the log. "Unchanged since N" is about all commits above N, so it can be answered
as far back as the log is complete: down to the floor. The documents aren't enough, because the
tombstones of deleted ones don't last. The cost depends on the commits since, not on the documents.

*Its documents*, as keys without contents: how many live ones there are, and which. No more of them
are listed than the decision needs, so a count of 10 costs the same in a range of a million.

Worked example. The catalog is at 9, with a/1 of revision 4 and a/2 of revision 9. The range "a/" is
unchanged since 9, but not since 8: revision 9 changed it. Then a batch of two requests is decided.
The first one deletes a/1, which makes commit 10. For the second one, the range has one document,
and has changed since 9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec

from gateway.errors import AboveLimit, RevisionCompacted
from gateway.model import OWN_KEYS, BareDocument, DocumentRecord
from patching import Json

# The largest number with which a count of documents may be compared.
COUNT_MAX: Final = 10_000
# The most documents of a range that one request may be about.
DOCUMENTS_MAX: Final = 20_000
# The most ranges that one request may be about; each of them is read.
RANGES_MAX: Final = 64

Relation = Literal["less", "equal", "greater"]


@dataclass(frozen=True, slots=True)
class RangeUnchanged:
    """No document under ``prefix`` was created, changed or deleted above revision ``since``."""

    prefix: str
    since: int


def range_text(unchanged: RangeUnchanged) -> str:
    """The range as it is written in the header If-Unchanged-Under."""
    prefix = unchanged.prefix
    if prefix.isascii() and prefix.isprintable():
        escaped = prefix.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}";revision={unchanged.since}'
    encoded = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"%' else f"%{byte:02x}"
        for byte in prefix.encode()
    )
    return f'%"{encoded}";revision={unchanged.since}'


@dataclass(frozen=True, slots=True)
class RangeAbsent:
    """There is no document under ``prefix``."""

    prefix: str


@dataclass(frozen=True, slots=True)
class RangeCount:
    """The number of documents under ``prefix`` is less than, equal to or greater than ``number``,
    which is at most COUNT_MAX."""

    prefix: str
    relation: Relation
    number: int


RangeCompare = RangeUnchanged | RangeAbsent | RangeCount


@dataclass(frozen=True, slots=True)
class RangeDeletion:
    """Delete every document under ``prefix``: at most ``most`` of them, None for DOCUMENTS_MAX.
    ``limit`` is the name of that limit."""

    prefix: str
    most: int | None = None
    limit: str = "range_documents_max"


@dataclass(frozen=True, slots=True)
class RangeReplacement:
    """Make these ``documents``, each (key, content, its length as JSON), the only ones under
    ``prefix``: those that exist are replaced and keep their attributes, all others are deleted."""

    prefix: str
    documents: tuple[tuple[str, Json, int], ...]


RangeEdit = RangeDeletion | RangeReplacement


@dataclass(frozen=True, slots=True)
class RangeListing:
    """Asks for all documents of a range, if there are no more than ``most``; None:
    DOCUMENTS_MAX."""

    prefix: str
    most: int | None = None


RangeQuery = RangeCompare | RangeListing


def documents_to_list(query: RangeQuery) -> int:
    """How many documents of the range have to be listed, if there are that many."""
    match query:
        case RangeUnchanged():
            return 0
        case RangeAbsent():
            return 1
        case RangeListing():
            return (query.most or DOCUMENTS_MAX) + 1
    return query.number + 1


def queries(compares: Iterable[RangeCompare], edits: Iterable[RangeEdit]) -> tuple[RangeQuery, ...]:
    """What has to be known of ranges. If some are edited, all documents of the others are listed,
    too, so that those that the edits leave can be counted."""
    edited = tuple(
        RangeListing(each.prefix, each.most)
        if isinstance(each, RangeDeletion)
        else RangeListing(each.prefix)
        for each in edits
    )
    if not edited:
        return tuple(compares)
    return (
        *edited,
        *(
            each if isinstance(each, RangeUnchanged) else RangeListing(each.prefix)
            for each in compares
        ),
    )


class RangeChange(NamedTuple):
    """Whether a range has changed since a revision: ``at`` is one that changed it, None if no
    change is known. Changes up to ``floor`` may not be known."""

    at: int | None
    floor: int = 0


class KnownChange(NamedTuple):
    """The ``change`` that was found for ``compare`` before its request was queued, in the commits
    up to revision ``through``, in the history whose commit at revision ``at`` was ``last``."""

    compare: RangeUnchanged
    change: RangeChange
    through: int
    at: int
    last: str


class ListedRange(msgspec.Struct, frozen=True):
    """The live documents of a range, by key. ``is_whole`` False: there may be more of them."""

    documents: Mapping[str, BareDocument]
    is_whole: bool


class Ranges(msgspec.Struct, frozen=True):
    """What a view knows of ranges, at its revision: their changes, by prefix and revision, and
    their documents, by prefix."""

    changes: Mapping[tuple[str, int], RangeChange] = msgspec.field(default_factory=dict)
    listed: Mapping[str, ListedRange] = msgspec.field(default_factory=dict)


NO_RANGES: Final = Ranges()


class Count(NamedTuple):
    """There are at least ``least`` live documents, and no more if ``is_exact``."""

    least: int
    is_exact: bool


def is_under(key: str, prefix: str) -> bool:
    return key.startswith(prefix) and key not in OWN_KEYS


class RangeState:
    """The ranges of a view as the batch so far leaves them.

    ``found`` are the documents of the view, ``documents`` those that the batch has changed.
    """

    def __init__(
        self,
        ranges: Ranges,
        found: Mapping[str, DocumentRecord | None],
        documents: Mapping[str, DocumentRecord],
    ) -> None:
        self._ranges = ranges
        self._found = found
        self._documents = documents

    def changed(self, prefix: str, since: int) -> int | None:
        """A revision above ``since`` that changed the range, None if there is none.

        Raises RevisionCompacted if that isn't known.
        """
        for key, document in self._documents.items():
            if document.revision > since and is_under(key, prefix):
                return document.revision
        found = self._ranges.changes[prefix, since]
        if found.at is None and since < found.floor:
            raise RevisionCompacted(since, found.floor)
        return found.at

    def count(self, prefix: str) -> Count:
        """The number of live documents of a range that was listed."""
        listed = self._ranges.listed[prefix]
        least = len(listed.documents)
        for key, document in self._documents.items():
            if is_under(key, prefix):
                before = self._found.get(key)
                least += document.exists - (before is not None and before.exists)
        return Count(least, listed.is_whole)

    def keys(self, edit: RangeEdit) -> list[str]:
        """The keys of all live documents of a range. Raises AboveLimit if there are too many."""
        prefix, most, limit = edit.prefix, DOCUMENTS_MAX, "range_documents_max"
        if isinstance(edit, RangeDeletion):
            most, limit = edit.most or most, edit.limit
        listed = self._ranges.listed[prefix]
        keys = list(dict.fromkeys(self._live(listed, prefix)))
        if not listed.is_whole or len(keys) > most:
            where = f"under {prefix!r}" if prefix else "in the catalog"
            raise AboveLimit(
                f"there are {len(keys)} or more documents {where}; the limit is {most} ({limit})",
                limit=limit,
                maximum=most,
                actual=len(keys),
            )
        return keys

    def are_within(self, prefix: str, keys: Collection[str]) -> bool:
        """Whether all live documents of a range that was listed are known, and among ``keys``."""
        listed = self._ranges.listed[prefix]
        return listed.is_whole and all(key in keys for key in self._live(listed, prefix))

    def _live(self, listed: ListedRange, prefix: str) -> Iterable[str]:
        gone = {key for key, document in self._documents.items() if not document.exists}
        yield from (key for key in listed.documents if key not in gone)
        for key, document in self._documents.items():
            if document.exists and is_under(key, prefix):
                yield key


def why_count_false(compare: RangeAbsent | RangeCount, count: Count) -> str | None:
    """Why the compare is false, as text; empty if it is true, None if that isn't known."""
    least, is_exact = count
    if isinstance(compare, RangeAbsent):
        return "there are some" if least else "" if is_exact else None
    number = compare.number
    settled = is_exact or least > number
    match compare.relation:
        case "less":
            is_true, settled = least < number, is_exact or least >= number
        case "equal":
            is_true = is_exact and least == number
        case "greater":
            is_true = least > number
    if not settled:
        return None
    found = least if is_exact else f"at least {least}"
    return "" if is_true else f"there are {found}, not {_words(compare)}"


def _words(compare: RangeCount) -> str:
    words = {"less": "fewer than ", "equal": "", "greater": "more than "}
    return f"{words[compare.relation]}{compare.number}"

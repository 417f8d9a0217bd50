"""Conflicts: the state that a request required and the state that it met, as data and as text.

The text is for people and may change; programs use the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gateway.model import DocumentRecord, version_of
from patching import Json
from patching.values import Absent


class Required(Enum):
    """The kind of the false condition, by the name that clients know."""

    IF_MATCH = "If-Match"
    IF_NONE_MATCH = "If-None-Match"
    IF_UNMODIFIED_SINCE = "If-Unmodified-Since"
    IF_UNCHANGED_UNDER = "If-Unchanged-Under"
    REVISION = "resource_version"
    COMPARE = "compare"


class NotRebased(Enum):
    """Why a patch wasn't rebased."""

    NO_PATCH = "only a patch can be rebased"
    DELETED = "the document doesn't exist any more"
    MADE_AGAIN = "the document was deleted and created again since"
    BASE_UNKNOWN = "the state that it was made for is no longer known"
    TOO_LARGE = "it is too large, or changed in too many places, to be compared"
    OVERLAPS = "what it reads or writes was changed since"


@dataclass(frozen=True, slots=True)
class Stale:
    """``token`` (None: absent) isn't that of the live ``document`` of ``key``."""

    key: str
    token: str | None
    document: DocumentRecord | None


@dataclass(frozen=True, slots=True)
class Disputed:
    """A place of document ``key``, or of its attributes, that was changed after the changes to be
    undone, last at ``revision`` or before. It has the value ``now``; a revert would set ``wanted``.
    ABSENT: no value."""

    key: str
    of_attributes: bool
    pointer: str
    revision: int
    now: Json | Absent
    wanted: Json | Absent


@dataclass(frozen=True, slots=True)
class FailedCompare:
    """A false compare: its ``index`` in the transaction, and the live ``document`` that it met, if
    any.

    It is about ``key``, or the range ``prefix``, or else the catalog. ``changed_at`` is a revision
    that changed what had to be unchanged.
    """

    index: int
    key: str | None
    reason: str
    document: DocumentRecord | None = None
    prefix: str | None = None
    changed_at: int | None = None

    @property
    def about(self) -> str:
        if self.prefix is not None:
            return f"the documents under {self.prefix!r}"
        return "the catalog" if self.key is None else f"document {self.key!r}"


@dataclass(frozen=True, slots=True)
class StateConflict:
    """A condition that is false. The gateway never retries it on the client's behalf.

    ``asked`` is what the client named: tags as they are written in a header, sorted; the seconds of
    a date; a revision; the index of a compare. If ``key`` is None, the condition is about
    ``about``: the catalog, or what is read of it. ``document`` is the live one that the request
    met, None if there is none. ``since_revision`` is the newest revision that the client named, if
    any, and ``catalog_revision`` that of the catalog, if it is known.

    ``stale`` are the documents whose tokens differ from those in a composite; ``key`` and
    ``document`` are those of the first one. ``prefix`` is the range that the condition is about, if
    it is about one. ``changed_at`` is a revision that changed the range, None if the catalog hasn't
    reached the revision that was asked for. ``compares`` are the false ones of a transaction.
    ``not_rebased`` is why a patch wasn't rebased, and ``overlap`` the pointers that prevented it.
    """

    required: Required
    asked: tuple[str, ...]
    key: str | None = None
    about: str = ""
    document: DocumentRecord | None = None
    since_revision: int | None = None
    catalog_revision: int | None = None
    stale: tuple[Stale, ...] = ()
    prefix: str | None = None
    changed_at: int | None = None
    compares: tuple[FailedCompare, ...] = ()
    overlap: tuple[str, ...] = ()
    not_rebased: NotRebased | None = None

    @property
    def current(self) -> tuple[str, int] | None:
        """(version token, revision) of ``document``."""
        return version_of(self.document)

    @property
    def expected(self) -> str:
        asked = ", ".join(self.asked)
        match self.required:
            case Required.IF_NONE_MATCH if asked == "*":
                return "absent"
            case Required.IF_UNMODIFIED_SINCE:
                return f"unmodified since {asked} s"
            case Required.REVISION:
                return f"resource_version={asked}"
            case Required.COMPARE:
                return f"compare {asked}"
        return asked

    @property
    def detail(self) -> str:
        name = self.required.value
        if self.required is Required.REVISION:
            return f"the catalog is at revision {self.catalog_revision}, not {self.asked[0]}"
        if self.compares:
            first = self.compares[0]
            return f"compare {first.index} is false for {first.about}: {first.reason}"
        if self.prefix is not None:
            why = f"they changed at revision {self.changed_at}, after {self.since_revision}"
            if self.changed_at is None:
                why = f"the catalog hasn't reached revision {self.since_revision} yet"
            return f"{name} is false for the documents under {self.prefix!r}: {why}"
        if not self.key:  # the key of the settings isn't shown to clients
            return f"{name} is false for {self.about}" if self.about else f"{name} is false"
        found = f"its token is {self.current[0]}" if self.current else "there is no such document"
        return f"{name} is false for {self.key!r}: {found}{self._altered()}"

    def _altered(self) -> str:
        """Why a tag that looks like the document's token isn't it: something on the way, such as a
        proxy that compresses answers, made it weak (RFC 9110, section 8.8.1) or added a suffix."""
        if self.required is not Required.IF_MATCH:
            return ""
        token = self.current[0] if self.current else None
        for tag in self.asked:
            if tag.startswith('W/"'):
                why = "is weak, and If-Match compares strongly"
            elif token is not None and tag.startswith(token) and tag != token:
                why = f"has {tag.removeprefix(token)!r} after that token"
            else:
                continue
            return f"; {tag} {why}: a proxy that compresses answers may do this"
        return ""

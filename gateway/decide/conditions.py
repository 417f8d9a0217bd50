"""Conditions: a request's requirements of the current state, the same on every route.

Order and meaning follow RFC 9110, section 13: conditions with tokens take precedence over dates,
and comparison is strong. Dates have whole seconds, so they miss a second change within a second;
tokens don't.

An entity tag is one of three: a document's version token; a *composite*, the tokens of several
documents, all of which must be unchanged, also those that aren't written; or a catalog's tag, the
catalog's revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import quote

from gateway.conflict import Required, Stale, StateConflict
from gateway.decide.ranges import RangeUnchanged
from gateway.errors import ConditionFailed
from gateway.model import DocumentRecord, living, token_revision

ANY: Final = "*"
ANY_TAG: Final = frozenset({ANY})
# All printable characters except those that separate (";", "="), quote or escape.
_UNQUOTED: Final = "!#$&'()*+,/:<>?@[\\]^`{|}~"


@dataclass(frozen=True, slots=True)
class Composite:
    """Each key's document has the token given with it; None: there is no such document."""

    tokens: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class CatalogTag:
    """The catalog is at ``revision``."""

    revision: int


Tag = str | Composite | CatalogTag
Tags = frozenset[Tag]
Find = Callable[[str], DocumentRecord | None]


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The preconditions of one request on one document.

    ``if_match`` and ``if_none_match`` contain the tags that the client named; ``{ANY}`` stands for
    ``*``. Dates are whole seconds since the epoch. None means: no such condition.
    ``unchanged_under`` are ranges, which ``check`` doesn't check. ``keys`` are those that
    composites name.
    """

    if_match: Tags | None = None
    if_none_match: Tags | None = None
    if_modified_since: int | None = None
    if_unmodified_since: int | None = None
    unchanged_under: tuple[RangeUnchanged, ...] = ()
    keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        tags = (self.if_match or frozenset()) | (self.if_none_match or frozenset())
        named = {key for tag in tags if isinstance(tag, Composite) for key, _ in tag.tokens}
        object.__setattr__(self, "keys", frozenset(named))

    @property
    def are_about_ranges(self) -> bool:
        """Whether they require nothing of the document itself."""
        return replace(self, unchanged_under=()) == NO_CONDITIONS

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self is NO_CONDITIONS:  # it is compared by ``is``
            return "NO_CONDITIONS"
        return Preconditions, tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def check(self, key: str, find: Find, revision: int) -> None:
        """Raise ConditionFailed if a *write* under these conditions must be refused.

        ``find`` returns documents and tombstones of the catalog, which is at ``revision``.
        """
        self.check_unchanged(key, find, revision)
        self.check_none_match(key, find, revision)

    def check_unchanged(self, key: str, find: Find, revision: int) -> None:
        """The first half of ``check``: If-Match, or else If-Unmodified-Since."""
        document = find(key)
        if self.if_match is not None:
            if not _matches(self.if_match, living(document), find, revision):
                raise ConditionFailed(_conflict(Required.IF_MATCH, self.if_match, key, find))
        elif document is not None and self._modified_since(document):
            # A tombstone's time counts: its deletion is a change that the client hasn't seen.
            live = living(document)
            raise ConditionFailed(
                StateConflict(
                    Required.IF_UNMODIFIED_SINCE,
                    (str(self.if_unmodified_since),),
                    key,
                    document=live,
                )
            )

    def check_none_match(self, key: str, find: Find, revision: int) -> None:
        """The other half of ``check``."""
        tags = self.if_none_match
        if tags is not None and _matches(tags, living(find(key)), find, revision):
            raise ConditionFailed(_conflict(Required.IF_NONE_MATCH, tags, key, find))

    def pinned(self, key: str, document: DocumentRecord | None) -> Preconditions:
        """Conditions that are true only while these are and ``document`` is the live one of
        ``key``.

        These conditions are true now. If there are none, the result has none, either.
        """
        if self is NO_CONDITIONS:
            return self
        token = None if document is None else document.token
        match, none_match, ranges = self.if_match, self.if_none_match, self.unchanged_under
        if match is None and token is None:
            none_match = ANY_TAG | (none_match or frozenset())
            return Preconditions(if_none_match=none_match, unchanged_under=ranges)
        if match is None or ANY in match:
            match = frozenset({token}) if token is not None else None
        else:
            match = frozenset(_pinned_tags(match, key, token))
        return Preconditions(if_match=match, if_none_match=none_match, unchanged_under=ranges)

    def not_modified(self, document: DocumentRecord) -> bool:
        """Whether a *read* of the live ``document`` is answered by "not modified"."""
        if self.if_none_match is not None:
            return ANY in self.if_none_match or document.token in self.if_none_match
        if self.if_modified_since is not None:
            return document.time_us // 1_000_000 <= self.if_modified_since
        return False

    def _modified_since(self, document: DocumentRecord) -> bool:
        limit = self.if_unmodified_since
        return limit is not None and document.time_us // 1_000_000 > limit


NO_CONDITIONS: Final = Preconditions()


def _conflict(required: Required, tags: Tags, key: str, find: Find) -> StateConflict:
    live = living(find(key))
    stale = _stale_of(tags, find) if required is Required.IF_MATCH else []
    if stale:
        key, live = stale[0].key, stale[0].document
    about_catalog = bool(tags) and all(isinstance(tag, CatalogTag) for tag in tags)
    return StateConflict(
        required,
        tuple(sorted(map(tag_text, tags))),
        None if about_catalog else key,
        document=live,
        since_revision=_since(stale[0]) if stale else max(_revisions(tags), default=None),
        stale=tuple(stale),
    )


def tag_text(tag: Tag) -> str:
    """A tag as it is written between the quotes of a header."""
    if isinstance(tag, CatalogTag):
        return f"@{tag.revision:x}"
    if isinstance(tag, Composite):
        return ";".join(
            f"{quote(key, safe=_UNQUOTED)}={'absent' if token is None else token}"
            for key, token in tag.tokens
        )
    return tag


def _revisions(tags: Iterable[Tag]) -> Iterator[int]:
    for tag in tags:
        if isinstance(tag, CatalogTag):
            yield tag.revision
            continue
        tokens = (tag,) if isinstance(tag, str) else (token for _, token in tag.tokens)
        for token in tokens:
            revision = token_revision(token) if token is not None else None
            if revision is not None:
                yield revision


def _matches(tags: Tags, live: DocumentRecord | None, find: Find, revision: int) -> bool:
    if live is not None and (ANY in tags or live.token in tags):
        return True
    return any(
        tag.revision == revision
        if isinstance(tag, CatalogTag)
        else isinstance(tag, Composite) and _unchanged(tag, find)
        for tag in tags
    )


def _pinned_tags(tags: Tags, key: str, token: str | None) -> Iterator[Tag]:
    """The tags that can be true while ``key`` has ``token``; None: no document."""
    for tag in tags:
        if isinstance(tag, Composite):
            yield Composite((*tag.tokens, (key, token)))
        elif isinstance(tag, CatalogTag) or tag == token:
            # While a catalog is still at that revision, no document has changed.
            yield tag


def _unchanged(composite: Composite, find: Find) -> bool:
    return not any(True for _ in _changed(composite, find))


def _changed(composite: Composite, find: Find) -> Iterator[Stale]:
    for key, token in composite.tokens:
        live = living(find(key))
        if (live.token if live else None) != token:
            yield Stale(key, token, live)


def _stale_of(tags: Tags, find: Find) -> list[Stale]:
    """The documents that differ from the tag, if it is the only one and a composite; else none."""
    (tag, *more) = tags
    return list(_changed(tag, find)) if isinstance(tag, Composite) and not more else []


def _since(stale: Stale) -> int | None:
    """A revision at which the document was as the client knows it, None if there is none."""
    if stale.token is not None:
        return token_revision(stale.token)
    return stale.document.create_revision - 1 if stale.document else None

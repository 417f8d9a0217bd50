"""Conditions on what isn't a single document: a catalog, a page, several documents, an export."""

from __future__ import annotations

from gateway.commits.conditions import (
    ANY,
    NO_CONDITIONS,
    Composite,
    Conditions,
    Tag,
    Tags,
    written,
)
from gateway.commits.errors import PreconditionFailed
from gateway.http.answers import etag
from gateway.http.conditions import read_conditions
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused


def tag_header(tag: Tag) -> tuple[str, str]:
    return etag(written(tag))


def is_not_modified(environ: Environ, tag: Tag, about: str) -> bool:
    """Whether a read of what has ``tag`` is answered by 304.

    Raises PreconditionFailed where If-Match is false; dates are refused: these answers have none.
    """
    conditions = read_conditions(environ)
    if conditions is NO_CONDITIONS:
        return False
    _refuse_dates(conditions)
    if conditions.if_match is not None and not _names(conditions.if_match, tag):
        raise PreconditionFailed(
            f"If-Match is false for {about}: its tag is {written(tag)}",
            key=None,
            expected=", ".join(sorted(map(written, conditions.if_match))),
            current=None,
        )
    return conditions.if_none_match is not None and _names(conditions.if_none_match, tag)


def _refuse_dates(conditions: Conditions) -> None:
    for header, date in (
        ("If-Modified-Since", conditions.if_modified_since),
        ("If-Unmodified-Since", conditions.if_unmodified_since),
    ):
        if date is not None:
            detail = f"{header}: this route can't honour it"
            raise RequestRefused("invalid_condition", detail, header=header)


def _names(tags: Tags, tag: Tag) -> bool:
    return ANY in tags or any(_same(each, tag) for each in tags)


def _same(named: Tag, tag: Tag) -> bool:
    """Composites are the same in whatever order their keys come."""
    if isinstance(named, Composite) and isinstance(tag, Composite):
        return sorted(named.tokens, key=_by_key) == sorted(tag.tokens, key=_by_key)
    return named == tag


def _by_key(pair: tuple[str, str | None]) -> str:
    return pair[0]

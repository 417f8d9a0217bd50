"""What an upload remembers: the conditions of its commit, and what becomes of the attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.decide.conditions import (
    ANY,
    ANY_TAG,
    NO_CONDITIONS,
    CatalogTag,
    Composite,
    Conditions,
    Tag,
    Tags,
)
from gateway.model import Attributes, Document


def pinned(conditions: Conditions, key: str, document: Document | None) -> Conditions:
    """Those that hold of ``key`` only while they hold and ``document`` is what is live there.

    ``conditions`` are true of it now. None of them: none then either.
    """
    if conditions is NO_CONDITIONS:
        return conditions
    token = None if document is None else document.token
    match, none_match = conditions.if_match, conditions.if_none_match
    if match is None and token is None:
        return Conditions(if_none_match=ANY_TAG | (none_match or frozenset()))
    if match is None or ANY in match:
        match = frozenset({token}) if token is not None else None
    else:
        match = frozenset(_pinned_tags(match, key, token))
    return Conditions(if_match=match, if_none_match=none_match)


def _pinned_tags(tags: Tags, key: str, token: str | None) -> list[Tag]:
    """Those that can be true of ``key`` while it has ``token``; None: no document."""
    kept: list[Tag] = []
    for tag in tags:
        if isinstance(tag, Composite):
            kept.append(Composite((*tag.tokens, (key, token))))
        elif isinstance(tag, CatalogTag) or tag == token:
            # A catalog that is at its revision still has not changed a document.
            kept.append(tag)
    return kept


def terms_of(conditions: Conditions, attributes: Attributes | None) -> dict[str, Any]:
    """As plain JSON, to be kept."""
    return {
        "if_match": _tags_to_json(conditions.if_match),
        "if_none_match": _tags_to_json(conditions.if_none_match),
        "attributes": attributes,
    }


def from_terms(terms: Mapping[str, Any]) -> tuple[Conditions, Attributes | None]:
    """What ``terms_of`` was made of."""
    match, none_match = terms["if_match"], terms["if_none_match"]
    if match is none_match is None:
        return NO_CONDITIONS, terms["attributes"]
    conditions = Conditions(
        if_match=_tags_from_json(match), if_none_match=_tags_from_json(none_match)
    )
    return conditions, terms["attributes"]


def _tags_to_json(tags: Tags | None) -> list[Any] | None:
    return None if tags is None else [_tag_to_json(tag) for tag in tags]


def _tag_to_json(tag: Tag) -> Any:
    if isinstance(tag, Composite):
        return [list(pair) for pair in tag.tokens]
    return tag.revision if isinstance(tag, CatalogTag) else tag


def _tags_from_json(tags: list[Any] | None) -> Tags | None:
    return None if tags is None else frozenset(map(_tag_from_json, tags))


def _tag_from_json(tag: Any) -> Tag:
    if isinstance(tag, list):
        return Composite(tuple((key, token) for key, token in tag))
    return CatalogTag(tag) if isinstance(tag, int) else str(tag)

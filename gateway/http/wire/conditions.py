"""Conditions (RFC 9110, section 13), from headers and JSON, parsed strictly: none is ever ignored.

A header that is empty, malformed, or contradicts another one is refused with 400
``invalid_condition``, which names it: a write that its client believes guarded must not go through
unguarded. Empty elements of a list are ignored, as section 5.6.1 demands.

There are three kinds of tags: a document's version token; a composite, ``key1=token1;key2=token2``
with the keys percent-encoded and ``absent`` for the token of a key without a document; and a
catalog tag, ``@`` and its revision in hexadecimal. Any other text is a tag that matches nothing.

If-Unchanged-Under is a list of structured fields (RFC 9651): strings, or display strings for what
isn't ASCII, each with the parameter ``revision``::

    If-Unchanged-Under: "tables/orders/";revision=12, %"m%c3%a4rkte/";revision=9

In JSON they are the members ``if_match``, ``if_none_match`` and ``if_unchanged_under``. Each of
the first two is ``"*"``, a version token, composite or catalog tag (all without the header's
quotes), or a list of these, and follows the rules of the header of the same name. The last is
``{"prefix", "revision"}``, or a list of these.
"""

from __future__ import annotations

import calendar
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from gateway.conflict import Required, StateConflict
from gateway.decide.conditions import (
    ANY,
    ANY_TAG,
    NO_CONDITIONS,
    CatalogTag,
    Composite,
    Preconditions,
    Tag,
    Tags,
    tag_text,
)
from gateway.decide.ranges import RANGES_MAX, RangeUnchanged
from gateway.errors import ConditionFailed
from gateway.http.context import READING, Environ
from gateway.http.wire.body import REVISION, member, refuse_member, require_object
from gateway.http.wire.codes import RequestRefused, over_limit
from gateway.http.wire.headers import percent_decoded, refuse_idempotency_key
from gateway.http.wire.query import NO_PARAMETERS, parameters
from gateway.model import OWN_KEYS

UNCHANGED_UNDER: Final = "If-Unchanged-Under"
UNCHANGED_UNDER_MEMBER: Final = "if_unchanged_under"
_range_item = re.compile(
    r"""
    [ \t]*
    (?: "(?P<text> (?: [\x20\x21\x23-\x5b\x5d-\x7e] | \\["\\] )* )"
      | %"(?P<shown> (?: [\x20\x21\x23\x24\x26-\x7e] | %[0-9a-f]{2} )* )" )
    ;[ ]*revision=(?P<revision> [0-9]{1,15})
    [ \t]*
    (?P<end> , | \Z )
    """,
    re.VERBOSE,
).match


def ranges_in_header(value: str) -> tuple[RangeUnchanged, ...]:
    """The ranges in If-Unchanged-Under. Raises RequestRefused ``invalid_condition``, or
    ``over_limit`` for more than RANGES_MAX."""
    ranges = []
    position, end = 0, ","
    while end == ",":
        found = _range_item(value, position)
        if found is None:
            shown = value[position : position + 100].strip()
            example = f'{UNCHANGED_UNDER}: "tables/orders/";revision=12'
            reason = f"it isn't a list of strings, each with a revision ({example}): {shown!r}"
            raise _refusal(UNCHANGED_UNDER, reason)
        ranges.append(RangeUnchanged(_prefix(found), int(found["revision"])))
        position, end = found.end(), found["end"]
    _refuse_many_ranges(len(ranges), header=UNCHANGED_UNDER)
    return tuple(ranges)


def _prefix(found: re.Match[str]) -> str:
    if found["shown"] is None:
        return re.sub(r'\\(["\\])', r"\1", found["text"])
    try:
        return unquote(found["shown"], errors="strict")
    except UnicodeDecodeError as error:
        reason = f"{found['shown'][:100]!r} isn't UTF-8: {error}"
        raise _refusal(UNCHANGED_UNDER, reason) from error


def ranges_in_body(members: Mapping[str, Any]) -> tuple[RangeUnchanged, ...]:
    """The ranges in ``if_unchanged_under``. Raises RequestRefused ``invalid_body`` or
    ``over_limit`` with the member's ``pointer``."""
    if UNCHANGED_UNDER_MEMBER not in members:
        return ()
    given, at = members[UNCHANGED_UNDER_MEMBER], f"/{UNCHANGED_UNDER_MEMBER}"
    if isinstance(given, dict):
        return (_range_of(given, at),)
    if not isinstance(given, list) or not given:
        refuse_member(at, "it must be an object with 'prefix' and 'revision', or a list of these")
    _refuse_many_ranges(len(given), pointer=at)
    return tuple(_range_of(each, f"{at}/{index}") for index, each in enumerate(given))


def _range_of(given: Any, at: str) -> RangeUnchanged:
    each = require_object(given, ("prefix", "revision"), at)
    for name in ("prefix", "revision"):
        if name not in each:
            refuse_member(at, f"{name!r} is missing")
    if not isinstance(each["prefix"], str):
        refuse_member(f"{at}/prefix", "it must be a prefix of documents' keys")
    return RangeUnchanged(each["prefix"], member(each, "revision", REVISION, at))


def _refuse_many_ranges(count: int, **place: Any) -> None:
    if count > RANGES_MAX:
        what = f"{UNCHANGED_UNDER}: it has {count} ranges"
        raise over_limit(what, "ranges_max", RANGES_MAX, count, **place)


# An element of a list of entity tags (section 8.8.3), with the comma after it. A tag may hold
# commas, but neither a space nor a quote.
# Possessive: there may be thousands of spaces where an element fails.
_element = re.compile(
    '[ \t]*+(?:((W/)?"([\x21\x23-\x7e\x80-\xff]*)")|([*]))?[ \t]*+(?:,|\\Z)'
).match

# The preferred form of a date and the two obsolete ones that must be understood (section 5.6.7).
_DATE_FORMS: Final = (
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %d %H:%M:%S %Y",
)


# Stands for the token of a key without a document.
ABSENT_TOKEN: Final = "absent"
_CACHED_CHARACTERS_MAX: Final = 1024
_NOT_HERE: Final = "this route doesn't support it"
_STAR_ALONE: Final = "'*' can't be combined with other tags"
_is_tag = re.compile("[\x21\x23-\x7e\x80-\xff]+").fullmatch
_catalog_tag = re.compile("@([0-9a-f]{1,16})", re.ASCII).fullmatch

_HEADERS: Final = (
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    UNCHANGED_UNDER,
)


def refuse_conditions(environ: Environ) -> None:
    """Refuse all conditions: for routes whose answers have neither an entity tag nor a date."""
    for header in _HEADERS:
        if "HTTP_" + header.upper().replace("-", "_") in environ:
            raise _refusal(header, _NOT_HERE)


def refuse_terms(environ: Environ) -> None:
    """Refuse conditions, parameters and, unless the method only reads, an idempotency key."""
    refuse_conditions(environ)
    refuse_all_but_conditions(environ)


def refuse_all_but_conditions(environ: Environ) -> None:
    """Refuse parameters and, unless the method only reads, an idempotency key."""
    parameters(environ, NO_PARAMETERS)
    if environ["REQUEST_METHOD"] not in READING:
        refuse_idempotency_key(environ, _NOT_HERE)


def refuse_composites(conditions: Preconditions) -> None:
    """Refuse composites and catalog tags: for routes that know one token alone."""
    for header, tags in (
        ("If-Match", conditions.if_match),
        ("If-None-Match", conditions.if_none_match),
    ):
        if any(not isinstance(tag, str) for tag in tags or ()):
            raise _refusal(header, "this route doesn't support composites and catalog tags")


def refuse_all_but_several(conditions: Preconditions, instead: str = "") -> None:
    """Refuse all but If-Match with composites or catalog tags: for writes of several documents.
    ``instead`` ends the text: what the route has for such conditions."""
    if conditions.if_none_match is not None:
        raise _refusal("If-None-Match", f"{_NOT_HERE}{instead}")
    if conditions.if_unmodified_since is not None:
        raise _refusal("If-Unmodified-Since", f"{_NOT_HERE}{instead}")
    if any(isinstance(tag, str) for tag in conditions.if_match or ()):
        detail = "this route takes only composites and catalog tags"
        raise _refusal("If-Match", f"{detail}{instead}")


def write_conditions(environ: Environ) -> Preconditions:
    """The conditions of a write. If-Modified-Since has no meaning there and is refused."""
    if "HTTP_IF_MODIFIED_SINCE" in environ:
        raise _refusal("If-Modified-Since", "writes don't support it; use If-Unmodified-Since")
    conditions = _common_conditions(environ)
    unchanged = environ.get("HTTP_IF_UNCHANGED_UNDER")
    if unchanged is None:
        return conditions
    return replace(conditions, unchanged_under=ranges_in_header(unchanged))


def read_conditions(environ: Environ) -> Preconditions:
    """The conditions of a GET or HEAD."""
    if "HTTP_IF_UNCHANGED_UNDER" in environ:
        raise _refusal(UNCHANGED_UNDER, "reads don't support it")
    return _common_conditions(environ)


def _common_conditions(environ: Environ) -> Preconditions:
    match = environ.get("HTTP_IF_MATCH")
    none_match = environ.get("HTTP_IF_NONE_MATCH")
    modified = environ.get("HTTP_IF_MODIFIED_SINCE")
    unmodified = environ.get("HTTP_IF_UNMODIFIED_SINCE")
    if match is none_match is modified is unmodified is None:
        return NO_CONDITIONS
    conditions = Preconditions(
        if_match=_tags("If-Match", match, strong=True),
        if_none_match=_tags("If-None-Match", none_match, strong=False),
        if_modified_since=_date("If-Modified-Since", modified),
        if_unmodified_since=_date("If-Unmodified-Since", unmodified),
    )
    if reason := _contradiction(conditions):
        raise _refusal("If-None-Match", reason)
    return conditions


def _tags(header: str, value: str | None, *, strong: bool) -> Tags | None:
    if value is None:
        return None
    # Long values aren't cached: the cache would hold a thousand of them.
    parse = _parsed_tags if len(value) <= _CACHED_CHARACTERS_MAX else _parsed_tags.__wrapped__
    return parse(header, value, strong=strong)


@lru_cache(maxsize=1024)
def _parsed_tags(header: str, value: str, *, strong: bool) -> Tags:
    """The tags of a list of entity tags, or ``ANY_TAG`` for ``*``.

    If comparison is strong, a weak tag is kept in its written form, ``W/`` and quotes included.
    No version token looks like that, so it never matches. The same goes for the tag ``"*"``, which
    is not ``*``.
    """
    tags: set[Tag] = set()
    any_given = False
    position = 0
    while position < len(value):
        element = _element(value, position)
        if element is None:
            shown = value[position : position + 100]
            advice = ""
            if '"' not in value:  # perhaps copied from a body, where tokens have no quotes
                advice = f'; put a version token in quotes: {header}: "{value.strip()[:100]}"'
            raise _refusal(
                header, f"it isn't a list of entity tags (text in double quotes): {shown}{advice}"
            )
        position = element.end()
        written, weak, token, star = element.groups()
        any_given = any_given or star is not None
        if token is not None:
            never = (weak and strong) or token == ANY
            try:
                tags.add(written if never else _tag(token))
            except ValueError as error:
                raise _refusal(header, str(error)) from error
    if any_given and tags:
        raise _refusal(header, _STAR_ALONE)
    if not any_given and not tags:
        raise _refusal(header, "it is empty")
    return ANY_TAG if any_given else frozenset(tags)


def _tag(text: str) -> Tag:
    """The tag whose text, without quotes, is ``text``. ValueError: a malformed composite."""
    if "=" in text:
        tokens = tuple(map(_pair, text.split(";")))
        if len(dict(tokens)) < len(set(tokens)):
            raise ValueError("a composite has two tokens for one key")
        return Composite(tokens)
    revision = _catalog_tag(text)
    return text if revision is None else CatalogTag(int(revision[1], 16))


def _pair(text: str) -> tuple[str, str | None]:
    name, _, token = text.partition("=")
    try:
        key = percent_decoded(name)
    except ValueError as error:
        raise ValueError(f"the key {name[:100]!r} can't be decoded: {error}") from error
    if key in OWN_KEYS or not token or "=" in token:
        raise ValueError(f"a composite must be key=token pairs; {text[:100]!r} isn't one")
    return key, None if token == ABSENT_TOKEN else token


def _date(header: str, value: str | None) -> int | None:
    """The date in ``value``, as seconds since the epoch."""
    if value is None:
        return None
    for form in _DATE_FORMS:
        try:
            return calendar.timegm(time.strptime(value.strip(" \t"), form))
        except ValueError:
            continue
    raise _refusal(header, f"{value[:100]!r} isn't an HTTP date like Sun, 06 Nov 1994 08:49:37 GMT")


def _contradiction(conditions: Preconditions) -> str | None:
    """Why If-None-Match can't be true if If-Match is; None if it can."""
    match, none_match = conditions.if_match, conditions.if_none_match
    if match is None or none_match is None:
        return None
    if none_match == ANY_TAG:
        return "'*' requires that no document exists, but If-Match requires that one does"
    return "it names a token that If-Match names too" if match & none_match else None


def _refusal(header: str, reason: str) -> RequestRefused:
    return RequestRefused("invalid_condition", f"{header}: {reason}", header=header)


# Version tokens in a member: as many as a transaction has compares by default. Each is looked up.
_TOKENS_MAX: Final = 4096
_TAG_MEMBERS: Final = ("if_match", "if_none_match")
CONDITION_MEMBERS: Final = (*_TAG_MEMBERS, UNCHANGED_UNDER_MEMBER)


def body_conditions(members: Mapping[str, Any]) -> Preconditions:
    """The conditions in decoded ``members``, which mean the same as the headers of these names.

    Raises RequestRefused ``invalid_condition``, ``invalid_body`` or ``over_limit``, with the
    member's ``pointer``.
    """
    if members.keys().isdisjoint(CONDITION_MEMBERS):
        return NO_CONDITIONS
    match, none_match = (
        _member_tags(name, members[name]) if name in members else None for name in _TAG_MEMBERS
    )
    unchanged = ranges_in_body(members)
    conditions = Preconditions(match, none_match, unchanged_under=unchanged)
    if reason := _contradiction(conditions):
        raise _member_refusal("if_none_match", reason, "/if_none_match")
    return conditions


def _member_tags(name: str, value: Any) -> Tags:
    if value == ANY:
        return ANY_TAG
    tokens = [value] if isinstance(value, str) else value
    if not isinstance(tokens, list):
        raise _member_refusal(name, "it must be '*', a version token or a list of them", f"/{name}")
    if not tokens:
        raise _member_refusal(name, "it is empty", f"/{name}")
    tags: set[Tag] = set()
    for index, token in enumerate(tokens):
        pointer = f"/{name}" if tokens is not value else f"/{name}/{index}"
        try:
            tags.add(_member_tag(token))
        except ValueError as error:
            raise _member_refusal(name, str(error), pointer) from error
    count = sum(1 + token.count(";") for token in tokens)
    if count > _TOKENS_MAX:
        what = f"{name}: it has {count} version tokens"
        raise over_limit(what, "condition_tokens_max", _TOKENS_MAX, count, pointer=f"/{name}")
    return frozenset(tags)


def _member_tag(token: Any) -> Tag:
    """The tag that ``token`` is. Raises ValueError, whose text goes into the refusal."""
    if not isinstance(token, str) or not token:
        raise ValueError("a version token must be a non-empty string")
    if '"' in token:
        raise ValueError("write the version token without the header's quotes")
    if token == ANY:
        raise ValueError(_STAR_ALONE)
    if not _is_tag(token):
        raise ValueError(f"this isn't a version token: {token[:100]}")
    return _tag(token)


def _member_refusal(name: str, reason: str, pointer: str) -> RequestRefused:
    return RequestRefused("invalid_condition", f"{name}: {reason}", pointer=pointer)


def is_not_modified(environ: Environ, tag: Tag, about: str) -> bool:
    """Whether a read whose answer has ``tag`` is answered by 304.

    Raises ConditionFailed if If-Match is false. Dates are refused: such an answer has none.
    """
    conditions = read_conditions(environ)
    if conditions is NO_CONDITIONS:
        return False
    _refuse_dates(conditions)
    if conditions.if_match is not None and not _names(conditions.if_match, tag):
        tags = tuple(sorted(map(tag_text, conditions.if_match)))
        about = f"{about}: its tag is {tag_text(tag)}"
        raise ConditionFailed(StateConflict(Required.IF_MATCH, tags, about=about))
    return conditions.if_none_match is not None and _names(conditions.if_none_match, tag)


def tag_conditions(environ: Environ) -> Preconditions:
    """The conditions of a write of something other than a document, which has an entity tag of its
    own and no date."""
    conditions = write_conditions(environ)
    _refuse_dates(conditions)
    refuse_composites(conditions)
    if conditions.unchanged_under:
        raise _refusal(UNCHANGED_UNDER, _NOT_HERE)
    return conditions


def require_tag(conditions: Preconditions, tag: str | None, about: str) -> None:
    """Raise ConditionFailed unless ``conditions`` are true of what has ``tag``; None: it doesn't
    exist."""
    match, none_match = conditions.if_match, conditions.if_none_match
    if match is not None and (tag is None or not _names(match, tag)):
        required, compared = Required.IF_MATCH, match
    elif none_match is not None and tag is not None and _names(none_match, tag):
        required, compared = Required.IF_NONE_MATCH, none_match
    else:
        return
    now = "which doesn't exist" if tag is None else f"which exists; its tag is {tag_text(tag)}"
    tags = tuple(sorted(map(tag_text, compared)))
    raise ConditionFailed(StateConflict(required, tags, about=f"{about}, {now}"))


def _refuse_dates(conditions: Preconditions) -> None:
    for header, date in (
        ("If-Modified-Since", conditions.if_modified_since),
        ("If-Unmodified-Since", conditions.if_unmodified_since),
    ):
        if date is not None:
            raise _refusal(header, _NOT_HERE)


def _names(tags: Tags, tag: Tag) -> bool:
    return ANY in tags or any(_same(each, tag) for each in tags)


def _same(named: Tag, tag: Tag) -> bool:
    """Whether two tags are the same. The order of a composite's keys doesn't matter."""
    if isinstance(named, Composite) and isinstance(tag, Composite):
        return Counter(named.tokens) == Counter(tag.tokens)
    return named == tag

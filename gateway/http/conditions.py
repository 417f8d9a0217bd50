"""Condition headers (RFC 9110, section 13), parsed strictly: none is ever ignored.

A header that is empty, malformed, or contradicts another one is refused with 400
``invalid_condition`` naming it; a write that believed it was guarded must not go through unguarded.
Empty elements of a list are passed over, as section 5.6.1 demands.
"""

from __future__ import annotations

import calendar
import re
import time
from functools import lru_cache
from typing import Final

from gateway.commits.conditions import ANY, ANY_TOKEN, NO_CONDITIONS, Conditions, Tokens
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused

# An element of a list of entity tags (section 8.8.3), with the comma behind it. A tag may hold
# commas, but neither a space nor a quote.
_element = re.compile('[ \t]*(?:((W/)?"([\x21\x23-\x7e\x80-\xff]*)")|([*]))?[ \t]*(?:,|\\Z)').match

# The preferred form of a date and the two obsolete ones that must be understood (section 5.6.7).
_DATE_FORMS: Final = (
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %d %H:%M:%S %Y",
)


_HEADERS: Final = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")


def refuse_conditions(environ: Environ) -> None:
    """For routes whose answers have no entity tag and no date: they can't honour any condition."""
    for header in _HEADERS:
        if "HTTP_" + header.upper().replace("-", "_") in environ:
            raise _refusal(header, "this route can't honour it")


def write_conditions(environ: Environ) -> Conditions:
    """The conditions of a write. If-Modified-Since has no meaning there and is refused."""
    if "HTTP_IF_MODIFIED_SINCE" in environ:
        raise _refusal("If-Modified-Since", "a write can't honour it; use If-Unmodified-Since")
    return read_conditions(environ)


def read_conditions(environ: Environ) -> Conditions:
    """The conditions of a GET or HEAD."""
    match = environ.get("HTTP_IF_MATCH")
    none_match = environ.get("HTTP_IF_NONE_MATCH")
    modified = environ.get("HTTP_IF_MODIFIED_SINCE")
    unmodified = environ.get("HTTP_IF_UNMODIFIED_SINCE")
    if match is none_match is modified is unmodified is None:
        return NO_CONDITIONS
    conditions = Conditions(
        if_match=None if match is None else _tokens("If-Match", match, strong=True),
        if_none_match=None
        if none_match is None
        else _tokens("If-None-Match", none_match, strong=False),
        if_modified_since=None if modified is None else _date("If-Modified-Since", modified),
        if_unmodified_since=None
        if unmodified is None
        else _date("If-Unmodified-Since", unmodified),
    )
    _refuse_contradictions(conditions)
    return conditions


@lru_cache(maxsize=1024)
def _tokens(header: str, value: str, *, strong: bool) -> Tokens:
    """The tokens of a list of entity tags, or ``ANY_TOKEN`` for ``*``.

    Where comparison is strong, a weak tag stays in its written form, which no token of ours has:
    it never matches. The same goes for the tag ``"*"``, which is not ``*``.
    """
    tokens: set[str] = set()
    any_given = False
    position = 0
    while position < len(value):
        element = _element(value, position)
        if element is None:
            shown = value[position : position + 100]
            raise _refusal(header, f"no list of entity tags (text in double quotes): {shown}")
        position = element.end()
        written, weak, token, star = element.groups()
        any_given = any_given or star is not None
        if token is not None:
            tokens.add(written if (weak and strong) or token == ANY else token)
    if any_given and tokens:
        raise _refusal(header, "'*' stands alone or not at all")
    if not any_given and not tokens:
        raise _refusal(header, "it is empty")
    return ANY_TOKEN if any_given else frozenset(tokens)


def _date(header: str, value: str) -> int:
    """Seconds since the epoch."""
    for form in _DATE_FORMS:
        try:
            return calendar.timegm(time.strptime(value.strip(" \t"), form))
        except ValueError:
            continue
    raise _refusal(header, f"{value[:100]!r} is no HTTP date: Sun, 06 Nov 1994 08:49:37 GMT")


def _refuse_contradictions(conditions: Conditions) -> None:
    match, none_match = conditions.if_match, conditions.if_none_match
    if match is None or none_match is None:
        return
    if none_match == ANY_TOKEN:
        raise _refusal("If-None-Match", "'*' wants no document, If-Match wants one")
    if match & none_match:
        raise _refusal("If-None-Match", "it names a token that If-Match names too")


def _refusal(header: str, reason: str) -> RequestRefused:
    return RequestRefused("invalid_condition", f"{header}: {reason}", header=header)

"""The condition If-Unchanged-Under, from its header and from JSON.

The header is a list of structured fields (RFC 9651): strings, or display strings for what isn't
ASCII, each with the parameter ``revision``::

    If-Unchanged-Under: "tables/orders/";revision=12, %"m%c3%a4rkte/";revision=9

In JSON it is the member ``if_unchanged_under``: ``{"prefix", "revision"}``, or a list of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from gateway.decide.ranges import RANGES_MAX, RangeUnchanged
from gateway.http.wire.members import REVISION, member, refuse_member, require_object
from gateway.http.wire.refusals import RequestRefused

HEADER: Final = "If-Unchanged-Under"
MEMBER: Final = "if_unchanged_under"
_item = re.compile(
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
    """Raises RequestRefused ``invalid_condition``, or ``over_limit`` for more than RANGES_MAX."""
    ranges = []
    position, end = 0, ","
    while end == ",":
        found = _item(value, position)
        if found is None:
            shown = value[position : position + 100].strip()
            example = f'{HEADER}: "tables/orders/";revision=12'
            raise _refusal(f"it isn't a list of strings with a revision ({example}): {shown!r}")
        ranges.append(RangeUnchanged(_prefix(found), int(found["revision"])))
        position, end = found.end(), found["end"]
    _refuse_many(len(ranges), header=HEADER)
    return tuple(ranges)


def _prefix(found: re.Match[str]) -> str:
    if found["shown"] is None:
        return re.sub(r'\\(["\\])', r"\1", found["text"])
    try:
        return unquote(found["shown"], errors="strict")
    except UnicodeDecodeError as error:
        raise _refusal(f"{found['shown'][:100]!r} isn't UTF-8: {error}") from error


def ranges_in_body(members: Mapping[str, Any]) -> tuple[RangeUnchanged, ...]:
    """Raises RequestRefused ``invalid_body`` or ``over_limit`` with the member's ``pointer``."""
    if MEMBER not in members:
        return ()
    given, at = members[MEMBER], f"/{MEMBER}"
    if isinstance(given, dict):
        return (_range(given, at),)
    if not isinstance(given, list) or not given:
        refuse_member(at, "it must be an object with 'prefix' and 'revision', or a list of these")
    _refuse_many(len(given), pointer=at)
    return tuple(_range(each, f"{at}/{index}") for index, each in enumerate(given))


def _range(given: Any, at: str) -> RangeUnchanged:
    each = require_object(given, ("prefix", "revision"), at)
    for name in ("prefix", "revision"):
        if name not in each:
            refuse_member(at, f"{name!r} is missing")
    if not isinstance(each["prefix"], str):
        refuse_member(f"{at}/prefix", "it must be the beginning of documents' keys")
    return RangeUnchanged(each["prefix"], member(each, "revision", REVISION, at))


def _refuse_many(count: int, **place: Any) -> None:
    if count > RANGES_MAX:
        raise RequestRefused(
            "over_limit",
            f"{HEADER}: it has {count} ranges, {RANGES_MAX} are allowed",
            limit="ranges_max",
            maximum=RANGES_MAX,
            actual=count,
            **place,
        )


def _refusal(reason: str) -> RequestRefused:
    return RequestRefused("invalid_condition", f"{HEADER}: {reason}", header=HEADER)

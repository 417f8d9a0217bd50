"""A request's path and headers, except conditions: names, preferences, idempotency key, message,
author, media types. Names, messages and authors are percent-encoded UTF-8, decoded strictly.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec
from werkzeug.http import parse_options_header

from gateway.access.principal import NAME_CHARACTERS_MAX
from gateway.http.context import Environ
from gateway.http.wire.codes import RequestRefused, over_limit
from gateway.limits import RequestLimits
from gateway.model import APPLICATIONS_KEY

_IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
MESSAGE_CHARACTERS_MAX = 1000
_WAIT_DIGITS_MAX = 9
_has_bad_escape = re.compile("%(?![0-9A-Fa-f]{2})").search
# A quoted string, closed or not, in which commas and semicolons are mere text.
_QUOTED = r'"(?:[^"\\]|\\.|\\$)*(?:"|$)'
# A preference's name and value, and its parameters, which are ignored.
_PREFERENCES = re.compile(f'((?:[^",;]|{_QUOTED})*)(?:;(?:[^",]|{_QUOTED})*)?(?:,|$)')


class Preferences(msgspec.Struct, frozen=True):
    """The preferences in ``Prefer`` (RFC 7240); unknown ones are ignored, as section 2 demands.

    ``returns`` is "minimal", "representation" or None. ``wait_s`` bounds how long a write is tried.
    ``rebase``: apply a patch even if the document changed since If-Match, unless the two overlap.
    ``refusal_shows``: a refusal shows the document that it met, whatever ``returns`` is.
    """

    returns: str | None = None
    wait_s: int | None = None
    rebase: bool = False
    refusal_shows: bool = False


NO_PREFERENCES = Preferences()


def preferences(environ: Environ) -> Preferences:
    """The preferences; the first of a repeated one. Raises RequestRefused for a bad ``wait``."""
    text: str | None = environ.get("HTTP_PREFER")
    if text is None:
        return NO_PREFERENCES
    given: dict[str, str] = {}
    for preference in _PREFERENCES.finditer(text):
        name, _, value = preference[1].partition("=")
        given.setdefault(name.strip().lower(), value.strip().strip('"'))
    returns = given.get("return")
    if returns not in ("minimal", "representation"):
        returns = None
    wait = given.get("wait")
    wait_s = None if wait is None else _seconds(wait)
    shows = "representation" in (returns, given.get("refusal"))
    return Preferences(returns, wait_s, "rebase" in given, shows)


def _seconds(text: str) -> int:
    digits = text.lstrip("0") or text[:1]
    if not (text.isascii() and text.isdigit()) or len(digits) > _WAIT_DIGITS_MAX:
        rule = f"wait must be a whole number of seconds from 0 to {10**_WAIT_DIGITS_MAX - 1}"
        raise _refusal("Prefer", f"{rule}, not {text[:50]!r}")
    return int(digits)


IDEMPOTENCY_KEY_RULE: Final = f"1 to {_IDEMPOTENCY_KEY_CHARACTERS_MAX} visible ASCII characters"


def idempotency_key(environ: Environ) -> str | None:
    """The client's name for the request: 1 to 255 visible ASCII characters."""
    key: str | None = environ.get("HTTP_IDEMPOTENCY_KEY")
    if key is not None and not is_idempotency_key(key):
        raise _refusal("Idempotency-Key", f"it must be {IDEMPOTENCY_KEY_RULE}")
    return key


def refuse_idempotency_key(environ: Environ, why: str) -> None:
    """Refuse an idempotency key: for routes that decide nothing under one. A client that sends one
    relies on it."""
    if "HTTP_IDEMPOTENCY_KEY" in environ:
        raise _refusal("Idempotency-Key", why)


def is_idempotency_key(text: str) -> bool:
    visible = text.isascii() and text.isprintable() and " " not in text
    return visible and 1 <= len(text) <= _IDEMPOTENCY_KEY_CHARACTERS_MAX


def commit_message(environ: Environ) -> str | None:
    """The message for the commit: percent-encoded UTF-8, at most 1000 characters."""
    encoded: str | None = environ.get("HTTP_COMMIT_MESSAGE")
    if not encoded:
        return None
    message = _header_decoded("Commit-Message", encoded)
    if len(message) > MESSAGE_CHARACTERS_MAX:
        reason = f"it must have at most {MESSAGE_CHARACTERS_MAX} characters"
        raise _refusal("Commit-Message", reason)
    return message


AUTHOR_RULE: Final = f"1 to {NAME_CHARACTERS_MAX} printable characters, with no space at either end"


def commit_author(environ: Environ) -> str | None:
    """The author that the commit is to name: percent-encoded UTF-8."""
    encoded: str | None = environ.get("HTTP_COMMIT_AUTHOR")
    if encoded is None:
        return None
    name = _header_decoded("Commit-Author", encoded)
    if not is_author(name):
        raise _refusal("Commit-Author", f"it must be {AUTHOR_RULE}")
    return name


def is_author(name: str) -> bool:
    return 1 <= len(name) <= NAME_CHARACTERS_MAX and name.isprintable() and name == name.strip()


def _header_decoded(header: str, encoded: str) -> str:
    try:
        return percent_decoded(encoded)
    except ValueError as error:
        raise _refusal(header, f"it is not percent-encoded UTF-8: {error}") from error


def _refusal(header: str, reason: str) -> RequestRefused:
    return RequestRefused("invalid_header", f"{header}: {reason}", header=header)


JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
EXTENDED_PATCH: Final = "application/vnd.metadata.patch+json"
APPLY: Final = "application/vnd.metadata.apply+json"
OCTETS: Final = "application/octet-stream"
LINES: Final = ("application/x-ndjson", "application/jsonl")
PROBLEM: Final = "application/problem+json"

_PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, EXTENDED_PATCH)
ACCEPT_PATCH: Final = ("Accept-Patch", ", ".join((*_PATCH_TYPES, APPLY)))
# Attributes have no owners.
ACCEPT_ATTRIBUTES_PATCH: Final = ("Accept-Patch", ", ".join(_PATCH_TYPES))
ACCEPT_JSON: Final = ("Accept", JSON)


def require_json(environ: Environ) -> None:
    """Refuse a body whose Content-Type isn't JSON."""
    if _media_type(environ) != JSON:
        raise _unsupported(environ, JSON, ACCEPT_JSON)


def require_bytes(environ: Environ) -> None:
    """Refuse a body whose Content-Type isn't mere bytes."""
    if _media_type(environ) != OCTETS:
        raise _unsupported(environ, OCTETS, ("Accept", OCTETS), is_text=False)


def require_lines(environ: Environ) -> None:
    """Refuse a body whose Content-Type isn't newline-delimited JSON."""
    if _media_type(environ) not in LINES:
        raise _unsupported(environ, " or ".join(LINES), ("Accept", ", ".join(LINES)))


def patch_type(environ: Environ, *, applies: bool = True) -> str:
    """The patch type of the body; refuses all others. ``applies``: APPLY is one too."""
    media_type = _media_type(environ)
    if media_type not in _PATCH_TYPES and not (applies and media_type == APPLY):
        accepted = ACCEPT_PATCH if applies else ACCEPT_ATTRIBUTES_PATCH
        raise _unsupported(environ, accepted[1].replace(", ", " or "), accepted)
    return media_type


def _media_type(environ: Environ) -> str:
    """The type in lower case, without parameters; "" if the charset isn't UTF-8."""
    header: str = environ.get("CONTENT_TYPE", "")
    if header in (JSON_PATCH, JSON, MERGE_PATCH, EXTENDED_PATCH, APPLY):
        return header
    media_type, options = parse_options_header(header)
    if options.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        return ""
    return media_type.lower()


def _unsupported(
    environ: Environ, wanted: str, header: tuple[str, str], *, is_text: bool = True
) -> RequestRefused:
    given = environ.get("CONTENT_TYPE") or "missing"
    return RequestRefused(
        "unsupported_media_type",
        f"Content-Type must be {wanted}{' in UTF-8' * is_text}; it is {given[:100]}",
        headers=[header],
    )


def percent_decoded(text: str) -> str:
    """``text``, latin-1 as in WSGI, decoded. Raises ValueError for a bad escape or bad UTF-8."""
    if "%" not in text and text.isascii():
        return text
    if _has_bad_escape(text):
        raise ValueError("a '%' is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error


def catalog_name(encoded: str, limits: RequestLimits) -> str:
    """The catalog that a path names."""
    return require_catalog(_decoded(encoded, "catalog name"), limits)


def document_key(encoded: str, limits: RequestLimits) -> str:
    """The key that the rest of a path names."""
    return require_key(_decoded(encoded, "document key"), limits)


def require_catalog(name: str, limits: RequestLimits) -> str:
    """``name``, which is decoded. Refuses a text that is empty, too long, or holds NUL."""
    if not name or "\0" in name:
        why = "can't contain NUL" if name else "is empty"
        raise RequestRefused("invalid_name", f"the catalog name {why}")
    _refuse_long(name, "catalog_name_bytes_max", limits.catalog_name_bytes_max)
    return name


def require_key(key: str, limits: RequestLimits) -> str:
    """``key``, which is decoded. Refuses one that is empty, too long, or the gateway's own."""
    if not key:
        raise RequestRefused("invalid_name", "the document key is empty")
    if key == APPLICATIONS_KEY:
        raise RequestRefused("invalid_name", "the document key is reserved for the gateway")
    _refuse_long(key, "key_bytes_max", limits.key_bytes_max)
    return key


def application_name(encoded: str) -> str:
    """The application that a path names."""
    name = _decoded(encoded, "application name")
    if not is_application_name(name):
        detail = f"an application name must have 1 to {NAME_CHARACTERS_MAX} characters and no NUL"
        raise RequestRefused("invalid_name", detail)
    return name


def is_application_name(name: str) -> bool:
    return 1 <= len(name) <= NAME_CHARACTERS_MAX and "\0" not in name


def require_prefix(prefix: str, limits: RequestLimits) -> None:
    """Refuse a decoded prefix that is longer than any document's key."""
    _refuse_long(prefix, "key_bytes_max", limits.key_bytes_max)


def catalog_path(catalog: str) -> str:
    return f"/v1/catalogs/{quote(catalog, safe='')}"


def document_path(catalog: str, key: str) -> str:
    """The document's path, percent-encoded so that no client rewrites it."""
    segments = key.split("/")
    # Clients resolve dot segments and may merge empty ones, unless the slashes are encoded.
    plain = not any(segment in ("", ".", "..") for segment in segments)
    return f"{catalog_path(catalog)}/documents/{quote(key, safe='/' * plain)}"


def outcome_path(catalog: str, idempotency_key: str) -> str:
    """The path of the outcome of the request under ``idempotency_key``."""
    return f"{catalog_path(catalog)}/outcomes/{quote(idempotency_key, safe='')}"


def _decoded(encoded: str, what: str) -> str:
    if "#" in encoded:
        raise RequestRefused("invalid_name", f"a '#' in a {what} must be sent as %23")
    return name_decoded(encoded, what)


def name_decoded(encoded: str, what: str) -> str:
    try:
        return percent_decoded(encoded)
    except ValueError as error:
        raise RequestRefused("invalid_name", f"the {what} can't be decoded: {error}") from error


def _refuse_long(name: str, limit: str, maximum: int) -> None:
    if 4 * len(name) <= maximum:
        return
    actual = len(name.encode())
    if actual > maximum:
        what = f"the name takes {actual} bytes as UTF-8"
        raise over_limit(what, limit, maximum, actual, code="name_too_long")

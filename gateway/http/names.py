"""Names in paths and queries: percent-encoded UTF-8, decoded strictly, and written into URLs."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from gateway.http.limits import RequestLimits
from gateway.http.refusals import RequestRefused

_has_bad_escape = re.compile("%(?![0-9A-Fa-f]{2})").search


def percent_decoded(text: str) -> str:
    """``text`` (latin-1, as WSGI has it) decoded. ValueError: a bad escape or bad UTF-8."""
    if "%" not in text and text.isascii():
        return text
    if _has_bad_escape(text):
        raise ValueError("a '%' is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error


def catalog_name(encoded: str, limits: RequestLimits) -> str:
    """The catalog that a path names: any text but "" and what holds NUL."""
    name = _decoded(encoded, "catalog name")
    if "\0" in name:
        raise RequestRefused("invalid_name", "a catalog name can't hold NUL")
    _refuse_long(name, "catalog_name_bytes_max", limits.catalog_name_bytes_max)
    return name


def document_key(encoded: str, limits: RequestLimits) -> str:
    """The key that the rest of a path names: any text but ""."""
    name = _decoded(encoded, "document key")
    _refuse_long(name, "key_bytes_max", limits.key_bytes_max)
    return name


def require_key(key: str, limits: RequestLimits) -> None:
    """Refuse a decoded text that can't be a document's key."""
    if not key:
        raise RequestRefused("invalid_name", "the document key is empty")
    _refuse_long(key, "key_bytes_max", limits.key_bytes_max)


def document_path(catalog: str, key: str) -> str:
    """The document's path, percent-encoded so that no client rewrites it on the way."""
    segments = key.split("/")
    # Clients resolve dot segments and may merge empty ones, unless their slashes are encoded.
    plain = not any(segment in ("", ".", "..") for segment in segments)
    return f"/v1/catalogs/{quote(catalog, safe='')}/documents/{quote(key, safe='/' * plain)}"


def outcome_path(catalog: str, idempotency_key: str) -> str:
    """Where to ask what became of the request sent under ``idempotency_key``."""
    return f"/v1/catalogs/{quote(catalog, safe='')}/outcomes/{quote(idempotency_key, safe='')}"


def _decoded(encoded: str, what: str) -> str:
    if "#" in encoded:
        raise RequestRefused("invalid_name", f"a '#' in a {what} must be sent as %23")
    try:
        name = percent_decoded(encoded)
    except ValueError as error:
        raise RequestRefused("invalid_name", f"the {what} can't be decoded: {error}") from error
    if not name:
        raise RequestRefused("invalid_name", f"the {what} is empty")
    return name


def _refuse_long(name: str, limit: str, maximum: int) -> None:
    if 4 * len(name) <= maximum:
        return
    actual = len(name.encode())
    if actual > maximum:
        raise RequestRefused(
            "name_too_long",
            f"the name takes {actual} bytes as UTF-8, {maximum} are allowed",
            limit=limit,
            maximum=maximum,
            actual=actual,
        )

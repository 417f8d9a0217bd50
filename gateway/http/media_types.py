"""Which media types a body may have, and what is said about them in answers."""

from __future__ import annotations

from typing import Final

from werkzeug.http import parse_options_header

from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
EXTENDED_PATCH: Final = "application/vnd.metadata.patch+json"
OCTETS: Final = "application/octet-stream"
LINES: Final = ("application/x-ndjson", "application/jsonl")
PROBLEM: Final = "application/problem+json"

ACCEPT_PATCH: Final = ("Accept-Patch", f"{JSON_PATCH}, {MERGE_PATCH}, {EXTENDED_PATCH}")
ACCEPT_JSON: Final = ("Accept", JSON)


def require_json(environ: Environ) -> None:
    """Refuse a body that isn't JSON by its header."""
    if _media_type(environ) != JSON:
        raise _unsupported(environ, JSON, ACCEPT_JSON)


def require_bytes(environ: Environ) -> None:
    """Refuse a body that isn't sent as mere bytes."""
    if _media_type(environ) != OCTETS:
        raise _unsupported(environ, OCTETS, ("Accept", OCTETS))


def require_lines(environ: Environ) -> None:
    """Refuse a body that isn't newline-delimited JSON by its header."""
    if _media_type(environ) not in LINES:
        raise _unsupported(environ, " or ".join(LINES), ("Accept", ", ".join(LINES)))


def patch_type(environ: Environ) -> str:
    """Which of the patch types the body has."""
    media_type = _media_type(environ)
    if media_type not in (JSON_PATCH, MERGE_PATCH, EXTENDED_PATCH):
        wanted = f"{JSON_PATCH}, {MERGE_PATCH} or {EXTENDED_PATCH}"
        raise _unsupported(environ, wanted, ACCEPT_PATCH)
    return media_type


def _media_type(environ: Environ) -> str:
    """In lower case, without parameters; "" where the charset is another one than UTF-8."""
    header: str = environ.get("CONTENT_TYPE", "")
    if header in (JSON_PATCH, JSON, MERGE_PATCH, EXTENDED_PATCH):
        return header
    media_type, options = parse_options_header(header)
    if options.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        return ""
    return media_type.lower()


def _unsupported(environ: Environ, wanted: str, header: tuple[str, str]) -> RequestRefused:
    given = environ.get("CONTENT_TYPE") or "missing"
    return RequestRefused(
        "unsupported_media_type",
        f"Content-Type must be {wanted} in UTF-8; it is {given[:100]}",
        headers=[header],
    )

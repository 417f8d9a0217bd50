"""How long a request's body is said to be."""

from __future__ import annotations

from gateway.http.raw_path import Environ


def declared_bytes(environ: Environ) -> int | None:
    """None where it isn't said: a chunked body's is known at its end."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    declared: str = environ.get("CONTENT_LENGTH") or "0"
    return int(declared) if declared.isascii() and declared.isdigit() else None

"""The request headers that are neither conditions nor about the body."""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.http.names import percent_decoded
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused

_IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
MESSAGE_CHARACTERS_MAX = 1000
_WAIT_DIGITS_MAX = 9
# A quoted string, in which commas and semicolons are nothing but text; also one without an end.
_QUOTED = r'"(?:[^"\\]|\\.|\\$)*(?:"|$)'
# A preference's name and value, and its parameters, which nothing here has a use for.
_PREFERENCES = re.compile(f'((?:[^",;]|{_QUOTED})*)(?:;(?:[^",]|{_QUOTED})*)?(?:,|$)')


class Preferences(NamedTuple):
    """What ``Prefer`` asks for (RFC 7240); what isn't known is left out, as section 2 demands.

    ``returns`` is "minimal", "representation" or None; ``wait_s`` bounds the retry loop;
    ``rebase``: apply a patch all the same where what changed since If-Match doesn't concern it.
    """

    returns: str | None = None
    wait_s: int | None = None
    rebase: bool = False


NO_PREFERENCES = Preferences()


def preferences(environ: Environ) -> Preferences:
    """Where a preference is given twice, the first counts. 400 for a ``wait`` that is no number."""
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
    return Preferences(returns, None if wait is None else _seconds(wait), "rebase" in given)


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        detail = f"Prefer: wait is a whole number of seconds, not {text[:50]!r}"
        raise RequestRefused("invalid_header", detail, header="Prefer")
    return int(text[:_WAIT_DIGITS_MAX]) if len(text) <= _WAIT_DIGITS_MAX else 10**_WAIT_DIGITS_MAX


def idempotency_key(environ: Environ) -> str | None:
    """The client's name for the request: 1 to 255 visible ASCII characters."""
    key: str | None = environ.get("HTTP_IDEMPOTENCY_KEY")
    if key is not None and not is_idempotency_key(key):
        raise RequestRefused(
            "invalid_header",
            f"Idempotency-Key: 1 to {_IDEMPOTENCY_KEY_CHARACTERS_MAX} visible ASCII characters",
            header="Idempotency-Key",
        )
    return key


def is_idempotency_key(text: str) -> bool:
    visible = text.isascii() and text.isprintable() and " " not in text
    return visible and 1 <= len(text) <= _IDEMPOTENCY_KEY_CHARACTERS_MAX


def commit_message(environ: Environ) -> str | None:
    """The message for the commit: percent-encoded UTF-8, at most 1000 characters."""
    encoded: str | None = environ.get("HTTP_COMMIT_MESSAGE")
    if not encoded:
        return None
    try:
        message = percent_decoded(encoded)
    except ValueError as error:
        detail = f"Commit-Message: it is not percent-encoded UTF-8: {error}"
        raise RequestRefused("invalid_header", detail, header="Commit-Message") from error
    if len(message) > MESSAGE_CHARACTERS_MAX:
        detail = f"Commit-Message: at most {MESSAGE_CHARACTERS_MAX} characters"
        raise RequestRefused("invalid_header", detail, header="Commit-Message")
    return message

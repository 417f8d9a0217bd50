"""Whom a commit names as its author: who asked for it, or somebody for whom he may speak."""

from __future__ import annotations

from typing import Final

from gateway.access import Principal, Role
from gateway.access.notation import NAME_CHARACTERS_MAX
from gateway.http.authorization import require
from gateway.http.names import percent_decoded
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused

HEADER: Final = "Commit-Author"
RULE: Final = f"1 to {NAME_CHARACTERS_MAX} printable characters without a space at its ends"


def header_author(environ: Environ) -> str | None:
    """The author that a header names, in percent-encoded UTF-8."""
    encoded: str | None = environ.get("HTTP_COMMIT_AUTHOR")
    if encoded is None:
        return None
    try:
        name = percent_decoded(encoded)
    except ValueError as error:
        detail = f"{HEADER}: it is not percent-encoded UTF-8: {error}"
        raise RequestRefused("invalid_header", detail, header=HEADER) from error
    if not is_author(name):
        raise RequestRefused("invalid_header", f"{HEADER}: {RULE}", header=HEADER)
    return name


def is_author(name: str) -> bool:
    return 1 <= len(name) <= NAME_CHARACTERS_MAX and name.isprintable() and name == name.strip()


def author_of(named: str | None, by: Principal, catalog: str) -> str:
    """``named``, or ``by`` where nobody is. Raises Forbidden where ``by`` can't name another."""
    if named is None or named == by.name:
        return by.name
    require(by, Role.ADMIN, catalog, "naming another author")
    return named

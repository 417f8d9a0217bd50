"""Where the gateway is and who asks: the options `--url`, `--token` and their variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

DEFAULT_URL: Final = "http://127.0.0.1:8080"
# RFC 6750, section 2.1. What isn't this would break the header, and be quoted in an error.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")

TokenSource = str | Callable[[], str] | None


def connection_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--url"],
            envvar="GATEWAY_URL",
            default=DEFAULT_URL,
            help=f"Address of the gateway, or GATEWAY_URL. Default: {DEFAULT_URL}.",
        ),
        click.Option(
            ["--token"],
            envvar="GATEWAY_TOKEN",
            metavar="TOKEN",
            help="Bearer token. Better by GATEWAY_TOKEN, or GATEWAY_TOKEN_FILE: others on this"
            " machine can read command lines.",
        ),
        click.Option(
            ["--token-file"],
            envvar="GATEWAY_TOKEN_FILE",
            metavar="FILE",
            help="A file that holds the token, read for each request; or GATEWAY_TOKEN_FILE.",
        ),
        click.Option(
            ["--ca-file"],
            envvar="GATEWAY_CA_FILE",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Certificates to trust, where the gateway has TLS; or GATEWAY_CA_FILE.",
        ),
    ]


def gateway_url(url: str) -> str:
    """``url``, if a token may be sent to it in a header and errors may tell it. UsageError."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is none
    except ValueError as error:
        raise click.UsageError(f"--url: this is no URL: {error}") from error
    if "@" in parts.netloc:
        raise click.UsageError("--url: no credentials belong here; give --token, or its variable")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError("--url: an http or https URL with a host is needed")
    if parts.query or parts.fragment:
        raise click.UsageError("--url: the URL of a gateway has no query and no fragment")
    return url


def token_source(given: Mapping[str, Any], *, file_by_flag: bool, by_flag: bool) -> TokenSource:
    """What `Gateway` takes as its token. UsageError, which never quotes it.

    A flag goes before a variable, and a token before a file that holds one.
    """
    token, path = given["token"], given["token_file"]
    if token and not (file_by_flag and not by_flag):
        return _checked(token.strip(), "the token")
    if not path:
        return None
    read = _reader(Path(path))
    read()  # so that a file that isn't there is told before anything is asked
    return read


def _reader(path: Path) -> Callable[[], str]:
    def read() -> str:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            reason = error.strerror or os.strerror(error.errno or 0)
            raise click.UsageError(f"--token-file: can't read {str(path)!r}: {reason}") from error
        return _checked(text.strip(), f"the token in {str(path)!r}")

    return read


def _checked(token: str, what: str) -> str:
    """Never quotes it: what was taken for a token may be another secret."""
    if _TOKEN.fullmatch(token) is None:
        raise click.UsageError(f"{what} has characters that no bearer token has, or none at all")
    return token

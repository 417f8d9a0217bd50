"""The frame of every command over HTTP: connection options (`--url`, `--token` and their
variables), other common options, and exit codes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from gateway.cli import exit_codes
from gateway.cli.exit_codes import as_problem, explained
from gateway.cli.output import Output, ReaderGone, error_line
from patching.client import ClientError, Gateway, RequestError, Retry
from patching.client._documents import Part
from patching.client.transport import Transport

_COMMON: Final = ("url", "token", "token_file", "ca_file", "timeout", "output", "quiet")
# Somebody waits, so an unreachable gateway is reported within seconds.
_RETRY: Final = Retry(retries_max=5, longest_s=2.0)
DEFAULT_URL: Final = "http://127.0.0.1:8080"
# RFC 6750, section 2.1. Anything else would break the header, and be quoted in an error.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
TokenSource = str | Callable[[], str] | None


@dataclass(frozen=True, slots=True)
class Session:
    """A command's gateway and output. ``url`` has no credentials in it. ``json_asked``:
    `--output json` was given.
    """

    gateway: Gateway
    output: Output
    url: str
    token: TokenSource
    ca_file: str | None
    timeout_s: float
    json_asked: bool

    def part(self, catalog: str, attributes: bool) -> Part:
        """The catalog's documents, or the attributes beside them."""
        documents = self.gateway.catalog(catalog)
        return documents.attributes if attributes else documents


class _Seconds(click.FloatRange):
    """A range without NaN, which click takes to be in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        return self.fail("this is not a number", param, ctx) if isnan(seconds) else seconds


def _options() -> list[click.Parameter]:
    return [
        *connection_options(),
        click.Option(
            ["--timeout"],
            type=_Seconds(0.001, 86_400),
            default=60.0,
            metavar="SECONDS",
            help="Seconds for one request, retries included. Default: 60.",
        ),
        click.Option(
            ["--output"],
            type=click.Choice(["json", "pretty"]),
            help="json: compact, with errors as JSON problems; pretty: for people. Default: pretty"
            " on a terminal, else compact with errors for people.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            help="Print errors only: no other messages, progress, or answers of writes.",
        ),
    ]


class ClientCommand(click.Command):
    """A command whose callback gets a `Session` first. Its exit code is in `exit_codes`."""

    writes = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_options())

    def invoke(self, ctx: click.Context) -> int:
        by_flag = {
            name: ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in _COMMON
        }
        given = {name: ctx.params.pop(name) for name in _COMMON}
        url = gateway_url(given["url"])
        token = token_source(given, by_flag=by_flag["token"], file_by_flag=by_flag["token_file"])
        pretty = sys.stdout.isatty() if given["output"] is None else given["output"] == "pretty"
        output = Output(pretty=pretty, quiet=given["quiet"])
        json_asked = given["output"] == "json"
        timeout_s = given["timeout"]
        try:
            with Gateway(
                url, token=token, timeout_s=timeout_s, retry=_RETRY, ca_file=given["ca_file"]
            ) as gateway:
                ctx.obj = Session(
                    gateway, output, url, token, given["ca_file"], timeout_s, json_asked
                )
                code = super().invoke(ctx)
        except ReaderGone:
            return exit_codes.DONE
        except ClientError as error:
            if isinstance(error, RequestError) and not self.writes:
                error.applied = "no"  # it says nothing about a read
            show_error(error, as_json=json_asked)
            return exit_codes.exit_code(error)
        except KeyboardInterrupt:
            return exit_codes.INTERRUPTED
        return code if isinstance(code, int) else exit_codes.DONE


class ReadCommand(ClientCommand):
    """A command that changes nothing, so its outcome is never unknown."""

    writes = False


class Missing(click.ClickException):
    """A command's own finding that its object doesn't exist."""

    exit_code = exit_codes.NOT_FOUND


def show_error(error: ClientError, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(as_problem(error)), err=True)
    else:
        error_line(explained(error))


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
            help="Bearer token. Prefer GATEWAY_TOKEN or GATEWAY_TOKEN_FILE: other users of this"
            " machine can read command lines.",
        ),
        click.Option(
            ["--token-file"],
            envvar="GATEWAY_TOKEN_FILE",
            metavar="FILE",
            help="File with the token, read for each request; or GATEWAY_TOKEN_FILE.",
        ),
        click.Option(
            ["--ca-file"],
            envvar="GATEWAY_CA_FILE",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Certificates to trust, for a gateway with TLS; or GATEWAY_CA_FILE.",
        ),
    ]


def gateway_url(url: str) -> str:
    """``url``, if it is a gateway's and has no credentials in it. Raises UsageError."""
    try:
        Transport(url).close()
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from error
    return url


def token_source(given: Mapping[str, Any], *, file_by_flag: bool, by_flag: bool) -> TokenSource:
    """The token, or a function that reads it. Raises UsageError, which never quotes it.

    A flag overrules a variable, and a token overrules a file that holds one.
    """
    token, path = given["token"], given["token_file"]
    if token and not (file_by_flag and not by_flag):
        return _checked(token.strip(), "the token")
    if not path:
        return None
    read = _reader(Path(path))
    read()  # a missing file is reported before any request
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
    """The token, if it can be one. The error never quotes it: it may be another secret."""
    if _TOKEN.fullmatch(token) is None:
        raise click.UsageError(f"{what} is empty, or has characters that no bearer token can have")
    return token

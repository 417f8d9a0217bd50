"""Arguments of the commands: catalogs and documents, which a shell completes by asking the gateway,
moments of their history, and JSON: itself, ``@FILE``, or ``-`` for the standard input.

If a completion can't be answered at once, there is none: a shell waits for it, and can't show an
error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from gateway.cli.command import DEFAULT_URL, gateway_url, token_source
from patching import join_pointer
from patching.client import ClientError, Gateway, Retry
from patching.command_line import Kind, together
from patching.values import repeated_member

_SHOWN_MAX: Final = 40
_NAMES_MAX: Final = 100
_TIMEOUT_S: Final = 2.0
REVISION: Final = click.IntRange(0)


class JsonType(Kind):
    """A JSON value, with integers of any size. A text that isn't JSON is no string: `orders` is
    refused, `'"orders"'` is taken."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        source, text = read_source(value, self, param, ctx)
        return self.decode(text, source, param, ctx)

    def decode(
        self, text: bytes, source: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            value = msgspec.json.decode(text)
            twice = repeated_member(text, msgspec.json.encode(value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = "; a string needs its quotes: '\"…\"'" if text[:1].isalpha() else ""
            self.fail(f"{source} isn't JSON: {error}{hint}", param, ctx)
        if twice is not None:
            self.fail(f"{source} has the member '{join_pointer(twice)}' twice", param, ctx)
        return value


def read_source(
    value: str, kind: Kind, param: click.Parameter | None, ctx: click.Context | None
) -> tuple[str, bytes]:
    """The name of the source of ``value``, and the text that it stands for."""
    if value == "-":
        try:
            return "standard input", sys.stdin.buffer.read()
        except OSError as error:
            kind.fail(f"can't read standard input: {error.strerror}", param, ctx)
    if value.startswith("@"):
        path = value[1:]
        try:
            return path, Path(path).read_bytes()
        except OSError as error:
            kind.fail(f"can't read {path!r}: {error.strerror}", param, ctx)
    shown = value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "…"
    # Arguments that aren't UTF-8 come with lone surrogates: msgspec says what is wrong with them.
    return repr(shown), value.encode(errors="surrogateescape")


class TestType(Kind):
    """``POINTER=JSON``, as a test operation. The first ``=`` with JSON behind it ends the pointer,
    as the names of members may have some."""

    name = "pointer=json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        ends = [place for place, character in enumerate(value) if character == "="]
        if not ends or value[0] not in "/=":
            self.fail("it must be POINTER=JSON, such as /name='\"orders\"'", param, ctx)
        end = next((each for each in ends if _stands_for_json(value[each + 1 :])), ends[0])
        tested = JSON.convert(value[end + 1 :], param, ctx)
        return {"op": "test", "path": value[:end], "value": tested}


def _stands_for_json(text: str) -> bool:
    if text.startswith("@") or text == "-":
        return True
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        msgspec.json.decode(text)
        return True
    return False


class RangeType(Kind):
    """``PREFIX=REVISION``: the beginning of keys, which may have ``=`` in it, and a revision."""

    name = "prefix=revision"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        prefix, equals, revision = value.rpartition("=")
        if not equals or not (revision.isascii() and revision.isdigit()):
            self.fail("it must be PREFIX=REVISION, such as tables/=12", param, ctx)
        return prefix, int(revision)


JSON: Final = JsonType()
TEST: Final = TestType()
RANGE: Final = RangeType()


def complete_catalogs(ctx: click.Context, incomplete: str) -> list[str]:
    return _names(ctx, lambda gateway: (each.name for each in gateway.catalogs(prefix=incomplete)))


def complete_keys(ctx: click.Context, incomplete: str) -> list[str]:
    catalog = ctx.params.get("catalog")
    if not catalog:
        return []
    return _names(
        ctx,
        lambda gateway: gateway.catalog(catalog).keys(prefix=incomplete, page_size=_NAMES_MAX),
    )


def _names(ctx: click.Context, ask: Callable[[Gateway], Iterable[str]]) -> list[str]:
    given = {name: ctx.params.get(name) for name in ("token", "token_file")}
    with suppress(ClientError, click.ClickException):
        token = token_source(given, by_flag=True, file_by_flag=True)
        url = gateway_url(ctx.params.get("url") or DEFAULT_URL)
        with Gateway(
            url,
            token=token,
            timeout_s=_TIMEOUT_S,
            retry=Retry(retries_max=0),
            ca_file=ctx.params.get("ca_file"),
        ) as gateway:
            return list(islice(ask(gateway), _NAMES_MAX))
    return []


class NameType(Kind):
    """Any text that isn't empty. Bytes that aren't UTF-8 are refused, as no name contains them."""

    def __init__(self, name: str, complete: Callable[[click.Context, str], list[str]]) -> None:
        self.name = name
        self._complete = complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("this isn't valid UTF-8", param, ctx)
        if not text:
            self.fail("this name is empty", param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        return [CompletionItem(name) for name in self._complete(ctx, incomplete)]


CATALOG: Final = NameType("catalog", complete_catalogs)
KEY: Final = NameType("key", complete_keys)


# At most one of these can be given: see `require_one_time`.
time_options = together(
    click.option("--revision", type=REVISION, metavar="N", help="Read the state at revision N."),
    click.option("--at", metavar="TIME", help="Read the state at this time, RFC 3339."),
)


def require_one_time(revision: int | None, at: str | None) -> None:
    if revision is not None and at is not None:
        raise click.UsageError("give --revision or --at, not both")

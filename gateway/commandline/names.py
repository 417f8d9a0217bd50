"""Names of catalogs and documents, and moments of their history, as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from .completing import complete_catalogs, complete_keys
from .values import Kind

_Callback = TypeVar("_Callback", bound=Callable[..., Any])

REVISION: Final = click.IntRange(0)


class NameType(Kind):
    """Any text that isn't empty. Bytes that are no UTF-8 are refused: nothing can be named so."""

    def __init__(self, name: str, complete: Callable[[click.Context, str], list[str]]) -> None:
        self.name = name
        self._complete = complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("this is no UTF-8", param, ctx)
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


def time_options(callback: _Callback) -> _Callback:
    """`--revision` and `--at`, of which one can be given: see `require_one_time`."""
    for option in (
        click.option("--at", metavar="TIME", help="As it was at this time, RFC 3339."),
        click.option("--revision", type=REVISION, metavar="N", help="As this revision had it."),
    ):
        callback = option(callback)
    return callback


def require_one_time(revision: int | None, at: str | None) -> None:
    if revision is not None and at is not None:
        raise click.UsageError("give --revision or --at, not both")

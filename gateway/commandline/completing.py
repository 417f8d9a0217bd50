"""Names for a shell to complete a command line with, asked of the gateway that it names.

What can't be answered at once isn't: a shell waits for it, and an error has no place to go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

import click

from patching.client import ClientError, Gateway, Retry

from .connecting import DEFAULT_URL, gateway_url, token_source

_NAMES_MAX: Final = 100
_TIMEOUT_S: Final = 2.0


def complete_catalogs(ctx: click.Context, incomplete: str) -> list[str]:
    return _names(ctx, lambda gateway: (each.name for each in gateway.catalogs(prefix=incomplete)))


def complete_keys(ctx: click.Context, incomplete: str) -> list[str]:
    catalog = ctx.params.get("catalog")
    if not catalog:
        return []
    return _names(
        ctx,
        lambda gateway: (
            each.key
            for each in gateway.catalog(catalog).documents(prefix=incomplete, page_size=_NAMES_MAX)
        ),
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
            retry=Retry(sends_max=1),
            ca_file=ctx.params.get("ca_file"),
        ) as gateway:
            return list(islice(ask(gateway), _NAMES_MAX))
    return []

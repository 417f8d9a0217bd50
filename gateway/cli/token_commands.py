"""`gateway token`: issue tokens, list and revoke them, in the database that the service uses.

A user who can write to that database needs no token to issue one, not even the first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.access import Grant
from gateway.access.principal import checked_name, parse_grant
from gateway.cli.setting_flags import database_flags, on_mongodb
from patching.command_line import Kind

if TYPE_CHECKING:
    from gateway.model import StoredToken
    from gateway.tokens.issued import Tokens

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAYS_MAX: Final = 36_500


class _GrantType(Kind):
    name = "role:pattern"

    def convert(self, value: Any, param: Any, ctx: Any) -> Grant:
        try:
            return value if isinstance(value, Grant) else parse_grant(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class _LifetimeType(Kind):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", str(value))
        if found is None:
            self.fail("it must be a number with s, m, h or d, such as 12h or 90d", param, ctx)
        seconds = int(found[1]) * _UNITS_S[found[2]]
        if seconds > _DAYS_MAX * 86_400:
            self.fail(
                f"it can be at most {_DAYS_MAX}d; without it, the token doesn't expire", param, ctx
            )
        return seconds


@click.group("token")
def token() -> None:
    """Issue tokens for principals, list and revoke them."""


@token.command()
@click.option("--name", required=True, help="Principal of the token: the author of its commits.")
@click.option(
    "--grant",
    "grants",
    type=_GrantType(),
    multiple=True,
    required=True,
    help="A role (read, write or admin) and a pattern of catalog names, in which * stands for any"
    " text: write:shop/*. Repeatable.",
)
@click.option(
    "--expires-in",
    "lifetime_s",
    type=_LifetimeType(),
    help="Lifetime, such as 90d, 12h, 30m or 20s. Default: unlimited.",
)
@database_flags
def create(name: str, grants: tuple[Grant, ...], lifetime_s: int | None, **flags: Any) -> None:
    """Issue a token and print it on stdout, once: it can't be shown again."""
    try:
        checked_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--name") from error
    with _tokens(flags) as tokens, _explaining_unknown():
        issued = tokens.issue(name, grants, lifetime_s)
    click.echo(issued.text)
    expires = issued.stored.expires_us
    until = "does not expire" if expires is None else f"expires {_shown_time(expires)}"
    made = f"token {issued.stored.id} of {name} ({' '.join(issued.stored.grants)})"
    click.echo(f"{made}; it {until}, and isn't shown again", err=True)


@token.command("list")
@database_flags
def show(**flags: Any) -> None:
    """List the tokens, including expired and revoked ones, but never their secrets."""
    with _tokens(flags) as tokens:
        stored = tokens.all()
    now_us = time.time_ns() // 1000
    rows = [("ID", "NAME", "STATE", "CREATED", "EXPIRES", "GRANTS")]
    rows += [
        (
            each.id,
            each.name,
            _state(each, now_us),
            _shown_time(each.created_us),
            "never" if each.expires_us is None else _shown_time(each.expires_us),
            " ".join(each.grants),
        )
        for each in stored
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join((*cells, row[-1])))


@token.command()
@click.argument("token_id", metavar="ID")
@database_flags
def revoke(token_id: str, **flags: Any) -> None:
    """Revoke the token with this ID, which list shows; it stops working within five seconds."""
    with _tokens(flags) as tokens, _explaining_unknown():
        revoked = tokens.revoke(token_id)
    if revoked is None:
        # The argument may be a token by mistake, so it isn't repeated.
        raise click.ClickException("there is no token with this id")
    click.echo(f"revoked {revoked.id} ({revoked.name})", err=True)


@contextmanager
def _tokens(flags: dict[str, Any]) -> Iterator[Tokens]:
    """The tokens in the database of the settings. Raises click's errors."""
    # The driver of the database takes long to import.
    from gateway.cli.exit_codes import MongodbOutOfReach
    from gateway.cli.verify import connected
    from gateway.store.contract import StoreUnreachable
    from gateway.tokens.issued import Tokens

    with connected(on_mongodb(flags)) as store:
        try:
            yield Tokens(store.tokens())
        except StoreUnreachable as error:
            raise MongodbOutOfReach(f"the database can't be reached: {error}") from error


@contextmanager
def _explaining_unknown() -> Iterator[None]:
    """For a change: if its answer gets lost, say that its outcome is unknown."""
    from gateway.cli.exit_codes import UnknownIfDone
    from gateway.store.contract import StoreUnreachable

    try:
        yield
    except StoreUnreachable as error:
        if error.nothing_done:
            raise
        detail = "it is unknown whether that was done, see gateway token list"
        raise UnknownIfDone(f"{detail}: {error}") from error


def _state(stored: StoredToken, now_us: int) -> str:
    if stored.revoked_us is not None:
        return "revoked"
    expired = stored.expires_us is not None and stored.expires_us <= now_us
    return "expired" if expired else "valid"


def _shown_time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

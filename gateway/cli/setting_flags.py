"""Settings as flags of commands: all of them, or those that say where the database is; and the
settings that a command gets by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from gateway.settings import SETTINGS, Resolved, SettingError, Settings, resolve, unknown_variables
from gateway.settings.table import REMOVED, SettingRow, flag_of
from patching.command_line import together

_DATABASE_SETTINGS: Final = (
    "mongodb_uri",
    "database",
    "embedded",
    "data_dir",
    "store_timeout_ms",
)
_EMBEDDED: Final = "Use the MongoDB of gateway serve --embedded, which must not be running."


def _flag(row: SettingRow, text: str | None = None) -> Callable[..., Any]:
    """The setting's flag; the table, not click, parses its text."""
    text = row.help_in_terminal if text is None else text
    if isinstance(row.make_default(), bool):
        names = f"{row.flag}/--no-{row.flag.removeprefix('--')}"
        return click.option(names, row.name, default=None, help=text)
    return click.option(row.flag, row.name, default=None, metavar=row.kind.metavar, help=text)


def _removed_flag(name: str) -> Callable[..., Any]:
    """Hidden, so that `resolve` can say what to do instead of it."""
    return click.option(flag_of(name), name, default=None, hidden=True)


settings_flags = together(*map(_flag, SETTINGS), *map(_removed_flag, REMOVED))
database_flags = together(
    *(
        _flag(row, _EMBEDDED if row.name == "embedded" else None)
        for row in SETTINGS
        if row.name in _DATABASE_SETTINGS
    )
)


def resolved_settings(flags: dict[str, Any]) -> Resolved:
    """The settings that a command's flags and the environment give. Raises UsageError."""
    try:
        found = resolve(flags)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    for name, near in unknown_variables():
        click.echo(f"gateway: {name} is not a setting; did you mean {near}?", err=True)
    return found


def on_mongodb(flags: dict[str, Any]) -> Settings:
    """The settings of a command that needs a MongoDB. Raises UsageError if none is chosen."""
    settings = resolved_settings(flags).settings
    if settings.mongodb_uri is None and not settings.embedded:
        raise click.UsageError(
            "no MongoDB chosen: give --mongodb-uri URI (or GATEWAY_MONGODB_URI) for one that runs,"
            " or --embedded to start one here"
        )
    return settings

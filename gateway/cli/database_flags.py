"""The settings that say where the database is, as flags of the commands that need no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from gateway.settings import SETTINGS
from gateway.settings.table import SettingRow
from patching.command_line import together

DATABASE_SETTINGS: Final = (
    "mongodb_uri",
    "database",
    "embedded",
    "data_dir",
    "store_timeout_ms",
)


def _flag(row: SettingRow) -> Callable[..., Any]:
    if row.name == "embedded":
        text = "Use the MongoDB of gateway serve --embedded; the service must not run."
        return click.option("--embedded/--no-embedded", row.name, default=None, help=text)
    text = row.help_in_terminal
    return click.option(row.flag, row.name, metavar=row.kind.metavar, help=text)


database_flags = together(*(_flag(row) for row in SETTINGS if row.name in DATABASE_SETTINGS))

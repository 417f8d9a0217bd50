"""The group of all commands: those of this package are imported when they are run.

`gateway --help` and the commands of the service then cost no HTTP client, and the commands here
none of the service's packages. A test holds the lines of help equal to the commands' own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from patching.command_group import OneLineGroup


class Entry(NamedTuple):
    """Where a command is, and the line that lists it."""

    module: str
    attribute: str
    help: str


_HERE: Final = "gateway.commandline"
COMMANDS: Final[dict[str, Entry]] = {
    "get": Entry(f"{_HERE}.reading", "get", "Read a document, or list keys, or catalogs."),
    "put": Entry(f"{_HERE}.writing", "put", "Create or replace a document."),
    "patch": Entry(f"{_HERE}.writing", "patch", "Change a document by a patch."),
    "delete": Entry(f"{_HERE}.writing", "delete", "Delete a document."),
    "diff": Entry(f"{_HERE}.differences", "diff", "Show what differs between two revisions."),
    "log": Entry(f"{_HERE}.history", "log", "List the commits of a catalog or a document."),
    "watch": Entry(f"{_HERE}.history", "watch", "Tell commits as they are made."),
    "transaction": Entry(
        f"{_HERE}.transactions", "transaction", "Change several documents at once, or none."
    ),
    "export": Entry(f"{_HERE}.exporting", "export", "Write a catalog out at one revision."),
    "import": Entry(f"{_HERE}.importing", "import_", "Make documents of an export."),
    "compact": Entry(f"{_HERE}.maintenance", "compact", "Drop the history below a revision."),
    "doctor": Entry(f"{_HERE}.doctor", "doctor", "Check that everything is as it should be."),
    "completion": Entry(f"{_HERE}.completion", "completion", "Print a shell's completion script."),
}


class LazyGroup(OneLineGroup):
    """What is registered with the group itself goes before the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        entry = COMMANDS.get(cmd_name)
        if command is not None or entry is None:
            return command
        try:
            module = import_module(entry.module)
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"{cmd_name} needs the package {error.name}, which isn't installed:"
                " pip install '.[client]' in the gateway's repository"
            ) from error
        command = getattr(module, entry.attribute)
        assert isinstance(command, click.Command)
        self.add_command(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands over HTTP"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])
        rows = []
        for name in super().list_commands(ctx):
            command = None if name in COMMANDS else super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(100)))
        with formatter.section("Commands of the service"):
            formatter.write_dl(rows)

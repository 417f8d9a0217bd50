"""The `gateway` command. Errors are one line on stderr: exit code 2 for usage, 1 for failures.

A command is imported when it runs, so that the commands over HTTP need none of the service's
packages (the extra `server`), and `gateway --help` no HTTP client. A test holds the table's lines
of help equal to the commands' own.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import get_completion_class

from gateway.access.principal import subject_prefix
from gateway.cli.setting_flags import database_flags, on_mongodb, resolved_settings, settings_flags
from gateway.cli.token_commands import token
from gateway.limits import PASSED_OVER
from gateway.settings import SETTINGS, Resolved, Settings
from gateway.settings.table import SettingRow
from patching.command_line import OneLineGroup


class CommandEntry(NamedTuple):
    """The module of `gateway.cli` that has a command, under its own name, and its line of help."""

    module: str
    help: str


_INSTRUCTION: Final = "_GATEWAY_COMPLETE"  # the variable that click itself looks at
COMMANDS: Final[dict[str, CommandEntry]] = {
    "get": CommandEntry("reading", "Read a document, or list keys or catalogs."),
    "put": CommandEntry("writing", "Create or replace a document."),
    "patch": CommandEntry("writing", "Change a document by a patch."),
    "delete": CommandEntry("writing", "Delete a document."),
    "edit": CommandEntry("editing", "Change a document in an editor."),
    "apply": CommandEntry(
        "apply", "Send the values that a manager wants in documents, and make it their owner."
    ),
    "owners": CommandEntry(
        "owner_commands", "List who owns what in a document, and give fields back."
    ),
    "diff": CommandEntry(
        "diff", "Show how two revisions differ, or how a catalog differs from files."
    ),
    "explain": CommandEntry(
        "schema_fields", "List the fields that the schemas of a catalog describe for a document."
    ),
    "log": CommandEntry("reading", "List the commits of a catalog or a document."),
    "watch": CommandEntry("reading", "Print commits as they are made."),
    "relay": CommandEntry("relaying", "Write each changed document to a Kafka topic."),
    "revert": CommandEntry("writing", "Undo commits as a new commit."),
    "transaction": CommandEntry("writing", "Change several documents at once, or none."),
    "export": CommandEntry("exporting", "Write a catalog out at one revision."),
    "import": CommandEntry("importing", "Write the documents of an export."),
    "compact": CommandEntry("writing", "Drop the history below a revision."),
    "mcp": CommandEntry("agents", "Let an agent find, read and change documents."),
    "doctor": CommandEntry("doctor", "Check the setup, and say what to do."),
}


class LazyGroup(OneLineGroup):
    """A group that imports the commands of the table when they run; its own ones come first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        entry = COMMANDS.get(cmd_name)
        if command is not None or entry is None:
            return command
        # `import` is a keyword of Python.
        attribute = "import_" if cmd_name == "import" else cmd_name
        command = getattr(import_module(f"gateway.cli.{entry.module}"), attribute)
        assert isinstance(command, click.Command)
        self.add_command(command, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if ctx.invoked_subcommand is None or ctx.invoked_subcommand in COMMANDS:
                raise
            raise click.ClickException(
                f"{ctx.invoked_subcommand} needs the extra 'server', without which {error.name}"
                " isn't installed: pip install '.[server]' in the gateway's repository"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands over HTTP"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])
        rows = []
        for name in super().list_commands(ctx):
            command = None if name in COMMANDS else super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(100)))
        with formatter.section("Other commands"):
            formatter.write_dl(rows)


def _require_one(catalog: str | None, every: bool) -> None:
    if every == (catalog is not None):
        raise click.UsageError("give the name of one catalog, or --all")


@click.group("gateway", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="metadata-gateway", prog_name="gateway")
def main() -> None:
    """A gateway for shared JSON metadata, on MongoDB."""


@main.command()
@settings_flags
def serve(**flags: Any) -> int:
    """Serve HTTP until SIGTERM or SIGINT; then finish running requests."""
    settings = on_mongodb(flags)
    from gateway.server import ServerError, run

    try:
        return run(settings)
    except ServerError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("catalog", required=False)
@click.option("--all", "every", is_flag=True, help="Verify every catalog.")
@click.option("--after", metavar="CATALOG", help="With --all: start after this one, by name.")
@click.option(
    "--independent", is_flag=True, help="Also apply each patch with the package jsonpatch."
)
@database_flags
def verify(
    catalog: str | None, every: bool, after: str | None, independent: bool, **flags: Any
) -> int:
    """Replay the log of CATALOG and compare it with its documents; change nothing.

    Prints a line for each difference. The exit code is 0 if there is none, 1 if there is one, 6 if
    MongoDB is out of reach. Gateways may run meanwhile; if a gateway runs an embedded MongoDB, name
    that with --mongodb-uri.
    """
    _require_one(catalog, every)
    if after is not None and not every:
        raise click.UsageError("--after needs --all")
    settings = on_mongodb(flags)
    # By name: the other commands don't need what it imports.
    run_verify = import_module("gateway.cli.verify").run_verify
    return int(run_verify(settings, catalog, independent=independent, after=after or ""))


@main.command()
@click.argument("catalog", required=False)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--all",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Save every catalog, each in a file of its own in FOLDER.",
)
@database_flags
def backup(catalog: str | None, file: Path | None, folder: Path | None, **flags: Any) -> int:
    """Save CATALOG with its history, owners and settings to FILE.

    Saves the catalog as of one revision; gateways may run meanwhile. FILE must not exist yet, and
    appears once it is complete. Neither may the FOLDER of --all; the exit code is 1 if a catalog
    can't be saved.
    """
    backing_up = "gateway.cli.backing_up"
    if folder is None and catalog is not None and file is not None:
        settings = on_mongodb(flags)
        return int(import_module(backing_up).run_backup(settings, catalog, file))
    if folder is None or catalog is not None:
        raise click.UsageError("give CATALOG and FILE, or --all FOLDER")
    return int(import_module(backing_up).run_backup_of_all(on_mongodb(flags), folder))


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("more", nargs=-1, metavar="")
@click.option("--as", "name", metavar="CATALOG", help="Restore the catalog under this name.")
@database_flags
def restore(file: Path, more: tuple[str, ...], name: str | None, **flags: Any) -> int:
    """Restore the catalog in FILE, under its name or another one, and verify it.

    The database must not have, or have had, a catalog of that name. Nobody can read or write it
    meanwhile. The exit code is 1 if
    the verification finds differences.
    """
    if more:
        raise click.UsageError(
            "give FILE alone: it contains the name of its catalog; --as CATALOG restores it under"
            " another name"
        )
    if not file.is_file():
        raise click.UsageError(f"the file {str(file)!r} doesn't exist")
    settings = on_mongodb(flags)
    return int(import_module("gateway.cli.backing_up").run_restore(settings, file, name))


@main.command()
@click.argument("catalog", required=False)
@click.option("--all", "every", is_flag=True, help="Repair every catalog.")
@click.option("--apply", is_flag=True, help="Repair; without this, only show what would be done.")
@database_flags
def repair(catalog: str | None, every: bool, apply: bool, **flags: Any) -> int:
    """Rewrite the documents of CATALOG that differ from its log, as the log has them.

    Verifies first, and prints the differences. Each document gets its own commit; gateways may run
    meanwhile. The exit code is 0 if nothing is left to do, 1 if something is, 6 if MongoDB is out
    of reach.
    """
    _require_one(catalog, every)
    settings = on_mongodb(flags)
    return int(import_module("gateway.cli.verify").run_repair(settings, catalog, apply=apply))


@main.command()
@click.argument("catalog", required=False)
@click.option("--all", "every", is_flag=True, help="Advance every catalog.")
@click.option(
    "--by",
    type=click.IntRange(min=1),
    default=PASSED_OVER,
    show_default=True,
    help="How many revisions to skip; more than were lost.",
)
@database_flags
def advance(catalog: str | None, every: bool, by: int, **flags: Any) -> int:
    """After a restore, continue CATALOG with revisions that nobody has seen.

    Clients remember revisions of commits that a restore lost (a position in the feed, a checkpoint,
    a catalog tag). From now on, the gateway refuses these instead of mistaking them for new ones.
    The history up to now is compacted, and pins end. Documents keep their version tokens.
    """
    _require_one(catalog, every)
    settings = on_mongodb(flags)
    return int(import_module("gateway.cli.backing_up").run_advance(settings, catalog, by))


@main.command("settings")
@click.option("--markdown", is_flag=True, help="Print docs/settings.md, the table of all settings.")
@settings_flags
def show_settings(markdown: bool, **flags: Any) -> None:
    """Print every setting with its effective value and that value's source."""
    click.echo(
        settings_markdown() if markdown else settings_listing(resolved_settings(flags)), nl=False
    )


@main.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    The script completes commands, options, and the names of the gateway's catalogs and documents.
    For bash: eval "$(gateway completion bash)" in ~/.bashrc. For zsh: the same in ~/.zshrc. For
    fish: gateway completion fish > ~/.config/fish/completions/gateway.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "gateway", _INSTRUCTION).source())


main.add_command(token)


def settings_listing(resolved: Resolved) -> str:
    """One line for each setting: name, effective value without secrets, source."""
    rows = [
        (row.name, _effective(resolved.settings, row), resolved.sources[row.name])
        for row in SETTINGS
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {at}\n" for name, value, at in rows)


def _effective(settings: Settings, row: SettingRow) -> str:
    """The effective value, also if it follows from other settings; - if there is none."""
    if row.name == "jwt_subject_prefix":
        prefix = subject_prefix(settings.jwt_issuer, settings.jwt_subject_prefix)
        return "-" if prefix is None else prefix or '""'
    if row.name == "mongodb_uri" and settings.mongodb_uri is None and settings.embedded:
        embedded = import_module("gateway.store.embedded").EmbeddedMongod(settings.data_dir)
        return str(embedded.uri)
    return row.show(getattr(settings, row.name)) or "-"


def settings_markdown() -> str:
    """docs/settings.md, which a test holds equal to this."""
    lines = [
        "# Settings",
        "",
        "A setting's value comes from its flag, else its environment variable, else its default;",
        "`gateway settings` prints the effective values and their sources. A variable with `_FILE`",
        "appended names a file that holds the value, for secrets. A value that isn't allowed ends",
        "the command with exit code 2. Sizes are in bytes, plain or with a unit: `4194304`,",
        "`4MiB`. A flag for one of `--mongodb-uri` and `--embedded` overrides a variable for the",
        "other.",
        "",
        "Printed by `gateway settings --markdown` from the table in `gateway/settings/table.py`.",
        "",
        "| flag | variable | default | allowed | what it does |",
        "|---|---|---|---|---|",
    ]
    for row in SETTINGS:
        cells = (
            f"`{row.flag}`",
            f"`{row.variable}`",
            row.default_shown,
            row.kind.allowed,
            row.help,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

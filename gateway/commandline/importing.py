"""`gateway import`."""

from __future__ import annotations

from typing import Any

import click

from patching.client import NotFound

from . import exit_codes
from .command import ClientCommand, Session, show_error
from .import_files import ImportFileError, format_of, read_entries
from .import_run import Import, Mode, Tally
from .names import CATALOG
from .output import error_line
from .progress import progress
from .refusals import explained


@click.command("import", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("file")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["export", "ndjson"]),
    help="Default: ndjson where the file is called .ndjson or .jsonl, else export.",
)
@click.option("--if-absent", is_flag=True, help="Leave documents alone that are there.")
@click.option("--replace", is_flag=True, help="Replace documents that are there.")
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option(
    "--delete-others", is_flag=True, help="Delete documents that aren't in FILE (see --prefix)."
)
@click.option("--allow-empty", is_flag=True, help="--delete-others also where that deletes all.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("-m", "--message", metavar="TEXT", help="Message of every commit.")
@click.pass_obj
def import_(
    session: Session,
    catalog: str,
    file: str,
    format_: str | None,
    if_absent: bool,
    replace: bool,
    prefix: str,
    delete_others: bool,
    allow_empty: bool,
    dry_run: bool,
    message: str | None,
) -> int:
    """Make documents of an export.

    FILE is what `gateway export` wrote, or - for the standard input. Documents that are there with
    other contents are conflicts, unless --replace or --if-absent says what to do with them: they
    are left alone and named, and the exit code is 4. The same import again changes nothing, so one
    that broke off is simply done again. A file is read once before anything is written.
    """
    if if_absent and replace:
        raise click.UsageError("--if-absent and --replace contradict each other")
    if allow_empty and not delete_others:
        raise click.UsageError("--allow-empty goes with --delete-others")
    chosen = format_of(file, format_)
    count = None if file == "-" else sum(1 for _ in read_entries(file, chosen, prefix))
    mode: Mode = "replace" if replace else "if-absent" if if_absent else "create"
    run = Import(
        session.gateway,
        catalog,
        mode,
        message=message,
        dry_run=dry_run,
        retry_timeout_s=session.timeout_s,
    )
    with progress(session.output, f"importing {catalog}", count) as advance:
        run.run(read_entries(file, chosen, prefix), advance)
    if delete_others:
        _delete_others(session, run, prefix, allow_empty)
    return _report(session, catalog, run.tally, dry_run)


def _delete_others(session: Session, run: Import, prefix: str, allow_empty: bool) -> None:
    if not run.tally.is_clean:
        session.output.message("nothing is deleted, since not all could be imported")
        return
    if not run.keys and not allow_empty:
        raise ImportFileError("no documents in the file: deleting all others needs --allow-empty")
    try:
        run.delete_others(prefix)
    except NotFound as error:
        if error.code != "catalog_not_found":  # then there are no others
            raise


def _report(session: Session, catalog: str, tally: Tally, dry_run: bool) -> int:
    """Say what became of it; the exit code."""
    for key in tally.conflicting:
        error_line(f"{key!r} has other contents by somebody else: left alone")
    for key, error in tally.errors:
        error_line(f"{key!r}: {explained(error)}")
    untold = tally.conflicts + tally.refused - len(tally.conflicting) - len(tally.errors)
    if untold:
        error_line(f"and {untold} more like these")
    report: dict[str, Any] = {
        "catalog": catalog,
        "read": tally.read,
        "written": tally.written,
        "unchanged": tally.unchanged,
        "kept": tally.kept,
        "conflicts": tally.conflicts,
        "refused": tally.refused,
        "deleted": tally.deleted,
        "complete": tally.stopped is None,
        "dry_run": dry_run,
    }
    session.output.answer(report)
    if tally.stopped is not None:
        show_error(tally.stopped, as_json=session.json_asked)
        session.output.message("the rest was not sent: the same import again goes on from there")
        return exit_codes.exit_code(tally.stopped)
    if tally.errors:
        return exit_codes.exit_code(tally.errors[0][1])
    return exit_codes.CONFLICT if tally.conflicts else exit_codes.DONE

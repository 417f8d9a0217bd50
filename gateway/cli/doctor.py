"""`gateway doctor`."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click

from gateway.cli import refusals as exit_codes
from gateway.cli.checks import COLORS, Finding, check_host, check_service
from gateway.cli.command import ReadCommand, Session
from gateway.cli.names import CATALOG
from gateway.cli.output import printable


@click.command("doctor", cls=ReadCommand)
@click.argument("catalog", type=CATALOG, required=False)
@click.option("--mongodb-uri", metavar="URI", help="Check this MongoDB, too. A setting.")
@click.option("--database", metavar="NAME", help="Database of that MongoDB. A setting.")
@click.option(
    "--embedded/--no-embedded", default=None, help="Check the data directory's disk. A setting."
)
@click.option("--data-dir", metavar="DIR", help="Data of the embedded MongoDB. A setting.")
@click.pass_obj
def doctor(session: Session, /, catalog: str | None, **flags: Any) -> int:
    """Check the setup, and say what to do.

    Checks versions, settings, MongoDB and disk here; then the service, its database and clock, the
    token and its grants (on CATALOG, if given). Each check is a line, ok, warn or FAIL, with
    advice. The exit code is 1 if a check failed. Nothing is changed.
    """
    failed = False
    for finding in chain(check_host(flags), check_service(session, catalog)):
        failed = failed or finding.state == "FAIL"
        _show(session, finding)
    return exit_codes.FAILED if failed else exit_codes.DONE


def _show(session: Session, finding: Finding) -> None:
    output = session.output
    if output.quiet and finding.state == "ok":
        return
    if session.json_asked:
        output.record(finding.as_json(), "")
        return
    state = f"{finding.state:<4}"
    shown = click.style(state, fg=COLORS[finding.state]) if output.pretty else state
    output.line(f"{shown}  {printable(finding.line())}")

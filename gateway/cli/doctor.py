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
@click.option("--mongodb-uri", metavar="URI", help="Look at this MongoDB, too. A setting.")
@click.option("--database", metavar="NAME", help="Its database. A setting.")
@click.option(
    "--embedded/--no-embedded", default=None, help="Look at the data directory. A setting."
)
@click.option("--data-dir", metavar="DIR", help="The embedded MongoDB's data. A setting.")
@click.pass_obj
def doctor(session: Session, /, catalog: str | None, **flags: Any) -> int:
    """Check that everything is as it should be.

    Here: versions, settings, MongoDB, disk. There: the service, its database, the clock, the token
    and what it may do, on CATALOG if that is given. One line for each: ok, warn or FAIL with what
    to do. The exit code is 1 where anything failed. Nothing is changed.
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

"""`gateway compact`."""

from __future__ import annotations

from dataclasses import asdict

import click

from .command import ClientCommand, Session
from .names import CATALOG, REVISION


@click.command("compact", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("revision", type=REVISION)
@click.pass_obj
def compact(session: Session, catalog: str, revision: int) -> None:
    """Drop the history below a revision.

    The state at REVISION and everything above stay readable; documents stay as they are. Refused
    where a pin holds what is below, and where it is done that far already.
    """
    done = session.gateway.catalog(catalog).compact(revision)
    session.output.answer({"catalog": catalog, **asdict(done)})

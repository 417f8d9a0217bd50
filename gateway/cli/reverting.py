"""`gateway revert`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from gateway.cli.command import ClientCommand, Session
from gateway.cli.names import CATALOG, KEY, REVISION
from gateway.cli.writing import terms, write_options, writing
from patching.client import SkippedPlace


@click.command("revert", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("revisions", type=REVISION, nargs=-1, metavar="[REVISION]...")
@click.option("--to", type=REVISION, metavar="N", help="Undo everything after revision N instead.")
@click.option(
    "--from",
    "since",
    type=REVISION,
    metavar="M",
    help="With --to: what comes after revision M was changed since. Default: now.",
)
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option("--key", type=KEY, help="Only this document.")
@click.option(
    "--conflict",
    type=click.Choice(["refuse", "skip", "force"]),
    default="refuse",
    help="What becomes of values that were changed since: end with exit code 4, leave them, or"
    " overwrite them. Default: refuse.",
)
@click.option(
    "--force",
    type=(KEY, str),
    multiple=True,
    metavar="KEY POINTER",
    help="Overwrite what was changed since at and below this place, whatever --conflict says.",
)
@click.option(
    "--if-match", metavar="TOKEN", help="Write only if the catalog, or all documents, are as this."
)
@write_options
@click.pass_obj
def revert(
    session: Session,
    /,
    catalog: str,
    revisions: Sequence[int],
    to: int | None,
    since: int | None,
    prefix: str,
    key: str | None,
    conflict: Any,
    force: Sequence[tuple[str, str]],
    if_match: str | None,
    **given: Any,
) -> None:
    """Undo commits as a new commit.

    Undoes the commits that made the REVISIONs, or everything after --to. What was changed since is
    kept. Created documents go, deleted ones come back. Revisions never go back, and a revert can be
    reverted.
    """
    if bool(revisions) == (to is not None):
        raise click.UsageError("give REVISIONs, or --to")
    write = terms(**given)
    with writing(write):
        done = session.gateway.catalog(catalog).revert(
            revisions,
            to=to,
            since=since,
            prefix=prefix,
            key=key,
            conflict=conflict,
            force=[SkippedPlace(of, "content", pointer) for of, pointer in force],
            if_match=if_match,
            **write,
        )
    session.output.answer({"catalog": catalog, **asdict(done)})

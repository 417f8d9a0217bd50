"""`gateway owners`: who owns what of a document, what a manager lost, and giving fields back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import click
import msgspec

from gateway.cli.command import ClientCommand, ReadCommand, Session
from gateway.cli.names import CATALOG, KEY, REVISION, require_one_time, time_options
from gateway.cli.writing import answer, write_options, writing
from patching.client.results import LeafOwners
from patching.command_line import printable


class _ShowFirst(click.Group):
    """`gateway owners CATALOG KEY` is `gateway owners show CATALOG KEY`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("owners", cls=_ShowFirst)
def owners() -> None:
    """List who owns what in a document, and give fields back.

    Without the name of a command, this is the command show: gateway owners CATALOG KEY.
    """


@owners.command("show", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@time_options
@click.pass_obj
def show(session: Session, catalog: str, key: str, revision: int | None, at: str | None) -> None:
    """List who owns what in a document, and since which revision.

    One JSON object per leaf, or a line on a terminal.
    """
    require_one_time(revision, at)
    for leaf in session.gateway.catalog(catalog).owners(key, revision=revision, at=at):
        session.output.record(msgspec.to_builtins(leaf), _line(leaf))


@owners.command("lost", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("manager")
@click.option(
    "--after", type=REVISION, default=0, metavar="N", help="Only what was lost after revision N."
)
@click.pass_obj
def lost(session: Session, catalog: str, manager: str, after: int) -> None:
    """List the fields that a manager lost to others.

    The newest come first: a JSON object per commit and document, or a line per field on a terminal.
    A field that it owns again, or that nobody owns, isn't listed.
    """
    for each in session.gateway.catalog(catalog).lost_by(manager, after=after):
        time = f"{each.time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        lines = [
            f"{each.revision:>6}  {time}  {each.author}  {each.key}  {_line(leaf)}"
            for leaf in each.fields
        ]
        if session.output.pretty:
            session.output.text(map(printable, lines))
        else:
            session.output.json_line(each)


@owners.command("give-back", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.argument("pointers", metavar="POINTER...", nargs=-1, required=True)
@click.option("--if-match", metavar="TOKEN", help="Write only if the document has this token.")
@write_options
@click.pass_obj
def give_back(
    session: Session,
    /,
    catalog: str,
    key: str,
    pointers: Sequence[str],
    if_match: str | None,
    **given: Any,
) -> None:
    """Give back fields that your plain writes took over from a manager.

    At and below each POINTER, your plain writes then own nothing any more; an admin gives back what
    anybody's plain writes took over. No value changes. The manager's next apply may change the
    fields.
    """
    with writing(**given) as write:
        catalog_of = session.gateway.catalog(catalog)
        done = catalog_of.give_back(key, *pointers, if_match=if_match, **write)
    if not done.changed and not done.replayed:
        session.output.message("nothing was given back: no plain write owns anything there")
    answer(session, catalog, done)


def _line(leaf: LeafOwners) -> str:
    named = [f"{each.manager}{' (plain)' * each.plain} since {each.since}" for each in leaf.owners]
    return f"{leaf.pointer or '(all)'}  {', '.join(named)}"

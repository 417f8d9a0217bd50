"""`gateway transaction`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from patching import ABSENT
from patching.client import ActionResult

from .command import ClientCommand, Session
from .names import CATALOG
from .values import JSON
from .writing import terms, write_options, writing


@click.command("transaction", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("transaction", type=JSON)
@click.option("--if-match", metavar="TOKEN", help="Only if all documents of a composite are so.")
@write_options
@click.pass_obj
def transaction(
    session: Session, /, catalog: str, transaction: Any, if_match: str | None, **given: Any
) -> None:
    """Change several documents at once, or none.

    TRANSACTION is JSON, @FILE, or - for the standard input: {"compare": […], "then": […],
    "else": […]}. The answer says which of both was done, and what became of each document.
    """
    if not isinstance(transaction, dict):
        raise click.UsageError("a transaction is an object with compare, then and else")
    write = terms(**given)
    if write["message"] is None:
        del write["message"]  # its own counts then
    with writing(write):
        result = session.gateway.catalog(catalog).transact(transaction, if_match=if_match, **write)
    results = [_told(each) for each in result.results]
    session.output.answer({"catalog": catalog, **asdict(result), "results": results})


def _told(result: ActionResult) -> dict[str, Any]:
    """Without a value where it has none, which isn't the value null."""
    shape = asdict(result)
    if result.value is ABSENT:
        del shape["value"], shape["attributes"]
    return shape

"""`gateway get`."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.command import ReadCommand, Session
from gateway.cli.names import CATALOG, KEY, require_one_time, time_options
from patching.client import Document


@click.command("get", cls=ReadCommand)
@click.argument("catalog", type=CATALOG, required=False)
@click.argument("key", type=KEY, required=False)
@time_options
@click.option("--attributes", is_flag=True, help="Read the document's attributes instead.")
@click.option(
    "--with-token", is_flag=True, help="Print an object with the document, its token and revision."
)
@click.option("--prefix", help="List only names that begin with this.")
@click.option("--values", is_flag=True, help="List documents and attributes along with the keys.")
@click.pass_obj
def get(
    session: Session,
    catalog: str | None,
    key: str | None,
    revision: int | None,
    at: str | None,
    attributes: bool,
    with_token: bool,
    prefix: str | None,
    values: bool,
) -> None:
    """Read a document, or list keys, or catalogs.

    With CATALOG and KEY, prints the document. With CATALOG alone, lists its keys, all at one
    revision; without it, lists the catalogs. A list is one JSON object per line, or names alone on
    a terminal.
    """
    require_one_time(revision, at)
    if key is None and (attributes or with_token):
        raise click.UsageError("--attributes and --with-token are of one document: give its KEY")
    if key is not None and (prefix is not None or values):
        raise click.UsageError("--prefix and --values are of a list: leave KEY out")
    if catalog is None:
        if revision is not None or at is not None or values:
            raise click.UsageError("--revision, --at and --values are of documents: give a CATALOG")
        for head in session.gateway.catalogs(prefix=prefix or ""):
            shape = {"catalog": head.name, "revision": head.revision, "floor": head.floor}
            session.output.record({**shape, "time": head.time}, head.name)
    elif key is None:
        listing = session.gateway.catalog(catalog)
        for document in listing.documents(prefix=prefix or "", revision=revision, at=at):
            _list(session, document, values)
    else:
        document = session.part(catalog, attributes).get(key, revision=revision, at=at)
        _write(session, catalog, document, with_token)


def _list(session: Session, document: Document, values: bool) -> None:
    shape: dict[str, Any] = {
        "key": document.key,
        "etag": document.etag,
        "revision": document.revision,
        "create_revision": document.create_revision,
    }
    if values:
        shape |= {"value": document.value, "attributes": document.attributes}
    if values and session.output.pretty:
        session.output.value(shape)
    else:
        session.output.record(shape, document.key)


def _write(session: Session, catalog: str, document: Document, with_token: bool) -> None:
    if not with_token:
        session.output.value(document.value)
        return
    session.output.value(
        {
            "catalog": catalog,
            "key": document.key,
            "etag": document.etag,
            "catalog_revision": document.catalog_revision,
            "value": document.value,
        }
    )

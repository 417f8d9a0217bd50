"""`gateway export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.cli.command import ReadCommand, Session
from gateway.cli.names import CATALOG, require_one_time, time_options
from gateway.cli.output import Advance, Write, progress, whole_file
from patching.client import Catalog


@click.command("export", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.option(
    "-o",
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this file, whole or not at all. Default: standard output.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["export", "ndjson"]),
    default="export",
    help="export (the default): one object, without attributes. ndjson: one document per line, with"
    " its attributes.",
)
@time_options
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.pass_obj
def export(
    session: Session,
    catalog: str,
    output_file: Path | None,
    format_: str,
    revision: int | None,
    at: str | None,
    prefix: str,
) -> None:
    """Write a catalog out at one revision.

    The output is {"resource_version": N, "metadata": {KEY: DOCUMENT, …}}, or one {"key": …,
    "value": …, "attributes": …} per line; gateway import takes both. Neither contains the owners.
    Memory doesn't grow with the catalog.
    """
    require_one_time(revision, at)
    of = session.gateway.catalog(catalog)
    asked: dict[str, Any] = {"prefix": prefix, "revision": revision, "at": at}
    write_out = _as_lines if format_ == "ndjson" else _as_object
    if output_file is None:
        write_out(of, asked, session.output.raw, lambda _: None)
        return
    with (
        whole_file(output_file) as file,
        progress(session.output, f"exporting {catalog}", None) as advance,
    ):
        documents, at_revision = write_out(of, asked, file.write, advance)
    session.output.message(
        f"{documents} documents of {catalog!r} at revision {at_revision}, without their owners"
    )


def _as_object(
    of: Catalog, asked: dict[str, Any], write: Write, advance: Advance
) -> tuple[int, int]:
    """Write the documents; returns how many there are, and their revision."""
    count = 0
    with of.export(**asked) as export:
        write(b'{"resource_version":%d,"metadata":{' % export.revision)
        for key, value in export:
            separator = b",\n" if count else b"\n"
            write(separator + msgspec.json.encode(key) + b":" + msgspec.json.encode(value))
            count += 1
            advance(1)
        write(b"\n}}\n")
        return count, export.revision


def _as_lines(
    of: Catalog, asked: dict[str, Any], write: Write, advance: Advance
) -> tuple[int, int]:
    count = at_revision = 0
    for document in of.documents(**asked):
        line: dict[str, Any] = {"key": document.key, "value": document.value}
        if document.attributes:
            line["attributes"] = document.attributes
        write(msgspec.json.encode(line) + b"\n")
        count, at_revision = count + 1, document.catalog_revision
        advance(1)
    return count, at_revision

"""The commands that read: `gateway get`, `log` and `watch`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC
from itertools import islice
from typing import Any, Final

import click
import msgspec

from gateway.cli.command import Missing, ReadCommand, Session
from gateway.cli.names import CATALOG, KEY, REVISION, require_one_time, time_options
from patching.client import Catalog, Commit, Document, Gone, NotFound, Reverted


@click.command("get", cls=ReadCommand)
@click.argument("catalog", type=CATALOG, required=False)
@click.argument("key", type=KEY, required=False)
@time_options
@click.option("--attributes", is_flag=True, help="Read the document's attributes instead.")
@click.option(
    "--with-token", is_flag=True, help="Print an object with the document, its token and revision."
)
@click.option("--prefix", help="List only names that begin with this.")
@click.option("--contains", help="List only keys that contain this text, in upper or lower case.")
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
    contains: str | None,
    values: bool,
) -> None:
    """Read a document, or list keys or catalogs.

    With CATALOG and KEY, prints the document. With CATALOG alone, lists its keys, all at one
    revision; without it, lists the catalogs. A list is one JSON object per line, or names alone on
    a terminal.
    """
    require_one_time(revision, at)
    if key is None and (attributes or with_token):
        raise click.UsageError("--attributes and --with-token need KEY")
    if key is not None and (prefix is not None or contains is not None or values):
        raise click.UsageError("--prefix, --contains and --values list keys: leave KEY out")
    if catalog is None:
        if revision is not None or at is not None or values or contains is not None:
            raise click.UsageError("--revision, --at, --contains and --values need CATALOG")
        for head in session.gateway.catalogs(prefix=prefix or ""):
            shape = {"catalog": head.name, "revision": head.revision, "floor": head.floor}
            session.output.record({**shape, "time": head.time}, head.name)
    elif key is None:
        listing = session.gateway.catalog(catalog)
        for document in listing.documents(
            prefix=prefix or "", contains=contains or "", revision=revision, at=at
        ):
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


_CHANGES_SHOWN: Final = 3


@click.command("log", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY, required=False)
@click.option(
    "--after", type=REVISION, metavar="N", help="Commits above this revision. Default: all kept."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N of them.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N of them.")
@click.option("--author", metavar="NAME", help="Only commits by this author.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new commits, as watch does.")
@click.pass_obj
def log(
    session: Session,
    catalog: str,
    key: str | None,
    author: str | None,
    after: int | None,
    limit: int | None,
    last: int | None,
    follow: bool,
) -> None:
    """List the commits of a catalog or a document.

    The oldest come first. Each is a line: a JSON object, or text for people on a terminal.
    """
    if last is not None and (limit is not None or follow):
        raise click.UsageError("--last can't be given together with --limit or --follow")
    of = session.gateway.catalog(catalog)
    begin = _oldest(session, of) if after is None else after
    if follow:
        keys, authors = (() if each is None else (each,) for each in (key, author))
        _follow(session, of, begin, limit, keys=keys, authors=authors)
        return
    found = of.commits(after=begin, key=key, author=author, page_size=500)
    commits: Iterable[Commit] = islice(found, limit)
    if last is not None:
        commits = deque(commits, maxlen=last)
    if _show(session, commits):
        return
    if not _head(of):
        raise Missing(f"there never was a catalog {catalog!r}")
    if key is not None:
        _require_ever(of, key)


@click.command("watch", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.option(
    "--key", "keys", type=KEY, multiple=True, help="Only commits on this document. Repeatable."
)
@click.option("--prefix", default="", help="Only commits on documents whose keys begin with this.")
@click.option(
    "--after", type=REVISION, metavar="N", help="Commits above this revision. Default: new ones."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after N commits.")
@click.pass_obj
def watch(
    session: Session,
    catalog: str,
    keys: Sequence[str],
    prefix: str,
    after: int | None,
    limit: int | None,
) -> None:
    """Print commits as they are made.

    Each commit comes once and in order, as a line: a JSON object, or text for people on a terminal.
    After an outage of the gateway, watch continues where it was. It ends when it is interrupted,
    when its output is closed, or when its next commits were compacted.
    """
    of = session.gateway.catalog(catalog)
    position = _head(of) if after is None else after
    _follow(session, of, position, limit, keys=keys, prefix=prefix)


def _follow(
    session: Session,
    of: Catalog,
    after: int,
    limit: int | None,
    *,
    keys: Sequence[str],
    prefix: str = "",
    authors: Sequence[str] = (),
) -> None:
    # A feed outlives an outage, so this reports at once what is wrong from the beginning.
    next(iter(of.commits(after=after, page_size=1)), None)
    session.output.message(f"following {of.name!r} after revision {after}")
    with (
        of.changes(after, keys=keys, prefix=prefix, authors=authors) as feed,
        session.output.ended_from_outside(feed.close),
    ):
        _show(session, islice(feed, limit))


def _show(session: Session, commits: Iterable[Commit]) -> int:
    """Print the commits; returns how many there were."""
    count = 0
    for commit in commits:
        session.output.record(without_documents(commit), commit_line(commit))
        count += 1
    return count


def without_documents(changed: Commit | Reverted) -> dict[str, Any]:
    """JSON without the documents beside the changes: nobody asked for them."""
    shape: dict[str, Any] = msgspec.to_builtins(changed)
    for change in shape["changes"]:
        for name in ("before", "value", "withheld"):
            del change[name]
    return shape


def _require_ever(of: Catalog, key: str) -> None:
    """Raise Missing if no document ever was under the key, as far as history is kept."""
    if of.several([key]).documents[key] is not None:
        return
    oldest = 0
    try:
        found = next(iter(of.commits(key=key, page_size=1)), None)
    except Gone as error:
        oldest = int(error.problem["oldest_revision"])
        found = next(iter(of.commits(after=oldest, key=key, page_size=1)), None)
    if found is None:
        since = f" after revision {oldest}, where history begins" if oldest else ""
        raise Missing(f"there never was a document {key!r} in {of.name!r}{since}")


def _head(of: Catalog) -> int:
    """The catalog's revision; 0 if it was never written."""
    try:
        return of.read().revision
    except NotFound as error:
        if error.code != "catalog_not_found":
            raise
    # A deleted one still has its revision, which its export contains.
    try:
        with of.export() as export:
            return export.revision
    except NotFound:
        return 0


def _oldest(session: Session, of: Catalog) -> int:
    """The revision after which all commits are kept."""
    try:
        next(iter(of.commits(page_size=1)), None)
    except Gone as error:
        oldest = error.problem.get("oldest_revision")
        if not isinstance(oldest, int):
            raise
        session.output.message(f"the history of {of.name!r} begins after revision {oldest}")
        return oldest
    return 0


def commit_line(commit: Commit) -> str:
    """`     7  2026-11-21 10:00:00.123Z  ana  patch tables/orders  add the total`"""
    time = commit.time.astimezone(UTC)
    shown = f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}Z"
    message = f"  {commit.message}" if commit.message else ""
    return f"{commit.revision:>6}  {shown}  {commit.author}  {_changes(commit)}{message}"


def _changes(commit: Commit) -> str:
    changes = commit.changes
    if commit.deletes_catalog:
        return f"deletes the catalog ({len(changes)} documents)"
    if not changes:
        return "touch"
    shown = [
        "settings" if each.key is None else f"{each.action} {each.key}"
        for each in changes[:_CHANGES_SHOWN]
    ]
    more = [f"{len(changes) - _CHANGES_SHOWN} more"] if len(changes) > _CHANGES_SHOWN else []
    return ", ".join([*shown, *more])

"""`gateway diff`."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass

import click

from gateway.cli.command import Missing, ReadCommand, Session
from gateway.cli.names import CATALOG, JSON, KEY, REVISION
from gateway.cli.output import operations, readable
from patching import ABSENT, Document
from patching.client import NotFound


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    value: Document


@click.command("diff", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.argument("first", metavar="[REV1|@FILE]", required=False)
@click.argument("second", metavar="[REV2]", required=False)
@click.option("--patch", "as_patch", is_flag=True, help="Print a JSON Patch, RFC 6902.")
@click.option("--attributes", is_flag=True, help="Compare the document's attributes instead.")
@click.pass_obj
def diff(
    session: Session,
    catalog: str,
    key: str,
    first: str | None,
    second: str | None,
    as_patch: bool,
    attributes: bool,
) -> None:
    """Show the differences between two revisions.

    Compares a document at REV1 with REV2, or with now; without either, shows its last change. With
    @FILE (or -), shows the change that would make the document equal to that file. Prints nothing
    if both sides are equal, or [] with --patch. An absent document counts as empty.
    """

    of = Subject(session, catalog, key, attributes)
    before, after = _sides(of, first, second)
    if before.value is ABSENT and after.value is ABSENT:
        raise Missing(f"there is no document {key!r} ({before.name}, {after.name})")
    if as_patch:
        session.output.value(operations(before.value, after.value))
        return
    names = (f"{catalog}/{key} ({before.name})", f"{catalog}/{key} ({after.name})")
    color = session.output.pretty and sys.stdout.isatty()
    session.output.text(readable(before.value, after.value, names, color=color))


@dataclass(frozen=True, slots=True)
class Subject:
    """The document, or its attributes."""

    session: Session
    catalog: str
    key: str
    attributes: bool

    def at(self, revision: int | None) -> Side:
        """None: now. Nothing was before the first revision."""
        name = "now" if revision is None else f"revision {revision}"
        if revision == 0:
            return Side(name, ABSENT)
        try:
            part = self.session.part(self.catalog, self.attributes)
            return Side(name, part.get(self.key, revision=revision).value)
        except NotFound as error:
            if error.code != "document_not_found":
                raise
            return Side(name, ABSENT)

    def last_change(self) -> int:
        """The revision of it. Missing where there never was one."""
        catalog = self.session.gateway.catalog(self.catalog)
        there = catalog.several([self.key]).documents[self.key]
        if there is not None and there.revision is not None:
            return there.revision
        changes = deque(catalog.commits(key=self.key), maxlen=1)
        if not changes:
            raise Missing(f"there never was a document {self.key!r}")
        return changes[0].revision


def _sides(of: Subject, first: str | None, second: str | None) -> tuple[Side, Side]:
    if first is None:
        changed = of.last_change()
        return of.at(changed - 1), of.at(changed)
    if first == "-" or first.startswith("@"):
        if second is not None:
            raise click.UsageError("a file is compared with the document as it is: no REV2")
        name = "the standard input" if first == "-" else first[1:]
        local = Side(name, JSON.convert(first, None, None))
        return of.at(None), local
    revisions: list[int] = [REVISION(each) for each in (first, second) if each is not None]
    return of.at(revisions[0]), of.at(revisions[1] if second is not None else None)

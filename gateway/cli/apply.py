"""`gateway apply`: what a manager wants of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.cli import exit_codes
from gateway.cli.command import ClientCommand, Session
from gateway.cli.exit_codes import explained
from gateway.cli.importing import (
    ImportEntry,
    ImportFileError,
    format_of,
    read_entries,
    read_folder,
)
from gateway.cli.names import CATALOG, JSON, KEY
from gateway.cli.output import error_line
from patching.client import BulkAnswer, BulkTerms, NotFound, RequestError
from patching.client.results import Owner
from patching.ownership import CONFLICTS

_SHOWN_MAX = 20


@click.command("apply", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY, required=False)
@click.argument("wanted", type=JSON, required=False)
@click.option(
    "-f",
    "--file",
    "path",
    help="An export, lines with key and value (.ndjson, or - for standard input), or a folder, in"
    " which each .json file is what the manager wants in the document that its path names.",
)
@click.option(
    "--manager", required=True, metavar="NAME", help="Who wants the values, and will own them."
)
@click.option(
    "--conflict",
    type=click.Choice(CONFLICTS),
    default="refuse",
    show_default=True,
    help="What to do with fields that another manager owns with a different value.",
)
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option(
    "--prune",
    is_flag=True,
    help="The manager also lets go of all other documents; empty ones are deleted.",
)
@click.option(
    "--allow-empty", is_flag=True, help="Let --prune let go of everything if FILE has no documents."
)
@click.option("-m", "--message", metavar="TEXT", help="Message of every commit.")
@click.option("--dry-run", is_flag=True, help="Count the changes without making them.")
@click.pass_obj
def apply(
    session: Session,
    catalog: str,
    key: str | None,
    wanted: Any,
    path: str | None,
    manager: str,
    conflict: str,
    prefix: str,
    prune: bool,
    allow_empty: bool,
    message: str | None,
    dry_run: bool,
) -> int:
    """Send the values that a manager wants in documents, and make it their owner.

    For one document, WANTED is a JSON object, @FILE, or - for standard input. For many, give
    --file.

    What the manager no longer wants is removed, unless others own it. If another manager owns a
    field with a different value, the document is left alone and named, and the exit code is 4,
    unless --conflict says skip or force. Repeating an apply changes nothing.
    """
    one = key is not None and wanted is not None
    if one == (path is not None) or (key is not None) != (wanted is not None):
        raise click.UsageError("give KEY and WANTED for one document, or --file for many")
    if one and (prefix or prune):
        raise click.UsageError("--prefix and --prune need --file")
    if allow_empty and not prune:
        raise click.UsageError("--allow-empty needs --prune")
    run = _Run(session, catalog, {"manager": manager}, message=message, dry_run=dry_run)
    if path is not None:
        entries = list(entries_of(session, path, prefix))
        if prune and not entries and not allow_empty:
            raise ImportFileError("no documents in FILE: letting go of all needs --allow-empty")
    else:
        entries = [ImportEntry(str(key), msgspec.Raw(msgspec.json.encode(wanted)))]
    run.apply(entries, conflict)
    if prune and not run.failed:
        run.prune(prefix)
    elif prune:
        session.output.message("nothing was pruned, because not all documents could be applied")
    return run.report()


def entries_of(session: Session, path: str, prefix: str) -> Iterator[ImportEntry]:
    """The entries of a file or folder. Raises ImportFileError, and UsageError if it isn't there."""
    if path == "-" or not Path(path).is_dir():
        yield from read_entries(path, "ndjson" if path == "-" else format_of(path), prefix)
        return
    yield from read_folder(Path(path), prefix, session.output.message)


def described(owner: Owner) -> str:
    """Who owns a field, how, and since when."""
    how = "by a plain write" if owner.plain else "by an apply"
    return f"{owner.manager!r}, {how}, since revision {owner.since}"


class _Run:
    """One apply of many documents. ``failed``: some weren't applied."""

    def __init__(
        self,
        session: Session,
        catalog: str,
        terms: dict[str, Any],
        *,
        message: str | None,
        dry_run: bool,
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._common: dict[str, Any] = {"catalog": catalog, **terms}
        if message is not None:
            self._common["message"] = message
        if dry_run:
            self._common["dry_run"] = True
        self._dry_run = dry_run
        self._keys: set[str] = set()
        self._error: RequestError | None = None
        self.counts = dict.fromkeys(
            ("read", "changed", "unchanged", "skipped", "refused", "pruned"), 0
        )

    @property
    def failed(self) -> bool:
        return self._error is not None

    def apply(self, entries: Iterable[ImportEntry], conflict: str) -> None:
        lines = []
        for entry in entries:
            self._keys.add(entry.key)
            value = msgspec.json.decode(entry.value)
            line = {"op": "apply", "key": entry.key, "value": value, "conflict": conflict}
            lines.append(self._common | line)
        self.counts["read"] = len(lines)
        for answer in self._send(lines):
            content = answer.content or {}
            self.counts["changed" if answer.changed else "unchanged"] += 1
            for leaf in content.get("skipped", ()):
                self.counts["skipped"] += 1
                owners = ", ".join(described(Owner(**each)) for each in leaf["owners"])
                key = answer.line.subject["key"]
                self._show("skipped", f"{key!r}: {leaf['pointer']} is left to {owners}")

    def prune(self, prefix: str) -> None:
        """Let go of the documents that weren't named."""
        try:
            catalog = self._session.gateway.catalog(self._catalog)
            owned = catalog.digests(prefix=prefix, manager=self._common["manager"])
            others = [each.key for each in owned]
        except NotFound as error:
            if error.code != "catalog_not_found":  # then there are no others
                raise
            return
        lines = [
            self._common | {"op": "let_go", "key": key, "prune": True}
            for key in others
            if key not in self._keys
        ]
        for answer in self._send(lines):
            self.counts["pruned"] += answer.changed

    def _send(self, lines: Iterable[dict[str, Any]]) -> Iterator[BulkAnswer]:
        """The answers to lines that weren't refused."""
        terms = BulkTerms(retry_timeout_s=self._session.timeout_s)
        for answer in self._session.gateway.bulk(lines, terms):
            if answer.error is None:
                yield answer
                continue
            self.counts["refused"] += 1
            self._error = self._error or answer.error
            key = answer.line.subject["key"]
            self._show("refused", f"{key!r}: {explained(answer.error)}")

    def _show(self, count: str, text: str) -> None:
        if self.counts[count] <= _SHOWN_MAX:
            error_line(text)

    def report(self) -> int:
        """Print the counts; returns the exit code."""
        for count in ("skipped", "refused"):
            more = self.counts[count] - _SHOWN_MAX
            if more > 0:
                error_line(f"and {more} more {count}")
        shape = {"catalog": self._catalog, **self.counts, "dry_run": self._dry_run}
        self._session.output.answer(shape)
        return exit_codes.DONE if self._error is None else exit_codes.exit_code(self._error)

"""`gateway import`: the documents of a file, in a bulk request for each window of entries.

An existing document with the very same content counts as unchanged. So a repeated import finds
nothing to do, and an interrupted one, started again, continues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, NoReturn

import click
import msgspec

from gateway.cli import exit_codes
from gateway.cli.command import ClientCommand, Session, show_error
from gateway.cli.exit_codes import explained
from gateway.cli.names import CATALOG
from gateway.cli.output import Advance, error_line, progress
from patching import equal, join_pointer
from patching.client import (
    BulkAnswer,
    BulkLine,
    BulkTerms,
    Document,
    Gateway,
    NotFound,
    PreconditionFailed,
    RequestError,
)
from patching.client.terms import new_idempotency_key
from patching.values import repeated_member

Format = Literal["export", "ndjson"]
_LINES = (".ndjson", ".jsonl")


class ImportEntry(msgspec.Struct, frozen=True):
    """``value`` is JSON as the file has it. ``attributes`` None: the file has none."""

    key: str
    value: msgspec.Raw
    attributes: dict[str, Any] | None = None


# Defaults are left out when these are encoded again: their colons would hide that a member was lost
# (see `repeated_member`).
class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A line as `gateway export --format ndjson` and `gateway get CATALOG --values` write it."""

    key: str
    value: msgspec.Raw
    attributes: dict[str, Any] | None = None
    etag: str | None = None
    revision: int | None = None
    create_revision: int | None = None


class _Export(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    metadata: dict[str, msgspec.Raw]
    resource_version: int | None = None


class ImportFileError(click.ClickException):
    """The file is malformed; the message has the place. Documents before it may be imported."""


def format_of(path: str, chosen: Format | None = None) -> Format:
    """``chosen``, or by the file's suffix."""
    return chosen or ("ndjson" if path.endswith(_LINES) else "export")


def read_entries(path: str, format_: Format, prefix: str) -> Iterator[ImportEntry]:
    """The entries whose keys begin with ``prefix``, in the file's order; ``-`` is standard input.

    Lines are read as they are needed, an export as a whole. Raises ImportFileError, also for a
    repeated key.
    """
    try:
        if path == "-":
            yield from _entries(sys.stdin.buffer, "standard input", format_, prefix)
            return
        with Path(path).open("rb") as file:
            yield from _entries(file, path, format_, prefix)
    except OSError as error:
        raise click.UsageError(f"can't read {path!r}: {error.strerror}") from error


def read_folder(folder: Path, prefix: str, warn: Callable[[str], object]) -> Iterator[ImportEntry]:
    """The document of each ``.json`` file below; its key is its path without the suffix, and begins
    with ``prefix``. ``warn`` gets a line about other files, unless they are hidden. Raises
    ImportFileError, and UsageError if a part can't be read: a file that wasn't seen mustn't count
    as missing."""

    def refuse(error: OSError) -> NoReturn:
        raise click.UsageError(f"can't read {error.filename!r}: {error.strerror}") from error

    found = sorted(
        Path(at, name).relative_to(folder)
        for at, _, names in os.walk(folder, onerror=refuse)
        for name in names
    )
    others = [
        each
        for each in found
        if not each.name.endswith(".json") and not any(part[0] == "." for part in each.parts)
    ]
    if others:
        count = "1 file is" if len(others) == 1 else f"{len(others)} files are"
        warn(f"{count} left out, such as {str(others[0])!r}: only .json files are documents")
    for name in found:
        file, key = folder / name, name.as_posix().removesuffix(".json")
        if name.name.endswith(".json") and key.startswith(prefix):
            try:
                value = _read_value(file)
            except OSError as error:
                refuse(error)
            yield ImportEntry(key, value)


def _read_value(path: Path) -> msgspec.Raw:
    with _readable(str(path)):
        text = path.read_bytes()
        _refuse_repeated(text, msgspec.json.decode(text))
        return msgspec.Raw(text)


def _entries(file: IO[bytes], name: str, format_: Format, prefix: str) -> Iterator[ImportEntry]:
    found = _of_lines(file, name) if format_ == "ndjson" else _of_export(file, name)
    seen: set[str] = set()
    for place, entry in found:
        if not entry.key:
            raise ImportFileError(f"{place}: the key is empty")
        if entry.key in seen:
            raise ImportFileError(f"{place}: the key {entry.key!r} is repeated")
        seen.add(entry.key)
        if not entry.key.startswith(prefix):
            continue
        with _readable(f"{place}, key {entry.key!r}"):
            # A value that was kept as text has not been parsed so far.
            value = msgspec.json.decode(entry.value)
            _refuse_repeated(bytes(entry.value), value)
        yield entry


def _of_lines(file: Iterable[bytes], name: str) -> Iterator[tuple[str, ImportEntry]]:
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        with _readable(place):
            line = decoder.decode(text)
            _refuse_repeated(text, line)
        yield place, ImportEntry(line.key, line.value, line.attributes)


def _of_export(file: IO[bytes], name: str) -> Iterator[tuple[str, ImportEntry]]:
    with _readable(name):
        text = file.read()
        export = msgspec.json.decode(text, type=_Export)
        _refuse_repeated(text, export)
    for key, value in export.metadata.items():
        yield name, ImportEntry(key, value)


def _refuse_repeated(text: bytes, decoded: Any) -> None:
    way = repeated_member(text, msgspec.json.encode(decoded))
    if way is not None:
        raise msgspec.DecodeError(f"it has the member '{join_pointer(way)}' twice")


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """Report the decoder's errors as the file's."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImportFileError(f"{place}: {error}") from error


# Nobody reads more of a million refusals than these.
TOLD_MAX: Final = 20
Mode = Literal["create", "if-absent", "replace"]
_WINDOW: Final = 1000
_WINDOW_BYTES: Final = 8 * 1024 * 1024


@click.command("import", cls=ClientCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("file")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["export", "ndjson"]),
    help="Default: ndjson if FILE ends in .ndjson or .jsonl, else export.",
)
@click.option("--if-absent", is_flag=True, help="Leave existing documents alone.")
@click.option("--replace", is_flag=True, help="Replace existing documents.")
@click.option("--prefix", default="", help="Only documents whose keys begin with this.")
@click.option(
    "--delete-others", is_flag=True, help="Delete documents that aren't in FILE (see --prefix)."
)
@click.option(
    "--allow-empty", is_flag=True, help="Let --delete-others delete all if FILE is empty."
)
@click.option("--dry-run", is_flag=True, help="Count the changes without making them.")
@click.option("-m", "--message", metavar="TEXT", help="Message of every commit.")
@click.pass_obj
def import_(
    session: Session,
    catalog: str,
    file: str,
    format_: Format | None,
    if_absent: bool,
    replace: bool,
    prefix: str,
    delete_others: bool,
    allow_empty: bool,
    dry_run: bool,
    message: str | None,
) -> int:
    """Write the documents of an export.

    FILE is an output of gateway export, or - for standard input. If a document exists with another
    content, it is left alone and named, and the exit code is 4, unless --replace or --if-absent is
    given. Repeating an import changes nothing, so repeat one that stopped halfway. FILE, but not
    standard input, is checked as a whole before anything is written.
    """
    if if_absent and replace:
        raise click.UsageError("--if-absent and --replace can't be given together")
    if allow_empty and not delete_others:
        raise click.UsageError("--allow-empty needs --delete-others")
    chosen = format_of(file, format_)
    count = None if file == "-" else sum(1 for _ in read_entries(file, chosen, prefix))
    mode: Mode = "replace" if replace else "if-absent" if if_absent else "create"
    run = Import(
        session.gateway,
        catalog,
        mode,
        message=message,
        dry_run=dry_run,
        retry_timeout_s=session.timeout_s,
    )
    with progress(session.output, f"importing {catalog}", count) as advance:
        run.run(read_entries(file, chosen, prefix), advance)
    if delete_others:
        _delete_others(session, run, prefix, allow_empty)
    return _report(session, catalog, run.tally, dry_run)


def _delete_others(session: Session, run: Import, prefix: str, allow_empty: bool) -> None:
    if not run.tally.is_clean:
        session.output.message("nothing was deleted, because not all documents could be imported")
        return
    if not run.keys and not allow_empty:
        raise ImportFileError("no documents in the file: deleting all others needs --allow-empty")
    try:
        run.delete_others(prefix)
    except NotFound as error:
        if error.code != "catalog_not_found":  # then there are no others
            raise


def _report(session: Session, catalog: str, tally: ImportTally, dry_run: bool) -> int:
    """Print the counts; returns the exit code."""
    for key in tally.conflicting:
        error_line(f"{key!r} has other content: left alone")
    for key, error in tally.errors:
        error_line(f"{key!r}: {explained(error)}")
    more = tally.conflicts + tally.refused - len(tally.conflicting) - len(tally.errors)
    if more:
        error_line(f"and {more} more like these")
    report: dict[str, Any] = {
        "catalog": catalog,
        "read": tally.read,
        "written": tally.written,
        "unchanged": tally.unchanged,
        "kept": tally.kept,
        "conflicts": tally.conflicts,
        "refused": tally.refused,
        "deleted": tally.deleted,
        "complete": tally.stopped is None,
        "dry_run": dry_run,
    }
    session.output.answer(report)
    if tally.stopped is not None:
        show_error(tally.stopped, as_json=session.json_asked)
        session.output.message("the rest was not sent: run the same import again to continue")
        return exit_codes.exit_code(tally.stopped)
    if tally.errors:
        return exit_codes.exit_code(tally.errors[0][1])
    return exit_codes.CONFLICT if tally.conflicts else exit_codes.DONE


@dataclass(slots=True)
class ImportTally:
    """``conflicts``: existing documents with other contents, left alone; ``conflicting``: keys of
    the first. ``kept``: existing documents, left alone as asked. ``refused``: other documents;
    ``errors``: the first, and why. ``stopped``: why the rest wasn't sent."""

    read: int = 0
    written: int = 0
    unchanged: int = 0
    kept: int = 0
    deleted: int = 0
    conflicts: int = 0
    refused: int = 0
    conflicting: list[str] = field(default_factory=list)
    errors: list[tuple[str, RequestError]] = field(default_factory=list)
    stopped: RequestError | None = None

    @property
    def is_clean(self) -> bool:
        return not (self.conflicts or self.refused or self.stopped)

    def count(self, changed: bool) -> None:
        if changed:
            self.written += 1
        else:
            self.unchanged += 1

    def count_conflict(self, key: str) -> None:
        self.conflicts += 1
        if len(self.conflicting) < TOLD_MAX:
            self.conflicting.append(key)

    def refuse(self, key: str, error: RequestError) -> None:
        self.refused += 1
        if len(self.errors) < TOLD_MAX:
            self.errors.append((key, error))


class Import:
    """``keys``: those that were read so far."""

    def __init__(
        self,
        gateway: Gateway,
        catalog: str,
        mode: Mode,
        *,
        message: str | None,
        dry_run: bool,
        retry_timeout_s: float,
    ) -> None:
        self._gateway = gateway
        self._catalog = catalog
        self._mode = mode
        self._message = message
        self._dry_run = dry_run
        self._terms = BulkTerms(retry_timeout_s=retry_timeout_s)
        self.tally = ImportTally()
        self.keys: set[str] = set()

    def run(self, entries: Iterable[ImportEntry], advance: Advance) -> None:
        """Import the entries, until something keeps all the others from being done."""
        for window in _windows(entries):
            self.tally.read += len(window)
            self.keys.update(entry.key for entry in window)
            self._compare(self._bulk(window))
            advance(len(window))
            if self.tally.stopped is not None:
                return

    def delete_others(self, prefix: str) -> None:
        """Delete documents whose keys weren't read, unless they are changed meanwhile."""
        catalog = self._gateway.catalog(self._catalog)
        others = (each for each in catalog.documents(prefix=prefix) if each.key not in self.keys)
        for answer in self._send(
            self._line(each.key, {"op": "delete", "if_match": each.etag}, each) for each in others
        ):
            key = answer.line.subject.key
            if isinstance(answer.error, PreconditionFailed):
                self.tally.count_conflict(key)
            elif answer.error is not None:
                self.tally.refuse(key, answer.error)
            else:
                self.tally.deleted += answer.changed

    def _bulk(self, entries: Sequence[ImportEntry]) -> list[ImportEntry]:
        """Write the entries; returns those that weren't written because their documents exist."""
        condition = {} if self._mode == "replace" else {"if_none_match": "*"}
        lines = [self._line(entry.key, _put(entry) | condition, entry) for entry in entries]
        there = []
        for answer in self._send(lines):
            if self._mode != "replace" and isinstance(answer.error, PreconditionFailed):
                there.append(answer.line.subject)
            elif answer.error is not None:
                self.tally.refuse(answer.line.subject.key, answer.error)
            else:
                self.tally.count(answer.changed)
        return there

    def _compare(self, entries: Sequence[ImportEntry]) -> None:
        """Compare existing documents with the file's."""
        if self._mode == "if-absent":
            self.tally.kept += len(entries)
            return
        if not entries:
            return
        catalog = self._gateway.catalog(self._catalog)
        documents = catalog.several(entry.key for entry in entries).documents
        for entry in entries:
            if _is_same(entry, documents[entry.key]):
                self.tally.unchanged += 1
            else:
                self.tally.count_conflict(entry.key)

    def _line(self, key: str, members: dict[str, Any], subject: ImportEntry | Document) -> BulkLine:
        line = {"catalog": self._catalog, "key": key, **members}
        if self._message is not None:
            line["message"] = self._message
        if self._dry_run:
            line["dry_run"] = True
        else:
            line["idempotency_key"] = new_idempotency_key()
        # In one line, whatever the file looks like.
        text = msgspec.json.format(msgspec.json.encode(line), indent=-1)
        return BulkLine(text, keyed=True, subject=subject)

    def _send(self, lines: Iterable[BulkLine]) -> Iterator[BulkAnswer]:
        for answer in self._gateway.bulk(lines, self._terms):
            if answer.decided:
                yield answer
            elif self.tally.stopped is None or answer.applied == "unknown":
                assert answer.error is not None
                answer.error.applied = answer.applied
                self.tally.stopped = answer.error


def _put(entry: ImportEntry) -> dict[str, Any]:
    members: dict[str, Any] = {"op": "put", "value": entry.value}
    if entry.attributes:
        members["attributes"] = {"mode": "replace", "value": entry.attributes}
    return members


def _is_same(entry: ImportEntry, there: Document | None) -> bool:
    if there is None or not equal(msgspec.json.decode(entry.value), there.value):
        return False
    return not entry.attributes or equal(entry.attributes, dict(there.attributes or {}))


def _windows(entries: Iterable[ImportEntry]) -> Iterator[list[ImportEntry]]:
    window: list[ImportEntry] = []
    size = 0
    for entry in entries:
        window.append(entry)
        size += len(bytes(entry.value))
        if len(window) >= _WINDOW or size >= _WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window

"""The documents in a file, in either of the forms that `gateway export` writes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import click
import msgspec

from patching import join_pointer, repeated_member

Format = Literal["export", "ndjson"]
_LINES = (".ndjson", ".jsonl")


class Entry(msgspec.Struct, frozen=True):
    """``value`` is JSON as the file has it. ``attributes`` None: the file says nothing of them."""

    key: str
    value: msgspec.Raw
    attributes: dict[str, Any] | None = None


# What the file doesn't say is left out when they are encoded again: then none of what it says twice
# makes up for it.
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


def format_of(path: str, chosen: str | None) -> Format:
    """By the file's suffix, where nothing was chosen."""
    if chosen is not None:
        return "ndjson" if chosen == "ndjson" else "export"
    return "ndjson" if path.endswith(_LINES) else "export"


def read_entries(path: str, format_: Format, prefix: str) -> Iterator[Entry]:
    """The entries whose keys begin with ``prefix``, in the file's order; ``-`` is standard input.

    Lines are read as they are needed, an export as a whole. Raises ImportFileError, also for a
    repeated key.
    """
    try:
        if path == "-":
            yield from _entries(sys.stdin.buffer, "the standard input", format_, prefix)
            return
        with Path(path).open("rb") as file:
            yield from _entries(file, path, format_, prefix)
    except OSError as error:
        raise click.UsageError(f"can't read {path!r}: {error.strerror}") from error


def read_value(path: Path) -> msgspec.Raw:
    """A file that holds one document. Raises ImportFileError."""
    with _readable(str(path)):
        text = path.read_bytes()
        _refuse_repeated(text, msgspec.json.decode(text))
        return msgspec.Raw(text)


def _entries(file: IO[bytes], name: str, format_: Format, prefix: str) -> Iterator[Entry]:
    found = _of_lines(file, name) if format_ == "ndjson" else _of_export(file, name)
    seen: set[str] = set()
    for place, entry in found:
        if not entry.key:
            raise ImportFileError(f"{place}: the key is empty")
        if entry.key in seen:
            raise ImportFileError(f"{place}: the key {entry.key!r} came before")
        seen.add(entry.key)
        if not entry.key.startswith(prefix):
            continue
        with _readable(f"{place}, key {entry.key!r}"):
            # A value that was kept as text has not been parsed so far.
            value = msgspec.json.decode(entry.value)
            _refuse_repeated(bytes(entry.value), value)
        yield entry


def _of_lines(file: Iterable[bytes], name: str) -> Iterator[tuple[str, Entry]]:
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        with _readable(place):
            line = decoder.decode(text)
            _refuse_repeated(text, line)
        yield place, Entry(line.key, line.value, line.attributes)


def _of_export(file: IO[bytes], name: str) -> Iterator[tuple[str, Entry]]:
    with _readable(name):
        text = file.read()
        export = msgspec.json.decode(text, type=_Export)
        _refuse_repeated(text, export)
    for key, value in export.metadata.items():
        yield name, Entry(key, value)


def _refuse_repeated(text: bytes, decoded: Any) -> None:
    way = repeated_member(text, msgspec.json.encode(decoded))
    if way is not None:
        raise msgspec.DecodeError(f"the member '{join_pointer(way)}' comes twice")


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """Tells the decoder's errors as the file's."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImportFileError(f"{place}: {error}") from error
